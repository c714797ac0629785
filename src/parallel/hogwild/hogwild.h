/* Inside Hogwild: the master's memory, a worker's copies, and the exchange between them. */
#ifndef CHOIR_PARALLEL_HOGWILD_H
#define CHOIR_PARALLEL_HOGWILD_H

#include <choir/hogwild.h>
#include "comm/group.h"
#include "launch/spawn.h"
#include "nn/module.h"

/* The header of the master's memory. Pieces follow, each at a multiple of 64 bytes. */
typedef struct choir__hogwild_head {
    uint64_t model;           /* hash of names, shapes and layouts */
    _Atomic uint64_t updates; /* number of exchanges that changed the master */
} choir__hogwild_head;

enum { CHOIR__HOGWILD_LINE = 64 };

/* How a worker's change of a word reaches the master. */
typedef enum choir__hogwild_rule {
    CHOIR__ADD_F32, /* parameters: the change is added */
    CHOIR__PUT_F32, /* running statistics: the last writer's value is kept */
    CHOIR__ADD_I64  /* counters of 64 bits: the change is added */
} choir__hogwild_rule;

/* A parameter or buffer. */
typedef struct choir__hogwild_piece {
    choir_tensor *tensor;
    choir__hogwild_rule rule;
    size_t offset, bytes; /* offset: in the master's memory and in the snapshot */
    void *mine;           /* the worker's words, as the host reads them; NULL: not a worker */
    /* the worker's words if they are in memory that the host cannot read; `mine` is then the
     * host's copy during an exchange. Else NULL */
    void *far;
} choir__hogwild_piece;

typedef struct choir__hogwild {
    choir_module *module;
    choir__mapping *mapping; /* the master's memory; NULL: a group's memory */
    choir_group *group;      /* the workers; NULL: none is known */
    bool elastic;            /* the group's ranks can change */
    choir__shared *shared;
    char *master;
    size_t bytes;
    choir__hogwild_piece *pieces;
    int count;
    bool worker;
    char *snapshot; /* (bytes) the worker's words as of the last exchange */
    char *mirror; /* (bytes) the host's copy of the words in far memory; NULL: no word is far */
    /* the storage of the snapshot; NULL: it is plain host memory */
    choir__storage *words;
    /* runs the exchanges: the device's; a queue of the host's own if words are far */
    choir__queue *queue;
    uint64_t seen; /* head->updates at the last exchange; only the queue's tasks use it */
    choir__strategy strategy;
    choir__spawn_watcher spawns;
} choir__hogwild;

static inline choir__hogwild_head *choir__hogwild_head_of(const choir__hogwild *h)
{
    return (choir__hogwild_head *)h->master;
}

/* tasks.c: queue an exchange, and the taking of all of the master's words, in the order of
 * the device's work. always: also if the master has not changed since the last exchange. */
void choir__hogwild_queue_exchange(choir__hogwild *h, bool always);
void choir__hogwild_queue_take(choir__hogwild *h);

/* regroup.c: a worker's part in a change of the ranks. */
choir_status choir__hogwild_ranks_changed(
    choir__strategy *s, choir_group *group, uint64_t undone);
choir_status choir__hogwild_ranks_settled(choir__strategy *s, int source);
bool choir__hogwild_is_apart(const choir__strategy *s);

/* exchange.c: exchanges `count` words of one piece with the master, while other workers may do
 * the same. Returns true if it has changed the master. */
bool choir__hogwild_exchange(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count);

/* exchange.c: sets mine and snapshot to the master's words. */
void choir__hogwild_take(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count);

#endif
