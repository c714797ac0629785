/* Sums of several arrays in the fixed tree, written to several places. */
#ifndef CHOIR_SHM_REDUCE_H
#define CHOIR_SHM_REDUCE_H

#include <choir/dtype.h>
#include <choir/group.h>
#include "base/base.h"
#include "comm/pattern/tree.h"

/* out = a op b, element by element. out may be a or b. */
typedef void choir__combine(void *out, const void *a, const void *b, int64_t n);
/* x = x * scale; integers: x / divisor, towards zero. */
typedef void choir__rescale(void *x, int64_t n, double scale, int64_t divisor);

typedef struct choir__arith {
    size_t size; /* of an element, in bytes */
    choir__combine *combine;
    choir__rescale *rescale;
} choir__arith;

/* NULL if there is no such arithmetic. CHOIR_MEAN adds. */
const choir__arith *choir__arith_find(choir_dtype dtype, choir_reduce_op op);

/* to[...] = rescale(tree(from[0], from[1], ...)). An output may be one of the inputs, or apart
 * from all of them. */
typedef struct choir__reduction {
    const choir__arith *arith;
    const choir__node *nodes; /* (sources) in order, [0, leaves) without gaps */
    const char *const *from;  /* (sources) */
    char *const *to;          /* (outputs) the reader's own first */
    int sources, outputs;
    double scale;    /* 1: none */
    int64_t divisor; /* the same for integers */
    bool stream;     /* too much for the caches: go round them */
} choir__reduction;

enum {
    CHOIR__BLOCK = 8192,       /* bytes: what is in work stays in L1 */
    CHOIR__REDUCE_LEVELS = 64, /* partial sums on the stack, and one for the result */
    CHOIR__REDUCE_SCRATCH = (CHOIR__REDUCE_LEVELS + 1) * CHOIR__BLOCK,
};

/* Elements [begin, end). scratch: CHOIR__REDUCE_SCRATCH bytes, aligned to 64. */
void choir__reduce(const choir__reduction *r, char *scratch, int64_t begin, int64_t end);

/* Rank's share [*lo, *hi) of count elements, in whole cache lines. */
void choir__reduce_slice(
    int64_t count, size_t size, int rank, int world, int64_t *lo, int64_t *hi);

#endif
