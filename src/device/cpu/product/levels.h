/* Sums of chains that wait for others: the fixed tree over the chains of a leaf, and over the
 * leaves of a product.
 *
 * Levels work as a binary counter's digits do: chain i completes a node of the tree for each 1
 * at the end of i, takes the left halves from levels 0, 1, ... and leaves its sum in the next
 * level. A leaf's last chain takes all that are left, from the lowest level up. Leaves have
 * levels of their own above, and work in the same way. */
#ifndef CHOIR_PRODUCT_LEVELS_H
#define CHOIR_PRODUCT_LEVELS_H

#include "device/cpu/product/reals.h"

/* The levels of one tile: level l is at + l * apart, in rows of BROAD elements. */
typedef struct levels {
    const real *at;
    int64_t apart;
    uint64_t takes; /* a bit for each level that is added */
} levels;

/* Returns the lowest level whose bit is set in `left`. They are added in rising order:
 *
 *     for (uint64_t left = l->takes; left; left &= left - 1)  sum = lowest_level(l, left) + sum
 */
INLINE const real *lowest_level(const levels *l, uint64_t left)
{
    return l->at + __builtin_ctzll(left) * l->apart;
}

/* Lists the levels that are added, in order, and returns their number. */
INLINE int list_levels(const real *list[], const levels *near, const levels *far)
{
    int n = 0;
    for (uint64_t left = near->takes; left; left &= left - 1)
        list[n++] = lowest_level(near, left);
    for (uint64_t left = far->takes; left; left &= left - 1)
        list[n++] = lowest_level(far, left);
    return n;
}

/* Returns the number of levels that n chains or leaves need. */
INLINE int levels_of(int64_t n)
{
    return n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 0;
}

/* Returns the level that receives the sum of part i, if it is not the last. */
INLINE int level_after(int64_t i)
{
    return __builtin_ctzll(~(uint64_t)i);
}

/* Returns the levels that part i takes. */
INLINE uint64_t levels_before(int64_t i, bool last)
{
    return last ? (uint64_t)i : (uint64_t)i & ((UINT64_C(1) << level_after(i)) - 1);
}

#endif
