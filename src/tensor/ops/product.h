/* The arguments of products, for the ops that multiply: linear.c, matmul.c and sliced/. */
#ifndef CHOIR_PRODUCT_H
#define CHOIR_PRODUCT_H

#include "tensor/handle.h"

/* Returns a tensor whose rows are evenly apart as (rows, cols). */
static inline choir__matrix choir__rows_of(const choir_tensor *t)
{
    return choir__rows_at(choir__data(t), choir__row_of(t));
}

/* Returns the arguments of c = a b, `batch` times, with a (m, k) and b (k, n) of dtype. */
static inline choir__k_matmul choir__matmul_args(const choir_tensor *c, choir_dtype dtype,
    choir__matrix mc, choir__matrix a, choir__matrix b, int64_t batch, int64_t m, int64_t n,
    int64_t k)
{
    choir__k_matmul args = choir__product_of(dtype, mc, a, b, m, n, k);
    args.batch1 = batch;
    args.wide = c->dtype != dtype;
    return args;
}

#endif
