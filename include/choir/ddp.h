/* DistributedDataParallel (Li et al., 2020): every rank holds the model and runs its
 * micro-batches of the global batch; gradients are averaged while backward is still running.
 *
 * Gradients reside in buckets, in memory that all ranks map. As soon as a bucket is complete
 * on this rank, its reduction is queued, and each rank adds its slice from the peers' buffers.
 * The order of addition is the micro-batches' fixed tree, so the bits do not depend on the
 * number of ranks. choir_grad returns a view of the bucket: nothing is copied.
 *
 * Parameters are first assigned to buckets in reverse order of registration. After the first
 * step they are assigned again, once, in the order in which rank 0's backward finished them,
 * so that each bucket is complete as early as possible. This changes no bit. If an algorithm's
 * order of addition depends on the position in a bucket (ring, double_tree, native), the first
 * assignment stays, so that a resumed job has the bits of a job that never stopped.
 *
 * Buffers (running statistics) are broadcast from rank 0 before the first forward of each step
 * in train mode, as flat blocks of at most 250 MiB.
 *
 * Around a pipeline (choir/pipeline.h), or within one, gradients are reduced stage by stage,
 * over a group of the ranks that have the same stages.
 *
 * Threads: the run's thread. Collective: choir_ddp, choir_backward of a step's last
 * micro-batch, choir_optim_step, choir_ddp_join_end, and forward if the module has buffers. */
#ifndef CHOIR_DDP_H
#define CHOIR_DDP_H

#include <choir/group.h>
#include <choir/nn.h>
#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_ddp_opts {
    double bucket_cap_mb; /* a bucket closes once it has this many MiB; default 25 */
    /* size of the first bucket, which starts reducing early; default 1 */
    double first_bucket_mb;
    /* micro-batches in the global batch; default 0: the run's number (see choir_run_open), else
     * one per rank */
    int64_t microbatches;
    /* algorithm of the reduction, a name of choir_group_algorithm; the caller keeps the string.
     * Default NULL: the fixed tree, by the fastest algorithm. exchange, direct and hierarchical
     * add in the fixed tree, all others in other orders */
    const char *algorithm;
    /* false (the default): a parameter that no backward of a step reached is an error, naming
     * it. true: its gradient counts as zero if another rank reached it. If no rank reached it,
     * choir_grad is NULL in this step, and the optimizer leaves the parameter and its state
     * unchanged. Costs a small message per step. */
    bool find_unused_parameters;
    /* true: the program promises that every step uses the same parameters equally often, so
     * unused ones are searched for in the first step only; a backward that uses others is an
     * error. Default false. */
    bool static_graph;
    /* true: one bucket, reduced after the whole backward (Apex's delay_allreduce); parameters
     * with several uses get a second bucket. Default false. */
    bool delay_allreduce;
    bool no_buffers; /* true: each rank keeps its own buffers; default false */
} choir_ddp_opts;

choir_ddp_opts choir_ddp_defaults(void);

/** Wraps module: parameters and buffers become rank 0's, and gradients are reduced over the
 * group. The wrapper forwards to the module and adds nothing to names. Parameters may reside
 * on several devices (choir_module_to, called before), each with its own buckets;
 * find_unused_parameters, static_graph and join require a single device. Never NULL; errors
 * stick to the run: argument (fewer micro-batches than ranks, contradictory options), mismatch
 * (ranks with different models), peer lost. The micro-batches of a step look up equally many
 * rows of an embedding, on all ranks (pad texts to one length), except with
 * find_unused_parameters. */
choir_module *choir_ddp(
    choir_scope *run, choir_module *module, choir_group *group, choir_ddp_opts opts);

/**
 * Turns local accumulation on or off (torch's no_sync). While it is on, a backward adds to this
 * rank's gradients and sends nothing. The first backward after it is turned off is the step's
 * last, and reduces all gradients. Only the setting at backward matters; forward may run with
 * either.
 *
 * If M is known in advance, set it greater than the number of ranks instead of using this call.
 * With this call, the step's M becomes the number of ranks times the backwards of each rank,
 * which must be equal on all ranks. The gradient is their mean, as always. PyTorch adds up a
 * rank's backwards, so its users divide each loss by their number; do not do that here. A
 * rank's backwards form one node of the job's tree: the bits equal the bits of a single process
 * at that M if each rank ran a power of two of backwards; otherwise they differ in rounding
 * (equally on all ranks and in every run).
 *
 * Turn it off before the optimizer's step; a step while it is on is an error. Errors: argument
 * (not made by choir_ddp), state (between the backward that reduced and the optimizer's step;
 * while recording; within a join).
 */
CHOIR_CHECKED choir_status choir_ddp_no_sync(choir_module *ddp, bool on);

/* --- ranks that run out of data (torch's join) --- */

typedef struct choir_ddp_join_opts {
    /* true: averages over the micro-batches of ranks that still have data; default false:
     * averages over all, and ranks without data add zeros. Not for recorded steps (choir_step)
     */
    bool divide_by_active;
    /* true: all ranks get an error when the first rank ends; default false */
    bool fail_early;
    /* optimizer that also steps on ranks that have ended, so that its state stays equal on all
     * ranks. Default NULL: these ranks receive the last rank's model at the end, but their
     * optimizer's state is old, so later steps would make the models differ */
    choir_optim *optim;
} choir_ddp_join_opts;

choir_ddp_join_opts choir_ddp_join_defaults(void);

/**
 * Lets ranks run different numbers of steps. All ranks call it between steps:
 *
 *     choir_check(choir_ddp_join_begin(net, choir_ddp_join_defaults()));
 *     while (have_batch())
 *         step();                        // forward, backward, choir_optim_step
 *     choir_check(choir_ddp_join_end(net));
 *
 * A rank without further data calls join_end. There it takes part in the collectives of the
 * other ranks' steps, with gradients of zero, until all ranks have arrived; then all ranks hold
 * the model of the ranks that ended last. Running statistics are rank 0's, and no longer change
 * after rank 0 has ended. Ranks that have ended do not join the program's own collectives
 * within steps (choir_env_mean).
 *
 * Errors: argument (not made by choir_ddp), state (begin while a join is open, or end without
 * one; parameters on several devices, an unfinished step, no_sync), peer lost; with fail_early,
 * state on all ranks when a rank has ended.
 */
CHOIR_CHECKED choir_status choir_ddp_join_begin(choir_module *ddp, choir_ddp_join_opts opts);
CHOIR_CHECKED choir_status choir_ddp_join_end(choir_module *ddp);

#ifdef __cplusplus
}
#endif
#endif
