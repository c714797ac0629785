/* SyncBatchNorm: batch norm with the statistics of the batch over all ranks, for batches that
 * are small on each rank (torch.nn.SyncBatchNorm).
 *
 * Threads: the run's thread. Collective: choir_sync_batch_norm; then, in train mode, forward
 * and backward of the modules it changed. */
#ifndef CHOIR_SYNC_BATCH_NORM_H
#define CHOIR_SYNC_BATCH_NORM_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Changes every choir_nn_batch_norm in module (and module itself, if it is one): in train mode
 * it uses the mean and variance over the inputs of all ranks, and the sums in its backward run
 * over all ranks, too. Returns module. Call it before choir_ddp. Eval mode, parameters, buffers
 * and names stay unchanged (convert_sync_batchnorm, in place).
 *
 *     net = choir_ddp(run, choir_sync_batch_norm(run, net, group), group, opts);
 *
 * Groups of micro-batches share statistics. Unless specified, one micro-batch of each rank
 * forms a group: the first ones of all ranks, the second ones, and so on. With one micro-batch
 * per rank they are the statistics of the global batch, and outputs and gradients equal a batch
 * norm over the whole batch, except for rounding. Ranks may have different numbers of rows.
 * Sums are f64, added in the fixed tree over the group's micro-batches, with the same bits on
 * all ranks and in every run. Recomputation (choir_module_recompute) reuses the saved
 * statistics and does not communicate.
 *
 * A sub-group carries the sums, so they do not wait for the reduction of gradients; they take
 * 16 bytes per channel and direction. All ranks must run these layers equally often; otherwise
 * they wait for each other until the group's timeout.
 *
 * Errors, which stick to the run: argument (ranks with different numbers of micro-batches: then
 * declare the groups, see below), device (x is not on the run's device, as in pipelines), peer
 * lost.
 */
choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group);

typedef struct choir_sync_batch_norm_opts {
    /* G: micro-batches with equal numbers modulo G share statistics; default 0: as many groups
     * as a rank has micro-batches */
    int64_t groups;
} choir_sync_batch_norm_opts;

choir_sync_batch_norm_opts choir_sync_batch_norm_defaults(void);

/**
 * Like choir_sync_batch_norm, with a declared number G of groups, which divides the
 * micro-batches and gives the same bits on any number of ranks. Where a rank has several
 * micro-batches of a group, or ranks have different numbers of micro-batches, steps run through
 * choir_sync_batch_norm_step.
 */
choir_module *choir_sync_batch_norm_with(choir_scope *run, choir_module *module,
    choir_group *group, choir_sync_batch_norm_opts opts);

/** Computes the loss () of a micro-batch: number `index` of this rank's, from 0. */
typedef choir_tensor *choir_micro_loss_fn(
    choir_scope *micro, int64_t index, choir_module *module, void *arg);

/**
 * Runs forward and backward of all of this rank's micro-batches. Micro-batches of a group
 * advance together, norm by norm: at each norm a micro-batch is suspended inside `loss` until
 * the others have come there. All of them therefore keep their activations at a time, and with
 * G > 1, what the gradients of their weights need until the micro-batches before them are done.
 * If ranks have one micro-batch of a group, they run one after another.
 *
 * @param step    a step, whose first micro-batch is this rank's
 * @param module  the module as `loss` gets it, such as the one from choir_ddp
 * @param count   number of this rank's micro-batches (choir_env_micro)
 * @param loss    makes a micro-batch's loss; with G > 1 not called in the order of
 * micro-batches, so it takes data that were read before. It must not call choir_loader_next
 * then
 * @param losses  (count) receives the losses, in the run's memory
 *
 * Errors: argument (count), state (micro-batches run different norms), and the errors of
 * `loss`.
 */
CHOIR_CHECKED choir_status choir_sync_batch_norm_step(choir_scope *step, choir_module *module,
    int64_t count, choir_micro_loss_fn *loss, void *arg, choir_tensor **losses);

/** Number of micro-batches that choir_sync_batch_norm_step runs together on this rank at most;
 * 1: none waits for another, on any rank, so steps need not run through it. */
int choir_sync_batch_norm_together(const choir_scope *run);

#ifdef __cplusplus
}
#endif
#endif
