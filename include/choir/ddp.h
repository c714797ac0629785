/* DistributedDataParallel (Li et al., 2020): every rank holds the model, runs its micro-batches
 * of the global batch, and gradients are averaged while backward still runs.
 *
 * Gradients lie in buckets in memory that all ranks map; as soon as a bucket is complete on
 * this rank its reduction is queued, and each rank adds its slice out of the peers' buffers.
 * The order of addition is the micro-batches' fixed tree, so the bits do not depend on the
 * number of ranks. What choir_grad returns is a view of the bucket: nothing is copied out of
 * it.
 *
 * Parameters are dealt to buckets in reverse order of registration at first. After the first
 * step they are dealt anew, once, in the order in which rank 0's backward finished them: so a
 * bucket is complete as early as it can be. No bit changes by that.
 *
 * Buffers (running statistics) are brought from rank 0 before the first forward of each step in
 * train mode, as flat blocks of at most 250 MiB.
 *
 * Around a pipeline (choir/pipeline.h), or within one, gradients are reduced stage by stage;
 * group are the ranks that have the same stages.
 *
 * Threads: those of the run. Collective: choir_ddp, choir_backward of a step's last
 * micro-batch, choir_optim_step, choir_ddp_join_end, and forward where the module has buffers.
 */
#ifndef CHOIR_DDP_H
#define CHOIR_DDP_H

#include <choir/group.h>
#include <choir/nn.h>
#include <choir/optim.h>

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
    /* A parameter that no backward of a step reached is an error that names it. With this, it
     * counts as a gradient of zero where another rank's did reach it; where none did, it has no
     * gradient in this step (choir_grad is NULL), and the optimizer leaves it and its state
     * alone. Costs the ranks a word about it each step. Default false. */
    bool find_unused_parameters;
    /* The same parameters are used in every step, and equally often: then unused ones are found
     * in the first step alone. A backward that uses others is an error. Default false. */
    bool static_graph;
    /* One bucket, reduced once the whole backward is done (Apex's delay_allreduce; gradients of
     * parameters of several uses are a second one). Default false. */
    bool delay_allreduce;
    bool no_buffers; /* leave buffers as they are on each rank; default false */
} choir_ddp_opts;

choir_ddp_opts choir_ddp_defaults(void);

/** Wraps module: parameters and buffers become rank 0's, gradients are reduced over the group.
 * The wrapper forwards to the module and adds nothing to names. Parameters may lie on several
 * devices (choir_module_to, before), each with its own buckets; find_unused_parameters,
 * static_graph and join want them on one. Never NULL; errors stick to the run: argument (fewer
 * micro-batches than ranks, options that make no sense), mismatch (ranks with different
 * models), peer lost. */
choir_module *choir_ddp(
    choir_scope *run, choir_module *module, choir_group *group, choir_ddp_opts opts);

/**
 * Accumulation that was not planned (torch's no_sync): while on, a backward adds to this rank's
 * gradients and nothing is sent; the first backward after it is off again is the step's last,
 * and reduces all. It is the state at backward that counts; forward may lie in or out.
 *
 * Accumulation that is planned needs none of this: it is M greater than the number of ranks.
 * Here M of the step becomes ranks x the backwards that each ran, of which all must run equally
 * many. The gradient is their mean, as always: PyTorch adds up a rank's backwards, so its users
 * divide each loss by their number; do not do so here. A rank's backwards are one node of the
 * job's tree: the bits are those of a single process at that M where each ran a power of two,
 * and otherwise differ from it in rounding (the same on all ranks and in every run).
 *
 * Off again at the optimizer's step at the latest: to step without it is an error. Errors:
 * argument (not made by choir_ddp), state (between the backward that reduced and the
 * optimizer's step; while recording; within a join).
 */
choir_status choir_ddp_no_sync(choir_module *ddp, bool on);

/* --- ranks that run out of data (torch's join) --- */

typedef struct choir_ddp_join_opts {
    bool divide_by_active; /* the mean over the micro-batches of ranks that still have some;
                              default false: over all, those that ended adding zeros. Not with
                              recorded steps (choir_step) */
    bool fail_early;       /* the first rank that ends is an error on all; default false */
    choir_optim *optim;    /* steps on ranks that have ended, too, so that its state stays the
                              same everywhere; default NULL: they get the last rank's model at
                              the end, and their optimizer's state is old, so that steps taken
                              after that would part the models again */
} choir_ddp_join_opts;

choir_ddp_join_opts choir_ddp_join_defaults(void);

/**
 * From here on ranks may run different numbers of steps, between steps on all ranks:
 *
 *     choir_check(choir_ddp_join_begin(net, choir_ddp_join_defaults()));
 *     while (have_batch())
 *         step();                        // forward, backward, choir_optim_step
 *     choir_check(choir_ddp_join_end(net));
 *
 * A rank whose data end goes to join_end. It stays there and takes part in the collectives of
 * the others' steps, with gradients of zero, until all have come; then all ranks hold the model
 * of those that ended last. Running statistics are rank 0's, and stay when it has ended.
 * Collectives of the program's own within the steps (choir_env_mean) find no partner there.
 *
 * Errors: argument (not made by choir_ddp), state (a join is under way or none is, parameters
 * on several devices, a step half done, no_sync), peer lost; with fail_early, state on all
 * ranks when some of them has ended.
 */
choir_status choir_ddp_join_begin(choir_module *ddp, choir_ddp_join_opts opts);
choir_status choir_ddp_join_end(choir_module *ddp);

#ifdef __cplusplus
}
#endif
#endif
