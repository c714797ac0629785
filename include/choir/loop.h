/* A training loop: steps, regular evaluations and checkpoints, and callbacks of the program.
 *
 *     choir_loop_opts opts = choir_loop_defaults();
 *     opts.steps = 1000;
 *     opts.validation = data.validation;
 *     opts.eval_every = 100;
 *     opts.save = "run";                                    (and it resumes from there)
 *     choir_loop *loop = choir_loop_new(&env, training, opts);
 *     choir_callbacks calls = {.step = print_loss, .evaluated = keep_best};
 *     choir_loop_add(loop, calls, &mine);
 *     choir_check(choir_loop_run(loop));
 *
 * A step runs all micro-batches of this rank, backward and the optimizer, and is recorded as
 * choir_step records it. The bits equal the bits of a loop that a program writes itself.
 *
 * Threads: the run's thread. Collective: choir_loop_run, over env's group. */
#ifndef CHOIR_LOOP_H
#define CHOIR_LOOP_H

#include <choir/env.h>
#include <choir/evaluate.h>
#include <choir/training.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_loop choir_loop;

typedef struct choir_loop_opts {
    int64_t steps;             /* steps of the whole training; default 1000 */
    int64_t eval_every;        /* steps between evaluations; 0 (the default): none */
    choir_dataset *validation; /* dataset for evaluations; default NULL */
    int64_t eval_batches;      /* batches per evaluation; 0 (the default): the whole dataset */
    /* folder of checkpoints, from which the loop also resumes; default NULL: none */
    const char *save;
    int64_t save_every; /* steps between saves; 0 (the default): only at the end */
    int64_t keep;       /* number of newest checkpoints kept; default 1 */
} choir_loop_opts;

choir_loop_opts choir_loop_defaults(void);

/** Functions around the parts of a training. Each may be NULL. Every rank calls them at the
 * same steps. If one returns an error, the training ends, and choir_loop_run returns the error;
 * `end` is still called. */
typedef struct choir_callbacks {
    choir_status (*begin)(choir_loop *loop, void *arg); /* called before the first step */
    choir_status (*step)(choir_loop *loop, void *arg);  /* called after each step */
    choir_status (*evaluated)(choir_loop *loop, const choir_score *score, void *arg);
    choir_status (*saved)(choir_loop *loop, void *arg);            /* a checkpoint is written */
    void (*end)(choir_loop *loop, choir_status status, void *arg); /* after the last step */
} choir_callbacks;

/** Makes a loop over the training's objects, which the caller keeps and which must exist until
 * the loop has run: module, optim, loader and info are needed. The run frees the loop. Never
 * NULL; errors stick to the run: argument. */
choir_loop *choir_loop_new(const choir_env *env, choir_training training, choir_loop_opts opts);
/** Adds callbacks, which are called with arg, after the callbacks that were added before. */
void choir_loop_add(choir_loop *loop, choir_callbacks callbacks, void *arg);
/** Trains until opts.steps steps are done or choir_loop_stop was called, and saves. Errors:
 * errors of steps, evaluations, checkpoints and callbacks; nonfinite. */
CHOIR_CHECKED choir_status choir_loop_run(choir_loop *loop);
/** Ends the training after this step, on all ranks. A callback on any rank may call it. */
void choir_loop_stop(choir_loop *loop);

/** Returns the state: the number of steps that are done, the latest loss and eval_loss. If no
 * target of a step counts, the loss is NaN. */
const choir_train_state *choir_loop_state(const choir_loop *loop);
/** Returns the training's objects. */
const choir_training *choir_loop_training(const choir_loop *loop);

#ifdef __cplusplus
}
#endif
#endif
