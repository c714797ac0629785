/* Building blocks of schedules: functions that add moves and cut slices. Each algorithm has its
 * own file. */
#ifndef CHOIR_PATTERN_BUILD_H
#define CHOIR_PATTERN_BUILD_H

#include "base/base.h"
#include "comm/pattern/schedule.h"

/* Each function appends a move; a move of count 0 is dropped. Rounds never decrease, and within
 * a round messages come before the other moves. */
void choir__add_send(
    choir__move_schedule *s, int round, int peer, choir__chunk_span from, int64_t count);
void choir__add_receive(
    choir__move_schedule *s, int round, int peer, choir__chunk_span to, int64_t count);
void choir__add_copy(choir__move_schedule *s, int round, choir__chunk_span from,
    choir__chunk_span to, int64_t count);
void choir__add_rescale(
    choir__move_schedule *s, int round, choir__chunk_span to, int64_t count);

/* choir__add_source appends sources in the order of the tree; choir__add_reduce then reduces
 * `sources` of them, from `first` on. */
void choir__add_source(choir__move_schedule *s, choir__node node, choir__chunk_span at);
void choir__add_reduce(choir__move_schedule *s, int round, int first, int sources,
    choir__chunk_span to, int64_t count);

/* Reserves count elements of scratch. */
choir__chunk_span choir__add_scratch(choir__move_schedule *s, int64_t count);

/* Return places: choir__in and choir__out `at` elements into the buffer, choir__past `count`
 * elements after a span. */
choir__chunk_span choir__in(int64_t at);
choir__chunk_span choir__out(int64_t at);
choir__chunk_span choir__past(choir__chunk_span span, int64_t count);

typedef struct choir__slice {
    int64_t at, count;
} choir__slice;

/* Returns part `index` of `parts` of a slice; it begins at a multiple of align, counted from
 * the beginning of the slice. */
choir__slice choir__slice_of(choir__slice whole, int align, int index, int parts);

/* Returns the count of the largest part. */
int64_t choir__slice_most(int64_t count, int align, int parts);

/* Returns the number of tree nodes that a rank holds: one node per rank, or the nodes of its
 * micro-batches in a tree reduction. Node k is at k * node_stride in IN. choir__pattern_reduces
 * returns true if the collective reduces. */
int choir__pattern_nodes(
    const choir__pattern_collective *collective, int rank, choir__node nodes[CHOIR__MAX_NODES]);
bool choir__pattern_reduces(const choir__pattern_collective *collective);

/* Returns true if a complete sum must be rescaled. */
bool choir__pattern_rescales(const choir__pattern_collective *collective);

/* A partial sum, in `own`, to which peers' sums are added. The first addition moves it to `to`,
 * where the peer's sum is received. If own is `to`, or after the first addition, the peer's sum
 * is received in `spare`. */
typedef struct choir__sum {
    choir__chunk_span own, to, spare;
} choir__sum;

/* Add the moves for `slice`, relative to `own` and `to`: choir__sum_receive the message,
 * choir__sum_combine the addition. lower: this rank's sum covers the lower ranks. */
void choir__sum_receive(
    const choir__sum *sum, choir__move_schedule *s, int round, int peer, choir__slice slice);
void choir__sum_combine(
    const choir__sum *sum, choir__move_schedule *s, int round, choir__slice slice, bool lower);

/* Returns true if the ranks of each node are contiguous and the nodes are in order, as
 * hierarchical algorithms require. */
bool choir__nodes_contiguous(const choir__pattern_collective *collective);

/* Returns how many rounds of doubling a distance, from 1, take to reach world. */
int choir__log2_ceil(int world);

/* The pattern of an algorithm writes the schedule; it returns false if it does not support
 * collective->kind. */
typedef bool choir__pattern_fill(
    const choir__pattern_collective *collective, choir__move_schedule *schedule);
choir__pattern_fill choir__pattern_exchange, choir__pattern_ring, choir__pattern_halving,
    choir__pattern_binomial, choir__pattern_double_tree, choir__pattern_hierarchical;

/* patterns.c: returns the pattern of the collective's algorithm (exchange for AUTO, DIRECT and
 * NATIVE); NULL if the algorithm does not support the collective. */
choir__pattern_fill *choir__pattern_of(const choir__pattern_collective *collective);

#endif
