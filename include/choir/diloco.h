/* Workers that train independently and synchronise periodically: local SGD and DiLoCo.
 *
 *     net = choir_diloco(run, net, group, choir_diloco_defaults());
 *     choir_optim *opt = choir_adamw(run, net, hp);   // this worker's inner optimizer
 *     ...                                             // usual steps; every 50th synchronises
 *
 * Each rank is a worker with weights and an optimizer of its own, which steps on the mean of
 * its own micro-batches. Gradients are not communicated. Every `every` steps all ranks meet:
 *
 *   local SGD (Stich, 2019; torch's post_localSGD): weights become their mean over the ranks.
 *   DiLoCo (Douillard et al., 2023): outer weights w, equal on all ranks, take a step of SGD
 *     with Nesterov momentum, using the mean distance that the workers have moved from them,
 *         d = mean over ranks of (w - weights),  m = mu m + d,  w -= lr (d + mu m),
 *     and the workers continue from w. This suits ranks with slow links: with every = 500, as
 *     in the paper, it sends 1/500 of DDP's bytes, and half of that in bf16.
 *
 * A step is a choir_optim_step on the run, recorded or not. After a meeting all ranks hold the
 * same bits, and runs of the same program give the same bits; these differ from DDP's, and
 * depend on the number of ranks. Frozen parameters stay unchanged. Buffers are rank 0's after
 * a meeting. All ranks have equal weight, whatever their numbers of micro-batches.
 *
 * Memory, in f32 numbers per parameter: local SGD 1, DiLoCo 3 (2 without momentum), bf16
 * another half.
 *
 * A lost rank is named on all others at their next meeting, or at once during a meeting. The
 * group's timeout_s limits the wait for a slow rank.
 *
 * Threads: the run's thread. Collective: the constructors, choir_meet, and each
 * choir_optim_step after which a meeting is due. */
#ifndef CHOIR_DILOCO_H
#define CHOIR_DILOCO_H

#include <choir/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_local_sgd_opts {
    int64_t every; /* steps from one meeting to the next; default 50 */
    /* number of first steps, in which gradients are averaged as by choir_ddp; default 0 */
    int64_t warmup;
    /* ranks that also meet among themselves, such as the ranks of one node; default NULL: none
     */
    choir_group *near;
    /* steps between the meetings of near; default 0: none */
    int64_t near_every;
    choir_ddp_opts ddp; /* options of the warm-up */
} choir_local_sgd_opts;

choir_local_sgd_opts choir_local_sgd_defaults(void);

/**
 * Wraps module: parameters and buffers become rank 0's, and are averaged at meetings.
 *
 * Steps are counted from the end of the warm-up: ranks meet after warmup + every, warmup + 2
 * every, ... steps. (torch's PeriodicModelAverager counts from 0: it first meets one step
 * after the warm-up, and then every `every` steps.) If both meetings, of near and of all ranks,
 * are due, all ranks meet.
 *
 * The wrapper forwards to the module and adds nothing to names. Never NULL; errors stick to
 * the run: argument, mismatch (ranks with different models or options), device (a parameter on
 * another device than the run), unsupported (a parameter that is not f32), peer lost.
 */
choir_module *choir_local_sgd(
    choir_scope *run, choir_module *module, choir_group *group, choir_local_sgd_opts opts);

typedef struct choir_diloco_opts {
    int64_t every;            /* H: steps from one meeting to the next; default 50 */
    float outer_lr, momentum; /* default 0.7, 0.9 */
    bool nesterov;            /* default true; false: w -= lr m */
    /* dtype in which d is sent: CHOIR_F32, the default, or CHOIR_BF16 */
    choir_dtype wire;
} choir_diloco_opts;

choir_diloco_opts choir_diloco_defaults(void);

/**
 * Wraps module as choir_local_sgd does. choir_ddp over another group may wrap the result: then
 * the ranks of that group together form one worker, and `group` joins one rank of each worker.
 *
 * choir_optim_visit visits the outer momentum ("outer_momentum.NAME"), so checkpoints contain
 * it. Save a checkpoint right after a meeting.
 */
choir_module *choir_diloco(
    choir_scope *run, choir_module *module, choir_group *group, choir_diloco_opts opts);

/** Meets now, unless ranks have met since the last step. Call it before validation, a
 * checkpoint, or the end, after equally many steps on all ranks. The next meeting is `every`
 * steps later. */
CHOIR_CHECKED choir_status choir_meet(choir_module *module);

/** choir_steps_apart returns the number of this rank's steps since the last meeting, 0 during a
 * warm-up, and choir_meetings the number of meetings. module was returned by a constructor
 * above. */
int64_t choir_steps_apart(const choir_module *module);
int64_t choir_meetings(const choir_module *module);

/** Resumes after `steps` steps, with weights and an outer momentum that all ranks have read
 * from a checkpoint. Error: argument (module was not returned by a constructor above). */
CHOIR_CHECKED choir_status choir_diloco_resume(choir_module *module, int64_t steps);

#ifdef __cplusplus
}
#endif
#endif
