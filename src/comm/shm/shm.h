/* Groups on one machine: declarations shared by the files of this folder.
 *
 * All ranks map one control segment (a memfd). It has one slot per rank, which only that rank
 * writes, and one staging area per rank. A rank's `step` is a counter that only grows. A
 * collective is a sequence of steps: write data, publish the step, wait until all ranks have
 * published theirs, read. Publishing step n also says "I have read the data of step n-1".
 * Therefore two staging buffers, used in turn, are enough, and no step needs a second flag.
 *
 *   segment   | control: fault, slots | staging of rank 0 | staging of rank 1 | ...
 *   staging   | buffer 0 | buffer 1 | result |               CHOIR__CHUNK bytes each
 *
 *   open.c        a group's beginning and end        collectives.c  chooses the way of a call
 *   rendezvous.c  ranks meet and pass descriptors
 *   wait.c        steps, sleep                       moves.c        broadcast, gather and such
 *   call.c        checks that calls are equal    reductions.c   reduce and such
 *   shared.c      memory that peers can reach        messages.c     between two ranks
 *   failures.c    death, silence, who is to blame    numa.c         several memory nodes
 *   rows.c        rows cut over the ranks         step.c         staging buffers, details
 *
 * A choir__shm belongs to the thread that runs the group's queue; other threads read only
 * `shareds` and `bytes`. */
#ifndef CHOIR_SHM_H
#define CHOIR_SHM_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <choir/group.h>
#include "base/base.h"
#include "base/tree.h"
#include "comm/shared.h"

enum {
    CHOIR__MAX_WORLD = 64,
    /* calls that a rank remembers, to compare them with the calls of a rank that is behind */
    CHOIR__RECENT = 8,
    CHOIR__CHUNK = 128 * 1024, /* bytes that a rank stages per step; the peers' share fits L2 */
};

/* The location of a rank's argument inside a choir__shared. */
typedef struct choir__shm_place {
    uint32_t shared; /* id of the choir__shared, from 1; 0: private memory */
    int32_t region;  /* rank that owns the region */
    uint64_t offset; /* bytes */
} choir__shm_place;

/* Further information on a rank's call n, stored in details[n % 2]. */
typedef struct choir__details {
    alignas(64) choir__shm_place in, out;
    bool staged; /* the staging area has the first chunk already */
    int64_t gives[CHOIR__MAX_WORLD], wants[CHOIR__MAX_WORLD]; /* counts of uneven parts */
} choir__details;

/* A rank's slot. Its first cache line carries a whole small collective except the data; the
 * other lines are seldom read. */
typedef struct choir__shm_slot {
    alignas(64) _Atomic uint32_t step; /* a futex */
    _Atomic uint32_t sleepers;         /* ranks asleep on step */
    choir__stamp calls[2];             /* calls that run by steps; call n is in calls[n % 2] */
    choir__details details[2];
    choir__stamp announced;      /* latest call that runs by messages */
    _Atomic uint32_t announcing; /* odd while `announced` is being written */
    _Atomic int32_t left;        /* the rank has freed its group */
} choir__shm_slot;

/* The first failure, in words, for ranks that did not detect it themselves. */
typedef struct choir__fault {
    _Atomic int32_t state; /* 0: none; 1: being written; 2: readable */
    int32_t status;
    char text[496];
} choir__fault;

typedef struct choir__control {
    choir__fault fault;
    alignas(64) choir__shm_slot slots[CHOIR__MAX_WORLD];
} choir__control;

typedef struct choir__messages choir__messages;

typedef struct choir__shm {
    choir__engine base;
    /* name under which the ranks met; sub-groups' names are derived from it */
    char job[160];
    /* parent group of a sub-group; set while the sub-group meets */
    struct choir__shm *parent;
    bool (*stale)(void);       /* says that the meeting is obsolete; NULL after it */
    const int *parent_numbers; /* (world) the ranks' numbers in the parent; NULL: no parent */
    size_t cache_bytes;        /* larger writes bypass the caches */
    int per_node;              /* ranks per memory node; world: one node, or irregular ones */
    size_t levels_from;        /* smallest bytes for which sums use two levels */
    /* Number of checks of a flag before sleeping: spins keep the core, yields give it away. */
    int spins, yields;

    choir__control *control;
    size_t control_bytes;
    choir__shm_slot *me;
    uint32_t step;                      /* last published step */
    uint32_t stepped;                   /* calls that ran by steps so far */
    uint32_t turns;                     /* uses of the staging buffers so far */
    choir__stamp call;                  /* the call being run, for messages */
    choir__stamp recent[CHOIR__RECENT]; /* call n is in recent[n % CHOIR__RECENT] */

    int numa[CHOIR__MAX_WORLD];    /* the ranks' memory nodes */
    int sockets[CHOIR__MAX_WORLD]; /* rank 0: to every rank; others: only [0]; -1: none */
    int pidfds[CHOIR__MAX_WORLD];  /* pidfds of the ranks' processes; -1: none */
    int pids[CHOIR__MAX_WORLD];    /* pids as each rank sees its own; for messages */

    choir__messages *messages; /* NULL: the group has one rank */

    pthread_mutex_t lock;   /* guards shareds */
    choir__shared *shareds; /* list of all live choir__shared, to find data by address */
    uint64_t shared_count;  /* number created so far; yields the next id */
    char *scratch;          /* partial sums */
    choir__node *nodes;     /* (nodes_room) all ranks' nodes of a tree reduction */
    const char **sources;   /* (nodes_room) the nodes' addresses */
    int *owners;            /* (nodes_room) the ranks that own the nodes */
    size_t nodes_room;
} choir__shm;

/* --- open.c --- */

/* Meets the other ranks of the job, under its name. */
choir_status choir__shm_open(choir__meeting *meeting, choir__engine **engine);

/* --- rendezvous.c --- */

/* Connects the ranks of shm->job to rank 0. */
choir_status choir__shm_call_together(choir__shm *shm);

/* Closes the descriptors that are not -1. */
void choir__shm_close_all(int *fds, int count);

/* A rank's message to all others in an exchange; text says why status is not 0. */
typedef struct choir__offer {
    uint64_t bytes;
    int32_t status, pid, world, has_fd, node;
    char text[200];
} choir__offer;

/* Exchanges offers and descriptors (-1: none) between all ranks; the results are in rank order.
 * The caller keeps its own descriptor, and closes the received ones. */
choir_status choir__shm_exchange(choir__shm *shm, const choir__offer *mine, int fd,
    choir__offer offers[CHOIR__MAX_WORLD], int fds[CHOIR__MAX_WORLD]);

/* Returns the failure that rank 0 reported after this rank had met, because the meeting failed
 * for other ranks. */
choir_status choir__shm_last_words(choir__shm *shm);

/* choir__shm_memory returns a sealed memfd of `bytes` bytes, all of them allocated, after
 * `place` (NULL: none) has chosen memory nodes for them. On failure it returns -1 and sets
 * why. */
typedef void choir__shm_placement(const choir__shm *shm, char *at);
int choir__shm_memory(
    const choir__shm *shm, size_t bytes, choir__shm_placement *place, char why[200]);

/* --- wait.c --- */

/* Publishes this rank's next step, and waits until all ranks have published it. */
choir_status choir__shm_barrier(choir__shm *shm);

/* --- failures.c --- */

/* Stores the first failure, and notifies the peers. */
choir_status choir__shm_fail(choir__shm *shm, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The engine's `fail`: like choir__shm_fail, for a failure that was detected outside the
 * engine. */
choir_status choir__shm_spread(
    choir__engine *engine, choir_status status, const char *sentence);
/* The engine's `abort`: publishes a failure that all ranks, this one included, will find. */
void choir__shm_abort(choir__engine *engine, choir_status status, const char *sentence);
/* Notifies the peers of the engine's failure, unless status is OK. Returns status. */
choir_status choir__shm_tell(choir__shm *shm, choir_status status);
/* Adopts a failure that a peer has published, if any. Returns the engine's failure or
 * CHOIR_OK. */
choir_status choir__shm_fault(choir__shm *shm);

bool choir__shm_dead(const choir__shm *shm, int rank);
bool choir__shm_left(const choir__shm *shm, int rank); /* has freed its group */
bool choir__shm_gone(const choir__shm *shm, int rank); /* dead or left */

/* Chooses which of two ranks that are gone a message names: a rank that died rather than a rank
 * that left, perhaps as a consequence. a: -1 if no rank was found so far. */
int choir__shm_culprit(const choir__shm *shm, int a, int b);

/* Fail the engine with a sentence: choir__shm_lost names a rank that is gone, and
 * choir__shm_late `count` ranks that did not come within the timeout. */
choir_status choir__shm_lost(choir__shm *shm, int rank);
choir_status choir__shm_late(choir__shm *shm, const int *silent, int count);

/* The engine's `look`. */
choir_status choir__shm_look(choir__engine *engine, const choir__stamp *during, bool needed);

/* Returns true if the rank has reached the current call. */
bool choir__shm_came(const choir__shm *shm, int rank);

/* Publishes that this rank has reached a call that runs by messages. */
void choir__shm_announce(choir__shm *shm, const choir__stamp *call);
/* Fails if the rank's call with the number of the current call is a different one. */
choir_status choir__shm_compare(choir__shm *shm, int rank);

/* Returns the part of a nap that counts as waiting. */
double choir__shm_slept(double seconds);

/* --- messages.c --- */

/* The memory through which messages travel: choir__messages_memory creates it on one rank and
 * returns its descriptor (-1 and why on failure), choir__messages_map maps it on every rank. */
int choir__messages_memory(int world, char why[200]);
bool choir__messages_map(choir__shm *shm, int fd);
void choir__messages_free(choir__messages *messages, int world); /* NULL is fine */

choir_status choir__shm_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__shm_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__shm_wait_messages(
    choir__engine *engine, choir__request *requests, int count);

/* Run a collective by a schedule, and a batch of sends and receives. */
choir_status choir__shm_by_messages(choir__engine *engine, const choir__call *call);
choir_status choir__shm_batch(choir__engine *engine, const choir__call *calls, int count);

/* --- call.c --- */

/* The first step of every collective: waits for all ranks and checks that they make the same
 * call. */
choir_status choir__shm_enter(choir__shm *shm, const choir__stamp *call);

/* --- shared.c --- */

choir_status choir__shm_share(choir__engine *engine, size_t bytes, choir__shared **shared);

/* Returns the location of data if all of it is in one region of a choir__shared. */
choir__shm_place choir__shm_find(choir__shm *shm, const void *data, size_t bytes);
/* Returns the address of a place in this process, for `bytes` bytes; NULL: out of reach. */
char *choir__shm_at(choir__shm *shm, choir__shm_place place, size_t bytes);
void choir__shm_orphan(choir__shm *shm); /* detaches the shareds, which outlive their group */

/* --- collectives.c --- */

/* The engine's `run`. */
choir_status choir__shm_run(choir__engine *engine, const choir__call *call);

/* --- step.c: shared by all ways to run a call --- */

/* Returns a staging buffer of rank: 0 and 1 are used in turn, 2 is for results. */
char *choir__shm_staging(const choir__shm *shm, int rank, uint32_t buffer);
/* After a call in one step: prepares for the next call to stage as many bytes. Only a hint. */
void choir__shm_prepare(choir__shm *shm, size_t bytes);
/* Runs a step of a collective; the first one compares the calls. */
choir_status choir__shm_step(choir__shm *shm, const choir__stamp *call, bool first);
void choir__shm_count(choir__shm *shm, size_t bytes);
size_t choir__shm_bytes(const choir__stamp *call);

/* Returns true if all ranks have announced that their first chunk is staged. */
bool choir__shm_all_staged(const choir__shm *shm);

/* Return the details of the current call: choir__shm_details a rank's published details,
 * choir__shm_my_details this rank's, which it writes before it enters the call. */
const choir__details *choir__shm_details(const choir__shm *shm, int rank);
choir__details *choir__shm_my_details(choir__shm *shm);

/* The progress of a rank when the staged way begins. */
typedef enum choir__shm_progress {
    CHOIR__FRESH,
    CHOIR__ENTERED,
    CHOIR__STAGED
} choir__shm_progress;

/* --- moves.c, reductions.c --- */

choir_status choir__shm_move(choir__shm *shm, const choir__call *call);
choir_status choir__shm_reduction(choir__shm *shm, const choir__call *call);
choir_status choir__shm_tree_reduce(choir__shm *shm, const choir__call *call);

/* Appends a rank's nodes (n), the first at `at`, to shm->nodes, sources and owners, which have
 * `count` entries so far. */
void choir__shm_add_sources(choir__shm *shm, int rank, const choir__node *nodes, int n,
    const char *at, size_t stride, int count);

/* --- rows.c --- */

choir_status choir__shm_tree_scatter(choir__shm *shm, const choir__call *call);
choir_status choir__shm_gather_rows(choir__shm *shm, const choir__call *call);

enum { CHOIR__DIRECT_FROM = 4 * 1024 }; /* bytes: below, one step beats direct's two */

#endif
