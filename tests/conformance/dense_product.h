/* The arguments of a product of dense matrices. */
#ifndef CHOIR_TESTS_DENSE_PRODUCT_H
#define CHOIR_TESTS_DENSE_PRODUCT_H

#include "device/kernels.h"

/* Describes C (m, n) = A (m, k) B (k, n), each in row-major order. */
static inline choir__k_matmul dense_product(
    choir_dtype dtype, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k)
{
    choir__k_matmul p = {.a = a, .b = b, .c = c, .batch0 = 1, .batch1 = 1, .dtype = dtype};
    p.m = m, p.n = n, p.k = k;
    p.a_row = k, p.a_col = 1;
    p.b_row = n, p.b_col = 1;
    p.c_row = n;
    return p;
}

#endif
