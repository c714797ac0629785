/* Products in T slices: the sums that tensor parallelism splits.
 *
 * A weight's mark (choir__partition) says how many slices a dimension has, and which of them
 * this rank has. A sum over that dimension has one leaf per slice in the fixed tree, so it has
 * the same bits whether one device has all slices or ranks share them. */
#ifndef CHOIR_SLICED_H
#define CHOIR_SLICED_H

#include "tensor/op.h"
#include "tensor/strategy.h"

/* Computes y = a b + bias, where the K elements of `product` are this rank's slices. Collective
 * if other ranks have the rest. y has this rank's tokens alone if `of` has a mark of them. */
void choir__sliced_product(choir_tensor *y, choir__k_matmul product, const choir_tensor *bias,
    const choir__linear_of *of);

/* Returns a handle of x for layers whose outputs are in slices. Their gradients of x are added
 * slice by slice, then over the slices, in the fixed tree, and rounded once. Layers that read
 * the same x get the same handle. It has the tokens of all ranks if x has this rank's alone;
 * then it is released when another x is read, and gathered again in backward. */
choir_tensor *choir__sliced_input(choir_tensor *x, const choir__partition *part);

/* Returns the entry of the handle that r's input 0 is or was cast from, or NULL. */
choir__tape_entry *choir__sliced_record(const choir__tape_entry *r);
/* Computes the gradient that r gives such a handle: a b, whose K elements are the slices of r's
 * outputs. */
void choir__sliced_gradient(choir__tape_entry *r, choir__k_matmul product,
    const choir__partition *part, choir__sink *sink);

/* Returns a weight or bias (units, ...) with a copy of its unit for each of this rank's slices,
 * where slices share units. Then each slice computes by itself, and the gradients of the copies
 * are added in the fixed tree. x: a tensor of the micro-batch. */
choir_tensor *choir__repeated_units(
    choir_tensor *weight, choir_tensor *x, const choir__partition *part, int dim);
/* Returns choir__repeated_units along dimension 0, for factors and biases: the gradients that
 * ops give to the copies have the copies' dtype, so ranks with parts of a sequence sum them
 * before they are rounded.
 */
choir_tensor *choir__repeated_factors(
    choir_tensor *weight, choir_tensor *x, const choir__partition *part);
/* Returns memory for the gradient of r's input i, an operand of a product: f32 where it is, or
 * was cast from, a parameter or choir__repeated_units. *of and *input: receive the gradient. */
choir_tensor *choir__operand_dest(
    choir__sink *sink, choir__tape_entry *r, int i, choir__tape_entry **of, int *input);
bool choir__has_wide_gradient(const choir_tensor *t);

/* Computes the sums over tokens of a norm's weights (token_sums.c): `args` of x and gy without
 * results or cut; statistics are the mean (or NULL) and rstd. Not both of ggamma and gbeta are
 * NULL. Collective if x has this rank's tokens alone.
 * Returns false if the scope has an error. */
bool choir__token_sums(choir_scope *scope, choir__k_layer_norm_weights args, choir_tensor *x,
    choir_tensor *gy, choir_tensor *const statistics[2], choir_tensor *ggamma,
    choir_tensor *gbeta);

#endif
