/* Groups on one machine: what the files of this folder share.
 *
 * All ranks map one control segment (a memfd): a slot a rank, which that rank alone writes,
 * and a staging area a rank. A rank's `step` is a counter that only grows. A collective is a
 * row of steps: write something, publish the step, wait until all ranks have published theirs,
 * read. Publishing step n also says "I have read what belongs to step n-1", which is why two
 * staging buffers, used in turn, are enough, and why no step needs a second flag.
 *
 *   segment   | control: fault, slots | staging of rank 0 | staging of rank 1 | ...
 *   staging   | buffer 0 | buffer 1 | result |               CHOIR__CHUNK bytes each
 *
 *   open.c        a group's beginning and end        collectives.c  which way a call takes
 *   rendezvous.c  ranks meet and pass descriptors
 *   wait.c        steps, sleep                       moves.c        broadcast, gather and such
 *   call.c        do all ranks make the same call    reductions.c   reduce and such
 *   shared.c      memory that peers can reach        messages.c     between two ranks
 *   failures.c    death, silence, who is to blame    numa.c         several memory nodes
 *   rows.c        of rows cut over the ranks         step.c         staging buffers, details
 *
 * A choir__shm belongs to whoever runs the group's queue; only `shareds` and `bytes` are read
 * by other threads. */
#ifndef CHOIR_SHM_H
#define CHOIR_SHM_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <choir/group.h>
#include "base/base.h"
#include "comm/pattern/tree.h"
#include "comm/shared.h"

enum {
    CHOIR__MAX_WORLD = 64,
    CHOIR__RECENT =
        8, /* calls that a rank remembers, to compare them with one that is behind */
    CHOIR__CHUNK = 128 * 1024, /* what one rank stages in one step; the peers' share fits L2 */
};

/* Where a rank's argument lies, when that is in a choir__shared. */
typedef struct choir__shm_place {
    uint32_t shared; /* which one, counted from 1; 0: private memory */
    int32_t region;  /* whose */
    uint64_t offset; /* in bytes */
} choir__shm_place;

/* What else a rank says of its call n, in turn n % 2. */
typedef struct choir__details {
    alignas(64) choir__shm_place in, out;
    bool staged; /* its first chunk is in its staging area already */
    int64_t gives[CHOIR__MAX_WORLD], wants[CHOIR__MAX_WORLD]; /* counts of uneven parts */
} choir__details;

/* The first line carries a whole small collective but its data; the others are seldom read. */
typedef struct choir__shm_slot {
    alignas(64) _Atomic uint32_t step; /* a futex */
    _Atomic uint32_t sleepers;         /* ranks asleep on step */
    choir__stamp calls[2];             /* of those that run by steps, n in calls[n % 2] */
    choir__details details[2];
    choir__stamp announced;      /* the newest that runs by messages */
    _Atomic uint32_t announcing; /* odd while that is written */
    _Atomic int32_t left;        /* the rank has freed its group */
} choir__shm_slot;

/* The first failure, in words, for ranks that did not see it themselves. */
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
    char job[160];             /* under which the ranks met; a sub-group's is made out of it */
    struct choir__shm *parent; /* while this sub-group of it meets */
    size_t cache_bytes; /* what is written in one go and exceeds this goes round the caches */
    int per_node;       /* ranks on each memory node; world: one node, or irregular ones */
    size_t levels_from; /* bytes that go by memory nodes */
    int spins, yields; /* looks at a flag before sleeping: with the core held, and given away */

    choir__control *control;
    size_t control_bytes;
    choir__shm_slot *me;
    uint32_t step;                      /* last published */
    uint32_t stepped;                   /* calls that ran by steps so far */
    uint32_t turns;                     /* uses of the staging buffers so far */
    choir__stamp call;                  /* the call being run, for messages */
    choir__stamp recent[CHOIR__RECENT]; /* call n in recent[n % CHOIR__RECENT] */

    int numa[CHOIR__MAX_WORLD];    /* the ranks' memory nodes */
    int sockets[CHOIR__MAX_WORLD]; /* rank 0: to every rank; others: [0] alone; -1: none */
    int pidfds[CHOIR__MAX_WORLD];  /* every rank's process; -1: none */
    int pids[CHOIR__MAX_WORLD];    /* the same, as each calls itself: for messages */

    choir__messages *messages; /* NULL: alone */

    pthread_mutex_t lock;   /* guards shareds */
    choir__shared *shareds; /* all that are alive, to find data by address */
    uint64_t shared_count;  /* made so far: the next one's name */
    char *scratch;          /* partial sums */
    choir__node *nodes;     /* (nodes_room) a tree reduction's nodes of all ranks */
    const char **sources;   /* (nodes_room) and where they lie */
    int *owners;            /* (nodes_room) and the ranks they belong to */
    size_t nodes_room;
} choir__shm;

/* --- open.c --- */

/* Meets the other ranks of the job, under its name. */
choir_status choir__shm_open(choir__meeting *meeting, choir__engine **engine);
choir_status choir__shm_split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child);
void choir__shm_close(choir__engine *engine);

/* --- rendezvous.c --- */

/* The ranks of shm->job get connected to rank 0. */
choir_status choir__shm_call_together(choir__shm *shm);

/* Closes those descriptors that are not -1. */
void choir__shm_close_all(int *fds, int count);

/* What a rank tells all others in an exchange; text says why status is not 0. */
typedef struct choir__offer {
    uint64_t bytes;
    int32_t status, pid, world, has_fd, node;
    char text[200];
} choir__offer;

/* Everyone's offers and descriptors (-1: none) in rank order. Each rank gives one of its own
 * or -1, which stays the caller's; the ones received are the caller's to close. */
choir_status choir__shm_exchange(choir__shm *shm, const choir__offer *mine, int fd,
    choir__offer offers[CHOIR__MAX_WORLD], int fds[CHOIR__MAX_WORLD]);

/* What rank 0 sent after this rank had met: that the meeting failed for others. */
choir_status choir__shm_last_words(choir__shm *shm);

/* A sealed memfd of so many bytes, all of them allocated, after `place` (NULL: nothing) has had
 * its say on where. On failure -1 and why. */
typedef void choir__shm_placement(const choir__shm *shm, char *at);
int choir__shm_memory(
    const choir__shm *shm, size_t bytes, choir__shm_placement *place, char why[200]);

/* --- wait.c --- */

void choir__shm_publish(choir__shm *shm);         /* my next step */
choir_status choir__shm_wait(choir__shm *shm);    /* until all have published as many */
choir_status choir__shm_barrier(choir__shm *shm); /* both */

/* --- failures.c --- */

/* Keeps the first failure; tells the peers of it when they could not see it themselves. */
choir_status choir__shm_fail(choir__shm *shm, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of a failure found elsewhere: the engine's `fail`. */
choir_status choir__shm_spread(
    choir__engine *engine, choir_status status, const char *sentence);
/* A failure for all ranks, this one too, to find: the engine's `abort`. */
void choir__shm_abort(choir__engine *engine, choir_status status, const char *sentence);
/* Tells the peers of the engine's failure, unless status is OK. Returns status. */
choir_status choir__shm_tell(choir__shm *shm, choir_status status);
choir_status choir__shm_fault(choir__shm *shm); /* a failure that a peer has told of */

bool choir__shm_dead(const choir__shm *shm, int rank);
bool choir__shm_left(const choir__shm *shm, int rank); /* has freed its group */
bool choir__shm_gone(const choir__shm *shm, int rank); /* either */

/* Of two that are gone, who is to be named: one that died, rather than one that left, perhaps
 * because of it. a: -1, none so far. */
int choir__shm_culprit(const choir__shm *shm, int a, int b);

/* Fail, in words: a rank that is gone; ranks (count) that kept us waiting too long. */
choir_status choir__shm_lost(choir__shm *shm, int rank);
choir_status choir__shm_late(choir__shm *shm, const int *silent, int count);

/* The engine's `look`. */
choir_status choir__shm_look(choir__engine *engine, const choir__stamp *during, bool needed);

/* Whether rank has come to the call being run. */
bool choir__shm_came(const choir__shm *shm, int rank);

/* This rank is at a call that runs by messages. */
void choir__shm_announce(choir__shm *shm, const choir__stamp *call);
/* Fails if rank is at a call of our number that is another one. */
choir_status choir__shm_compare(choir__shm *shm, int rank);

/* How much of a nap counts as waiting. */
double choir__shm_slept(double seconds);

/* --- messages.c --- */

/* The memory that messages travel through: made by one rank, mapped by all. */
int choir__messages_memory(int world, char why[200]);
bool choir__messages_map(choir__shm *shm, int fd);
void choir__messages_free(choir__messages *messages, int world); /* NULL is fine */

choir_status choir__shm_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__shm_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__shm_wait_messages(
    choir__engine *engine, choir__request *requests, int count);

/* A collective by a schedule; sends and receives. */
choir_status choir__shm_by_messages(choir__engine *engine, const choir__call *call);
choir_status choir__shm_batch(choir__engine *engine, const choir__call *calls, int count);

/* --- call.c --- */

/* The first step of every collective: all ranks are here, with the same call. */
choir_status choir__shm_enter(choir__shm *shm, const choir__stamp *call);

/* --- shared.c --- */

choir_status choir__shm_share(choir__engine *engine, size_t bytes, choir__shared **shared);

/* Where data lies, if all of it is in one region of a choir__shared. */
choir__shm_place choir__shm_find(choir__shm *shm, const void *data, size_t bytes);
/* That place here, for `bytes` bytes; NULL: out of reach. */
char *choir__shm_at(choir__shm *shm, choir__shm_place place, size_t bytes);
choir__shared *choir__shm_shared(choir__shm *shm, uint64_t id);
void choir__shm_orphan(choir__shm *shm); /* shareds outlive their group */

/* --- collectives.c --- */

/* The engine's `run`. */
choir_status choir__shm_run(choir__engine *engine, const choir__call *call);

/* --- step.c: what the ways of a call share --- */

/* A staging buffer of rank: 0 and 1 in turn; 2 for results. */
char *choir__shm_staging(const choir__shm *shm, int rank, uint32_t buffer);
/* After a call in one step: a hint that the next one will stage as much. */
void choir__shm_prepare(choir__shm *shm, size_t bytes);
/* A step of a collective; the first one compares the calls. */
choir_status choir__shm_step(choir__shm *shm, const choir__stamp *call, bool first);
void choir__shm_count(choir__shm *shm, size_t bytes);
size_t choir__shm_bytes(const choir__stamp *call);

/* Whether all ranks have staged their first chunk, as they told. */
bool choir__shm_all_staged(const choir__shm *shm);

/* What rank told of the call being run; and this rank's own, to be written before it enters. */
const choir__details *choir__shm_details(const choir__shm *shm, int rank);
choir__details *choir__shm_my_details(choir__shm *shm);

/* How far a rank is when the staged way begins. */
typedef enum choir__shm_progress {
    CHOIR__FRESH,
    CHOIR__ENTERED,
    CHOIR__STAGED
} choir__shm_progress;

/* --- moves.c, reductions.c --- */

choir_status choir__shm_move(choir__shm *shm, const choir__call *call);
choir_status choir__shm_reduction(choir__shm *shm, const choir__call *call);
choir_status choir__shm_tree_reduce(choir__shm *shm, const choir__call *call);

/* Adds rank's nodes (n), the first at `at`, to shm->nodes, sources and owners, which have
 * `count` so far. */
void choir__shm_add_sources(choir__shm *shm, int rank, const choir__node *nodes, int n,
    const char *at, size_t stride, int count);

/* --- rows.c --- */

choir_status choir__shm_tree_scatter(choir__shm *shm, const choir__call *call);
choir_status choir__shm_gather_rows(choir__shm *shm, const choir__call *call);

enum { CHOIR__DIRECT_FROM = 4 * 1024 }; /* bytes: below, one step beats the two of direct */

#endif
