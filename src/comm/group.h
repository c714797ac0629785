/* Inside a group: its queue and engine, memory that peers can read, the tree reduction of
 * gradients. */
#ifndef CHOIR_COMM_GROUP_H
#define CHOIR_COMM_GROUP_H

#include <pthread.h>
#include <choir/group.h>
#include "comm/engine.h"
#include "comm/recorder.h"
#include "comm/rows.h"
#include "device/queue.h"

/* What the groups of a job share; the last of them lets it go. */
typedef struct choir__membership {
    choir__meeting meeting;
    _Atomic int groups;
    _Atomic bool failed; /* one of them has */
} choir__membership;

/* Is told of a group's failure; -> the sentence that callers are told, which it keeps. */
typedef const char *choir__on_failure(void *arg, choir_status status, const char *sentence);

struct choir_group {
    choir__engine *engine;
    choir__queue *queue;
    choir__membership *job;
    choir__log *log;
    char name[48]; /* "world", "world/2": the third split's child */
    uint32_t splits;
    choir__algorithm algorithm;
    choir__call *batch; /* (batch_room) calls since batch_begin */
    int batch_count, batch_room;
    bool batching;
    choir__shared *shareds; /* its shared memory, which may outlive it */
    choir__shared *scratch; /* choir__group_scratch's */
    choir__on_failure *on_failure;
    void *on_failure_arg;
    pthread_mutex_t kept_lock;
    struct choir__group_block
        *kept; /* memory of calls that have not run, or that are recorded */
};

/* A group over an engine, which it owns. */
choir_group *choir__group_new(choir__engine *engine, choir__membership *job, const char *name);

/* The queue that carries the group's collectives: strategies make it wait for devices' events
 * and devices wait for its own. */
choir__queue *choir__group_queue(choir_group *group);

/* Calls fn with the group's failure, on the thread that finds it. To be set before the first
 * call. */
void choir__group_watch(choir_group *group, choir__on_failure *fn, void *arg);

/* Fails the group from any thread, unless it has failed: calls that wait, here and on all other
 * ranks, end with the sentence. */
void choir__group_abort(choir_group *group, choir_status status, const char *sentence);

/* Whether ranks reach each other's regions of choir__shared_new. */
bool choir__group_shares(const choir_group *group);

/* Memory for what the group's queue computes between collectives, shared like
 * choir__shared_new's: the same for all who ask, so good until the next task that uses it.
 * Collective; where it has to grow, waits for all that was issued. */
choir_status choir__group_scratch(choir_group *group, size_t bytes, void **at);

/* Memory of the group, a region a rank (comm/shared.h): every rank can read and write all of
 * them where the engine is shm, its own elsewhere. Zero-filled. Collectives on data in it skip
 * the staging areas. Collective, blocking; bytes may differ from rank to rank and may be 0. */
choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared);
void choir__shared_free(choir__shared *shared);                /* NULL is fine */
void *choir__shared_at(const choir__shared *shared, int rank); /* NULL: out of reach */
size_t choir__shared_bytes(const choir__shared *shared, int rank);

/* The sum over the micro-batches of the job, in the fixed tree, times scale. Rank r holds the
 * micro-batches [lo(r), hi(r)) of `leaves` (choir__tree_run), summed into the nodes that
 * choir__tree_nodes names for that run; its node k (count f32) lies at nodes + k * node_stride
 * bytes. The result lands on every rank in place of node 0. Asynchronous, on the group's
 * queue; fastest in memory of choir__shared_new. Errors: argument (a batch is open). */
typedef struct choir__tree_reduce {
    void *nodes;
    size_t node_stride; /* the same on all ranks */
    int64_t count, leaves;
    float scale;
    choir__algorithm algorithm;
} choir__tree_reduce;

choir_status choir__group_tree_reduce(choir_group *group, const choir__tree_reduce *args);

#endif
