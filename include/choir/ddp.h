/* DistributedDataParallel (Li et al., 2020): every rank holds the model, runs its micro-batches
 * of the global batch, and gradients are averaged while backward still runs.
 *
 * Gradients lie in buckets in memory that all ranks map; as soon as a bucket is complete on
 * this rank its reduction is queued, and each rank adds its slice out of the peers' buffers.
 * The order of addition is the micro-batches' fixed tree, so the bits do not depend on the
 * number of ranks.
 *
 * Threads: those of the run. Collective: choir_ddp, choir_backward of a step's last
 * micro-batch, choir_optim_step, and forward where the module has buffers. */
#ifndef CHOIR_DDP_H
#define CHOIR_DDP_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_ddp_opts {
    double bucket_cap_mb;   /* a bucket closes once it has this many MiB; default 25 */
    double first_bucket_mb; /* the first, which starts reducing early; default 1 */
    int64_t microbatches;   /* of the global batch, over all ranks; default 0: the run's (see
                               choir_run_open), else one a rank */
    const char *algorithm;  /* of the reduction, as choir_group_algorithm names it, kept by the
                               caller; default NULL: the fixed tree, by the fastest way. Others
                               than exchange, direct and hierarchical add in other orders */
} choir_ddp_opts;

choir_ddp_opts choir_ddp_defaults(void);

/** Wraps module: parameters and buffers become rank 0's, gradients are reduced over the group.
 * The wrapper forwards to the module and adds nothing to names. Never NULL; errors stick to the
 * run: argument (fewer micro-batches than ranks), mismatch (ranks with different models), peer
 * lost. */
choir_module *choir_ddp(
    choir_scope *run, choir_module *module, choir_group *group, choir_ddp_opts opts);

#ifdef __cplusplus
}
#endif
#endif
