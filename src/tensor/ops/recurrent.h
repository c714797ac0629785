/* Inside recurrent layers: sizes, the contents of an entry, and matrix products. recurrent.c
 * explains the method. */
#ifndef CHOIR_RECURRENT_H
#define CHOIR_RECURRENT_H

#include "tensor/op.h"

enum { X, H0, C0, WEIGHTS, A_DIRECTION = 4, MOST_IN = WEIGHTS + 2 * A_DIRECTION };
enum { W_IH, W_HH, B_IH, B_HH };

/* Saved for backward: x (T, B, I); y, in the result; gates (D, T, B, G H); state (D, T, B, H).
 */
enum { SAVED_X, SAVED_Y, SAVED_GATES, SAVED_STATE };

struct sizes {
    int64_t t, b, i, h, g, d; /* steps, batch, input, hidden, gates, directions */
    choir__recurrent_cell cell;
    bool last; /* the last states follow y in the result */
};

/* Returns the address of element `at` of row-major t; NULL if t is NULL. */
static inline void *element(const choir_tensor *t, int64_t at)
{
    return t ? (char *)choir__data(t) + (size_t)at * choir_dtype_size(t->dtype) : NULL;
}

/* --- products of row-major matrices --- */

static inline choir__matrix rows_at(const choir_tensor *t, int64_t at, int64_t row)
{
    return choir__rows_at(element(t, at), row);
}

/* Computes c (m, n) = a (m, k) b (k, n) + bias, plus c's old values if accumulate. a and b have
 * dtype `dtype`, c has dtype `to`. */
static inline void product(choir_device *device, choir_dtype dtype, choir_dtype to,
    choir__matrix c, choir__matrix a, choir__matrix b, const void *bias, int64_t m, int64_t n,
    int64_t k, bool accumulate)
{
    choir__k_matmul args = choir__product_of(dtype, c, a, b, m, n, k);
    args.bias = bias;
    args.accumulate = accumulate;
    args.wide = to != dtype;
    choir__launch(device, dtype, matmul, &args);
}

/* The two parts of a layer's backward: recurrent_backward.c. */
void choir__recurrent_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);
void choir__recurrent_backward_weight(
    choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);

#endif
