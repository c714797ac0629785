/* The arguments of kernels that order the entries of a line, and that make lines of another
 * length. kernels.h includes this header; kernels_select.h says what a line is. */
#ifndef CHOIR_KERNELS_ORDER_H
#define CHOIR_KERNELS_ORDER_H

#include <math.h>

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

/* Returns the place of entry i among the entries from which it is made. */
CHOIR__BOTH static inline double choir__stretch_place(const choir__k_stretch *k, double i)
{
    double from = (double)k->from, to = (double)k->to;
    if (k->how == CHOIR__STRETCH_NEAREST) /* as PyTorch rounds it, so that floors agree */
        return (double)((float)i * ((float)from / (float)to));
    if (k->corners)
        return k->to > 1 ? i * (from - 1) / (to - 1) : 0;
    return (i + 0.5) * from / to - 0.5;
}

/* The weight of an entry at distance x from the place (Keys, 1981). */
CHOIR__BOTH static inline double choir__cubic_weight(double x)
{
    const double a = -0.75;
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1
                  : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

CHOIR__BOTH static inline choir__taps choir__taps_of(const choir__k_stretch *k, int64_t i)
{
    choir__taps taps = {{0}, {1}, 1};
    double place = choir__stretch_place(k, (double)i);
    if (k->how == CHOIR__STRETCH_LINEAR && place < 0)
        place = 0;
    int64_t first = (int64_t)floor(place);
    double past = place - (double)first;
    if (k->how == CHOIR__STRETCH_CUBIC)
        first--;
    taps.count = k->how == CHOIR__STRETCH_NEAREST ? 1 : k->how == CHOIR__STRETCH_LINEAR ? 2 : 4;
    for (int t = 0; t < taps.count; t++) {
        int64_t at = first + t;
        taps.at[t] = at < 0 ? 0 : at < k->from ? at : k->from - 1;
        if (k->how == CHOIR__STRETCH_LINEAR)
            taps.weight[t] = t ? past : 1 - past;
        if (k->how == CHOIR__STRETCH_CUBIC)
            taps.weight[t] = choir__cubic_weight(fabs(past + 1 - t));
    }
    return taps;
}

/* Stores a range [*first, *end) of i that contains all whose taps include entry j: the places
 * grow with i, and taps are less than two entries away, except at the edges. */
CHOIR__BOTH static inline void choir__stretch_users(
    const choir__k_stretch *k, int64_t j, int64_t *first, int64_t *end)
{
    *first = 0, *end = k->to;
    if (k->from == 1)
        return;
    double apart = k->corners
                       ? (double)(k->to - 1) / (double)(k->from - 1)
                       : (double)k->to / (double)k->from; /* places of i that are 1 apart */
    double low = floor((double)(j - 2) * apart) - 2, high = ceil((double)(j + 3) * apart) + 3;
    if (j > 0 && low > 0)
        *first = low < (double)k->to ? (int64_t)low : k->to;
    if (j + 1 < k->from && high < (double)k->to)
        *end = (int64_t)high;
}

#endif
