/* y = x between any strides and dtypes, and between this GPU, others and the host.
 *
 * The shape is simplified (walk.cuh). On one GPU a copy is then one of: the same bytes in one
 * run, which CUDA copies; a run with a conversion; a transpose, through tiles in shared memory
 * so that both sides are read and written along their rows; or element by element, in words as
 * wide as shape and strides allow.
 *
 * What is not in this GPU's memory is *far*: it is reached by plain copies of bytes alone. So a
 * far side whose elements fill a stretch of memory is copied as that, to or from scratch memory
 * of the same dtype and strides here; one with gaps on the host is packed there first. */
#include <stdlib.h>

#include "device/cuda/vector.cuh"
#include "device/cuda/walk.cuh"

/* --- one element to another type --- */

typedef struct truth {
    uint8_t v;
} truth;

/* An element as what it is converted by: float, double or int64_t. */
__device__ inline float plain(float x) { return x; }
__device__ inline double plain(double x) { return x; }
__device__ inline float plain(bf16 x) { return __bfloat162float(x); }
__device__ inline float plain(f16 x) { return __half2float(x); }
__device__ inline int64_t plain(int64_t x) { return x; }
__device__ inline int64_t plain(int32_t x) { return x; }
__device__ inline int64_t plain(uint8_t x) { return x; }
__device__ inline int64_t plain(truth x) { return x.v != 0; }

/* Towards zero; beyond int64_t the nearest, and NaN is 0. */
__device__ inline int64_t whole(int64_t x) { return x; }
template <class V> __device__ inline int64_t whole(V x)
{
    return x >= V(0x1p63)    ? INT64_MAX
           : x < V(-0x1p63) ? INT64_MIN
           : x == x         ? (int64_t)x
                            : 0;
}

template <class V> __device__ inline void convert(float *y, V x) { *y = (float)x; }
template <class V> __device__ inline void convert(double *y, V x) { *y = (double)x; }
template <class V> __device__ inline void convert(bf16 *y, V x) { put(y, (float)x); }
template <class V> __device__ inline void convert(f16 *y, V x) { put(y, (float)x); }
template <class V> __device__ inline void convert(int64_t *y, V x) { *y = whole(x); }
template <class V> __device__ inline void convert(int32_t *y, V x) { *y = (int32_t)whole(x); }
template <class V> __device__ inline void convert(uint8_t *y, V x) { *y = (uint8_t)whole(x); }
template <class V> __device__ inline void convert(truth *y, V x) { y->v = x != V(0); }

/* Calls f with a value of the type that any dtype names. */
template <class F> static void choose_any(choir_dtype dtype, F f)
{
    switch (dtype) {
    case CHOIR_F64: f(double()); break;
    case CHOIR_BF16: f(bf16()); break;
    case CHOIR_F16: f(f16()); break;
    case CHOIR_I64: f(int64_t()); break;
    case CHOIR_I32: f(int32_t()); break;
    case CHOIR_U8: f(uint8_t()); break;
    case CHOIR_BOOL: f(truth()); break;
    default: f(float()); break;
    }
}

/* --- on this GPU --- */

struct run {
    void *y;
    const void *x;
    int64_t n;
};

enum { AT_ONCE = 8 };

/* A run of another dtype, N elements at a time; addresses are aligned for that. */
template <class Y, class X, int N> __global__ void convert_run(run k)
{
    int64_t step = all_threads() * N;
    for (int64_t i = first_thread() * N; i < k.n; i += step) {
        Y *y = (Y *)k.y + i;
        const X *x = (const X *)k.x + i;
        if (i + N <= k.n) {
            several<X, N> from = *(const several<X, N> *)x;
            several<Y, N> to;
#pragma unroll
            for (int j = 0; j < N; j++)
                convert(&to.e[j], plain(from.e[j]));
            *(several<Y, N> *)y = to;
        } else {
            for (int j = 0; i + j < k.n; j++)
                convert(&y[j], plain(x[j]));
        }
    }
}

struct strided_copy {
    void *y;
    const void *x;
    places at;
};

template <class Y, class X> __global__ void convert_strided(strided_copy k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[2];
        place_at(k.at, (uint32_t)i, off);
        convert((Y *)k.y + off[0], plain(((const X *)k.x)[off[1]]));
    }
}

/* The same bytes, a word at a time. */
template <class W> __global__ void move_strided(strided_copy k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[2];
        place_at(k.at, (uint32_t)i, off);
        ((W *)k.y)[off[0]] = ((const W *)k.x)[off[1]];
    }
}

enum { SIDE = 32, LINES = 8 };

/* y's rows run along one dimension, x's along another. at: the other dimensions and, last, the
 * tiles along x's and along y's rows. */
struct transposition {
    void *y;
    const void *x;
    places at;
    int64_t y_row, x_row;     /* from one row to the next */
    int64_t y_length, x_length; /* of rows */
    divider y_tiles, x_tiles; /* in a row */
};

template <class W> __global__ void transpose(transposition k)
{
    __shared__ W tile[SIDE][SIDE + 1];
    uint32_t block = blockIdx.x, rest = quotient(k.y_tiles, block);
    int64_t along_y = (int64_t)(block - rest * k.y_tiles.size) * SIDE;
    block = quotient(k.x_tiles, rest);
    int64_t along_x = (int64_t)(rest - block * k.x_tiles.size) * SIDE;
    int64_t off[2];
    place_at(k.at, block, off);
    const W *x = (const W *)k.x + off[1] + along_y * k.x_row + along_x;
    W *y = (W *)k.y + off[0] + along_x * k.y_row + along_y;
    int64_t ny = k.y_length - along_y, nx = k.x_length - along_x;
    for (int i = (int)threadIdx.y; i < SIDE && i < ny; i += LINES)
        if ((int)threadIdx.x < nx)
            tile[i][threadIdx.x] = x[i * k.x_row + threadIdx.x];
    __syncthreads();
    for (int i = (int)threadIdx.y; i < SIDE && i < nx; i += LINES)
        if ((int)threadIdx.x < ny)
            y[i * k.y_row + threadIdx.x] = tile[threadIdx.x][i];
}

/* The dimension along which x is contiguous, if the tiles of a transpose would be fairly full;
 * else -1. */
static int transposed_dimension(const walk *w)
{
    int last = w->ndim - 1;
    if (w->stride[last][0] != 1 || w->stride[last][1] <= 1 || w->shape[last] < LINES)
        return -1;
    for (int d = 0; d < last; d++)
        if (w->stride[d][1] == 1 && w->shape[d] >= LINES)
            return d;
    return -1;
}

static void launch_transpose(const walk *w, int d, void *y, const void *x, size_t size)
{
    int last = w->ndim - 1;
    walk others = {};
    others.operands = 2;
    for (int i = 0; i < last; i++)
        if (i != d)
            walk_move(&others, others.ndim++, w, i);
    if (others.ndim == 0) {
        others.ndim = 1;
        others.shape[0] = 1;
    }
    transposition t = {};
    t.y = y;
    t.x = x;
    t.y_row = w->stride[d][0];
    t.x_row = w->stride[last][1];
    t.y_length = w->shape[last];
    t.x_length = w->shape[d];
    t.y_tiles = divider_of((t.y_length + SIDE - 1) / SIDE);
    t.x_tiles = divider_of((t.x_length + SIDE - 1) / SIDE);
    t.at = places_of(&others);
    int64_t blocks = walk_count(&others) * t.y_tiles.size * t.x_tiles.size;
    dim3 grid((unsigned)blocks), threads(SIDE, LINES);
    if (size == 1)
        launch(transpose<uint8_t>, grid, threads, 0, t);
    else if (size == 2)
        launch(transpose<uint16_t>, grid, threads, 0, t);
    else if (size == 4)
        launch(transpose<uint32_t>, grid, threads, 0, t);
    else
        launch(transpose<uint64_t>, grid, threads, 0, t);
}

/* The widest word, in elements of `size` bytes, that all runs are made of. */
static int64_t word_of(const walk *w, const void *y, const void *x, size_t size)
{
    int last = w->ndim - 1;
    int64_t n = 16 / (int64_t)size;
    if (w->stride[last][0] != 1 || w->stride[last][1] != 1)
        return 1;
    for (;; n /= 2) {
        size_t bytes = (size_t)n * size;
        bool fits = w->shape[last] % n == 0 && ((uintptr_t)y | (uintptr_t)x) % bytes == 0;
        for (int d = 0; d < last; d++)
            fits = fits && w->stride[d][0] % n == 0 && w->stride[d][1] % n == 0;
        if (fits || n == 1)
            return n;
    }
}

static void launch_move(const walk *part, void *y, const void *x, size_t size)
{
    int64_t n = word_of(part, y, x, size);
    walk w = *part;
    w.shape[w.ndim - 1] /= n;
    for (int d = 0; d + 1 < w.ndim && n > 1; d++)
        for (int o = 0; o < 2; o++)
            w.stride[d][o] /= n;
    strided_copy k = {y, x, places_of(&w)};
    unsigned grid = grid_for(k.at.count);
    switch ((size_t)n * size) {
    case 1: launch(move_strided<uint8_t>, grid, BLOCK, 0, k); break;
    case 2: launch(move_strided<uint16_t>, grid, BLOCK, 0, k); break;
    case 4: launch(move_strided<uint32_t>, grid, BLOCK, 0, k); break;
    case 8: launch(move_strided<uint64_t>, grid, BLOCK, 0, k); break;
    default: launch(move_strided<uint4>, grid, BLOCK, 0, k); break;
    }
}

/* A side of a copy. */
typedef struct side {
    char *p;
    choir_dtype dtype;
    int64_t size; /* of an element */
} side;

static bool is_run(const walk *w)
{
    return w->ndim == 1 && w->stride[0][0] == 1 && w->stride[0][1] == 1;
}

/* Bytes, wherever they are. */
static bool copy_bytes(void *y, const void *x, int64_t bytes)
{
    return choir__cuda_ok(
        cudaMemcpyAsync(
            y, x, (size_t)bytes, cudaMemcpyDefault, choir__cuda_here()->stream),
        "a copy's cudaMemcpyAsync");
}

static void launch_convert_run(const side *y, const side *x, int64_t n)
{
    run r = {y->p, x->p, n};
    bool aligned = ((uintptr_t)y->p | (uintptr_t)x->p) % 16 == 0;
    choose_any(y->dtype, [&](auto to) {
        choose_any(x->dtype, [&](auto from) {
            typedef decltype(to) Y;
            typedef decltype(from) X;
            if (aligned)
                launch(convert_run<Y, X, AT_ONCE>, grid_for(n, BLOCK * AT_ONCE), BLOCK, 0, r);
            else
                launch(convert_run<Y, X, 1>, grid_for(n), BLOCK, 0, r);
        });
    });
}

static void copy_here(const walk *w, const side *y, const side *x)
{
    int64_t begin[WALK_OPERANDS] = {0};
    bool same = y->dtype == x->dtype;
    if (is_run(w)) {
        if (same)
            copy_bytes(y->p, x->p, w->shape[0] * y->size);
        else
            launch_convert_run(y, x, w->shape[0]);
        return;
    }
    walk_parts(w, begin, [&](const walk *part, const int64_t *off) {
        char *to = y->p + off[0] * y->size, *from = x->p + off[1] * x->size;
        int d = same ? transposed_dimension(part) : -1;
        if (d >= 0) {
            launch_transpose(part, d, to, from, (size_t)y->size);
        } else if (same) {
            launch_move(part, to, from, (size_t)y->size);
        } else {
            strided_copy k = {to, from, places_of(part)};
            choose_any(y->dtype, [&](auto t) {
                choose_any(x->dtype, [&](auto f) {
                    launch(convert_strided<decltype(t), decltype(f)>, grid_for(k.at.count),
                        BLOCK, 0, k);
                });
            });
        }
    });
}

/* --- far memory --- */

/* Whether operand o's elements fill a stretch of memory, in whichever order. */
static bool fills(const walk *w, int o)
{
    int64_t expected = 1;
    for (int done = 0; done < w->ndim; done++) {
        int d = 0;
        while (d < w->ndim && w->stride[d][o] != expected)
            d++;
        if (d == w->ndim)
            return false;
        expected *= w->shape[d];
    }
    return true;
}

/* From an operand's first element through its last. */
static int64_t span(const walk *w, int o)
{
    int64_t last = 0;
    for (int d = 0; d < w->ndim; d++)
        last += (w->shape[d] - 1) * w->stride[d][o];
    return last + 1;
}

/* Operand o as one run in the order of the walk. */
static void make_row_major(walk *w, int o)
{
    int64_t stride = 1;
    for (int d = w->ndim - 1; d >= 0; d--) {
        w->stride[d][o] = stride;
        stride *= w->shape[d];
    }
}

/* Calls f(i, off) for each row of operand o: its i-th element in the walk's order, and where it
 * lies. Rows are the last dimension where that is contiguous, else single elements. */
template <class F> static void each_row(const walk *w, int o, F f)
{
    int rows = w->stride[w->ndim - 1][o] == 1 ? w->ndim - 1 : w->ndim;
    int64_t at[CHOIR__MAX_DIMS] = {0}, off = 0, i = 0;
    int64_t length = rows < w->ndim ? w->shape[rows] : 1;
    for (;;) {
        int d = rows - 1;
        f(i, off, length);
        i += length;
        for (; d >= 0; d--) {
            off += w->stride[d][o];
            if (++at[d] < w->shape[d])
                break;
            off -= w->stride[d][o] * w->shape[d];
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}

static char *temporary(int64_t bytes)
{
    char *p = (char *)malloc((size_t)bytes);
    if (!p)
        choir__queue_fail(
            CHOIR_ERR_MEMORY, "a copy has no %lld bytes of the host's memory", (long long)bytes);
    return p;
}

static bool wait_stream(void)
{
    return choir__cuda_ok(cudaStreamSynchronize(choir__cuda_here()->stream), "a copy's wait");
}

/* Makes x near: to scratch memory, w's operand 1 and *x becoming that. */
static bool fetch(walk *w, side *x)
{
    bool gaps = !fills(w, 1), host = choir__cuda_gpu_of(x->p) < 0;
    int64_t n = walk_count(w), count = gaps && !host ? span(w, 1) : n;
    char *here = (char *)choir__cuda_scratch(2, (size_t)(count * x->size)), *packed = x->p;
    if (!here)
        return false;
    if (gaps && host) {
        if (!(packed = temporary(n * x->size)))
            return false;
        each_row(w, 1, [&](int64_t i, int64_t off, int64_t length) {
            memcpy(packed + i * x->size, x->p + off * x->size, (size_t)(length * x->size));
        });
        make_row_major(w, 1);
    }
    bool ok = copy_bytes(here, packed, count * x->size);
    if (packed != x->p) {
        ok = wait_stream() && ok;
        free(packed);
    }
    x->p = here;
    return ok;
}

/* To a y with gaps that is far, out of n packed elements here. */
static void spread(const walk *w, const side *y, char *packed, int64_t n)
{
    if (choir__cuda_gpu_of(y->p) >= 0) {
        each_row(w, 0, [&](int64_t i, int64_t off, int64_t length) {
            copy_bytes(y->p + off * y->size, packed + i * y->size, length * y->size);
        });
        return;
    }
    char *host = temporary(n * y->size);
    if (host && copy_bytes(host, packed, n * y->size) && wait_stream())
        each_row(w, 0, [&](int64_t i, int64_t off, int64_t length) {
            memcpy(y->p + off * y->size, host + i * y->size, (size_t)(length * y->size));
        });
    free(host);
}

static void copy_far(walk w, const side *y, side x)
{
    int gpu = choir__cuda_here()->gpu;
    bool y_far = choir__cuda_gpu_of(y->p) != gpu, x_far = choir__cuda_gpu_of(x.p) != gpu;
    int64_t n = walk_count(&w);
    if (is_run(&w) && y->dtype == x.dtype) {
        copy_bytes(y->p, x.p, n * y->size);
        return;
    }
    if (x_far && !fetch(&w, &x))
        return;
    if (!y_far) {
        copy_here(&w, y, &x);
        return;
    }
    side here = *y;
    walk near = w;
    if (!(here.p = (char *)choir__cuda_scratch(3, (size_t)(n * y->size))))
        return;
    bool gaps = !fills(&w, 0);
    if (gaps)
        make_row_major(&near, 0);
    copy_here(&near, &here, &x);
    if (gaps)
        spread(&w, y, here.p, n);
    else
        copy_bytes(y->p, here.p, n * y->size);
}

extern "C" void choir__cuda_copy(const choir__k_copy *k)
{
    walk w = {};
    w.ndim = k->ndim;
    w.operands = 2;
    for (int d = 0; d < k->ndim; d++) {
        w.shape[d] = k->shape[d];
        w.stride[d][0] = k->y.stride[d];
        w.stride[d][1] = k->x.stride[d];
    }
    if (!walk_simplify(&w))
        return;
    side y = {(char *)k->y.p, k->y_dtype, (int64_t)choir_dtype_size(k->y_dtype)};
    side x = {(char *)k->x.p, k->x_dtype, (int64_t)choir_dtype_size(k->x_dtype)};
    int gpu = choir__cuda_here()->gpu;
    if (choir__cuda_gpu_of(y.p) == gpu && choir__cuda_gpu_of(x.p) == gpu)
        copy_here(&w, &y, &x);
    else
        copy_far(w, &y, x);
}
