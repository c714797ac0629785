/* Visits strided operands of one shape together: simplifies the shape, then walks it row by
 * row. Operand 0 is the output. */
#ifndef CHOIR_ISA_WALK_H
#define CHOIR_ISA_WALK_H

#include "device/cpu/isa/isa.h"

enum { WALK_OPERANDS = 4 };

typedef struct walk {
    int ndim, operands;
    void *p[WALK_OPERANDS];
    int64_t shape[CHOIR__MAX_DIMS];
    int64_t stride[CHOIR__MAX_DIMS][WALK_OPERANDS]; /* in elements */
} walk;

/* Returns a walk over operands of one shape. Inlined, so that their number is a constant. */
__attribute__((always_inline)) static inline walk walk_of(
    const int64_t *shape, int ndim, int operands, const choir__strided *const *of)
{
    walk w = {.ndim = ndim, .operands = operands};
    for (int o = 0; o < operands; o++)
        w.p[o] = of[o]->p;
    for (int d = 0; d < ndim; d++) {
        w.shape[d] = shape[d];
        for (int o = 0; o < operands; o++)
            w.stride[d][o] = of[o]->stride[d];
    }
    return w;
}

/* Returns true if dimension d and the next one form one run in every operand. */
static inline bool walk_mergeable(const walk *w, int d)
{
    for (int o = 0; o < w->operands; o++)
        if (w->stride[d][o] != w->stride[d + 1][o] * w->shape[d + 1])
            return false;
    return true;
}

static inline void walk_copy_dim(walk *w, int to, int from)
{
    w->shape[to] = w->shape[from];
    for (int o = 0; o < WALK_OPERANDS; o++)
        w->stride[to][o] = w->stride[from][o];
}

/* Drops sizes of 1, orders by operand 0's stride (largest first), and merges; at least one
 * dimension stays. Returns false if there is nothing to visit. */
static inline bool walk_simplify(walk *w)
{
    int n = 0;
    for (int d = 0; d < w->ndim; d++) {
        if (w->shape[d] == 0)
            return false;
        if (w->shape[d] != 1)
            walk_copy_dim(w, n++, d);
    }
    for (int i = 1; i < n; i++)
        for (int d = i; d > 0 && w->stride[d][0] > w->stride[d - 1][0]; d--) {
            walk t = *w;
            walk_copy_dim(w, d, d - 1);
            w->shape[d - 1] = t.shape[d];
            memcpy(w->stride[d - 1], t.stride[d], sizeof t.stride[d]);
        }
    int kept = 0;
    for (int d = 1; d < n; d++) {
        walk_copy_dim(w, kept + 1, d);
        if (walk_mergeable(w, kept)) {
            w->shape[kept + 1] *= w->shape[kept];
            walk_copy_dim(w, kept, kept + 1);
        } else {
            kept++;
        }
    }
    w->ndim = kept + 1;
    if (n == 0) {
        w->shape[0] = 1;
        for (int o = 0; o < WALK_OPERANDS; o++)
            w->stride[0][o] = 1;
    }
    return true;
}

/* Steps to the next row (all dimensions except the last); returns false after the last one. */
static inline bool walk_next(const walk *w, int64_t *at, int64_t *off)
{
    for (int d = w->ndim - 2; d >= 0; d--) {
        for (int o = 0; o < w->operands; o++)
            off[o] += w->stride[d][o];
        if (++at[d] < w->shape[d])
            return true;
        for (int o = 0; o < w->operands; o++)
            off[o] -= w->stride[d][o] * w->shape[d];
        at[d] = 0;
    }
    return false;
}

#endif
