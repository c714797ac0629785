/* Schedules: the work of one rank in a collective, as pure arithmetic on ranks.
 *
 * A schedule is a list of moves in rounds. The sends and receives of a round come first and are
 * in flight at the same time; its reductions and copies happen after them, in order. A round
 * begins when the previous one is over on this rank. Schedules know nothing of memory or
 * messages: comm/message runs them over an engine, the tests run all ranks' schedules in one
 * array, and an example draws them.
 *
 * Both sides of a message are in rounds of the same number, so no rank waits for a later round
 * of another. Therefore no deadlock is possible, even if a send ends only when it is received.
 * The messages of a pair in one round are listed in the same order on both sides. No receive of
 * a round writes memory that another message of the round reads or writes.
 *
 * Places are in elements, in one of three buffers: the caller's input (IN), the caller's output
 * (OUT; the same memory if in place), and scratch. */
#ifndef CHOIR_PATTERN_SCHEDULE_H
#define CHOIR_PATTERN_SCHEDULE_H

#include <stdbool.h>

#include "comm/call.h"
#include "base/tree.h"

typedef enum choir__move_buffer { CHOIR__IN, CHOIR__OUT, CHOIR__SCRATCH } choir__move_buffer;

typedef struct choir__chunk_span {
    choir__move_buffer buffer;
    int64_t at;
} choir__chunk_span;

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
    int64_t count; /* elements, never 0; a barrier's messages: 1, without meaning */
    choir__chunk_span from, to;
    int first_source, sources; /* REDUCE: in choir__move_schedule.sources */
    bool swap;                 /* COMBINE: `to` holds the lower ranks */
} choir__move;

/* A leaf block of the tree and the place of its values. */
typedef struct choir__reduce_source {
    choir__node node;
    choir__chunk_span at;
} choir__reduce_source;

typedef struct choir__move_schedule {
    choir__move *moves;
    choir__reduce_source *sources;
    int count, source_count;
    int rounds;      /* one more than the last round in which this rank takes part */
    int64_t scratch; /* elements */
} choir__move_schedule;

/* The collective for which a schedule is made. The buffers per kind, in elements:
 *
 *   broadcast                      in (count) on the root, out (count)
 *   reduce                         in (count), out (count) on the root
 *   all-reduce                     in (count), out (count)
 *   tree reduction                 in: this rank's nodes, out (count)
 *   gather, all-gather             in (count), out (world, count), gather's on the root
 *   scatter, reduce-scatter        in (world, count), scatter's on the root, out (count)
 *   all-to-all                     in, out (world, count), or packed as the counts say
 *
 * In place, in is out; for kinds with one part per rank, the smaller buffer is the rank's part
 * of the larger one. Then only the output is written; otherwise the input is never written. */
typedef struct choir__pattern_collective {
    choir__kind kind;
    choir__algorithm algorithm; /* see choir__move_schedule_choose */
    int rank, world, root;
    int64_t count, leaves; /* leaves: TREE_REDUCE; count as the public functions count */
    int64_t node_stride;   /* TREE_REDUCE: elements between this rank's nodes, in IN */
    int align; /* slices begin at multiples of this number of elements (a cache line) */
    bool in_place, mean;
    const int64_t *in_counts, *out_counts; /* uneven all-to-all */
    const int *nodes;                      /* (world) the node of each rank; NULL: all on one */
} choir__pattern_collective;

/* Returns the algorithm that runs a collective, equal on all ranks: the collective's own if it
 * supports this collective and dtype, else the best algorithm that keeps the fixed tree. AUTO,
 * DIRECT and NATIVE leave the choice to size and topology. */
choir__algorithm choir__move_schedule_choose(
    const choir__pattern_collective *collective, choir_dtype dtype);

/* Returns true if an algorithm has schedules for the collective, its world and nodes. */
bool choir__move_schedule_does(
    const choir__pattern_collective *collective, choir__algorithm algorithm);

/* Writes the schedule of collective->rank by collective->algorithm, without choosing another
 * (AUTO, DIRECT and NATIVE: exchange). Errors: unsupported (the algorithm does not support the
 * collective). */
choir_status choir__move_schedule_make(
    const choir__pattern_collective *collective, choir__move_schedule *schedule);
void choir__move_schedule_free(choir__move_schedule *schedule);

#endif
