/* The arguments of kernels that compare, choose, look up, order and reduce along a dimension.
 * kernels.h includes this header.
 *
 * A "line" is a dimension of a dense tensor seen as (outer, n, inner): element i of line (o, k)
 * is x[(o n + i) inner + k]. */
#ifndef CHOIR_KERNELS_SELECT_H
#define CHOIR_KERNELS_SELECT_H

#include <choir/dtype.h>
#include "base/base.h"

enum { CHOIR__MAX_DIMS = 6 };

/* A strided operand, in elements. The shape is in the arguments; stride 0 broadcasts. */
typedef struct choir__strided {
    void *p;
    int64_t stride[CHOIR__MAX_DIMS];
} choir__strided;

typedef enum choir__compare_op {
    CHOIR__EQ,
    CHOIR__NE,
    CHOIR__LT,
    CHOIR__LE,
    CHOIR__GT,
    CHOIR__GE,
    CHOIR__AND, /* logic on a != 0 and b != 0, like the next two */
    CHOIR__OR,
    CHOIR__XOR,
    CHOIR__COMPARE_COUNT
} choir__compare_op;

/* y = a op b, bool, broadcast by strides; a and b have any dtype, integers are compared as
 * integers. NaN equals nothing and is not less or greater. */
typedef struct choir__k_compare {
    choir__strided y, a, b;
    int64_t shape[CHOIR__MAX_DIMS];
    int ndim;
    choir__compare_op op;
    choir_dtype dtype;
} choir__k_compare;

/* y = mask ? a : b, broadcast by strides, bit by bit; y, a and b have any dtype, mask is bool.
 */
typedef struct choir__k_where {
    choir__strided y, mask, a, b;
    int64_t shape[CHOIR__MAX_DIMS];
    int ndim;
    choir_dtype dtype;
} choir__k_where;

/* y[o, k] = the greatest (or least) x[o, i, k], index[o, k] = the smallest i that has it; index
 * may be NULL. A NaN counts as greater and less than all numbers. n is at least 1. */
typedef struct choir__k_extreme {
    const void *x;
    void *y;
    int64_t *index;
    int64_t outer, n, inner;
    bool least;
    choir_dtype dtype;
} choir__k_extreme;

/* y[o, i, k] = the sum of x[o, j, k] over j <= i, or over j >= i if `back`; sums are f64. */
typedef struct choir__k_cumsum {
    const void *x;
    void *y;
    int64_t outer, n, inner;
    bool back;
    choir_dtype dtype;
} choir__k_cumsum;

/* The op that an out-of-range index is reported for. */
typedef enum choir__lookup {
    CHOIR__FOR_GATHER,
    CHOIR__FOR_SCATTER_ADD,
    CHOIR__FOR_INDEX_SELECT,
    CHOIR__FOR_ONE_HOT,
    CHOIR__LOOKUP_COUNT
} choir__lookup;

static inline const char *choir__lookup_name(choir__lookup lookup)
{
    static const char *const names[CHOIR__LOOKUP_COUNT] = {
        "gather", "scatter_add", "index_select", "one_hot"};
    return (unsigned)lookup < CHOIR__LOOKUP_COUNT ? names[lookup] : "?";
}

/* gather: y[.., i, ..] = x[.., index[.., i, ..], ..]: the index replaces the coordinate of
 * dimension dim. y and index have the shape; x has `size` entries along dim. Elements of any
 * dtype are moved bit by bit. An index outside [0, size) fails the queue, with a message that
 * names it and its place in the index's memory.
 *
 * scatter_add: y[.., index[.., i, ..], ..] += x[.., i, ..], f32, f64 or i64; the terms of one
 * element of y are added in the order of i. x and index have the shape; y has `size` entries
 * along dim. distinct: no two terms belong to one element, so a GPU adds all of them at once.
 * Errors as gather's. */
typedef struct choir__k_gather {
    choir__strided y, x, index;
    int64_t shape[CHOIR__MAX_DIMS];
    int64_t size;
    int ndim, dim;
    choir__lookup lookup;
    bool distinct;
    choir_dtype dtype;
} choir__k_gather;

#endif
