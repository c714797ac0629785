/* Cuts of sums into leaves of the fixed tree (base/tree.h); kernels.h includes this header.
 *
 * A strategy may distribute the K terms of a contraction over ranks: slices of the weights, or
 * chunks of the tokens. The cut is declared, so every distribution of its parts gives the same
 * bits. The K terms are `outer` blocks of K / outer. Leaf l has a run of each block, one block
 * after the other, and is a sum of its own: exactly the sum of a kernel whose operands have
 * these terms alone. The leaves are added in the fixed tree.
 *
 *     outer 2, leaves 3, K = 16:   0 0 0 1 1 1 2 2 | 0 0 0 1 1 1 2 2      ((0 + 1) + 2)
 *
 * Runs differ by one term at most, the longer ones first, so leaves [lo, hi) alone, in memory
 * of their own, are cut by {outer, hi - lo} at the same places. A leaf without terms is +0. */
#ifndef CHOIR_KERNELS_CUT_H
#define CHOIR_KERNELS_CUT_H

#include "base/tree.h"

/* K is a multiple of outer, or leaves is 0 or 1: then all terms are one leaf. outer 0: 1. */
typedef struct choir__cut {
    int64_t outer, leaves;
} choir__cut;

/* Returns whether a kernel computes leaf by leaf. */
static inline bool choir__is_cut(choir__cut cut)
{
    return cut.leaves > 1;
}

static inline int64_t choir__cut_outer(choir__cut cut)
{
    return choir__is_cut(cut) ? choir__max(1, cut.outer) : 1;
}

/* Returns the node that a kernel with this cut computes. node.leaves 0: the whole tree. */
static inline choir__node choir__cut_node(choir__cut cut, choir__node node)
{
    const choir__node whole = {0, choir__max(1, cut.leaves)};
    return node.leaves ? node : whole;
}

/* Writes leaf l's run [*from, *to) of each block of k / outer terms. */
static inline void choir__cut_leaf(
    choir__cut cut, int64_t k, int64_t l, int64_t *from, int64_t *to)
{
    *from = 0, *to = k;
    if (choir__is_cut(cut))
        choir__tree_run(k / choir__cut_outer(cut), l, cut.leaves, from, to);
}

/* Returns the leaf of term i of k. */
static inline int64_t choir__cut_leaf_of(choir__cut cut, int64_t k, int64_t i)
{
    if (!choir__is_cut(cut))
        return 0;
    const int64_t block = k / choir__cut_outer(cut), at = i % block;
    const int64_t each = block / cut.leaves, extra = block % cut.leaves;
    const int64_t longer = extra * (each + 1); /* terms of the longer runs */
    return at < longer ? at / (each + 1) : extra + (at - longer) / each;
}

/* Sums over rows add leaf after leaf on a stack of nodes, which holds at most as many, of fewer
 * than 2^31 leaves. Threads may have small stacks. */
enum { CHOIR__LEAF_LEVELS = 32 };

/* Returns how many times the two nodes on top of the stack become one after leaf l. The last
 * leaf joins all. */
static inline int choir__leaf_joins(choir__cut cut, int64_t l)
{
    int joins = 0, held = 0;
    for (int64_t done = l + 1; done % 2 == 0; done /= 2)
        joins++;
    for (int64_t rest = l + 1; rest; rest &= rest - 1)
        held++; /* nodes after these joins */
    return l + 1 < cut.leaves ? joins : joins + held - 1;
}

#endif
