/* Workers that train by themselves and meet now and then: local SGD and DiLoCo.
 *
 *     net = choir_diloco(run, net, group, choir_diloco_defaults());
 *     choir_optim *opt = choir_adamw(run, net, hp);   // of this worker: the inner optimizer
 *     ...                                             // steps as ever; every 50th they meet
 *
 * Each rank is a worker with weights and an optimizer of its own, which steps on the mean of
 * its own micro-batches. Gradients stay where they are. Every `every` steps all ranks meet:
 *
 *   local SGD (Stich, 2019; torch's post_localSGD): weights become their mean over the ranks.
 *   DiLoCo (Douillard et al., 2023): outer weights w, the same on all ranks, take a step of SGD
 *     with Nesterov momentum by the mean of what the workers have moved away from them,
 *         d = mean over ranks of (w - weights),  m = mu m + d,  w -= lr (d + mu m),
 *     and the workers go on from w. For ranks with slow links between them: with every = 500
 *     as in the paper 1/500 of DDP's bytes, and half of that in bf16.
 *
 * A step is a choir_optim_step on the run, recorded or not. Where ranks have met they hold the
 * same bits, and runs of the same program give the same bits; other than DDP's, and others with
 * another number of ranks. Frozen parameters are left alone. Buffers are rank 0's after a
 * meeting. Ranks count alike, however many micro-batches each has.
 *
 * Memory, in f32 numbers a parameter: local SGD 1, DiLoCo 3 (2 without momentum), bf16 another
 * half.
 *
 * A rank that was lost is named on all others when they next meet, or at once while they do.
 * How long a slow one is waited for is the group's timeout_s.
 *
 * Threads: those of the run. Collective: the constructors, choir_meet, and the choir_optim_step
 * with which a meeting is due. */
#ifndef CHOIR_DILOCO_H
#define CHOIR_DILOCO_H

#include <choir/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_local_sgd_opts {
    int64_t every;      /* steps from one meeting to the next; default 50 */
    int64_t warmup;     /* first steps, in which gradients are averaged as by choir_ddp; 0 */
    choir_group *near;  /* default NULL. Ranks that also meet among themselves, those of a */
    int64_t near_every; /* node for example, every so many steps */
    choir_ddp_opts ddp; /* of the warm-up */
} choir_local_sgd_opts;

choir_local_sgd_opts choir_local_sgd_defaults(void);

/**
 * Wraps module: parameters and buffers become rank 0's, and are averaged at meetings.
 *
 * Steps are counted from the end of the warm-up: ranks meet after warmup + every, warmup + 2
 * every, ... (torch's PeriodicModelAverager counts from 0: it meets one step after the warm-up
 * first, and then every so many steps). Where both are due, all ranks meet.
 *
 * The wrapper forwards to the module and adds nothing to names. Never NULL; errors stick to the
 * run: argument, mismatch (ranks with different models or options), device (a parameter on
 * another device than the run), unsupported (a parameter that is not f32), peer lost.
 */
choir_module *choir_local_sgd(
    choir_scope *run, choir_module *module, choir_group *group, choir_local_sgd_opts opts);

typedef struct choir_diloco_opts {
    int64_t every;            /* H: steps from one meeting to the next; default 50 */
    float outer_lr, momentum; /* default 0.7, 0.9 */
    bool nesterov;            /* default true; else w -= lr m */
    choir_dtype wire;         /* d on its way: CHOIR_F32, the default, or CHOIR_BF16 */
} choir_diloco_opts;

choir_diloco_opts choir_diloco_defaults(void);

/**
 * Wraps module as choir_local_sgd does. It may be wrapped by choir_ddp over other ranks: then a
 * worker is the ranks of that group, and `group` joins one rank of each worker.
 *
 * The outer momentum is visited by choir_optim_visit ("outer_momentum.NAME"), so checkpoints
 * hold it; one is to be made where ranks have met.
 */
choir_module *choir_diloco(
    choir_scope *run, choir_module *module, choir_group *group, choir_diloco_opts opts);

/** Meets now, unless ranks have met since the last step: before validation, a checkpoint, or
 * the end. The next meeting is `every` steps later. All ranks have taken as many steps. */
choir_status choir_meet(choir_module *module);

/** Steps that this rank has taken since ranks met, 0 during a warm-up; and how often they have
 * met. module: what a constructor above returned. */
int64_t choir_steps_apart(const choir_module *module);
int64_t choir_meetings(const choir_module *module);

#ifdef __cplusplus
}
#endif
#endif
