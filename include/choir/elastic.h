/* Trainings that go on when ranks die, hang or join.
 *
 * The ranks that are left form a new group, distribute the micro-batches among themselves, and
 * run at most the interrupted step again; a new process takes the place of each rank that was
 * lost and receives everything from the others. The number of micro-batches stays, so neither
 * losses nor weights change a bit: the weights at the end are those of an undisturbed run
 * (choir_hogwild's differ from run to run).
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
 * it is alone until choir_elastic_open, in which it meets the others.
 *
 * Ranks of one machine that choir_spawn_with or `choir train --max-restarts` has started can be
 * lost and replaced. Under `choir run --max-restarts` or with a range of --nnodes, whose agents
 * start all ranks of all machines again, choir_elastic_open brings back the state after the
 * last step, or the one before, from copies that the agents keep; so a machine may be lost with
 * its ranks (choir_hogwild's ranks keep none there). Under other launchers the functions run a
 * training whose ranks stay.
 *
 * A program has one elastic training: a process that is new begins with the program's first,
 * whose collectives would not be those that the others have come to.
 *
 * Two ways. With choir_ddp (without a hook, SyncBatchNorm or a pipeline) every rank has the
 * whole state, so the ranks that are left keep their objects, as above. So do the workers of
 * choir_hogwild, which step by themselves: they go on from the step of the furthest one, whose
 * optimizer's state the others take, and a lost rank's updates since its last exchange are
 * lost. With other strategies they are rebuilt:
 *
 *     opts.rebuild = true;                              (choir_spawn_opts)
 *     opts.least = 4;                                (for strategies whose results or parts
 * depend on the number of ranks; else 0)
 *
 * Before each step every rank copies its part of the state, twice in turns, to memory of the
 * job that outlives all ranks. After a change of the ranks the functions below, and
 * constructors, fail with "peer lost". The program closes its run, frees its env, and begins
 * again with choir_env_init, which waits for the new group; choir_elastic_open then returns at
 * the step at which the job goes on, with everything as it was. With `least`, choir_env_init
 * waits until lost ranks are replaced. At most one step is repeated; with choir_diloco and
 * choir_local_sgd, the steps since the ranks have met.
 *
 * Threads: the main thread. Collective: all functions except choir_elastic_change,
 * choir_elastic_keeps and choir_elastic_free. */
#ifndef CHOIR_ELASTIC_H
#define CHOIR_ELASTIC_H

#include <choir/env.h>
#include <choir/training.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_elastic choir_elastic;

typedef struct choir_elastic_opts {
    /* The program's own state, such as the best loss so far. After each change all ranks have
     * that of the one that is furthest. state_bytes is equal on all ranks; NULL: none. */
    void *state;
    size_t state_bytes;
    /* For ranks that are rebuilt or started again: keep no copies of their state. After a loss
     * the program reads its last checkpoint before choir_elastic_open. Default false */
    bool no_copy;
    /* For ranks that are rebuilt, without copies: the number of steps between checkpoints of
     * the program. New processes take part only after a step that is saved, so that none is
     * done twice. 0: they wait until a rank is lost. Default 0 */
    int64_t save_every;
} choir_elastic_opts;

choir_elastic_opts choir_elastic_defaults(void);

/**
 * Makes a training elastic from the step that choir_step runs next. A rank that is new waits
 * here until it takes part, and returns with the others' state and at their step.
 *
 * @param env       its rank, world, group and generation change with the ranks
 * @param training  the objects that are sent: module, optim, scaler; and the loader, whose
 *                  micro-batches are distributed again. All objects outlive *elastic
 * Errors: argument; unsupported (a strategy that cannot go on with other ranks, named), and
 * those of choir_elastic_step.
 */
CHOIR_CHECKED choir_status choir_elastic_open(choir_env *env, const choir_training *training,
    choir_elastic_opts opts, choir_elastic **elastic);

/**
 * Runs fn(step, arg) as choir_step does, waits for it, and returns when the step is done on all
 * ranks (with choir_hogwild, on this one). If ranks are lost meanwhile, forms the new group and
 * runs the step again; fn is then called again, and finds the rank's new micro-batches by
 * choir_env_micro. If the others had finished the step, this rank receives their state instead.
 *
 * Errors: those of choir_step, except that a peer was lost or silent.
 */
CHOIR_CHECKED choir_status choir_elastic_step(
    choir_elastic *elastic, choir_step_fn *fn, void *arg);

/**
 * Goes on after the failure of another collective call on env->group, between steps. If `why`
 * says that a peer was lost or silent, forms the new group and returns CHOIR_OK: the program
 * repeats its work since the last step. Otherwise, and if ranks cannot be lost, returns
 * `why`, with its message. A rank that was behind may have been moved on by a step.
 */
CHOIR_CHECKED choir_status choir_elastic_recover(choir_elastic *elastic, choir_status why);

/**
 * Ends the job's work. Rank 0 calls it when everything is done, and the other ranks wait here
 * for that. *again: rank 0 was lost before, and the ranks have a new group: the program repeats
 * its work since the last step. Errors: those of choir_elastic_step.
 */
CHOIR_CHECKED choir_status choir_elastic_end(choir_elastic *elastic, bool *again);

void choir_elastic_free(choir_elastic *elastic); /* NULL is fine */

/** Notes that this rank makes progress in the program's own code. A rank that finishes nothing
 * for long, while others wait for it, is replaced; devices, collectives, loaders and
 * checkpoints show their progress by themselves. A program whose own work between them takes a
 * minute or more calls this every few seconds. Not collective; any thread. */
void choir_elastic_beat(void);

/** Returns whether there are copies of the state of ranks that are rebuilt, so that
 * choir_elastic_open will bring it back: initial weights need not be read from files. */
bool choir_elastic_kept(void);

/** Returns the number of steps that were done when these copies were made; -1: there are none.
 * Copies are older than the job's newest checkpoint if the ranks have lately had no memory for
 * them. A program that then reads the checkpoint before choir_elastic_open goes on from there,
 * since that function brings back copies only of the same step or a later one; but with
 * choir_diloco and choir_local_sgd of any step, since checkpoints lack state of their ranks. */
int64_t choir_elastic_kept_step(void);

/** Returns whether copies of the ranks' state are kept from now on: they are rebuilt or started
 * again, `no_copy` is not set, and all of them have the memory. If some have none, rank 0 says
 * so on standard error, and after a loss the program goes on from its last checkpoint. */
bool choir_elastic_keeps(const choir_elastic *elastic);

/** A rank that is gone. */
typedef struct choir_leaver {
    int rank, pid;   /* rank: in the group that it left */
    const char *why; /* "was killed by SIGKILL (Killed)" */
} choir_leaver;

/** A change of the ranks. */
typedef struct choir_membership {
    uint64_t generation; /* counts groups, from 1 */
    int64_t step;        /* steps done when the new group began */
    int world;           /* ranks in it */
    int left_count, joined_count;
    const choir_leaver *left; /* (left_count) valid until the next change */
    const int *joined;        /* (joined_count) ranks that are new */
    /* seconds from the first loss until all ranks that are left had stopped, and until the new
     * group had finished a step */
    double detected_s, resumed_s;
} choir_membership;

/** Returns whether the ranks have changed, and describes each change once; call it after a
 * step, so that resumed_s includes the first step of the new group. Rank 0's call counts as the
 * report of the job: changes that it has not reported become part of the next one. */
bool choir_elastic_change(choir_elastic *elastic, choir_membership *membership);

#ifdef __cplusplus
}
#endif
#endif
