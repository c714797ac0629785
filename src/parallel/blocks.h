/* The ranks' blocks of a tensor along a dimension, exchanged as values: no tape entries are
 * left. Ops with gradients over ranks (distributed_nn.c, tensor_parallel/) are made of these.
 */
#ifndef CHOIR_BLOCKS_H
#define CHOIR_BLOCKS_H

#include <choir/group.h>
#include "tensor/op.h"

/* Joins the ranks' x side by side along dim, to the size `whole`. A rank's block consists of
 * whole slices, which may differ by one row (choir__tree_run); slices 0: one per rank.
 * Collective. */
choir_tensor *choir__blocks_gather(choir_scope *scope, choir_tensor *x, choir_group *group,
    int dim, int64_t whole, int64_t slices);
/* Returns this rank's block of x along dim, in memory of its own. */
choir_tensor *choir__blocks_own(
    choir_scope *scope, choir_tensor *x, const choir_group *group, int dim, int64_t slices);
/* Returns this rank's block along dim of the sum or mean of the ranks' x. slices: as in
 * choir__blocks_gather. Collective. */
choir_tensor *choir__blocks_reduce(choir_scope *scope, choir_tensor *x, choir_group *group,
    choir_reduce_op op, int dim, int64_t slices);

/* Returns gy, or a copy of it if its memory is shared, for writing. The result may be poisoned.
 */
choir_tensor *choir__blocks_writable(choir_scope *scope, choir_tensor *gy);

/* Begins an op along a dimension, which it normalizes. deals: the dimension is distributed over
 * the ranks. NULL: *instead is the result; it is *x for a group of one. */
choir_scope *choir__blocks_begin(const choir__op *op, choir_tensor **x,
    const choir_group *group, int *dim, bool deals, choir_tensor **instead);

/* Replaces node 0 of nodes (count, ...) by the sum of all ranks' nodes. They are those that a
 * rank's run of `slices` leaves completes in the fixed tree. Collective. */
choir_status choir__nodes_reduce(choir_tensor *nodes, choir_group *group, int64_t slices);
/* Does so for nodes in f32, by the group. */
choir_status choir__nodes_add(choir_tensor *nodes, choir_group *group, int64_t slices);

/* Replaces this rank's nodes by the nodes of leaves [first, first + count) of a larger tree.
 * Each rank of the group has a run of these leaves. Collective. */
choir_status choir__nodes_meet(
    choir_tensor *nodes, choir_group *group, int64_t first, int64_t count);

/* Marks t as failed unless status is CHOIR_OK. */
void choir__blocks_fail(choir_tensor *t, choir_status status);

#endif
