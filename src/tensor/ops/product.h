/* The arguments of products, for the ops that multiply: linear.c and matmul.c.
 *
 * A device that has all of K computes a product with a cut as one call: args.cut. A rank that
 * has leaves [lo, hi) of the cut's, in operands of its own, computes the nodes of the tree that
 * choir__tree_nodes(lo, hi) lists, one call each (choir__matmul_node), and the ranks add nodes
 * in the tree. The bias, an old C and the rounding to 16 bits come after the root:
 *
 *     choir__node nodes[CHOIR__MAX_NODES];
 *     int count = choir__tree_nodes(lo, hi, nodes);
 *     args.cut = (choir__cut){outer, hi - lo};
 *     for (int i = 0; i < count; i++) {
 *         choir__k_matmul node = choir__matmul_node(args, nodes[i], lo, choir__data(sums[i]));
 *         choir__launch(device, dtype, matmul, &node);
 *     } */
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

/* Returns the arguments of one node of a product whose cut is args.cut, {outer, this rank's
 * leaves}, into `sums`, dense (batch, m, n) f32, or f64 for such operands. The rank's leaves
 * begin with leaf `first` of the whole cut, in which `node` is one. */
static inline choir__k_matmul choir__matmul_node(
    choir__k_matmul args, choir__node node, int64_t first, void *sums)
{
    args.node = (choir__node){node.start - first, node.leaves};
    args.c = sums;
    args.c_row = args.n;
    args.c_batch1 = args.m * args.n;
    args.c_batch0 = args.batch1 * args.c_batch1;
    args.bias = NULL;
    args.half_bias = args.accumulate = false;
    args.wide = true;
    return args;
}

#endif
