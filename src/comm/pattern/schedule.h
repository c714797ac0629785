/* Schedules: what one rank does in a collective, as pure arithmetic on ranks.
 *
 * A schedule is a list of moves in rounds. The sends and receives of a round come first and are
 * under way at the same time; its reductions and copies happen after them, in order. A round
 * begins when the one before it is over on this rank. Nothing here knows of memory or messages:
 * comm/message runs a schedule over an engine, the tests run all ranks' schedules in one array,
 * and the example draws them.
 *
 * Both sides of a message are in rounds of the same number, so no rank waits for a later round
 * of another: there is no deadlock, even where a send ends only when it is received. A pair's
 * messages of one round are listed in the same order on both sides. No receive of a round
 * writes what another move of that round sends or receives.
 *
 * Places are in elements, in one of three buffers: what the caller gave to read (IN), what it
 * gave to be written (OUT; the same memory when in place), and scratch. */
#ifndef CHOIR_PATTERN_SCHEDULE_H
#define CHOIR_PATTERN_SCHEDULE_H

#include <stdbool.h>

#include "comm/call.h"
#include "comm/pattern/tree.h"

typedef enum choir__move_buffer { CHOIR__IN, CHOIR__OUT, CHOIR__SCRATCH } choir__move_buffer;

typedef struct choir__span {
    choir__move_buffer buffer;
    int64_t at;
} choir__span;

typedef enum choir__move_kind {
    CHOIR__MOVE_SEND,    /* from -> peer */
    CHOIR__MOVE_RECEIVE, /* peer -> to */
    CHOIR__MOVE_COPY,    /* from -> to */
    CHOIR__MOVE_COMBINE, /* to = from op to, or to op from: see `swap` */
    CHOIR__MOVE_REDUCE,  /* to = the fixed tree over the move's sources; may be one of them */
    CHOIR__MOVE_RESCALE, /* to = to / world (mean), or * scale */
} choir__move_kind;

typedef struct choir__move {
    choir__move_kind kind;
    int round, peer;
    int64_t count; /* elements, never 0; a barrier's messages: 1, whatever that is */
    choir__span from, to;
    int first_source, sources; /* REDUCE: in choir__schedule.sources */
    bool swap;                 /* COMBINE: `to` holds the lower ranks */
} choir__move;

/* A leaf block of the tree and where its values lie. */
typedef struct choir__reduce_source {
    choir__node node;
    choir__span at;
} choir__reduce_source;

typedef struct choir__schedule {
    choir__move *moves;
    choir__reduce_source *sources;
    int count, room, source_count, source_room;
    int rounds;      /* one more than the last round this rank has a part in */
    int64_t scratch; /* elements */
} choir__schedule;

/* What a schedule is made for. The buffers, by kind, in elements:
 *
 *   broadcast                      in (count) on the root, out (count)
 *   reduce                         in (count), out (count) on the root
 *   all-reduce                     in (count), out (count)
 *   tree reduction                 in: this rank's nodes, out (count)
 *   gather, all-gather             in (count), out (world, count), gather's on the root
 *   scatter, reduce-scatter        in (world, count), scatter's on the root, out (count)
 *   all-to-all                     in, out (world, count), or packed as the counts say
 *
 * In place, in is out; of the kinds with a part a rank, the smaller one is its part of the
 * larger. Then only what is out is written, else in stays as it was. */
typedef struct choir__plan {
    choir__kind kind;
    choir__algorithm algorithm; /* see choir__schedule_choose */
    int rank, world, root;
    int64_t count, leaves; /* leaves: TREE_REDUCE; count as the public functions count */
    int64_t node_stride;   /* TREE_REDUCE: elements between this rank's nodes, in IN */
    int align;             /* slices begin at multiples of so many elements (a cache line) */
    bool in_place, mean;
    const int64_t *in_counts, *out_counts; /* uneven all-to-all */
    const int *nodes;                      /* (world) the node of each rank; NULL: all on one */
} choir__plan;

/* The algorithm that a plan runs by, the same on all ranks: the plan's own where it can do this
 * collective on this dtype, else the best of those that keep the fixed tree. AUTO, DIRECT and
 * NATIVE leave the choice to size and place. */
choir__algorithm choir__schedule_choose(const choir__plan *plan, choir_dtype dtype);

/* Whether an algorithm has schedules for a collective of so many ranks on these nodes. */
bool choir__schedule_does(const choir__plan *plan, choir__algorithm algorithm);

/* Writes the schedule of plan->rank, by plan->algorithm as it stands (AUTO, DIRECT and NATIVE:
 * exchange). Errors: unsupported (this algorithm does not do this collective). */
choir_status choir__schedule_make(const choir__plan *plan, choir__schedule *schedule);
void choir__schedule_free(choir__schedule *schedule);

#endif
