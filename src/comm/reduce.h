/* Reductions of several arrays in the fixed tree; the result may be written to several
 * places. */
#ifndef CHOIR_COMM_REDUCE_H
#define CHOIR_COMM_REDUCE_H

#include <choir/dtype.h>
#include <choir/group.h>
#include "base/base.h"
#include "base/tree.h"

/* --- arith.c: operations on arrays --- */

/* out = a op b, element by element. out may be equal to a or b. */
typedef void choir__combine(void *out, const void *a, const void *b, int64_t n);
/* x = x * scale; integers: x / divisor, rounded towards zero. */
typedef void choir__rescale(void *x, int64_t n, double scale, int64_t divisor);
/* Converts n elements from one type to another; out and in do not overlap. */
typedef void choir__arith_convert(void *out, const void *in, int64_t n);

/* The arithmetic of one dtype and operation. Partial results of bf16 and f16 are f32, and are
 * rounded once, after the last addition; partial results of a mean of u8 are i32. `wide` is the
 * arithmetic of such partial results. Combining bf16 or f16 directly rounds after each
 * operation. */
typedef struct choir__arith choir__arith;
struct choir__arith {
    size_t size; /* bytes of an element */
    choir__combine *combine;
    choir__rescale *rescale;
    const choir__arith *wide; /* NULL: partial results have the same type */
    choir__arith_convert *widen, *narrow;
};

/* Returns the arithmetic; NULL if it does not exist: bitwise operations on floats, the mean of
 * bool. CHOIR_MEAN adds only. Integers wrap around. A bool is 0 or 1; its sum is "or" and its
 * product is "and". A NaN wins over any number. */
const choir__arith *choir__arith_find(choir_dtype dtype, choir_reduce_op op);

/* --- reduce.c --- */

/* to[...] = rescale(tree(from[0], from[1], ...)). An output may be one of the inputs, but may
 * not overlap them otherwise. */
typedef struct choir__reduce_task {
    const choir__arith *arith;
    const choir__node *nodes; /* (sources) in order, [0, leaves) without gaps */
    const char *const *from;  /* (sources) */
    char *const *to;          /* (outputs) the calling rank's own first */
    int sources, outputs;
    double scale;    /* 1: none */
    int64_t divisor; /* integers divide by this instead; 1: none */
    bool stream;     /* larger than the caches: use non-temporal stores */
} choir__reduce_task;

enum {
    CHOIR__BLOCK = 8192, /* bytes; the blocks in use stay in L1 */
    /* Partial results on the stack; two more blocks hold the result, wide and narrow. */
    CHOIR__REDUCE_LEVELS = 64,
    CHOIR__REDUCE_SCRATCH = (CHOIR__REDUCE_LEVELS + 2) * CHOIR__BLOCK,
};

/* Reduces elements [begin, end). scratch: CHOIR__REDUCE_SCRATCH bytes, aligned to 64. */
void choir__reduce(const choir__reduce_task *r, char *scratch, int64_t begin, int64_t end);

/* Returns the rank's share [*lo, *hi) of count elements, in whole cache lines. */
void choir__reduce_slice(
    int64_t count, size_t size, int rank, int world, int64_t *lo, int64_t *hi);

#endif
