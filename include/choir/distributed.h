/* Collectives on tensors (torch.distributed's functions; group.h has collectives on memory).
 *
 * All are queued: the group waits on the tensor's device for the work that computes the
 * tensor, the device waits for the group before it continues, and the host waits for neither.
 * Gradients do not pass through (distributed_nn.h has collectives with gradients). Results join
 * the scope of their operand.
 *
 * Threads: the scope's thread, which also issues to the group. Collective: all, in the same
 * order on all ranks, with equal dtypes and shapes. */
#ifndef CHOIR_DISTRIBUTED_H
#define CHOIR_DISTRIBUTED_H

#include <choir/group.h>
#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The next functions work in place, on dense tensors, that is, without gaps between elements
 * (views may have gaps). Errors: argument, dtype, shape (gaps), scope (poisoned or freed), the
 * group's first failure so far. */

/** Replaces t by the reduction over the ranks' t. */
CHOIR_CHECKED choir_status choir_all_reduce(
    choir_tensor *t, choir_group *group, choir_reduce_op op);

/** Replaces t by rank root's t. */
CHOIR_CHECKED choir_status choir_broadcast(choir_tensor *t, choir_group *group, int root);

/** Replaces t on rank root by the reduction over the ranks' t; the other ranks' t is
 * unchanged. */
CHOIR_CHECKED choir_status choir_reduce(
    choir_tensor *t, choir_group *group, choir_reduce_op op, int root);

/* The next functions return new tensors and work along the first dimension; the world size must
 * divide it where a tensor is split. Never NULL; errors stick to the scope. */

/** Returns t (N, ...) of all ranks, in rank order: (world * N, ...). */
choir_tensor *choir_all_gather(choir_tensor *t, choir_group *group);

/** Returns this rank's part (N / world, ...) of the reduction of the ranks' t (N, ...). */
choir_tensor *choir_reduce_scatter(choir_tensor *t, choir_group *group, choir_reduce_op op);

/** Exchanges parts: part r of the result (N, ...) is part `rank` of rank r's t (N, ...). */
choir_tensor *choir_all_to_all(choir_tensor *t, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
