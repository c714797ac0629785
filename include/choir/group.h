/* Groups: ranks that work in lockstep, and an in-order queue of their collectives.
 *
 * A rank is a process (or, in tests, a thread). choir_spawn starts N of them on this machine,
 * which run a C function; `choir run`, mpirun and Slurm start programs. Each rank calls
 * choir_group_init to meet the others. All ranks must make the same collective calls in the
 * same order. Ranks that disagree get an error that shows both sides. If a rank has died, was
 * stopped or is silent past the timeout, an error on all other ranks names it.
 *
 * Every call below that moves data takes a choir_work. With NULL, the call returns when this
 * rank's part is done. Otherwise the call only queues the operation, and *work tells when it
 * is done; until then its inputs must not be written and its outputs not be accessed. The
 * collectives of one group run one after another in the order of the calls; collectives of
 * different groups run concurrently.
 *
 * Reductions add in a fixed tree over rank numbers, so they give the same bits on every rank,
 * in every call and with every engine (an algorithm chosen by name may give other bits). bf16
 * and f16 are added in f32 and rounded once; MEAN of integers rounds towards zero.
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
    /* -1: from the environment. If the environment does not set them, the process is alone, or
     * gets an error if the method is tcp:// or file:// */
    int rank, world;
    const char *job;      /* the job's name: secret, equal on all ranks; NULL: CHOIR_JOB */
    const char *key_file; /* the job's key outside loopback, mode 0600; NULL: CHOIR_KEY_FILE */
    /* engine: "shm", "ucx", "mpi" or "nccl"; NULL: CHOIR_BACKEND, else the best engine that
     * reaches every rank, but never nccl */
    const char *backend;
    /* nccl: this rank's GPU, "cuda:3", or the GPUs of the machine's ranks in order,
     * "cuda:4,cuda:5"; NULL: cuda:LOCAL_RANK */
    const char *device;
    /* algorithm of collectives, a name of choir_group_algorithm; NULL: by size */
    const char *algorithm;
    double timeout_s; /* seconds until a silent rank is given up; default 1800 */
} choir_group_opts;

choir_group_opts choir_group_defaults(void);

/**
 * Meets the other ranks. Collective. The caller frees the group.
 *
 * @param method  the way in which ranks find each other:
 *   env://            RANK and WORLD_SIZE; and CHOIR_JOB, if all ranks are on this machine, or
 *                     MASTER_ADDR and MASTER_PORT
 *   tcp://host:port   rank 0 listens there, the others connect
 *   file://path       rank 0 writes its address into the file
 *   mpi://            joins the ranks that mpirun or srun started
 *   NULL              CHOIR_INIT; else the first of these methods that the environment supports
 *
 * Errors: argument, peer lost, mismatch (different world sizes or versions, or a rank number
 * used twice), timed out (naming the missing ranks).
 */
CHOIR_CHECKED choir_status choir_group_init(
    const char *method, choir_group_opts opts, choir_group **group);

/** Waits for the issued operations, leaves the group and frees it. NULL is fine. Not
 * collective: a rank may leave before the others. */
void choir_group_free(choir_group *group);

int choir_group_rank(const choir_group *group);
int choir_group_world(const choir_group *group);

/** Returns the bytes that this rank has sent to its peers or fetched from them so far. */
uint64_t choir_group_bytes(const choir_group *group);

/** Location of a rank: nodes (machines) count from 0 in the order of their lowest ranks, and
 * local ranks count within a node. rank -1 means this rank. */
int choir_group_node(const choir_group *group, int rank);
int choir_group_nodes(const choir_group *group);
int choir_group_local_rank(const choir_group *group, int rank);
int choir_group_local_world(const choir_group *group);

/** Returns the name of the group's engine: "shm", "ucx", "mpi", "nccl". */
const char *choir_group_backend(const choir_group *group);

/**
 * Splits the group into sub-groups. Collective over group. Ranks with equal color form a
 * group, ordered by key, then by rank (MPI_Comm_split). A rank with color < 0 is in no
 * sub-group and gets NULL. Free a child before or after its parent. On an error *child is
 * NULL.
 *
 * Errors: state (a batch is open), mismatch, peer lost, timed out, memory.
 */
CHOIR_CHECKED choir_status choir_group_split(
    choir_group *group, int color, int key, choir_group **child);

/* --- what collectives do to numbers --- */

typedef enum choir_reduce_op {
    CHOIR_SUM,
    CHOIR_MEAN,
    CHOIR_MIN,
    CHOIR_MAX,
    CHOIR_PRODUCT,
    CHOIR_BAND, /* bitwise, for integers, as the next two */
    CHOIR_BOR,
    CHOIR_BXOR,
    CHOIR_REDUCE_OP_COUNT
} choir_reduce_op;

/* --- asynchronous calls --- */

/** A place in a group's queue, by value; there is nothing to free. It is valid until its group
 * is freed, which waits for all issued operations. */
typedef struct choir_work {
    void *queue;
    uint64_t place;
} choir_work;

/** Waits until the work is done; returns the group's first failure, if any. */
CHOIR_CHECKED choir_status choir_work_wait(choir_work work);
bool choir_work_done(choir_work work);

/** Orders a group after a device: operations that are issued to the group later wait for all
 * work issued to the device so far. The host does not wait. */
CHOIR_CHECKED choir_status choir_group_wait_device(choir_group *group, choir_device *device);
/** Orders a device after a group: work that is issued to the device later waits for `work`. The
 * host does not wait. */
CHOIR_CHECKED choir_status choir_device_wait_work(choir_device *device, choir_work work);

/** A function that a program runs between a group's collectives; args is a copy. */
typedef choir_status choir_group_fn(const void *args);

enum { CHOIR_GROUP_ARGS = 512 };

/**
 * Runs fn(args) in the group's queue, after the calls before it and before the calls after it.
 *
 * It runs on the thread that serves the queue at that time, so it must not call the group
 * itself. If it fails, its choir_status, with the text of choir_error_message, becomes the
 * group's failure, on all ranks. Not collective: each rank may make such calls or not.
 *
 * @param args  `bytes` bytes, which are copied; at most CHOIR_GROUP_ARGS
 * Errors: argument (too many bytes), state (a batch is open).
 */
CHOIR_CHECKED choir_status choir_group_call(
    choir_group *group, choir_group_fn *fn, const void *args, size_t bytes, choir_work *work);

/**
 * Combines the calls between begin and end into one. They are issued together at the end.
 * Sends and receives progress concurrently (so two ranks may send to each other), and adjacent
 * calls of the same kind, type, operation and root travel as one message (coalesced). The
 * calls' own work must be NULL; they report only wrong arguments. No call may access the output
 * of another one, since their order is unspecified.
 *
 * Errors of batch_end: state (no batch is open), errors of the calls.
 */
void choir_group_batch_begin(choir_group *group);
CHOIR_CHECKED choir_status choir_group_batch_end(choir_group *group, choir_work *work);

/* --- collectives. Errors: argument, dtype, mismatch, peer lost, timed out --- */

/** Returns after all ranks have called it. */
CHOIR_CHECKED choir_status choir_group_barrier(choir_group *group, choir_work *work);

/** Copies data (count) of rank root to all ranks. */
CHOIR_CHECKED choir_status choir_group_broadcast(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int root, choir_work *work);

/** Replaces data (count) on rank root by the reduction over ranks; the other ranks' data stay
 * unchanged. */
CHOIR_CHECKED choir_status choir_group_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, int root, choir_work *work);

/** Replaces data (count) by the reduction over ranks, on all ranks. */
CHOIR_CHECKED choir_status choir_group_all_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, choir_work *work);

/** Stores the ranks' mine (count), in rank order, in all (world * count) on rank root. The
 * other ranks pass NULL. */
CHOIR_CHECKED choir_status choir_group_gather(choir_group *group, const void *mine, void *all,
    int64_t count, choir_dtype dtype, int root, choir_work *work);

/** Stores the ranks' mine (count), in rank order, in all (world * count). mine may be this
 * rank's part of all. */
CHOIR_CHECKED choir_status choir_group_all_gather(choir_group *group, const void *mine,
    void *all, int64_t count, choir_dtype dtype, choir_work *work);

/** Stores this rank's part of rank root's all (world * count) in mine (count). The other ranks
 * pass all = NULL. */
CHOIR_CHECKED choir_status choir_group_scatter(choir_group *group, const void *all, void *mine,
    int64_t count, choir_dtype dtype, int root, choir_work *work);

/** Stores this rank's part of the reduction of the ranks' all (world * count) in mine (count).
 * all stays unchanged, but mine may be this rank's part of all. */
CHOIR_CHECKED choir_status choir_group_reduce_scatter(choir_group *group, const void *all,
    void *mine, int64_t count, choir_dtype dtype, choir_reduce_op op, choir_work *work);

/** Stores part `rank` of rank r's in (world * count) in part r of out (world * count). */
CHOIR_CHECKED choir_status choir_group_all_to_all(choir_group *group, const void *in, void *out,
    int64_t count, choir_dtype dtype, choir_work *work);

/** Like choir_group_all_to_all, with packed parts of different sizes: in_counts (world)
 * elements go to each rank, out_counts (world) come from each. Both arrays are copied. Error:
 * argument, if out is in. */
CHOIR_CHECKED choir_status choir_group_all_to_all_uneven(choir_group *group, const void *in,
    const int64_t *in_counts, void *out, const int64_t *out_counts, choir_dtype dtype,
    choir_work *work);

/** choir_group_send sends data (count) to rank peer, whose next choir_group_receive from this
 * rank stores it. */
CHOIR_CHECKED choir_status choir_group_send(choir_group *group, const void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work);
CHOIR_CHECKED choir_status choir_group_receive(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work);

/**
 * Checks that a value is equal on all ranks, such as an option that decides the numbers of a
 * training:
 *
 *     choir_group_agree(env.group, "lr", "0.01")
 *
 * An error says which ranks have which value: "ranks disagree on lr: 0.01 on ranks 0, 2;
 * 0.001 on rank 1". The group stays usable. `choir train` compares all options of its
 * job in this way when ranks that were started one by one have met.
 *
 * @param group  NULL, or a group of one rank: returns CHOIR_OK
 * @param value  a text of any length; NULL: unspecified
 * Errors: mismatch, peer lost, timed out. Collective.
 */
CHOIR_CHECKED choir_status choir_group_agree(
    choir_group *group, const char *name, const char *value);

/**
 * Selects the algorithm of later collectives; NULL: chosen by size and location. All ranks
 * must make the same call.
 *
 *   exchange   all-to-all of slices; each rank reduces its own in the fixed tree; all-gather
 *   direct     like exchange, but reads the peers' memory (shm's default)
 *   binomial, halving            trees; also reduce in the fixed tree
 *   hierarchical                 shared memory in a node, then between nodes
 *   ring, double_tree, native    deterministic, other bits
 *
 * Errors: argument, with the list.
 */
CHOIR_CHECKED choir_status choir_group_algorithm(choir_group *group, const char *name);

/* --- processes --- */

/** The function of a spawned process; its return value is the process's exit status. */
typedef int choir_spawn_fn(int rank, int world, void *arg);

/**
 * Runs fn(rank, world, arg) in `world` new processes of this machine, 1 to 1024, and waits for
 * them. A group in shared memory has up to 64 ranks.
 *
 * The processes are forks: they start with a copy of the caller's memory. RANK, LOCAL_RANK,
 * WORLD_SIZE, LOCAL_WORLD_SIZE and CHOIR_JOB are set in each. If one fails, the others are
 * stopped (SIGTERM, SIGKILL after 5 s) and the message names rank, pid and exit status or
 * signal. SIGTERM, SIGINT, SIGHUP, SIGXCPU and SIGQUIT are passed on, and so is SIGUSR1 if the
 * caller handles it. If the caller does not handle SIGUSR1 or SIGUSR2, that signal makes every
 * process write its last collectives to standard error. No process outlives the caller, however
 * the caller dies.
 *
 * @return CHOIR_OK if all exited with 0; else CHOIR_ERR_PEER_LOST or CHOIR_ERR_INTERRUPTED; the
 *         former also if a process crashes while it is interrupted
 */
CHOIR_CHECKED choir_status choir_spawn(int world, choir_spawn_fn *fn, void *arg);

/** Options for one of several nodes. Each node starts `local` processes with the ranks node *
 * local + i of nodes * local, which meet at `method` ("tcp://host:port" or "file://path":
 * CHOIR_INIT). */
typedef struct choir_spawn_opts {
    int node, nodes;    /* default 0 of 1 */
    const char *method; /* default NULL: this machine alone, without a listening port */
    const char *key_file;
    double timeout_s; /* seconds that a rank may stay stopped after another has ended; default
                         1800 */
    /* Seconds from a signal that ends the job until ranks that are still there are ended, by a
     * second SIGTERM and then SIGKILL. Default 0: they take the time that they need */
    double grace_s;
    /* Number of failed ranks after which the job still continues (elastic.h). A new process
     * replaces each. One node only. Default 0 */
    int max_restarts;
    int spares; /* additional processes that wait to replace ranks; default 0 */
    /* With max_restarts. true: after each change of the ranks all ranks rebuild their objects,
     * which strategies other than choir_ddp need (elastic.h). Default false */
    bool rebuild;
    /* With rebuild: the smallest number of ranks with which the job continues; fewer ranks wait
     * for new processes. Default 0: one rank */
    int least;
    /* Called in this process, with the ranks' arg, when all ranks have been forked, so that
     * threads that it starts exist in no rank. Default NULL */
    void (*started)(void *arg);
    /* With max_restarts and without rebuild, only the ranks have the job's state. If all ranks
     * are lost while restarts are left, the caller may begin again from a checkpoint, which
     * uses one restart; the number of restarts left after that is stored here. In all other
     * cases -1 is stored. Default NULL */
    int *restarts_left;
    /* Receives the first signal that interrupted the ranks; 0: no signal did. Default NULL */
    int *interrupted_by;
} choir_spawn_opts;

choir_spawn_opts choir_spawn_defaults(void);
/** Like choir_spawn, with options, for the `local` ranks of this node. */
CHOIR_CHECKED choir_status choir_spawn_with(
    int local, choir_spawn_fn *fn, void *arg, choir_spawn_opts opts);

#ifdef __cplusplus
}
#endif
#endif
