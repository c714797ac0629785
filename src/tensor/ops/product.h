/* The arguments of products, for the ops that multiply: linear.c and matmul.c. */
#ifndef CHOIR_PRODUCT_H
#define CHOIR_PRODUCT_H

#include "tensor/handle.h"

/* A matrix, or a batch of them: p[b * batch + i * row + j * col] is element (i, j) of matrix
 * b. */
typedef struct choir__matrix {
    void *p;
    int64_t batch, row, col;
} choir__matrix;

static inline choir__matrix choir__transposed(choir__matrix m)
{
    return (choir__matrix){m.p, m.batch, m.col, m.row};
}

/* Returns a tensor whose rows are evenly apart as (rows, cols). */
static inline choir__matrix choir__rows_of(const choir_tensor *t)
{
    return (choir__matrix){choir__data(t), 0, choir__row_of(t), 1};
}

/* Returns the arguments of c = a b, `batch` times, with a (m, k) and b (k, n) of dtype. */
static inline choir__k_matmul choir__matmul_args(const choir_tensor *c, choir_dtype dtype,
    choir__matrix mc, choir__matrix a, choir__matrix b, int64_t batch, int64_t m, int64_t n,
    int64_t k)
{
    return (choir__k_matmul){
        .a = a.p,
        .b = b.p,
        .c = mc.p,
        .batch0 = 1,
        .batch1 = batch,
        .m = m,
        .n = n,
        .k = k,
        .a_row = a.row,
        .a_col = a.col,
        .b_row = b.row,
        .b_col = b.col,
        .c_row = mc.row,
        .a_batch1 = a.batch,
        .b_batch1 = b.batch,
        .c_batch1 = mc.batch,
        .wide = c->dtype != dtype,
        .dtype = dtype,
    };
}

#endif
