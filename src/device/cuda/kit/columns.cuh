/* Walks down the columns of channels-last matrices: sums over rows, and passes that use values
 * per column.
 *
 * A matrix (images, rows, cols) is cut into tiles of 256 threads: `across` of them side by
 * side, with a pack of columns each, the others below. A thread walks down its columns, so
 * values of a column stay in registers, and a warp reads whole runs of a row.
 *
 *     sums    sum_columns     at most ROWS rows per thread, in wide<T>; a tile's threads in f64,
 *                             in order -> partial [image][2][column][split]
 *             finish_columns  one warp per column adds its partial sums and uses the result
 *     passes  map_columns     computes each element
 *
 * How a matrix is cut depends on its shape and type alone, and so does the order of a sum. The
 * computation is a struct ("op") with these functions, all inline:
 *
 *     held, row         types: a thread's values of its columns; the values loaded of a row
 *     begin(h, p)       fills held
 *     read(p, r, i)     loads row r (of its image), whose pack is at element i
 *     first(h, q)       sees the first row before it is added                        (sums)
 *     add(h, p, i, q, a, b)            adds to two sums per column                   (sums)
 *     total(h, n, e, a, b, &A, &B)     the sums of n rows of the pack's element e    (sums)
 *     write(h, p, i, q)                                                              (passes)
 */
#ifndef CHOIR_COLUMNS_CUH
#define CHOIR_COLUMNS_CUH

#include "device/cuda/kit/pack.cuh"

enum {
    ROWS = 64,      /* rows that a thread adds in wide<T> */
    ROWS_LEAST = 8, /* with fewer rows, more blocks do not help */
    BLOCKS_SUM = 2048,
    BLOCKS_MAP = 8192 /* number that fills any GPU */
};

typedef struct matrix {
    int64_t images, rows, cols;
    int64_t tiles, splits; /* tiles of columns; splits of an image's rows */
    int64_t each;          /* rows per split */
    int64_t across;
    int64_t whole; /* rows are whole packs, and aligned */
} matrix;

/* The place of a thread. */
typedef struct place {
    int64_t image, split, c; /* c: the first of its columns; may be beyond the last */
    int64_t left;            /* columns from c on */
    int64_t first, end;      /* rows of the image: first, first + step, ... */
    int64_t base;            /* element of the image's row 0, column c */
    int step;
} place;

inline int64_t blocks_of(const matrix &m)
{
    return m.tiles * m.splits * m.images;
}

template <class T>
matrix matrix_of(int64_t images, int64_t rows, int64_t cols, bool whole, int64_t wanted)
{
    matrix m = {images, rows, cols, 0, 0, 0, 1, whole};
    int64_t packs = packs_of<T>(cols);
    while (m.across < WARP && m.across < packs)
        m.across *= 2;
    m.tiles = (packs + m.across - 1) / m.across;
    int64_t down = BLOCK / m.across, others = m.tiles * images, a_thread;
    int64_t splits = others < wanted && others ? wanted / others : 1;
    a_thread = (rows + splits * down - 1) / (splits * down);
    if (a_thread < ROWS_LEAST)
        a_thread = ROWS_LEAST;
    if (a_thread > ROWS)
        a_thread = ROWS;
    m.each = a_thread * down;
    m.splits = (rows + m.each - 1) / m.each;
    return m;
}

template <class T>
matrix matrix_for_sums(int64_t images, int64_t rows, int64_t cols, bool whole)
{
    return matrix_of<T>(images, rows, cols, whole, BLOCKS_SUM);
}

template <class T> matrix matrix_for_map(int64_t images, int64_t rows, int64_t cols, bool whole)
{
    return matrix_of<T>(images, rows, cols, whole, BLOCKS_MAP);
}

template <class T> __device__ inline place place_of(const matrix &m)
{
    place p;
    int64_t block = blockIdx.x, above = divide(block, m.tiles);
    int tx = threadIdx.x % (int)m.across, ty = threadIdx.x / (int)m.across;
    p.image = divide(above, m.splits);
    p.split = above - p.image * m.splits;
    p.c = ((block - above * m.tiles) * m.across + tx) * pack<T>::N;
    p.left = m.cols - p.c;
    p.step = BLOCK / (int)m.across;
    p.first = p.split * m.each + ty;
    p.end = (p.split + 1) * m.each < m.rows ? (p.split + 1) * m.each : m.rows;
    p.base = p.image * m.rows * m.cols + p.c;
    return p;
}

/* --- sums --- */

template <class Op> struct sums_args {
    matrix m;
    Op op;
    double *partial;
};

/* Adds a tile's threads' sums of one kind, down each column in order. */
template <int N>
__device__ inline void join_tile(
    const matrix &m, const place &p, const double *mine, double *part, double *to)
{
    int across = (int)m.across, wide = across * N;
    int tx = threadIdx.x % across, ty = threadIdx.x / across;
    int64_t c = p.c - tx * N + threadIdx.x; /* the column whose sum this thread writes */
    __syncthreads();                        /* an earlier kind's readers are done */
    for (int e = 0; e < N; e++)
        part[ty * wide + tx * N + e] = mine[e];
    __syncthreads();
    if ((int)threadIdx.x >= wide || c >= m.cols)
        return;
    double sum = 0;
    for (int y = 0; y < BLOCK / across; y++)
        sum += part[y * wide + threadIdx.x];
    to[c * m.splits + p.split] = sum;
}

/* Computes a thread's sums. UNROLL: rows loaded before the first of them is used. `whole` is a
 * constant at the call: tested at each load, it would delay all loads but one. */
template <class T, class Op, int UNROLL>
__device__ __forceinline__ void sum_rows(const sums_args<Op> &k, const place &p, bool whole,
    double (&all_a)[pack<T>::N], double (&all_b)[pack<T>::N])
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    typename Op::held h;
    W a[N], b[N];
    int n = (int)((p.end - p.first + p.step - 1) / p.step), j = 0;
    int64_t r = p.first, i = p.base + r * k.m.cols, down = p.step * k.m.cols;
    for (int e = 0; e < N; e++)
        a[e] = b[e] = 0;
    k.op.begin(h, p, whole);
    k.op.first(h, k.op.read(p, r, i, whole));
    for (; j + UNROLL <= n; j += UNROLL) {
        typename Op::row q[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            q[u] = k.op.read(p, r + u * p.step, i + u * down, whole);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            k.op.add(h, p, i + u * down, q[u], whole, a, b);
        r += UNROLL * p.step;
        i += UNROLL * down;
    }
    for (; j < n; j++, r += p.step, i += down)
        k.op.add(h, p, i, k.op.read(p, r, i, whole), whole, a, b);
    for (int e = 0; e < N; e++)
        k.op.total(h, n, e, a[e], b[e], &all_a[e], &all_b[e]);
}

template <class T, class Op, int UNROLL> __global__ void sum_tile(sums_args<Op> k)
{
    enum { N = pack<T>::N };
    __shared__ double part[BLOCK * N];
    const place p = place_of<T>(k.m);
    const int64_t cols = k.m.cols;
    double all_a[N], all_b[N];
    for (int e = 0; e < N; e++)
        all_a[e] = all_b[e] = 0;
    if (p.left > 0 && p.first < p.end && k.m.whole)
        sum_rows<T, Op, UNROLL>(k, p, true, all_a, all_b);
    else if (p.left > 0 && p.first < p.end)
        sum_rows<T, Op, UNROLL>(k, p, false, all_a, all_b);
    double *to = k.partial + p.image * 2 * cols * k.m.splits;
    join_tile<N>(k.m, p, all_a, part, to);
    join_tile<N>(k.m, p, all_b, part, to + cols * k.m.splits);
}

/* Writes both sums of every column to scratch slot 0, (images, 2, cols, splits). Returns NULL
 * if there is no memory. */
template <class T, int UNROLL = 4, class Op> double *sum_columns(const matrix &m, const Op &op)
{
    size_t bytes = (size_t)(m.images * 2 * m.cols * m.splits) * sizeof(double);
    double *partial = (double *)choir__cuda_scratch(0, bytes);
    if (partial && blocks_of(m) > 0)
        launch(sum_tile<T, Op, UNROLL>, (unsigned)blocks_of(m), BLOCK, 0,
            sums_args<Op>{m, op, partial});
    return partial;
}

/* An op: sum x and sum x^2. A thread sums x - c and (x - c)^2, with c its first row. Shifted
 * back to 0 in f64, mean and variance are differences of exact enough sums. */
template <class T> struct moments {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const void *x;

    struct held {
        W center[N];
    };
    typedef pack<T> row;

    __device__ void begin(held &, const place &, bool) const
    {
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        return load((const T *)x + i, p.left, whole);
    }
    __device__ void first(held &h, const row &q) const
    {
        for (int e = 0; e < N; e++)
            h.center[e] = get(&q.at[e]);
    }
    __device__ void add(
        const held &h, const place &, int64_t, const row &q, bool, W *a, W *b) const
    {
        for (int e = 0; e < N; e++) {
            W d = get(&q.at[e]) - h.center[e];
            a[e] += d;
            b[e] += d * d;
        }
    }
    __device__ void total(
        const held &h, int n, int e, W a, W b, double *all_a, double *all_b) const
    {
        double at = (double)h.center[e], moved = (double)n * at;
        *all_a = (double)a + moved;
        *all_b = (double)b + at * ((double)a + (double)a + moved);
    }
};

template <class Fin> struct finish_args {
    matrix m;
    Fin fin;
    const double *partial;
};

/* Calls fin.finish(image, column, sum, sum), on one thread per column. */
template <class Fin> __global__ void finish_column(finish_args<Fin> k)
{
    int64_t at = first_thread() / WARP, lane = threadIdx.x % WARP, splits = k.m.splits;
    if (at >= k.m.images * k.m.cols)
        return;
    int64_t image = divide(at, k.m.cols), c = at - image * k.m.cols;
    const double *a = k.partial + (image * 2 * k.m.cols + c) * splits;
    const double *b = a + k.m.cols * splits;
    double sum_a = 0, sum_b = 0;
#pragma unroll 4
    for (int64_t s = lane; s < splits; s += WARP) {
        sum_a += a[s];
        sum_b += b[s];
    }
    sum_a = warp_sum(sum_a);
    sum_b = warp_sum(sum_b);
    if (lane == 0)
        k.fin.finish(image, c, sum_a, sum_b);
}

template <class Fin> void finish_columns(const matrix &m, const double *partial, const Fin &fin)
{
    int64_t warps = m.images * m.cols;
    if (warps > 0)
        launch(finish_column<Fin>, (unsigned)((warps * WARP + BLOCK - 1) / BLOCK), BLOCK, 0,
            finish_args<Fin>{m, fin, partial});
}

/* --- passes --- */

template <class Op> struct map_args {
    matrix m;
    Op op;
};

/* Handles a thread's rows; `whole` as in sum_rows. */
template <class T, class Op, int UNROLL>
__device__ __forceinline__ void map_rows(const map_args<Op> &k, const place &p, bool whole)
{
    typename Op::held h;
    int64_t r = p.first, i = p.base + r * k.m.cols, down = p.step * k.m.cols;
    k.op.begin(h, p, whole);
    for (; r + (UNROLL - 1) * p.step < p.end; r += UNROLL * p.step, i += UNROLL * down) {
        typename Op::row q[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            q[u] = k.op.read(p, r + u * p.step, i + u * down, whole);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            k.op.write(h, p, i + u * down, q[u], whole);
    }
    for (; r < p.end; r += p.step, i += down)
        k.op.write(h, p, i, k.op.read(p, r, i, whole), whole);
}

template <class T, class Op, int UNROLL> __global__ void map_tile(map_args<Op> k)
{
    const place p = place_of<T>(k.m);
    if (p.left > 0 && k.m.whole)
        map_rows<T, Op, UNROLL>(k, p, true);
    else if (p.left > 0)
        map_rows<T, Op, UNROLL>(k, p, false);
}

template <class T, int UNROLL = 4, class Op> void map_columns(const matrix &m, const Op &op)
{
    if (blocks_of(m) > 0)
        launch(map_tile<T, Op, UNROLL>, (unsigned)blocks_of(m), BLOCK, 0, map_args<Op>{m, op});
}

#endif
