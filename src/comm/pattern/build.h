/* For those who write schedules: adding moves, cutting slices. One file an algorithm. */
#ifndef CHOIR_PATTERN_BUILD_H
#define CHOIR_PATTERN_BUILD_H

#include "base/base.h"
#include "comm/pattern/schedule.h"

/* Each adds a move behind the others; of count 0: nothing. Rounds never go back, and in a round
 * messages come before the rest. */
void choir__add_send(choir__schedule *s, int round, int peer, choir__span from, int64_t count);
void choir__add_receive(choir__schedule *s, int round, int peer, choir__span to, int64_t count);
void choir__add_copy(
    choir__schedule *s, int round, choir__span from, choir__span to, int64_t count);
void choir__add_rescale(choir__schedule *s, int round, choir__span to, int64_t count);

/* to = lower ranks' op higher ranks': `swap` where `to` is the lower ranks'. */
void choir__add_combine(
    choir__schedule *s, int round, choir__span from, choir__span to, int64_t count, bool swap);

/* Sources are added in the order of the tree; then `sources` of them from `first` on reduced.
 */
void choir__add_source(choir__schedule *s, choir__node node, choir__span at);
void choir__add_reduce(
    choir__schedule *s, int round, int first, int sources, choir__span to, int64_t count);

/* Room of its own. */
choir__span choir__add_scratch(choir__schedule *s, int64_t count);

/* In + 0, out + at, and so on. */
choir__span choir__in(int64_t at);
choir__span choir__out(int64_t at);
choir__span choir__past(choir__span span, int64_t count);

typedef struct choir__slice {
    int64_t at, count;
} choir__slice;

/* Part `index` of `parts` of a slice, begun at a multiple of align from its own beginning. */
choir__slice choir__slice_of(choir__slice whole, int align, int index, int parts);

/* The count of the largest. */
int64_t choir__slice_most(int64_t count, int align, int parts);

/* The leaves of the tree that a rank holds: one a rank, or those of its micro-batches. Node k
 * lies in IN at k * node_stride. */
int choir__plan_nodes(const choir__plan *plan, int rank, choir__node nodes[CHOIR__MAX_NODES]);
bool choir__plan_reduces(const choir__plan *plan);

/* Whether a sum is to be rescaled when it is whole. */
bool choir__plan_rescales(const choir__plan *plan);

/* A partial sum that a peer's is added to. The first time it moves to where it is to be, by
 * receiving the peer's there; in place (own is to), or later, the peer's goes to `spare`. */
typedef struct choir__sum {
    choir__span own, to, spare;
} choir__sum;

/* Of `slice`, from `own` and `to` on: the message, then the addition. lower: whether the own
 * ranks are the lower ones. */
void choir__sum_receive(
    const choir__sum *sum, choir__schedule *s, int round, int peer, choir__slice slice);
void choir__sum_combine(
    const choir__sum *sum, choir__schedule *s, int round, choir__slice slice, bool lower);

/* Whether each node's ranks follow one another, nodes in order: what hierarchies need. */
bool choir__nodes_contiguous(const choir__plan *plan);

/* How many rounds double a distance from 1 up to world. */
int choir__log2_ceil(int world);

/* Each algorithm has one: it writes the schedule, or returns false if it does not do
 * plan->kind.
 */
typedef bool choir__pattern(const choir__plan *plan, choir__schedule *schedule);
choir__pattern choir__pattern_exchange, choir__pattern_ring, choir__pattern_halving,
    choir__pattern_binomial, choir__pattern_double_tree, choir__pattern_hierarchical;

/* patterns.c: returns the pattern of the plan's algorithm, where AUTO, DIRECT and NATIVE are
 * exchange; NULL if the algorithm does not do the plan's collective. */
choir__pattern *choir__pattern_of(const choir__plan *plan);

#endif
