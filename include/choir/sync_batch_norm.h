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
 * With one micro-batch per rank they are the statistics of the global batch, and outputs and
 * gradients equal a batch norm over the whole batch, except for rounding. If each rank has
 * several micro-batches, the first ones of all ranks share statistics, then the second ones,
 * and so on. So, unlike in other layers, the result depends on the number of ranks and not on
 * the number of micro-batches alone. Ranks may have different numbers of rows. Sums are f64,
 * added in the fixed tree over ranks, with the same bits on all ranks and in every run.
 * Recomputation (choir_module_recompute) reuses the saved statistics and does not communicate.
 *
 * A sub-group carries the sums, so they do not wait for the reduction of gradients; they take
 * 16 bytes per channel and direction. All ranks must run these layers equally often; otherwise
 * they wait for each other until the group's timeout.
 *
 * Errors, which stick to the run: argument (micro-batches that do not divide into the ranks),
 * device (x is not on the run's device, as in pipelines), peer lost.
 */
choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
