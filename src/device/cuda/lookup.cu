/* Lookups along a dimension: one thread per element. The sums that are their gradients have one
 * thread per line, which adds the line's terms in the order of their positions: no atomics, and
 * the processor's bits. Distinct terms have a thread each, as lines of one term. */
#include "device/cuda/integers.cuh"
#include "device/cuda/walk.cuh"

struct lookup_along {
    const void *from;
    void *to;
    const int64_t *index;
    places at;
    int64_t size, step;            /* of the looked-up dimension */
    int64_t n, from_step, index_step; /* scatter_add: along a line */
    int64_t index_first;           /* place of index[0] in the whole index */
    choir__lookup what;
    choir__cuda_fault *fault;
};

__device__ inline bool is_inside(const lookup_along &k, int64_t found, int64_t at)
{
    if (found >= 0 && found < k.size)
        return true;
    raise_fault(
        k.fault, CHOIR__BAD_INDEX, found, k.size, k.index_first + at, (double)k.what);
    return false;
}

/* W: a word of an element's size */
template <class W> __global__ void gather(lookup_along k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[3];
        place_at(k.at, (uint32_t)i, off);
        int64_t found = k.index[off[1]];
        bool inside = is_inside(k, found, off[1]);
        ((W *)k.to)[off[0]] = inside ? ((const W *)k.from)[off[2] + found * k.step] : W(0);
    }
}

template <class T> __global__ void scatter_add(lookup_along k)
{
    for (int64_t l = first_thread(); l < k.at.count; l += all_threads()) {
        int64_t off[3];
        place_at(k.at, (uint32_t)l, off);
        for (int64_t i = 0; i < k.n; i++) {
            int64_t at = off[1] + i * k.index_step, found = k.index[at];
            if (is_inside(k, found, at))
                ((T *)k.to)[off[2] + found * k.step] +=
                    ((const T *)k.from)[off[0] + i * k.from_step];
        }
    }
}

/* a: the operand of the index's shape; b: the one that it points into. Along dim b does not
 * move. */
static walk walk_of(const choir__strided *a, const choir__strided *index,
    const choir__strided *b, const int64_t *shape, int ndim, int dim)
{
    walk w = {};
    w.ndim = ndim;
    w.operands = 3;
    for (int d = 0; d < ndim; d++) {
        w.shape[d] = shape[d];
        w.stride[d][0] = a->stride[d];
        w.stride[d][1] = index->stride[d];
        w.stride[d][2] = d == dim ? 0 : b->stride[d];
    }
    return w;
}

extern "C" void choir__cuda_gather(const choir__k_gather *k)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype), begin[WALK_OPERANDS] = {0};
    walk w = walk_of(&k->y, &k->index, &k->x, k->shape, k->ndim, k->dim);
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, begin, [&](const walk *part, const int64_t *off) {
        lookup_along l = {};
        l.to = (char *)k->y.p + off[0] * size;
        l.index = (const int64_t *)k->index.p + off[1];
        l.index_first = off[1];
        l.from = (const char *)k->x.p + off[2] * size;
        l.at = places_of(part);
        l.size = k->size;
        l.step = k->x.stride[k->dim];
        l.what = k->lookup;
        l.fault = choir__cuda_here()->fault;
        choose_word((size_t)size, [&](auto t) {
            launch(gather<decltype(t)>, grid_for(l.at.count), BLOCK, 0, l);
        });
    });
}

extern "C" void choir__cuda_scatter_add(const choir__k_scatter_add *k)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype), begin[WALK_OPERANDS] = {0};
    walk w = walk_of(&k->x, &k->index, &k->y, k->shape, k->ndim, k->dim);
    int64_t n = k->distinct ? 1 : w.shape[k->dim];
    if (!k->distinct)
        w.shape[k->dim] = n > 0; /* the lines */
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, begin, [&](const walk *part, const int64_t *off) {
        lookup_along l = {};
        l.from = (const char *)k->x.p + off[0] * size;
        l.index = (const int64_t *)k->index.p + off[1];
        l.index_first = off[1];
        l.to = (char *)k->y.p + off[2] * size;
        l.at = places_of(part);
        l.size = k->size;
        l.step = k->y.stride[k->dim];
        l.n = n;
        l.from_step = k->x.stride[k->dim];
        l.index_step = k->index.stride[k->dim];
        l.what = k->lookup;
        l.fault = choir__cuda_here()->fault;
        if (k->dtype == CHOIR_I64)
            launch(scatter_add<int64_t>, grid_for(l.at.count), BLOCK, 0, l);
        else if (k->dtype == CHOIR_F64)
            launch(scatter_add<double>, grid_for(l.at.count), BLOCK, 0, l);
        else
            launch(scatter_add<float>, grid_for(l.at.count), BLOCK, 0, l);
    });
}
