/* The fixed binary tree over micro-batches, or over other parts of a sum, as pure arithmetic.
 *
 * A node of n leaves splits at the largest power of two below n. Therefore every aligned block
 * of 2^k leaves inside [0, n) is a node, and the rest at the right edge is folded from the
 * right: with nodes of 4, 2 and 1 leaves on a stack, (4 + (2 + 1)). Ranks hold contiguous runs
 * of leaves; each rank sums the aligned blocks inside its own run, and a rank that has all
 * blocks in order can finish the sum. */
#ifndef CHOIR_TREE_H
#define CHOIR_TREE_H

#include "base/base.h"

typedef struct choir__node {
    int64_t start, leaves; /* leaves: a power of two; start a multiple of it */
} choir__node;

enum { CHOIR__MAX_NODES = 128 };

/* Returns a rank's run [*lo, *hi) of `leaves` micro-batches: contiguous, with lengths that
 * differ by at most one, the longer runs first. */
static inline void choir__tree_run(
    int64_t leaves, int64_t rank, int64_t world, int64_t *lo, int64_t *hi)
{
    const int64_t each = leaves / world, extra = leaves % world;
    *lo = rank * each + choir__min(rank, extra);
    *hi = *lo + each + (rank < extra);
}

/* Writes the maximal aligned blocks that make up [lo, hi), in order; returns their number. */
int choir__tree_nodes(int64_t lo, int64_t hi, choir__node nodes[CHOIR__MAX_NODES]);

/* Returns nonzero if two neighbors on the stack are the halves of one node. */
int choir__tree_siblings(choir__node left, choir__node right);

/* Returns the sum of n numbers in the tree, times scale. */
float choir__tree_sum(const float *values, int64_t n, float scale);

#endif
