/* y = x between any strides and dtypes, and between this GPU, others and the host.
 *
 * The shape is simplified (kit/walk.cuh). On one GPU a copy is then one of: the same bytes in
 * one run, which CUDA copies; a run with a conversion; a transpose, through tiles in shared
 * memory so that both sides are read and written along their rows; or element by element, in
 * words as wide as shape and strides allow.
 *
 * Operands outside this GPU's memory are copied by copy_far.cu. */
#include "device/cuda/kit/copy.cuh"
#include "device/cuda/kit/vector.cuh"

/* --- one element to another type --- */

typedef struct truth {
    uint8_t v;
} truth;

/* Returns an element as the type through which it is converted: float, double or int64_t. */
__device__ inline float plain(float x) { return x; }
__device__ inline double plain(double x) { return x; }
__device__ inline float plain(bf16 x) { return __bfloat162float(x); }
__device__ inline float plain(f16 x) { return __half2float(x); }
__device__ inline int64_t plain(int64_t x) { return x; }
__device__ inline int64_t plain(int32_t x) { return x; }
__device__ inline int64_t plain(uint8_t x) { return x; }
__device__ inline int64_t plain(truth x) { return x.v != 0; }

/* Integers wrap; floats are truncated towards zero, those outside [least, beyond) become the
 * nearest integer that fits, and NaN 0. */
template <class T>
__device__ inline T whole(int64_t x, double, double, T)
{
    return (T)x;
}
template <class T, class V> __device__ inline T whole(V x, double least, double beyond, T most)
{
    return x >= V(beyond) ? most : x >= V(least) ? (T)x : x < V(least) ? (T)least : T(0);
}

template <class V> __device__ inline void convert(float *y, V x) { *y = (float)x; }
template <class V> __device__ inline void convert(double *y, V x) { *y = (double)x; }
template <class V> __device__ inline void convert(bf16 *y, V x) { put(y, (float)x); }
template <class V> __device__ inline void convert(f16 *y, V x) { put(y, (float)x); }
template <class V> __device__ inline void convert(int64_t *y, V x)
{
    *y = whole<int64_t>(x, -0x1p63, 0x1p63, INT64_MAX);
}
template <class V> __device__ inline void convert(int32_t *y, V x)
{
    *y = whole<int32_t>(x, -0x1p31, 0x1p31, INT32_MAX);
}
template <class V> __device__ inline void convert(uint8_t *y, V x)
{
    *y = whole<uint8_t>(x, 0, 0x1p8, UINT8_MAX);
}
template <class V> __device__ inline void convert(truth *y, V x) { y->v = x != V(0); }

/* Calls f with a value of the type of any dtype. */
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

/* Converts a run to another dtype, N elements at a time; addresses are aligned for that. */
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

/* Moves equal bytes, one word at a time. */
template <class W> __global__ void move_strided(strided_copy k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[2];
        place_at(k.at, (uint32_t)i, off);
        ((W *)k.y)[off[0]] = ((const W *)k.x)[off[1]];
    }
}

enum { SIDE = 32, LINES = 8 };

/* A transpose: y's rows run along one dimension, x's along another. at: the other dimensions
 * and, last, the tiles along x's and along y's rows. */
struct transposition {
    void *y;
    const void *x;
    places at;
    int64_t y_row, x_row;     /* from one row to the next */
    int64_t y_length, x_length; /* lengths of rows */
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

/* Returns the dimension along which x is contiguous if the tiles of a transpose would be fairly
 * full; else -1. */
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

/* Returns the widest word, in elements of `size` bytes, that divides all runs. */
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

void choir__cuda_copy_here(const walk *w, const side *y, const side *x)
{
    bool same = y->dtype == x->dtype;
    if (is_run(w)) {
        if (same)
            copy_bytes(y->p, x->p, w->shape[0] * y->size);
        else
            launch_convert_run(y, x, w->shape[0]);
        return;
    }
    walk_parts(w, [&](const walk *part, const int64_t *off) {
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

extern "C" void choir__cuda_copy(const choir__k_copy *k)
{
    walk w = walk_of(k->shape, k->ndim, {&k->y, &k->x});
    if (!walk_simplify(&w))
        return;
    side y = {(char *)k->y.p, k->y_dtype, (int64_t)choir_dtype_size(k->y_dtype)};
    side x = {(char *)k->x.p, k->x_dtype, (int64_t)choir_dtype_size(k->x_dtype)};
    int gpu = choir__cuda_here()->gpu;
    if (choir__cuda_gpu_of(y.p) == gpu && choir__cuda_gpu_of(x.p) == gpu)
        choir__cuda_copy_here(&w, &y, &x);
    else
        choir__cuda_copy_far(&w, &y, &x);
}
