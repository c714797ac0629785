/* Inside Hogwild: the master's memory, a worker's copies, and the exchange between them. */
#ifndef CHOIR_PARALLEL_HOGWILD_H
#define CHOIR_PARALLEL_HOGWILD_H

#include <choir/hogwild.h>
#include "comm/group.h"
#include "launch/spawn.h"
#include "nn/module.h"

/* What the master's memory begins with; pieces follow, each at a multiple of 64 bytes. */
typedef struct choir__hogwild_head {
    uint64_t model;           /* names, shapes and layouts, hashed */
    _Atomic uint64_t updates; /* exchanges that changed something */
} choir__hogwild_head;

enum { CHOIR__HOGWILD_LINE = 64 };

/* What becomes of a word that a worker has changed. */
typedef enum choir__hogwild_rule {
    CHOIR__ADD_F32, /* parameters: the change is added */
    CHOIR__PUT_F32, /* running statistics: the last writer's */
    CHOIR__ADD_I64  /* counters: the change is added; words are of 64 bits */
} choir__hogwild_rule;

/* A parameter or buffer. */
typedef struct choir__hogwild_piece {
    choir_tensor *tensor;
    choir__hogwild_rule rule;
    size_t offset, bytes; /* in the master's memory, and in the snapshot's */
    void *mine;           /* what the worker computes on; NULL: not a worker */
    void *far;            /* where that is memory that processors cannot read: it, and mine is
                             the host's copy while the two are exchanged */
} choir__hogwild_piece;

typedef struct choir__hogwild {
    choir_module *module;
    choir__mapping *mapping; /* the master's memory; NULL: it is a group's */
    choir__shared *shared;
    char *master;
    size_t bytes;
    choir__hogwild_piece *pieces;
    int count;
    bool worker;
    char *snapshot;        /* (bytes) the worker's words as they were last exchanged */
    char *mirror;          /* (bytes) the host's copy of far ones; NULL: there are none */
    choir__storage *words; /* where the snapshot lies, if not there */
    choir__queue *queue;   /* that exchanges: the device's; a host's own, if words are far */
    uint64_t seen;         /* head->updates then; of the device's queue */
    choir__strategy strategy;
    choir__spawn_watcher spawns;
} choir__hogwild;

static inline choir__hogwild_head *choir__hogwild_head_of(const choir__hogwild *h)
{
    return (choir__hogwild_head *)h->master;
}

/* One piece of count words, from and to memory that others exchange with at the same time. True
 * if it has changed the master. hogwild_exchange.c */
bool choir__hogwild_exchange(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count);

/* mine = snapshot = master. */
void choir__hogwild_take(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count);

#endif
