/* Strided operands of one shape, simplified on the host and walked on the GPU.
 *
 * The host drops sizes of 1, orders dimensions by operand 0 (the output) and joins neighbours
 * that are one run in every operand. A thread then finds its place from one number, with one
 * division per dimension, computed as a multiplication by a precomputed number. */
#ifndef CHOIR_WALK_CUH
#define CHOIR_WALK_CUH

#include "device/cuda/kit/kernel.cuh"

enum { WALK_OPERANDS = 4 };

typedef struct walk {
    int ndim, operands;
    int64_t shape[CHOIR__MAX_DIMS];
    int64_t stride[CHOIR__MAX_DIMS][WALK_OPERANDS]; /* in elements */
} walk;

/* Returns a walk over operands of one shape; the first operand is the output. */
template <int count>
walk walk_of(const int64_t *shape, int ndim, const choir__strided *const (&of)[count])
{
    walk w = {};
    w.ndim = ndim;
    w.operands = count;
    for (int d = 0; d < ndim; d++) {
        w.shape[d] = shape[d];
        for (int o = 0; o < count; o++)
            w.stride[d][o] = of[o]->stride[d];
    }
    return w;
}

inline bool walk_joins(const walk *w, int d)
{
    for (int o = 0; o < w->operands; o++)
        if (w->stride[d][o] != w->stride[d + 1][o] * w->shape[d + 1])
            return false;
    return true;
}

inline void walk_move(walk *w, int to, const walk *from, int d)
{
    w->shape[to] = from->shape[d];
    for (int o = 0; o < WALK_OPERANDS; o++)
        w->stride[to][o] = from->stride[d][o];
}

/* Returns false if there is nothing to visit; otherwise at least one dimension stays. */
inline bool walk_simplify(walk *w)
{
    int n = 0;
    for (int d = 0; d < w->ndim; d++) {
        if (w->shape[d] <= 0)
            return false;
        if (w->shape[d] != 1)
            walk_move(w, n++, w, d);
    }
    for (int i = 1; i < n; i++)
        for (int d = i; d > 0 && w->stride[d][0] > w->stride[d - 1][0]; d--) {
            walk before = *w;
            walk_move(w, d, &before, d - 1);
            walk_move(w, d - 1, &before, d);
        }
    int kept = 0;
    for (int d = 1; d < n; d++) {
        walk_move(w, kept + 1, w, d);
        if (walk_joins(w, kept)) {
            w->shape[kept + 1] *= w->shape[kept];
            walk_move(w, kept, w, kept + 1);
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

inline int64_t walk_count(const walk *w)
{
    int64_t n = 1;
    for (int d = 0; d < w->ndim; d++)
        n *= w->shape[d];
    return n;
}

/* n / size for n < 2^31 (Granlund & Montgomery, 1994). */
typedef struct divider {
    uint32_t size, factor, shift;
} divider;

inline divider divider_of(int64_t size)
{
    divider d = {(uint32_t)size, 0, 0};
    while (((uint64_t)1 << d.shift) < (uint64_t)size)
        d.shift++;
    uint64_t more = ((uint64_t)1 << d.shift) - (uint64_t)size;
    d.factor = (uint32_t)((more << 32) / (uint64_t)size + 1);
    return d;
}

__device__ inline uint32_t quotient(divider d, uint32_t n)
{
    return ((uint32_t)((uint64_t)n * d.factor >> 32) + n) >> d.shift;
}

/* A walk in the form for a kernel: `count` places, fewer than 2^31. */
typedef struct places {
    int ndim;
    uint32_t count;
    divider size[CHOIR__MAX_DIMS];
    int64_t stride[CHOIR__MAX_DIMS][WALK_OPERANDS];
} places;

inline places places_of(const walk *w)
{
    places p = {};
    p.ndim = w->ndim;
    p.count = (uint32_t)walk_count(w);
    for (int d = 0; d < w->ndim; d++) {
        p.size[d] = divider_of(w->shape[d]);
        for (int o = 0; o < WALK_OPERANDS; o++)
            p.stride[d][o] = w->stride[d][o];
    }
    return p;
}

/* Computes the operands' offsets of place i. */
template <int operands>
__device__ inline void place_at(const places &p, uint32_t i, int64_t (&off)[operands])
{
#pragma unroll
    for (int o = 0; o < operands; o++)
        off[o] = 0;
    for (int d = p.ndim - 1; d > 0; d--) {
        uint32_t rest = quotient(p.size[d], i), at = i - rest * p.size[d].size;
#pragma unroll
        for (int o = 0; o < operands; o++)
            off[o] += at * p.stride[d][o];
        i = rest;
    }
#pragma unroll
    for (int o = 0; o < operands; o++)
        off[o] += i * p.stride[0][o];
}

template <class F> void walk_parts_from(const walk *w, const int64_t *off, F f)
{
    if (walk_count(w) < INT64_C(1) << 31) {
        f(w, off);
        return;
    }
    int d = 0; /* splits the longest dimension in two */
    for (int i = 1; i < w->ndim; i++)
        d = w->shape[i] > w->shape[d] ? i : d;
    walk half = *w;
    int64_t at[WALK_OPERANDS], first = w->shape[d] / 2;
    half.shape[d] = first;
    walk_parts_from(&half, off, f);
    half.shape[d] = w->shape[d] - first;
    for (int o = 0; o < WALK_OPERANDS; o++)
        at[o] = off[o] + first * w->stride[d][o];
    walk_parts_from(&half, at, f);
}

/* Calls f(part, off) for parts of w of fewer than 2^31 places; part begins at off[o] elements
 * of operand o. Nearly always the only part is w itself. */
template <class F> void walk_parts(const walk *w, F f)
{
    const int64_t begin[WALK_OPERANDS] = {0};
    walk_parts_from(w, begin, f);
}

#endif
