/* The arguments of kernels for scores that ranks have in parts, each a run of the classes: a
 * part of kernels.h.
 *
 * A part's targets are counted from its own first class. CHOIR__ELSEWHERE says that another
 * part has it: the row counts (its softmax is there), but none of its columns is the one
 * wanted. */
#ifndef CHOIR_KERNELS_PARTS_H
#define CHOIR_KERNELS_PARTS_H

#include <choir/dtype.h>
#include "base/base.h"

#define CHOIR__ELSEWHERE INT64_MIN

/* Targets of the whole as a part's: y[i] = x[i] - first where that is in [0, count), else
 * CHOIR__ELSEWHERE; -1 where x[i] is ignored, if there is such a value. Another x[i] outside
 * [0, whole) fails the queue. */
typedef struct choir__k_part_targets {
    const int64_t *x;
    int64_t *y;
    int64_t n, first, count, whole, ignored;
    bool ignores;
    choir_dtype dtype; /* of nothing */
} choir__k_part_targets;

/* From parts (parts, 2, rows), of each the log sum exp of its classes and its
 * CHOIR__ROWS_SCORE, to what cross_entropy has without weights and smoothing: lse (rows), loss
 * and count. A row of target -1 is ignored; targets are those of any part. All are f32 of
 * 16-bit scores. */
typedef struct choir__k_part_losses {
    const void *stats;
    const int64_t *targets;
    void *loss, *lse, *count;
    int64_t parts, rows;
    int losses; /* choir__row_losses, but not CHOIR__ROWS_SCORE */
    choir_dtype dtype;
} choir__k_part_losses;

/* y[r] = index[p, r] of the first part p whose max[p, r] is the greatest. */
typedef struct choir__k_part_max {
    const void *max;      /* (parts, rows) */
    const int64_t *index; /* (parts, rows) */
    int64_t *y;           /* (rows) */
    int64_t parts, rows;
    choir_dtype dtype;
} choir__k_part_max;

#endif
