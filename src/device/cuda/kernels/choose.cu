/* Comparisons, and the choice between two tensors by a mask: one thread per element. */
#include "device/cuda/kit/integers.cuh"
#include "device/cuda/kit/walk.cuh"

struct compared {
    uint8_t *y;
    const void *a, *b;
    places at;
    choir__compare_op op;
};

template <class V> __device__ inline bool holds(choir__compare_op op, V a, V b)
{
    switch (op) {
    case CHOIR__EQ: return a == b;
    case CHOIR__NE: return a != b;
    case CHOIR__LT: return a < b;
    case CHOIR__LE: return a <= b;
    case CHOIR__GT: return a > b;
    case CHOIR__GE: return a >= b;
    case CHOIR__AND: return a != V(0) && b != V(0);
    case CHOIR__OR: return a != V(0) || b != V(0);
    default: return (a != V(0)) != (b != V(0));
    }
}

template <class T> __global__ void compare(compared k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[3];
        place_at(k.at, (uint32_t)i, off);
        k.y[off[0]] = holds(k.op, get((const T *)k.a + off[1]), get((const T *)k.b + off[2]));
    }
}

extern "C" void choir__cuda_compare(const choir__k_compare *k)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype);
    walk w = walk_of(k->shape, k->ndim, {&k->y, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, [&](const walk *part, const int64_t *off) {
        compared c = {(uint8_t *)k->y.p + off[0], (char *)k->a.p + off[1] * size,
            (char *)k->b.p + off[2] * size, places_of(part), k->op};
        choose_any(k->dtype, [&](auto t) {
            launch(compare<decltype(t)>, grid_for(c.at.count), BLOCK, 0, c);
        });
    });
}

/* --- where --- */

struct chosen {
    void *y;
    const uint8_t *mask;
    const void *a, *b;
    places at;
};

/* W: a word of an element's size */
template <class W> __global__ void where(chosen k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[4];
        place_at(k.at, (uint32_t)i, off);
        ((W *)k.y)[off[0]] =
            k.mask[off[1]] ? ((const W *)k.a)[off[2]] : ((const W *)k.b)[off[3]];
    }
}

extern "C" void choir__cuda_where(const choir__k_where *k)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype);
    walk w = walk_of(k->shape, k->ndim, {&k->y, &k->mask, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, [&](const walk *part, const int64_t *off) {
        chosen c = {(char *)k->y.p + off[0] * size, (const uint8_t *)k->mask.p + off[1],
            (char *)k->a.p + off[2] * size, (char *)k->b.p + off[3] * size, places_of(part)};
        choose_word((size_t)size, [&](auto t) {
            launch(where<decltype(t)>, grid_for(c.at.count), BLOCK, 0, c);
        });
    });
}
