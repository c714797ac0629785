/* Collectives on tensors (torch.distributed's functions; in C, group.h has them on memory).
 *
 * All are queued: the group waits on the tensor's device for what computes the tensor, the
 * device waits for the group before it goes on, and the host waits for neither. Gradients do
 * not pass through. Results join the scope of their operand.
 *
 * Threads: those of the scope and of the group. Collective: all, in the same order on all
 * ranks, with equal dtypes and shapes. */
#ifndef CHOIR_DISTRIBUTED_H
#define CHOIR_DISTRIBUTED_H

#include <choir/group.h>
#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In place, on dense tensors (no gaps between elements; as in views, there may be).
 * Errors: argument, dtype, shape (gaps), scope (poisoned or freed), the group's first failure,
 * as far as it is known. */

/** t becomes the reduction over the ranks' t. */
choir_status choir_all_reduce(choir_tensor *t, choir_group *group, choir_reduce_op op);

/** t becomes rank root's. */
choir_status choir_broadcast(choir_tensor *t, choir_group *group, int root);

/* New tensors, along the first dimension, which the world size must divide where parts are
 * taken. Never NULL; errors stick to the scope. */

/** t (N, ...) of all ranks, in rank order: (world * N, ...). */
choir_tensor *choir_all_gather(choir_tensor *t, choir_group *group);

/** This rank's part (N / world, ...) of the reduction of the ranks' t (N, ...). */
choir_tensor *choir_reduce_scatter(choir_tensor *t, choir_group *group, choir_reduce_op op);

/** Part r of the result is part `rank` of rank r's t: (N, ...) of (N, ...). */
choir_tensor *choir_all_to_all(choir_tensor *t, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
