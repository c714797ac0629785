/* Second derivatives: gradients of ops made of public ops (choir__op.derivative), which the
 * tape records as it records any op. They read the handles of operands and of the result, so
 * that derivatives of any order follow. An op that is made of others needs none. */
#ifndef CHOIR_DERIVE_H
#define CHOIR_DERIVE_H

#include "tensor/op.h"

typedef void choir__derive_fn(const choir__record *r, choir_tensor *gy, choir_tensor **gx);

/* Sums g over the dimensions in which a tensor of `shape` was broadcast. */
choir_tensor *choir__derive_sum_to(choir_tensor *g, choir_shape shape);

/* Returns operand i for an op of its own: a parameter, or another tensor of the run, is lifted
 * to gy's scope. */
choir_tensor *choir__derive_in(const choir__record *r, int i, const choir_tensor *gy);

/* The gradient is gy: copies, views of the same shape. */
choir__derive_fn choir__derive_same;
choir__derive_fn choir__derive_cast, choir__derive_to;
/* attrs: choir_shape, the order; none; none */
choir__derive_fn choir__derive_permute, choir__derive_reshape, choir__derive_expand;
/* attrs: choir_shape with ones; int, the dimension */
choir__derive_fn choir__derive_sum, choir__derive_cumsum;
choir__derive_fn choir__derive_add, choir__derive_sub, choir__derive_mul, choir__derive_div;
choir__derive_fn choir__derive_maximum, choir__derive_minimum, choir__derive_power;
choir__derive_fn choir__derive_matmul, choir__derive_where;
choir__derive_fn choir__derive_softmax, choir__derive_log_softmax;
/* attrs: choir__conv_shape */
choir__derive_fn choir__derive_conv, choir__derive_conv_transpose;

/* gy op'(x); NULL: the slope is 0 everywhere. */
choir_tensor *choir__derive_unary(
    const choir__k_unary *k, choir_tensor *x, choir_tensor *y, choir_tensor *gy);
/* x (..., in); weight (out, in) or (in, out); bias NULL or (out). */
void choir__derive_linear(
    const choir__record *r, bool in_out, choir_tensor *gy, choir_tensor **gx);
/* Returns zeros like x with g added at the places along dim that index (of g's shape) names. */
choir_tensor *choir__derive_scattered(
    choir_tensor *x, choir_tensor *g, int dim, choir_tensor *index);

#endif
