/* Sums and maxima of a matrix, along rows or down columns.
 *
 * The order of additions depends on the shape alone. Along rows, a warp or a block adds a row;
 * if there are few long rows, each is cut into parts that are added in a second pass. Down
 * columns, a block adds a strip of rows, with a slot of columns per thread, and the strips are
 * added in a second pass. The sizes of parts and strips ensure that there are enough blocks,
 * and that a thread adds at most TERMS numbers to one sum (more if there are more than ENOUGH
 * parts' worth of them), which keeps f32 exact enough. */
#include "device/cuda/kit/vector.cuh"

/* PART: least number of terms of a part of a row. ENOUGH: blocks that fill any GPU, and the
 * most parts of one sum. TERMS: terms that a thread adds. */
enum { PART = 4096, ENOUGH = 1024, TERMS = 128 };

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to;
}

struct row_sums {
    const void *x;
    void *y; /* (rows, parts) */
    int64_t rows, cols, parts, part_cols, row;
    double scale;
};

/* Block (r, p) or warp: adds part p of row r, of T's, to a Y. */
template <class T, class Y> __global__ void sum_rows(row_sums k)
{
    typedef row_access<T> A;
    typedef wide<T> V;
    int64_t r = row_here(), begin = blockIdx.y * k.part_cols;
    if (r >= k.rows)
        return;
    int64_t cols = k.cols - begin < k.part_cols ? k.cols - begin : k.part_cols;
    const T *x = (const T *)k.x + r * k.row + begin;
    V sum[A::N] = {};
    EACH_SLOT(A, c, cols, 0)
    {
        V v[A::N];
        load_row<A>(v, x, c, cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            sum[j] += v[j];
    }
#pragma unroll
    for (int step = A::N / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < step; j++)
            sum[j] += sum[j + step];
    V all = row_sum(sum[0]);
    if (threadIdx.x == 0)
        put((Y *)k.y + r * k.parts + blockIdx.y, all * V(k.scale));
}

template <class T, class Y> static void launch_row_sums(const row_sums &k)
{
    dim3 threads = row_threads(k.part_cols);
    dim3 blocks(row_blocks(k.rows, threads), (unsigned)k.parts);
    launch(sum_rows<T, Y>, blocks, threads, 0, k);
}

static void launch_rows(const choir__k_sum *k)
{
    int64_t n = 16 / (int64_t)choir_dtype_size(k->dtype);
    int64_t a_part = n * TERMS * row_threads(INT64_MAX).x;
    int64_t parts = k->rows >= ENOUGH ? 1 : choir__min(up(ENOUGH, k->rows), up(k->cols, PART));
    parts = choir__max(parts, choir__min(ENOUGH, up(k->cols, a_part)));
    int64_t part_cols = choir__max(1, up(up(k->cols, choir__max(1, parts)), 64)) * 64;
    parts = choir__max(1, up(k->cols, part_cols));
    int64_t row = choir__row_step(k->row, k->cols);
    row_sums s = {k->x, k->y, k->rows, k->cols, parts, part_cols, row, k->scale}, joint = s;
    if (parts > 1) {
        s.scale = 1;
        s.y = choir__cuda_scratch(0, (size_t)(k->rows * parts) * wide_size(k->dtype));
        joint.x = s.y;
        joint.cols = joint.part_cols = joint.row = parts;
        joint.parts = 1;
        if (!s.y)
            return;
    }
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        if (parts > 1 || k->wide)
            launch_row_sums<T, wide<T>>(s);
        else
            launch_row_sums<T, T>(s);
        if (parts > 1 && k->wide)
            launch_row_sums<wide<T>, wide<T>>(joint);
        else if (parts > 1)
            launch_row_sums<wide<T>, T>(joint);
    });
}

/* --- down columns --- */

enum { ACROSS = 32, DOWN = 8 }; /* a block's threads */

struct column_sums {
    const void *x;
    void *y; /* (strips, cols) */
    int64_t rows, cols, strips, strip_rows, row;
    double scale;
};

/* Block (c, s): ACROSS slots of columns, strip s. Its DOWN lines of threads take the strip's
 * rows in turn and are added in order. cols is a multiple of N. */
template <class A, class Y> __global__ void sum_columns(column_sums k)
{
    typedef typename A::T T;
    typedef typename A::V V;
    __shared__ V line[DOWN][A::N][ACROSS];
    int64_t c = ((int64_t)blockIdx.x * ACROSS + threadIdx.x) * A::N;
    int64_t r = blockIdx.y * k.strip_rows + threadIdx.y, end = (blockIdx.y + 1) * k.strip_rows;
    end = end < k.rows ? end : k.rows;
    V sum[A::N] = {};
    for (; r < end && c < k.cols; r += DOWN) {
        V v[A::N];
        load_row<A>(v, (const T *)k.x + r * k.row, c, k.cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            sum[j] += v[j];
    }
#pragma unroll
    for (int j = 0; j < A::N; j++)
        line[threadIdx.y][j][threadIdx.x] = sum[j];
    __syncthreads();
    if (threadIdx.y != 0 || c >= k.cols)
        return;
    for (int d = 1; d < DOWN; d++)
#pragma unroll
        for (int j = 0; j < A::N; j++)
            sum[j] += line[d][j][threadIdx.x];
#pragma unroll
    for (int j = 0; j < A::N; j++)
        put((Y *)k.y + blockIdx.y * k.cols + c + j, sum[j] * V(k.scale));
}

template <class T, class Y> static void launch_column_sums(const column_sums &k)
{
    enum { N = 16 / sizeof(T) };
    dim3 threads(ACROSS, DOWN);
    if (k.cols % N == 0)
        launch(sum_columns<access<T, N>, Y>,
            dim3((unsigned)up(k.cols, ACROSS * N), (unsigned)k.strips), threads, 0, k);
    else
        launch(sum_columns<access<T, 1>, Y>,
            dim3((unsigned)up(k.cols, ACROSS), (unsigned)k.strips), threads, 0, k);
}

static void launch_columns(const choir__k_sum *k)
{
    int64_t n = 16 / (int64_t)choir_dtype_size(k->dtype);
    int64_t across = up(k->cols, ACROSS * (k->cols % n == 0 ? n : 1));
    int64_t strips = choir__min(up(ENOUGH, across), up(k->rows, 4 * DOWN));
    strips = choir__max(strips, choir__min(ENOUGH, up(k->rows, TERMS * DOWN)));
    int64_t strip_rows = choir__max(1, up(k->rows, choir__max(1, strips)));
    strips = choir__max(1, up(k->rows, strip_rows));
    int64_t row = choir__row_step(k->row, k->cols);
    column_sums s = {k->x, k->y, k->rows, k->cols, strips, strip_rows, row, k->scale};
    column_sums joint = s;
    if (strips > 1) {
        s.scale = 1;
        s.y = choir__cuda_scratch(0, (size_t)(strips * k->cols) * wide_size(k->dtype));
        joint.x = s.y;
        joint.rows = joint.strip_rows = strips;
        joint.row = k->cols;
        joint.strips = 1;
        if (!s.y)
            return;
    }
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        if (strips > 1 || k->wide)
            launch_column_sums<T, wide<T>>(s);
        else
            launch_column_sums<T, T>(s);
        if (strips > 1 && k->wide)
            launch_column_sums<wide<T>, wide<T>>(joint);
        else if (strips > 1)
            launch_column_sums<wide<T>, T>(joint);
    });
}

extern "C" void choir__cuda_sum(const choir__k_sum *k)
{
    if (k->over_rows ? k->cols > 0 : k->rows > 0)
        k->over_rows ? launch_columns(k) : launch_rows(k);
}

/* --- the greatest of a row, and its first place --- */

template <class V> struct greatest {
    V value;
    int64_t at;
};

/* The first of equal values, or of several NaN, is kept, whatever the order of the calls. */
template <class V> __device__ inline void keep_greater(greatest<V> &g, V value, int64_t at)
{
    bool equal = value == g.value || (value != value && g.value != g.value);
    if (CHOIR__SURPASSES(value, g.value) || (equal && at < g.at)) {
        g.value = value;
        g.at = at;
    }
}

template <class V> __device__ inline greatest<V> warp_greatest(greatest<V> g)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        V value = __shfl_xor_sync(0xffffffffu, g.value, step);
        int64_t at = __shfl_xor_sync(0xffffffffu, g.at, step);
        keep_greater(g, value, at);
    }
    return g;
}

template <class T> __global__ void max_rows(choir__k_max_rows k)
{
    typedef row_access<T> A;
    typedef wide<T> V;
    __shared__ V value[WARP];
    __shared__ int64_t at[WARP];
    int64_t r = row_here();
    if (r >= k.rows)
        return;
    const T *x = (const T *)k.x + r * k.cols;
    greatest<V> g = {V(-INFINITY), k.cols};
    EACH_SLOT(A, c, k.cols, 0)
    {
        V v[A::N];
        load_row<A>(v, x, c, k.cols, V(-INFINITY)); /* the padding never comes first */
#pragma unroll
        for (int j = 0; j < A::N; j++)
            keep_greater(g, v[j], c + j);
    }
    g = warp_greatest(g);
    if (blockDim.x > WARP) {
        int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        if (lane == 0) {
            value[warp] = g.value;
            at[warp] = g.at;
        }
        __syncthreads();
        int other = lane < (int)blockDim.x / WARP ? lane : 0;
        g.value = value[other];
        g.at = at[other];
        g = warp_greatest(g);
    }
    if (threadIdx.x != 0)
        return;
    if (k.y)
        put((T *)k.y + r, g.value);
    if (k.index)
        k.index[r] = g.at + k.first;
}

extern "C" void choir__cuda_max_rows(const choir__k_max_rows *k)
{
    dim3 threads = row_threads(k->cols);
    if (k->rows > 0)
        choose(k->dtype, [&](auto t) {
            launch(max_rows<decltype(t)>, row_blocks(k->rows, threads), threads, 0, *k);
        });
}
