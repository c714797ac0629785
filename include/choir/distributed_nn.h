/* Collectives that gradients pass through (torch.distributed.nn.functional), for losses and
 * layers that use the data of all ranks: contrastive losses over the whole batch, experts on
 * several ranks, statistics over the ranks.
 *
 *     choir_tensor *texts = choir_nn_all_gather(text, group, 0);    (world * B, C)
 *     choir_tensor *scores = choir_matmul(image, choir_transpose(texts, 0, 1));
 *
 * Backward sends the gradients the other way: what a rank gets is the derivative of the *sum*
 * of all ranks' losses by its own x. choir_ddp then takes the mean over micro-batches, so that
 * gradients of parameters are those of the mean of the losses: that of one rank which has the
 * whole batch, if the ranks' losses are its terms' means.
 *
 *    all_gather      side by side   <-->  reduce_scatter   own part of the sum
 *    all_reduce      sum, mean      <-->  all_reduce       sum, mean
 *    broadcast       root's x       <-->  reduce           sum, on the root; 0 elsewhere
 *    all_to_all                     <-->  all_to_all
 *
 * Sums over the ranks use the group's fixed tree: the bits depend neither on timing nor on the
 * engine. All calls are queued like those of distributed.h, also in recorded steps; the host
 * waits for nothing. With a group of one, each returns x itself.
 *
 * The result is a new tensor in x's scope, which owns it, of x's dtype. x is f32, bf16, f16 or
 * f64; all_gather, broadcast and all_to_all move any dtype (ids, masks), without a gradient. A
 * negative dim counts from the end.
 *
 * Collective: all, and so is each one's backward. Hence the ranks call them in one order, with
 * x of one shape and dtype; x requires a gradient on all ranks or on none; and if it does,
 * every rank's loss depends on the result (choir_scale(y, 0) is enough).
 *
 * Errors stick to the scope: shape, a dimension that the ranks do not divide; dtype; argument,
 * an operation without a gradient; mismatch, on all ranks, if ranks call other collectives, or
 * pass other shapes or dtypes, or only some of them require a gradient; peer lost, naming the
 * rank that died, in forward or in backward; timed out.
 *
 * Threads: those of the scope and of the group. */
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
 * gradients. (choir_tp_reduce passes the gradient on as it is: for results that all ranks use
 * alike.) */
choir_tensor *choir_nn_all_reduce(choir_tensor *x, choir_group *group, choir_reduce_op op);

/** Returns rank root's x; the others' x gives shape and dtype. Backward: on the root the sum of
 * the ranks' gradients, elsewhere zeros. */
choir_tensor *choir_nn_broadcast(choir_tensor *x, choir_group *group, int root);

/** Exchanges parts along the first dimension, (N, ..) of (N, ..): part r of the result is part
 * `rank` of rank r's x. Backward: the same exchange of the gradients. */
choir_tensor *choir_nn_all_to_all(choir_tensor *x, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
