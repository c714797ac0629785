/* The fixed tree as arithmetic: the nodes that a run of leaves completes (aligned blocks of 2^k
 * leaves), whether two nodes are siblings, and the sum of some numbers in the tree's order. */
#include "base/tree.h"

int choir__tree_nodes(int64_t lo, int64_t hi, choir__node nodes[CHOIR__MAX_NODES])
{
    int count = 0;
    while (lo < hi) {
        int64_t block = lo ? lo & -lo : INT64_C(1) << 62; /* the alignment of lo */
        while (block > hi - lo)
            block /= 2;
        nodes[count++] = (choir__node){lo, block};
        lo += block;
    }
    return count;
}

int choir__tree_siblings(choir__node left, choir__node right)
{
    return left.leaves == right.leaves && left.start + left.leaves == right.start &&
           left.start % (2 * left.leaves) == 0;
}

float choir__tree_sum(const float *values, int64_t n, float scale)
{
    float sums[64];
    choir__node nodes[64];
    int top = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[top] = values[i];
        nodes[top++] = (choir__node){i, 1};
        while (top > 1 && choir__tree_siblings(nodes[top - 2], nodes[top - 1])) {
            sums[top - 2] += sums[top - 1];
            nodes[top - 2].leaves *= 2;
            top--;
        }
    }
    for (; top > 1; top--)
        sums[top - 2] += sums[top - 1];
    return n ? sums[0] * scale : 0;
}
