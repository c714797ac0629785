/* The arguments of kernels that order the entries of a line, and that make lines of another
 * length. kernels.h includes this header; kernels/select.h says what a line is. */
#ifndef CHOIR_KERNELS_ORDER_H
#define CHOIR_KERNELS_ORDER_H

#include <choir/dtype.h>
#include "base/base.h"

/* An entry of a line on its way: keys are ordered as the values are. */
typedef struct choir__sort_entry {
    uint64_t key;
    int64_t at; /* place of the entry in the line */
} choir__sort_entry;

enum { CHOIR__SORT_SHORT = 64 }; /* entries of the longest lines that need no scratch memory */

/* index[o, r, k] = the i of the r-th entry x[o, i, k] in ascending (or descending) order, for r
 * < top <= n. Equal entries keep their order, -0 equals 0, and a NaN counts as greater than all
 * numbers. x has any dtype. scratch has `room` entries, at least 2 n where n > SORT_SHORT. */
typedef struct choir__k_sort {
    const void *x;
    int64_t *index;
    choir__sort_entry *scratch;
    int64_t outer, n, inner, top, room;
    bool descending;
    choir_dtype dtype;
} choir__k_sort;

typedef enum choir__stretch {
    CHOIR__STRETCH_NEAREST,
    CHOIR__STRETCH_LINEAR,
    CHOIR__STRETCH_CUBIC,
    CHOIR__STRETCH_COUNT
} choir__stretch;

/* y[o, i, k] = the sum over t of weight_t x[o, at_t, k], with choir__taps_of's taps of i < to;
 * x (outer, from, inner), y (outer, to, inner). back: the gradient; x (outer, to, inner) is y's
 * gradient, and y (outer, from, inner) x's: y[o, j, k] = the sum of weight_t x[o, i, k] over
 * all i and t with at_t = j, i ascending. */
typedef struct choir__k_stretch {
    const void *x;
    void *y;
    int64_t outer, from, to, inner;
    choir__stretch how;
    bool corners; /* the first and the last entry stay where they are */
    bool back;
    choir_dtype dtype;
} choir__k_stretch;

/* The entries from which one result is made. */
typedef struct choir__taps {
    int64_t at[4];
    double weight[4];
    int count;
} choir__taps;

#endif
