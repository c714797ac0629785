/* Second derivatives: gradients of ops made of public ops (choir__op.derivative), which the
 * tape records as it records any op. They read the handles of operands and of the result, so
 * that derivatives of any order follow. An op that is made of others needs none. */
#ifndef CHOIR_DERIVE_H
#define CHOIR_DERIVE_H

#include "tensor/op.h"

/* Attributes of the functions of one element. */
typedef struct choir__unary {
    choir__unary_op op;
    double a, b;
} choir__unary;

typedef void choir__derive_fn(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx);

/* Returns operand i for an op of its own: a parameter, or another tensor of the run, is lifted
 * to gy's scope. */
choir_tensor *choir__derive_in(const choir__tape_entry *r, int i, const choir_tensor *gy);

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

choir__derive_fn choir__derive_unary, choir__derive_linear;
/* Returns zeros like x with g added at the places along dim that index (of g's shape) names. */
choir_tensor *choir__derive_scattered(
    choir_tensor *x, choir_tensor *g, int dim, choir_tensor *index);

/* Returns the derivative of an entry's op: its own (choir__op.derivative) or the one that is
 * registered under its name; NULL: it has none. */
choir__derive_fn *choir__derivative_of(const choir__tape_entry *r);

#endif
