/* Groups: ranks that work in lockstep, and an in-order queue of their collectives.
 *
 * A rank is a process (or, in tests, a thread). choir_spawn starts N of them on this machine
 * that run a C function; `choir run`, mpirun and Slurm start programs. Each calls
 * choir_group_init to meet the others. Every rank must make the same collective calls in the
 * same order; ranks that disagree get an error that shows both sides, and a rank that died, was
 * stopped or is silent past the timeout is named on all others.
 *
 * Every call below that moves data takes a choir_work. NULL: the call returns when this rank's
 * part is done. Otherwise it is only queued, *work says when it is done, and until then what is
 * read must not be written and what is written not be touched. Collectives of a group run one
 * after another in the order of the calls; those of different groups at the same time.
 *
 * Reductions add in a fixed tree over rank numbers: the same bits on every rank, every call and
 * every engine (algorithms chosen by name may differ). bf16 and f16 are added in f32 and
 * rounded once; MEAN of integers rounds towards zero.
 *
 * Threads: one thread at a time issues to a group. */
#ifndef CHOIR_GROUP_H
#define CHOIR_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <choir/device.h>
#include <choir/dtype.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_group choir_group;

typedef struct choir_group_opts {
    int rank, world;       /* -1: from the environment; without it alone, or an error where
                              the method is tcp:// or file:// */
    const char *job;       /* names the job: the same on all ranks, secret; NULL: CHOIR_JOB */
    const char *key_file;  /* the job's key outside loopback, mode 0600; NULL: CHOIR_KEY_FILE */
    const char *backend;   /* "shm", "ucx", "mpi", "nccl"; NULL: CHOIR_BACKEND, else the best
                              that reaches every rank, but never nccl */
    const char *device;    /* of nccl: this rank's GPU, "cuda:3", or those of the machine's
                              ranks in order, "cuda:4,cuda:5"; NULL: cuda:LOCAL_RANK */
    const char *algorithm; /* of collectives: see choir_group_algorithm; NULL: by size */
    double timeout_s;      /* when a silent rank is given up; default 1800 */
} choir_group_opts;

choir_group_opts choir_group_defaults(void);

/**
 * Meets the other ranks. Collective. The caller frees the group.
 *
 * @param method  how they find each other:
 *   env://            RANK and WORLD_SIZE; and CHOIR_JOB, where all ranks are on this
 *                     machine, or MASTER_ADDR and MASTER_PORT
 *   tcp://host:port   rank 0 listens there, the others call it
 *   file://path       rank 0 writes into the file where it can be called
 *   mpi://            joins what mpirun or srun started
 *   NULL              CHOIR_INIT; else what the environment offers, in this order
 *
 * Errors: argument, peer lost, mismatch (of world sizes, versions, two that say they are the
 * same rank), timed out (naming the ranks that never came).
 */
choir_status choir_group_init(const char *method, choir_group_opts opts, choir_group **group);

/** Waits for what was issued, and leaves the group. NULL is fine. Not collective: a rank may
 * leave before the others. */
void choir_group_free(choir_group *group);

int choir_group_rank(const choir_group *group);
int choir_group_world(const choir_group *group);

/** Where a rank is: nodes (machines) count from 0 in the order of their lowest ranks, local
 * ranks within a node. rank: -1 for this one. */
int choir_group_node(const choir_group *group, int rank);
int choir_group_nodes(const choir_group *group);
int choir_group_local_rank(const choir_group *group, int rank);
int choir_group_local_world(const choir_group *group);

/** "shm", "ucx", "mpi", "nccl". */
const char *choir_group_backend(const choir_group *group);

/**
 * Sub-groups. Collective over group. Ranks with the same color form a group, in the order of
 * key, then of rank (MPI_Comm_split). color < 0: this rank is in none and gets NULL. Free a
 * child before or after its parent. On an error *child is NULL.
 *
 * Errors: state (a batch is open), mismatch, peer lost, timed out, memory.
 */
choir_status choir_group_split(choir_group *group, int color, int key, choir_group **child);

/* --- what collectives do to numbers --- */

typedef enum choir_reduce_op {
    CHOIR_SUM,
    CHOIR_MEAN,
    CHOIR_MIN,
    CHOIR_MAX,
    CHOIR_PRODUCT,
    CHOIR_BAND, /* bitwise, of integers */
    CHOIR_BOR,
    CHOIR_BXOR,
    CHOIR_REDUCE_OP_COUNT
} choir_reduce_op;

/* --- asynchronous calls --- */

/** A place in a group's queue, by value; nothing to free. Good until its group is freed, which
 * waits for all that was issued. */
typedef struct choir_work {
    void *queue;
    uint64_t place;
} choir_work;

/** Waits; returns the group's first failure, if it had one. */
choir_status choir_work_wait(choir_work work);
bool choir_work_done(choir_work work);

/** What is issued to the group from now on waits for all that the device was given so far. */
choir_status choir_group_wait_device(choir_group *group, choir_device *device);
/** What is issued to the device from now on waits for work. Neither makes the host wait. */
choir_status choir_device_wait_work(choir_device *device, choir_work work);

/** What a program has done in the middle of a group's collectives; args is a copy. */
typedef choir_status choir_group_fn(const void *args);

/**
 * fn(args) in the group's queue: it finds what the calls before it wrote, and those after it
 * find what it writes. It runs on whichever thread serves the queue, so it must not call the
 * group itself; what it fails with (choir_status, the words by choir_error_message) is the
 * group's failure, on all ranks. Not collective: ranks may differ in such calls.
 *
 * @param args  bytes of them, copied; at most CHOIR_GROUP_ARGS
 * Errors: argument (too many bytes), state (a batch is open).
 */
enum { CHOIR_GROUP_ARGS = 512 };
choir_status choir_group_call(
    choir_group *group, choir_group_fn *fn, const void *args, size_t bytes, choir_work *work);

/**
 * Calls between begin and end are one: they are issued together at the end, send and receive
 * make progress side by side (so that two ranks may send to each other), and neighbours of the
 * same kind, type, operation and root travel as one message (coalesced). Their own work must be
 * NULL; they return only errors of arguments. No call may touch what another one writes: in
 * which order they run is not said.
 *
 * Errors of batch_end: state (no batch is open), and those of the calls.
 */
void choir_group_batch_begin(choir_group *group);
choir_status choir_group_batch_end(choir_group *group, choir_work *work);

/* --- collectives. Errors: argument, dtype, mismatch, peer lost, timed out --- */

/** Returns once all ranks have called it. */
choir_status choir_group_barrier(choir_group *group, choir_work *work);

/** data (count) of rank root on all ranks. */
choir_status choir_group_broadcast(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int root, choir_work *work);

/** data (count) on rank root becomes the reduction over ranks; untouched elsewhere. */
choir_status choir_group_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, int root, choir_work *work);

/** data (count) becomes the reduction over ranks, everywhere. */
choir_status choir_group_all_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, choir_work *work);

/** all (world * count) on rank root = the ranks' mine (count) in rank order; NULL elsewhere. */
choir_status choir_group_gather(choir_group *group, const void *mine, void *all, int64_t count,
    choir_dtype dtype, int root, choir_work *work);

/** all (world * count) = the ranks' mine (count) in rank order. mine may be its place in all.
 */
choir_status choir_group_all_gather(choir_group *group, const void *mine, void *all,
    int64_t count, choir_dtype dtype, choir_work *work);

/** mine (count) = this rank's part of all (world * count) on rank root; all: NULL elsewhere. */
choir_status choir_group_scatter(choir_group *group, const void *all, void *mine, int64_t count,
    choir_dtype dtype, int root, choir_work *work);

/** mine (count) = this rank's part of the reduction of the ranks' all (world * count), which
 * stay as they are. mine may be its place in all. */
choir_status choir_group_reduce_scatter(choir_group *group, const void *all, void *mine,
    int64_t count, choir_dtype dtype, choir_reduce_op op, choir_work *work);

/** Part r of out (world * count) = part `rank` of rank r's in (world * count). */
choir_status choir_group_all_to_all(choir_group *group, const void *in, void *out,
    int64_t count, choir_dtype dtype, choir_work *work);

/** The same with parts of different sizes, packed: in_counts (world) elements go to each rank,
 * out_counts (world) come from each. Both are copied. Error: argument, if out is in. */
choir_status choir_group_all_to_all_uneven(choir_group *group, const void *in,
    const int64_t *in_counts, void *out, const int64_t *out_counts, choir_dtype dtype,
    choir_work *work);

/** data (count) to rank peer, whose next receive from this rank takes it. */
choir_status choir_group_send(choir_group *group, const void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work);
choir_status choir_group_receive(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work);

/**
 * The algorithm of later collectives; NULL: chosen by size and place. Call it alike on all
 * ranks.
 *
 *   exchange   slices all-to-all, each rank reduces its own in the fixed tree, all-gather
 *   direct     the same out of the peers' memory (shm's default)
 *   binomial, halving                              trees; the fixed tree as well
 *   hierarchical                                   shared memory in a node, then between nodes
 *   ring, double_tree, native                      deterministic, other bits
 *
 * Errors: argument, with the list.
 */
choir_status choir_group_algorithm(choir_group *group, const char *name);

/* --- processes --- */

/** What a spawned process runs; its return value is the process's exit status. */
typedef int choir_spawn_fn(int rank, int world, void *arg);

/**
 * Runs fn(rank, world, arg) in `world` new processes of this machine and waits for them.
 *
 * The processes are forks: they see memory as it was. RANK, LOCAL_RANK, WORLD_SIZE,
 * LOCAL_WORLD_SIZE and CHOIR_JOB are set in each. When one fails the others are stopped
 * (SIGTERM, SIGKILL after 5 s) and the message names rank, pid and exit status or signal;
 * SIGINT and SIGTERM are passed on. At SIGUSR1, unless the caller handles it, standard error
 * gets the last collectives of each. None outlives the caller, however it dies.
 *
 * @return CHOIR_OK if all exited with 0; CHOIR_ERR_PEER_LOST, CHOIR_ERR_INTERRUPTED.
 */
choir_status choir_spawn(int world, choir_spawn_fn *fn, void *arg);

/** One of several nodes: starts `local` processes with ranks node * local + i of
 * nodes * local, which meet at `method` ("tcp://host:port" or "file://path": CHOIR_INIT). */
typedef struct choir_spawn_opts {
    int node, nodes;    /* default 0 of 1 */
    const char *method; /* default NULL: this machine alone, nothing listens */
    const char *key_file;
} choir_spawn_opts;

choir_spawn_opts choir_spawn_defaults(void);
choir_status choir_spawn_with(int local, choir_spawn_fn *fn, void *arg, choir_spawn_opts opts);

#ifdef __cplusplus
}
#endif
#endif
