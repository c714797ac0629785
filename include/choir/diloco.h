/* Workers that train independently and synchronise periodically: local SGD and DiLoCo.
 *
 *     net = choir_diloco(run, net, group, choir_diloco_defaults());
 *     choir_optim *opt = choir_adamw(run, net, hp);   // each worker's inner optimizer
 *     ...                                             // usual steps; every 50th synchronises
 *
 * A worker has weights and an optimizer state of its own, and steps on the mean of its own
 * micro-batches. Gradients are not communicated. Every `every` steps all workers meet:
 *
 *   local SGD (Stich, 2019; torch's post_localSGD): weights become their mean over the workers.
 *   DiLoCo (Douillard et al., 2023): outer weights w, equal for all workers, take a step of SGD
 *     with Nesterov momentum, using the mean distance that the workers have moved from them,
 *         d = mean over workers of (w - weights),  m = mu m + d,  w -= lr (d + mu m),
 *     and the workers continue from w. This suits ranks with slow links: with every = 500, as
 *     in the paper, it sends 1/500 of DDP's bytes, and half of that in bf16.
 *
 * Unless specified, each rank is one worker. The number of workers W can be declared instead:
 * then worker w has micro-batches [w M/W, (w + 1) M/W), the ranks share the workers, and the
 * workers of a rank take turns in each step. W workers give the same bits on 1, 2, ... W ranks:
 *
 *     env.unit = env.microbatches / W;                // before choir_run_open
 *     opts.workers = W;
 *     ...
 *     choir_workers_train(net, opt, NULL);
 *     ... in each step:
 *     for (int64_t t = 0, turns = choir_worker_turns(net); t < turns; t++) {
 *         choir_worker_turn(net, t);
 *         ...                                         // forward and backward of the turn's
 * share choir_optim_step(opt);                      //     of the rank's micro-batches
 *     }
 *
 * A step ends with the last turn's choir_optim_step, recorded or not. After a meeting all
 * workers hold the same bits. These differ from DDP's, and depend on the number of workers.
 * Frozen parameters stay unchanged. Buffers are worker 0's after a meeting. All workers have
 * equal weight, whatever their numbers of micro-batches.
 *
 * Memory, in f32 numbers per parameter: local SGD 1, DiLoCo 3 (2 without momentum), bf16
 * another half. A rank of k workers has k times the parameters, buffers and optimizer states,
 * and up to log2(k) + 1 messages instead of one.
 *
 * A lost rank is named on all others at their next meeting, or at once during a meeting. The
 * group's timeout_s limits the wait for a slow rank.
 *
 * Threads: the run's thread. Collective: the constructors, choir_meet, choir_diloco_resume, and
 * each choir_optim_step after which a meeting is due. */
#ifndef CHOIR_DILOCO_H
#define CHOIR_DILOCO_H

#include <choir/amp.h>
#include <choir/ddp.h>
#include <choir/optim.h>

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
    int64_t workers;    /* W, at least as many as ranks; default 0: one per rank */
    bool recut; /* choir_diloco_resume takes a checkpoint of another number of workers */
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
 * the run: argument (also workers that are fewer than the ranks or do not divide the
 * micro-batches), mismatch (ranks with different models or options), device (a parameter on
 * another device than the run), unsupported (a parameter that is not f32), peer lost.
 *
 * Where ranks have several workers, there are no near meetings, the module is in no other
 * strategy, and with a warm-up the ranks divide the workers. In a warm-up all workers are one.
 */
choir_module *choir_local_sgd(
    choir_scope *run, choir_module *module, choir_group *group, choir_local_sgd_opts opts);

typedef struct choir_diloco_opts {
    int64_t every;            /* H: steps from one meeting to the next; default 50 */
    float outer_lr, momentum; /* default 0.7, 0.9 */
    bool nesterov;            /* default true; false: w -= lr m */
    /* dtype in which d is sent: CHOIR_F32, the default, or CHOIR_BF16. A rank with several
     * workers sends the sum of their roundings, as f32. */
    choir_dtype wire;
    int64_t workers; /* W, at least as many as ranks; default 0: one per rank */
    bool recut;      /* choir_diloco_resume takes a checkpoint of another number of workers */
} choir_diloco_opts;

choir_diloco_opts choir_diloco_defaults(void);

/**
 * Wraps module as choir_local_sgd does. choir_ddp over another group may wrap the result: then
 * the ranks of that group together form one worker, and `group` joins one rank of each worker.
 *
 * choir_optim_visit visits the outer momentum ("outer_momentum.NAME"), so checkpoints contain
 * it. Save a checkpoint right after a meeting. After choir_workers_train, checkpoints contain
 * the optimizer states of all workers, so all ranks save and load together, and any number of
 * ranks can load what another number has saved.
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
 * from a checkpoint. If that is of another number of workers, which `recut` allows, each new
 * worker v takes the optimizer state of the old worker v modulo the old number; one of another
 * strategy has one state, for all of them. Errors: argument (module was not returned by a
 * constructor above; another number of workers), peer lost. */
CHOIR_CHECKED choir_status choir_diloco_resume(choir_module *module, int64_t steps);

/** Gives each worker a state of the optimizer, and of the scaler of its gradients (NULL: none).
 * Call it before the first step and before a checkpoint is loaded. It is needed where ranks
 * have several workers, and for checkpoints that have the states of all workers. Options of the
 * optimizer are common to all workers. Errors: argument, state (after a step; a second time).
 */
CHOIR_CHECKED choir_status choir_workers_train(
    choir_module *module, choir_optim *optim, choir_scaler *scaler);

/** Number of turns of this rank's next step: the number of its workers, or 1 in a warm-up. */
int64_t choir_worker_turns(const choir_module *module);

/** Begins turn 0, 1, ... of a step: the module has this worker's weights and buffers, and the
 * optimizer its state, until the next turn or the end of the step. Not needed for a single
 * turn. Between steps the module is the rank's first worker's. Errors: argument (not the next
 * turn), state (without choir_workers_train). */
CHOIR_CHECKED choir_status choir_worker_turn(choir_module *module, int64_t turn);

#ifdef __cplusplus
}
#endif
#endif
