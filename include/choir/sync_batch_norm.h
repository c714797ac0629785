/* SyncBatchNorm: batch norm by the statistics of the batch over all ranks, for batches that are
 * small on each of them (torch.nn.SyncBatchNorm).
 *
 * Threads: those of the run. Collective: choir_sync_batch_norm; then, in train mode, forward
 * and backward of the modules it changed. */
#ifndef CHOIR_SYNC_BATCH_NORM_H
#define CHOIR_SYNC_BATCH_NORM_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * From now on every choir_nn_batch_norm in module (and module, if it is one) normalises, in
 * train mode, by mean and variance over what all ranks run it on at the same time; so do the
 * sums in its backward. Returns module; to be called before choir_ddp. Eval mode, parameters,
 * buffers and names stay as they are (convert_sync_batchnorm, in place).
 *
 *     net = choir_ddp(run, choir_sync_batch_norm(run, net, group), group, opts);
 *
 * With a micro-batch a rank these are the statistics of the global batch, and outputs and
 * gradients those of a batch norm over all of it, but for rounding. Where a rank has several,
 * the first ones of all ranks share theirs, the second ones, and so on; so unlike other layers
 * the result depends on the number of ranks, not on that of micro-batches alone. Ranks may have
 * different numbers of rows. Sums are f64, added in the fixed tree over ranks: the same bits on
 * all of them and in every run. What is computed again (choir_module_recompute) asks nobody.
 *
 * A sub-group carries the sums, so they do not wait for the reduction of gradients; 16 bytes a
 * channel and direction. All ranks run the same layers as often, or they wait for each other
 * until the group's timeout.
 *
 * Errors, which stick to the run: argument (micro-batches that do not divide into the ranks),
 * device (x elsewhere than on the run's device, as in pipelines), peer lost.
 */
choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
