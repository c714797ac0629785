/* The fixed binary tree over micro-batches, as pure arithmetic.
 *
 * A node of n leaves splits at the largest power of two below n. Every aligned block of 2^k
 * leaves inside [0, n) is therefore a node, and what is left at the right edge folds from the
 * right: with nodes of 4, 2 and 1 leaves on a stack, (4 + (2 + 1)). Ranks hold contiguous runs
 * of leaves; each sums the aligned blocks inside its own run, and whoever has all blocks in
 * order can finish. */
#ifndef CHOIR_TREE_H
#define CHOIR_TREE_H

#include <stdint.h>

typedef struct choir__node {
    int64_t start, leaves; /* leaves: a power of two; start a multiple of it */
} choir__node;

enum { CHOIR__MAX_NODES = 128 };

/* Rank's run [*lo, *hi) of `leaves` micro-batches: contiguous, lengths differing by at most
 * one, the longer ones first. */
void choir__tree_run(int64_t leaves, int rank, int world, int64_t *lo, int64_t *hi);

/* The maximal aligned blocks that make up [lo, hi), in order; returns how many. */
int choir__tree_nodes(int64_t lo, int64_t hi, choir__node nodes[CHOIR__MAX_NODES]);

/* Whether two neighbours on the stack are halves of one node. */
int choir__tree_siblings(choir__node left, choir__node right);

/* The sum of n numbers in the tree, times scale. */
float choir__tree_sum(const float *values, int64_t n, float scale);

#endif
