/* The arguments of kernels for scores whose classes are distributed over ranks; each rank has a
 * contiguous part of the classes. kernels.h includes this header.
 *
 * A part's targets are counted from the part's first class. CHOIR__ELSEWHERE marks a target of
 * another part: the row counts (its softmax is computed), but none of the part's columns is the
 * target. */
#ifndef CHOIR_KERNELS_PARTS_H
#define CHOIR_KERNELS_PARTS_H

#include <choir/dtype.h>
#include "base/base.h"

#define CHOIR__ELSEWHERE INT64_MIN

/* Converts targets of the whole to a part's: y[i] = x[i] - first if that is in [0, count), else
 * CHOIR__ELSEWHERE; -1 if `ignores` and x[i] is `ignored`. Any other x[i] outside [0, whole)
 * fails the queue. */
typedef struct choir__k_part_targets {
    const int64_t *x;
    int64_t *y;
    int64_t n, first, count, whole, ignored;
    bool ignores;
    choir_dtype dtype; /* unused */
} choir__k_part_targets;

/* Combines stats (parts, 2, rows), each part's log sum exp of its classes and its
 * CHOIR__ROWS_SCORE, to the results of cross_entropy without weights and smoothing: lse (rows),
 * loss and count. A row with target -1 is ignored; targets may belong to any part. For 16-bit
 * scores, all are f32. */
typedef struct choir__k_part_losses {
    const void *stats;
    const int64_t *targets;
    void *loss, *lse, *count;
    int64_t parts, rows;
    int losses; /* a choir__row_losses except CHOIR__ROWS_SCORE */
    choir_dtype dtype;
    choir__cut cut; /* cut of the rows, for CHOIR__ROWS_SUM: see choir__k_cross_entropy */
} choir__k_part_losses;

/* y[r] = index[p, r], where p is the first part with the greatest max[p, r]. */
typedef struct choir__k_part_max {
    const void *max;      /* (parts, rows) */
    const int64_t *index; /* (parts, rows) */
    int64_t *y;           /* (rows) */
    int64_t parts, rows;
    choir_dtype dtype;
} choir__k_part_max;

#endif
