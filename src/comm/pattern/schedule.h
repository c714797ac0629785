/* Schedules: what one rank does in a collective, as pure arithmetic on ranks.
 *
 * A schedule is a list of moves in rounds. The sends and receives of a round are under way at
 * the same time; its reductions and copies happen after them, in order. A round begins when the
 * one before it is over on this rank. Nothing here knows of memory or messages: comm/message
 * runs a schedule over an engine, the tests run all ranks' schedules in one array, and the
 * example draws them.
 *
 * Places are in elements, in one of three buffers: what the caller gave to read (IN), what it
 * gave to be written (OUT; the same memory when in place), and scratch. */
#ifndef CHOIR_PATTERN_SCHEDULE_H
#define CHOIR_PATTERN_SCHEDULE_H

#include "comm/call.h"
#include "comm/pattern/tree.h"

typedef enum choir__buffer { CHOIR__IN, CHOIR__OUT, CHOIR__SCRATCH } choir__buffer;

typedef struct choir__span {
    choir__buffer buffer;
    int64_t at;
} choir__span;

typedef enum choir__move_kind {
    CHOIR__MOVE_SEND,    /* from -> peer */
    CHOIR__MOVE_RECEIVE, /* peer -> to */
    CHOIR__MOVE_COPY,    /* from -> to */
    CHOIR__MOVE_COMBINE, /* to = from op to, or to op from: see `swap` */
    CHOIR__MOVE_REDUCE,  /* to = the fixed tree over the schedule's sources */
    CHOIR__MOVE_RESCALE, /* to = to / world (mean), or * scale */
} choir__move_kind;

typedef struct choir__move {
    choir__move_kind kind;
    int round, peer;
    int64_t count; /* elements; never 0 for a send or receive */
    choir__span from, to;
    int first_source, sources; /* REDUCE: in choir__schedule.sources */
    bool swap;                 /* COMBINE: `to` holds the lower ranks */
} choir__move;

/* A leaf block of the tree and where its values lie. */
typedef struct choir__source {
    choir__node node;
    choir__span at;
} choir__source;

typedef struct choir__schedule {
    choir__move *moves;
    choir__source *sources;
    int count, room, source_count, source_room, rounds;
    int64_t scratch; /* elements */
} choir__schedule;

/* What a schedule is made for. */
typedef struct choir__plan {
    choir__kind kind;
    choir__algorithm algorithm; /* not AUTO */
    int rank, world, root;
    int64_t count, leaves; /* leaves: TREE_REDUCE; count as the public functions count */
    int64_t node_stride;   /* TREE_REDUCE: elements between this rank's nodes, in IN */
    int align;             /* slices begin at multiples of so many elements */
    bool in_place, mean;
    const int64_t *in_counts, *out_counts; /* uneven all-to-all */
    const int *nodes;                      /* (world) HIERARCHICAL: the node of each rank */
} choir__plan;

/* Writes the schedule of plan->rank. Errors: unsupported (this algorithm does not do this
 * collective, or not with so many ranks), in words. */
choir_status choir__schedule_make(const choir__plan *plan, choir__schedule *schedule);
void choir__schedule_free(choir__schedule *schedule);

#endif
