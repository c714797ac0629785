/* Lookups along a dimension: one thread per element.
 *
 * The sums that are their gradients use no atomics: the terms of one destination are added in
 * the order of their positions, so sums have the processor's bits. Many lines, or short ones,
 * have a thread each, which adds term by term; distinct terms are lines of one term. Otherwise
 * a block takes a line, or the part of it whose terms go to every parts-th destination:
 *
 *     the line's indices     4 1 4 7 0 2 4 ...     BATCH of them at a time, by all threads
 *     even ones, in order    4 4 0 2 4 ...         wait in shared memory, for the block of part 0
 *     BLOCK of them          4: 0th + 1st + 4th    a thread per term: the thread of the first
 *                            0: 2nd    2: 3rd      term of a destination adds all of these */
#include "device/cuda/kit/integers.cuh"
#include "device/cuda/kit/walk.cuh"

struct lookup_along {
    const void *from;
    void *to;
    const int64_t *index;
    places at;
    int64_t size, step;            /* size and step of the looked-up dimension */
    int64_t n, from_step, index_step; /* scatter_add: along a line */
    int64_t parts;                 /* parts of a line, for blocks: a power of two */
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

/* --- a line by blocks --- */

enum { AHEAD = 4, BATCH = AHEAD * BLOCK, WAITING = BLOCK + BATCH };

/* Terms whose sums have not been made yet, in the order of their positions. */
template <class T> struct waiting_terms {
    int64_t to[WAITING]; /* destinations, in elements */
    T term[WAITING];
    int kept[BATCH / WARP]; /* kept entries of a batch, per warp and AHEAD round */
};

/* Adds the terms in order. A thread has one term of each BLOCK of them. */
template <class T>
__device__ inline void add_waiting(T *y, const waiting_terms<T> &w, int count)
{
    for (int first = 0; first < count; first += BLOCK) {
        int end = count < first + BLOCK ? count : first + BLOCK, own = first + (int)threadIdx.x;
        __syncthreads(); /* all terms wait; the destinations of the BLOCK before are written */
        if (own >= end)
            continue;
        int64_t to = w.to[own];
        int i = first;
        while (w.to[i] != to)
            i++;
        if (i < own)
            continue; /* another thread adds all terms of this destination */
        T sum = y[to];
        for (; i < end; i++)
            if (w.to[i] == to)
                sum += w.term[i];
        y[to] = sum;
    }
    __syncthreads();
}

/* Lets the terms of a batch that go to this part wait behind the `count` that do. Returns how
 * many wait then. */
template <class T>
__device__ inline int let_wait(const lookup_along &k, const int64_t (&off)[3], int64_t first,
    int64_t part, waiting_terms<T> &w, int count)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t found[AHEAD];
    T term[AHEAD];
    int before[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        int64_t i = first + a * BLOCK + threadIdx.x, at = off[1] + i * k.index_step;
        found[a] = i < k.n ? k.index[at] : -1;
        bool own = i < k.n && is_inside(k, found[a], at) && (found[a] & (k.parts - 1)) == part;
        found[a] = own ? found[a] : -1;
        term[a] = own ? ((const T *)k.from)[off[0] + i * k.from_step] : T(0);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        unsigned kept = __ballot_sync(0xffffffffu, found[a] >= 0);
        before[a] = __popc(kept & ((1u << lane) - 1));
        if (lane == 0)
            w.kept[a * (BLOCK / WARP) + warp] = __popc(kept);
    }
    __syncthreads();
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
        for (int c = 0; c < BLOCK / WARP; c++) {
            if (c == warp && found[a] >= 0) {
                w.to[count + before[a]] = found[a] * k.step;
                w.term[count + before[a]] = term[a];
            }
            count += w.kept[a * (BLOCK / WARP) + c];
        }
    return count;
}

template <class T> __global__ void scatter_add_by_blocks(lookup_along k)
{
    __shared__ waiting_terms<T> w;
    int64_t all = k.at.count * k.parts;
    for (int64_t b = blockIdx.x; b < all; b += gridDim.x) {
        int64_t off[3], part = b % k.parts;
        int count = 0;
        place_at(k.at, (uint32_t)(b / k.parts), off);
        for (int64_t first = 0; first < k.n; first += BATCH) {
            count = let_wait(k, off, first, part, w, count);
            if (count > WAITING - BATCH || first + BATCH >= k.n) {
                add_waiting((T *)k.to + off[2], w, count);
                count = 0;
            } else
                __syncthreads(); /* w.kept was read */
        }
    }
}

/* Returns the number of blocks for a line: 0, if a thread per line keeps the GPU busy or lines are
 * too short to keep a block busy; several, if there are few lines of many terms. */
static int64_t parts_of(int64_t lines, int64_t n, int64_t size)
{
    int64_t parts = 1, blocks = 2 * choir__cuda_here()->multiprocessors;
    if (n < WARP || lines >= (int64_t)grid_for(INT64_MAX / BLOCK) * BLOCK)
        return 0;
    while (2 * parts * lines <= blocks && 2 * parts * BATCH <= n && 2 * parts <= size)
        parts *= 2;
    return parts;
}

template <class T> static void launch_scatter_add(const lookup_along &l)
{
    if (!l.parts)
        launch(scatter_add<T>, grid_for(l.at.count), BLOCK, 0, l);
    else
        launch(scatter_add_by_blocks<T>, grid_for(l.at.count * l.parts, 1), BLOCK, 0, l);
}

/* --- the host's part --- */

extern "C" void choir__cuda_gather(const choir__k_gather *k)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype);
    walk w = walk_of(k->shape, k->ndim, {&k->y, &k->index, &k->x});
    w.stride[k->dim][2] = 0; /* the index says where along dim */
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, [&](const walk *part, const int64_t *off) {
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
    int64_t size = (int64_t)choir_dtype_size(k->dtype);
    walk w = walk_of(k->shape, k->ndim, {&k->x, &k->index, &k->y});
    w.stride[k->dim][2] = 0;
    int64_t n = k->distinct ? 1 : w.shape[k->dim];
    if (!k->distinct)
        w.shape[k->dim] = n > 0; /* the lines */
    if (!walk_simplify(&w))
        return;
    walk_parts(&w, [&](const walk *part, const int64_t *off) {
        lookup_along l = {};
        l.from = (const char *)k->x.p + off[0] * size;
        l.index = (const int64_t *)k->index.p + off[1];
        l.index_first = off[1];
        l.to = (char *)k->y.p + off[2] * size;
        l.at = places_of(part);
        l.size = k->size;
        l.step = k->y.stride[k->dim];
        l.n = n;
        l.parts = parts_of(l.at.count, n, k->size);
        l.from_step = k->x.stride[k->dim];
        l.index_step = k->index.stride[k->dim];
        l.what = k->lookup;
        l.fault = choir__cuda_here()->fault;
        if (k->dtype == CHOIR_I64)
            launch_scatter_add<int64_t>(l);
        else if (k->dtype == CHOIR_F64)
            launch_scatter_add<double>(l);
        else
            launch_scatter_add<float>(l);
    });
}
