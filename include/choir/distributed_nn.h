/* Collectives that gradients pass through (torch.distributed.nn.functional), for losses and
 * layers that use the data of all ranks: contrastive losses over the whole batch, experts on
 * several ranks, statistics over the ranks.
 *
 *     choir_tensor *texts = choir_nn_all_gather(text, group, 0);    (world * B, C)
 *     choir_tensor *scores = choir_matmul(image, choir_transpose(texts, 0, 1));
 *
 * Backward sends the gradients the other way: a rank gets the derivative of the *sum* of all
 * ranks' losses by its own x. choir_ddp then takes the mean over micro-batches, so parameters
 * get the gradient of the mean of the losses. If each rank's loss is the mean over its own
 * samples, this equals the gradient on one rank with the whole batch.
 *
 *    all_gather      side by side   <-->  reduce_scatter   own part of the sum
 *    all_reduce      sum, mean      <-->  all_reduce       sum, mean
 *    broadcast       root's x       <-->  reduce           sum, on the root; 0 elsewhere
 *    all_to_all                     <-->  all_to_all
 *
 * Sums over the ranks use the group's fixed tree: the bits depend neither on timing nor on the
 * engine. All calls are queued, as in distributed.h, also in recorded steps; the host waits for
 * nothing. In a group of one rank, each call returns x itself.
 *
 * The result is a new tensor of x's dtype in x's scope, which owns it. x is f32, bf16, f16 or
 * f64; all_gather, broadcast and all_to_all move any dtype (ids, masks), without a gradient. A
 * negative dim counts from the end.
 *
 * Collective: all functions, and their backward. Hence all ranks call them in the same order,
 * with x of the same shape and dtype; x requires a gradient on all ranks or on no rank; and if
 * it does, every rank's loss depends on the result (choir_scale(y, 0) is enough).
 *
 * Errors stick to the scope: shape, a dimension that the number of ranks does not divide;
 * dtype; argument, an operation without a gradient; mismatch, on all ranks, if ranks call
 * different collectives, pass different shapes or dtypes, or only some require a gradient; peer
 * lost, naming the rank that died, in forward or in backward; timed out.
 *
 * Threads: the scope's thread, which also issues to the group. */
#ifndef CHOIR_DISTRIBUTED_NN_H
#define CHOIR_DISTRIBUTED_NN_H

#include <choir/group.h>
#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Joins the ranks' x (.., N, ..) along dim, in rank order: (.., world * N, ..), equal on all
 * ranks. Backward: this rank's part of the sum of the ranks' gradients. */
choir_tensor *choir_nn_all_gather(choir_tensor *x, choir_group *group, int dim);

/** Returns this rank's part along dim, (.., N / world, ..), of the ranks' x (.., N, ..) added
 * up (CHOIR_SUM) or averaged (CHOIR_MEAN). Backward: the ranks' gradients side by side, divided
 * by their number for the mean. */
choir_tensor *choir_nn_reduce_scatter(
    choir_tensor *x, choir_group *group, choir_reduce_op op, int dim);

/** Returns the sum or the mean of the ranks' x. Backward: the sum or mean of the ranks'
 * gradients. (If all ranks use the result in the same way, take choir_tp_reduce, which passes
 * the gradient on unchanged.) */
choir_tensor *choir_nn_all_reduce(choir_tensor *x, choir_group *group, choir_reduce_op op);

/** Returns rank root's x; the others' x gives shape and dtype. Backward: on the root the sum of
 * the ranks' gradients, elsewhere zeros. */
choir_tensor *choir_nn_broadcast(choir_tensor *x, choir_group *group, int root);

/** Exchanges parts along the first dimension: part r of the result (N, ..) is part `rank` of
 * rank r's x (N, ..). Backward: the same exchange of the gradients. */
choir_tensor *choir_nn_all_to_all(choir_tensor *x, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
