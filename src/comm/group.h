/* Internals of a group: its queue and engine, memory that peers can read, and the tree
 * reduction of gradients. */
#ifndef CHOIR_COMM_GROUP_H
#define CHOIR_COMM_GROUP_H

#include <pthread.h>
#include <choir/group.h>
#include "comm/engine.h"
#include "comm/flight/flight.h"
#include "comm/rows.h"
#include "device/queue.h"

/* State that the groups of a job share; the last group releases it. */
typedef struct choir__group_job {
    choir__meeting meeting;
    _Atomic int groups;
    _Atomic bool failed; /* some group has failed */
} choir__group_job;

/* Receives a group's failure. Returns the sentence to report to callers, which the callee keeps
 * alive. */
typedef const char *choir__on_failure(void *arg, choir_status status, const char *sentence);

struct choir_group {
    choir__engine *engine;
    choir__queue *queue;
    choir__group_job *job;
    choir__flight_log *log;
    char name[48]; /* "world", "world/2.0": a child of the third split, "world/2.0 (tensor)" */
    uint32_t splits;
    choir__algorithm algorithm;
    choir__call *batch; /* (batch_count) calls since batch_begin */
    int batch_count;
    uint32_t expected; /* layout of the next call: choir__group_expect */
    bool batching;
    choir__shared *shareds; /* shared memory of the group, which may outlive it */
    choir__shared *scratch; /* for choir__group_scratch */
    choir__on_failure *on_failure;
    void *on_failure_arg;
    pthread_mutex_t kept_lock;
    struct choir__group_block *kept; /* memory of calls that have not run yet or are recorded */
};

/* Creates a group over an engine, which it then owns. */
choir_group *choir__group_new(choir__engine *engine, choir__group_job *job, const char *name);

/* Like choir_group_init. stale: true once the meeting cannot succeed any more, because a rank
 * has left the job; the group then fails with "peer lost" at once. NULL: never. */
choir_status choir__group_open(
    const char *method, choir_group_opts opts, bool (*stale)(void), choir_group **group);

/* Returns the queue that carries the group's collectives: strategies make it wait for devices'
 * events, and devices wait for its own. */
choir__queue *choir__group_queue(choir_group *group);

/* Makes the ranks compare a tensor's shape, and whether it requires a gradient, in this
 * thread's next collective on the group, in addition to the call's own arguments. Ranks that
 * differ get the group's mismatch. */
void choir__group_expect(choir_group *group, uint16_t shape, bool gradient);

/* Makes the thread that detects the group's failure call fn with it. Sentences name a rank with
 * its role. Call this before the group's first collective. */
void choir__group_watch(choir_group *group, choir__on_failure *fn, void *arg, choir__role role);

/* Fails the group from any thread, unless it has failed already: calls that wait, here and on
 * all other ranks, end with the sentence. */
void choir__group_abort(choir_group *group, choir_status status, const char *sentence);

/* The color of a rank. All ranks have the same rule. */
typedef int choir__color_of(int rank, const void *arg);
/* Like choir_group_split, with both groups given, and with colors that follow from the ranks,
 * whose order the child keeps. Ranks that one rank represents (comm/dry) cannot be split
 * otherwise. The child's name contains `purpose` (a mesh's dimension), unless that is NULL. */
choir_status choir__group_split_by(choir_group *group, choir__color_of *color, const void *arg,
    const char *purpose, choir_group **child);
/* A rule for ranks that differ in one coordinate, rank / stride % size. */
typedef struct choir__coordinate {
    int stride, size;
} choir__coordinate;
int choir__color_without(int rank, const void *coordinate);

/* Returns true if the ranks can reach each other's regions of choir__shared_new. */
bool choir__group_shares(const choir_group *group);

/* Returns memory for computations on the group's queue between collectives, shared as by
 * choir__shared_new. All callers get the same memory, so its contents are valid only until the
 * next task that uses it. Collective. If the memory has to grow, the call waits for all issued
 * work. */
choir_status choir__group_scratch(choir_group *group, size_t bytes, void **at);

/* Allocates memory of the group, one region per rank (comm/shared.h): every rank can read and
 * write all regions if the engine is shm, else only its own. Zero-filled. Collectives on data
 * in it skip the staging areas. Collective, blocking; bytes may differ between ranks and may be
 * 0. */
choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared);
void choir__shared_free(choir__shared *shared);                /* NULL is fine */
void *choir__shared_at(const choir__shared *shared, int rank); /* NULL: out of reach */
size_t choir__shared_bytes(const choir__shared *shared, int rank);

/* The sum over the job's micro-batches, in the fixed tree, times scale. Rank r has the
 * micro-batches [lo(r), hi(r)) of `leaves` (choir__tree_run), summed into the nodes that
 * choir__tree_nodes returns for that run; node k (count) is at nodes + k * node_stride
 * bytes. The result replaces node 0 on every rank. Asynchronous, on the group's queue; fastest
 * in memory of choir__shared_new. Errors: argument (a batch is open). */
typedef struct choir__tree_reduce {
    void *nodes;
    size_t node_stride; /* bytes from one node to the next, equal on all ranks */
    int64_t count, leaves;
    double scale; /* a number of dtype */
    choir__algorithm algorithm;
    choir_dtype dtype; /* f32 or f64 */
} choir__tree_reduce;

choir_status choir__group_tree_reduce(choir_group *group, const choir__tree_reduce *args);

#endif
