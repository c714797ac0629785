/* Trainings that continue when ranks die, hang or join.
 *
 * The remaining ranks form a new group, distribute the micro-batches among themselves, and
 * repeat at most the interrupted step; a new process replaces each lost rank and receives
 * everything from the others. The number of micro-batches stays, so losses and weights keep
 * every bit: at the end the weights equal the weights of an undisturbed run (except under
 * choir_hogwild, whose weights differ from run to run).
 *
 *     choir_spawn_opts opts = choir_spawn_defaults();
 *     opts.max_restarts = 3;
 *     choir_check(choir_spawn_with(4, train, NULL, opts));
 *
 * In each rank, after its objects are made:
 *
 *     env.microbatches = 8;                                 (before the run is opened)
 *     ...
 *     choir_training t = {.module = net, .optim = opt, .loader = data};
 *     choir_check(choir_elastic_open(&env, &t, choir_elastic_defaults(), &elastic));
 *     bool again = true;
 *     while (again) {
 *         while (choir_run_next(run) < 1000)
 *             choir_check(choir_elastic_step(elastic, step, &job));
 *         ...                                               (rank 0 saves the weights)
 *         choir_check(choir_elastic_end(elastic, &again));
 *     }
 *
 * If a rank is lost before choir_elastic_open, constructors of the others fail with "peer
 * lost". The program may then close its run, free its env, and begin again with choir_env_init:
 * the process is alone until choir_elastic_open, where it meets the others.
 *
 * Launchers: choir_spawn_with and `choir train --max-restarts` replace lost ranks on one
 * machine. `choir run` with --max-restarts or a range of --nnodes starts all ranks of all
 * machines again; choir_elastic_open then restores the state after the last step, or the step
 * before, from copies that the agents keep. So a whole machine may be lost (but choir_hogwild's
 * ranks keep no copies there). Under other launchers the functions run a training whose ranks
 * never change.
 *
 * A program has one elastic training: a new process starts at the program's first training, so
 * it could not join the others in a second one.
 *
 * Ranks recover in one of two ways. With choir_ddp (without a hook, SyncBatchNorm or a
 * pipeline) every rank has the whole state, so the remaining ranks keep their objects, as
 * above. The workers of choir_hogwild keep theirs, too: they continue from the step of the
 * worker that is furthest, whose optimizer state the others take; a lost rank's updates since
 * its last exchange are lost. With all other strategies, the ranks rebuild their objects:
 *
 *     opts.rebuild = true;                              (choir_spawn_opts)
 *     opts.least = 4;       (if results or parts depend on the number of ranks; else 0)
 *
 * Before each step every rank copies its part of the state, alternately to one of two places,
 * to memory of the job that outlives all ranks. After a change of the ranks the functions
 * below, and constructors, fail with "peer lost". The program closes its run, frees its env,
 * and begins again with choir_env_init, which waits for the new group; choir_elastic_open then
 * returns with the state restored, at the step where the job continues. With `least`,
 * choir_env_init waits until lost ranks are replaced. At most one step is repeated; with
 * choir_diloco and choir_local_sgd, all steps since the last meeting.
 *
 * Threads: the main thread. Collective: all functions except choir_elastic_change,
 * choir_elastic_keeps and choir_elastic_free. */
#ifndef CHOIR_ELASTIC_H
#define CHOIR_ELASTIC_H

#include <choir/env.h>
#include <choir/membership.h>
#include <choir/training.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_elastic choir_elastic;

typedef struct choir_elastic_opts {
    /* The program's own state, such as the best loss so far. After each change all ranks have
     * the state of the rank that is furthest. state_bytes is equal on all ranks. NULL: no
     * state. */
    void *state;
    size_t state_bytes;
    /* For ranks that are rebuilt or started again. true: no copies of their state are kept, and
     * after a loss the program reads its last checkpoint before choir_elastic_open. Default
     * false */
    bool no_copy;
    /* For ranks that are rebuilt without copies: number of steps between the program's
     * checkpoints. New processes join only after a saved step, so that no step is done twice.
     * Default 0: they wait until a rank is lost */
    int64_t save_every;
} choir_elastic_opts;

choir_elastic_opts choir_elastic_defaults(void);

/**
 * Makes a training elastic from the step that choir_step runs next. A new rank waits here until
 * it joins, and returns with the others' state and at their step.
 *
 * @param env       env's rank, world, group and generation change with the ranks
 * @param training  the objects that are sent: module, optim, scaler; and the loader, whose
 *                  micro-batches are distributed again. All objects outlive *elastic
 *
 * Errors: argument; unsupported (naming a strategy that cannot continue with other ranks), and
 * as choir_elastic_step.
 */
CHOIR_CHECKED choir_status choir_elastic_open(choir_env *env, const choir_training *training,
    choir_elastic_opts opts, choir_elastic **elastic);

/**
 * Runs fn(step, arg) as choir_step does, waits for it, and returns when the step is done on all
 * ranks (with choir_hogwild, on this one). If ranks are lost meanwhile, the call forms the new
 * group and repeats the step; fn is then called again, and finds the rank's new micro-batches
 * by choir_env_micro. If the others had already finished the step, this rank receives their
 * state instead.
 *
 * Errors: as choir_step, except lost or silent peers.
 */
CHOIR_CHECKED choir_status choir_elastic_step(
    choir_elastic *elastic, choir_step_fn *fn, void *arg);

/** Says, between two steps, that the program has taken all ranks to another step by
 * choir_training_resume: the training continues there. */
void choir_elastic_moved(choir_elastic *elastic);

/**
 * Recovers from the failure of another collective call on env->group, between steps. If `why`
 * says that a peer was lost or silent, forms the new group and returns CHOIR_OK: the program
 * repeats its work since the last step. Otherwise, and under launchers that replace no ranks,
 * returns `why` with its message. A rank that was one step behind may receive the next step's
 * state.
 */
CHOIR_CHECKED choir_status choir_elastic_recover(choir_elastic *elastic, choir_status why);

/**
 * Ends the job's work. Rank 0 calls this when everything is done, and the other ranks wait here
 * until then. *again becomes true if rank 0 was lost before that and the ranks have a new
 * group: the program then repeats its work since the last step. Errors: as choir_elastic_step.
 */
CHOIR_CHECKED choir_status choir_elastic_end(choir_elastic *elastic, bool *again);

void choir_elastic_free(choir_elastic *elastic); /* NULL is fine */

/** Notes that this rank makes progress in the program's own code. A rank is replaced if it
 * shows no progress for long while others wait for it; devices, collectives, loaders and
 * checkpoints show their progress by themselves. A program whose own work between them takes a
 * minute or more calls this every few seconds. Not collective; any thread. */
void choir_elastic_beat(void);

/** Returns whether copies of the state exist, from which choir_elastic_open will restore
 * rebuilt ranks. If so, the program need not read initial weights from files. */
bool choir_elastic_kept(void);

/** Returns the number of steps that were done when these copies were made; -1 if no copies
 * exist. Copies may be older than the job's newest checkpoint, if the ranks had no memory for
 * newer ones. A program that then reads the checkpoint before choir_elastic_open continues from
 * the checkpoint, since that function restores copies only of the same or a later step.
 * Exception: with choir_diloco and choir_local_sgd it restores copies of any step, since
 * checkpoints lack a part of their ranks' state without choir_workers_train. */
int64_t choir_elastic_kept_step(void);

/** Returns whether copies of the ranks' state are kept from now on. True if ranks are rebuilt
 * or started again, `no_copy` is not set, and all ranks have the memory. If a rank lacks the
 * memory, rank 0 says so on standard error, and after a loss the program continues from its
 * last checkpoint. */
bool choir_elastic_keeps(const choir_elastic *elastic);

/** Returns whether the ranks have changed, and describes each change once. Call it after a
 * step, so that resumed_s includes the first step of the new group. Rank 0 reports for the job:
 * changes that rank 0 has not reported yet are merged into the next one. */
bool choir_elastic_change(choir_elastic *elastic, choir_membership *membership);

#ifdef __cplusplus
}
#endif
#endif
