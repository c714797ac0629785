/* Groups: ranks that work in lockstep, and an in-order queue of their collectives.
 *
 * A rank is a process. choir_spawn starts N of them on this machine that run a C function, as
 * torch.multiprocessing's spawn does; each calls choir_group_open to meet the others. Every
 * rank must make the same collective calls in the same order; ranks that disagree get an error
 * that shows both sides, and a rank that died or is silent past the timeout is named on all
 * others.
 *
 * Threads: one thread at a time issues to a group. */
#ifndef CHOIR_GROUP_H
#define CHOIR_GROUP_H

#include <stddef.h>
#include <stdint.h>
#include <choir/dtype.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_group choir_group;

typedef struct choir_group_opts {
    int rank, world;  /* -1: from RANK and WORLD_SIZE in the environment; alone without them */
    const char *job;  /* names the job: the same on all ranks, secret; NULL: CHOIR_JOB */
    double timeout_s; /* when a silent rank is given up; default 1800 */
} choir_group_opts;

choir_group_opts choir_group_defaults(void);

/** Meets the other ranks. Collective. The caller frees the group.
 *  Errors: argument, peer lost, timed out (naming the ranks that never came). */
choir_status choir_group_open(choir_group_opts opts, choir_group **group);

/** Leaves the group. NULL is fine. Not collective: a rank may leave before the others. */
void choir_group_free(choir_group *group);

int choir_group_rank(const choir_group *group);
int choir_group_world(const choir_group *group);

typedef enum choir_reduce_op { CHOIR_SUM, CHOIR_MEAN, CHOIR_MIN, CHOIR_MAX } choir_reduce_op;

/* The calls below are collective and return when this rank's part is done.
 * Errors: argument, mismatch, peer lost, timed out. */

/** Returns once all ranks have called it. */
choir_status choir_group_barrier(choir_group *group);

/** data (bytes) of rank root on all ranks. */
choir_status choir_group_broadcast(choir_group *group, void *data, size_t bytes, int root);

/** data (count) f32|f64|i64|i32 becomes the reduction over ranks, added in the fixed tree over
 * rank numbers: the same bits on every rank and every call. */
choir_status choir_group_all_reduce(
    choir_group *group, void *data, int64_t count, choir_dtype dtype, choir_reduce_op op);

/** all (world * bytes) = the ranks' mine (bytes) in rank order. */
choir_status choir_group_all_gather(
    choir_group *group, const void *mine, void *all, size_t bytes);

/** What a spawned process runs; its return value is the process's exit status. */
typedef int choir_spawn_fn(int rank, int world, void *arg);

/**
 * Runs fn(rank, world, arg) in `world` new processes of this machine and waits for them.
 *
 * The processes are forks: they see memory as it was. RANK, LOCAL_RANK, WORLD_SIZE,
 * LOCAL_WORLD_SIZE and CHOIR_JOB are set in each. When one fails the others are stopped
 * (SIGTERM, SIGKILL after 5 s) and the message names rank, pid and exit status or signal;
 * SIGINT and SIGTERM are passed on. None outlives the caller, however it dies.
 *
 * @return CHOIR_OK if all exited with 0; CHOIR_ERR_PEER_LOST, CHOIR_ERR_INTERRUPTED.
 */
choir_status choir_spawn(int world, choir_spawn_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
