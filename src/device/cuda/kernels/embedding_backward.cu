/* The gradient of a lookup of a table's rows.
 *
 * It sorts the rows of all leaves by id, and rows of one id by leaf and place, with a counting
 * sort, whose cost does not depend on the ids. Positions are cut into tiles. Integer atomics
 * count each id in each tile; sums over the tiles give where an id's rows begin, and where each
 * tile's part begins; within a tile a row's place is found by comparing its id with the earlier
 * ones. Then a block takes a row of y: it adds an id's rows in order, leaf by leaf, and the
 * leaves along the fixed tree.
 *
 * For 16384 ids of a vocabulary of 50257: 32 tiles; 6.4 MB of counts are written, added up and
 * read; 4 million comparisons; and the y of 768 columns, 154 MB, is written once. One thread
 * per column adds the rows of one id, so the other threads wait for an id that occurs thousands
 * of times.
 *
 * No multiplication here may be contracted with the addition after it: this file is compiled so
 * (cmake/plugins.cmake). */
#include "device/cuda/kit/vector.cuh"

/* --- the order --- */

enum { TILE = 512, TILES = 64, SORT_THREADS = 256, AHEAD = 8 };

/* One row to add. */
typedef struct given_row {
    const void *row;
    int64_t leaf;
} given_row;

/* The data that the kernels of one call share, in scratch memory. */
struct gathering {
    const int64_t *const *ids;
    const void *const *grads;
    const int64_t *counts;
    int64_t *begins;      /* (leaves + 1): each leaf's first position */
    uint32_t *table;      /* (tiles, rows): counts; later where the tile's part begins */
    uint32_t *firsts;     /* (rows): where an id's rows begin */
    uint32_t *lengths;    /* (rows) */
    uint32_t *taken;      /* number of used places of `given` */
    given_row *given;     /* (total) */
    int64_t leaves, total, rows, first, padding, tile, tiles;
    int64_t row_bytes;
};

/* Lists in host memory are passed as arguments, some at a time. */
enum { LISTED = 64 };

struct listing {
    const int64_t *ids[LISTED];
    const void *grads[LISTED];
    int64_t counts[LISTED];
    const int64_t **to_ids;
    const void **to_grads;
    int64_t *to_counts;
    int count;
};

static __global__ void list_leaves(const listing k)
{
    int i = (int)threadIdx.x;
    if (i >= k.count)
        return;
    k.to_ids[i] = k.ids[i];
    k.to_grads[i] = k.grads[i];
    k.to_counts[i] = k.counts[i];
}

static __global__ void begin_leaves(gathering g)
{
    int64_t at = 0;
    if (threadIdx.x != 0)
        return;
    for (int64_t l = 0; l < g.leaves; l++) {
        g.begins[l] = at;
        at += g.counts[l];
    }
    g.begins[g.leaves] = at;
    *g.taken = 0;
}

/* Returns the leaf of a position: the last one that begins at or before it. */
__device__ inline int64_t leaf_of(const gathering &g, int64_t position)
{
    int64_t low = 0, high = g.leaves;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (g.begins[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns the row of y for a position, or -1 if another rank has it, it does not exist, or it is
 * padding. */
__device__ inline int64_t row_of(const gathering &g, int64_t position, int64_t leaf)
{
    int64_t id = g.ids[leaf][position - g.begins[leaf]], own = id - g.first;
    return own >= 0 && own < g.rows && id != g.padding ? own : -1;
}

static __global__ void count_ids(gathering g)
{
    for (int64_t p = first_thread(); p < g.total; p += all_threads()) {
        int64_t own = row_of(g, p, leaf_of(g, p));
        if (own >= 0)
            atomicAdd(&g.table[p / g.tile * g.rows + own], 1u);
    }
}

/* Computes where ids and tiles begin. Blocks take their places in `given` in any order, which
 * changes no result. */
static __global__ void begin_ids(gathering g)
{
    __shared__ uint32_t sums[WARP], base;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t row = first_thread();
    uint32_t length = 0;
    for (int64_t t = 0; t < g.tiles && row < g.rows; t += AHEAD) {
        uint32_t n[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            n[a] = t + a < g.tiles ? g.table[(t + a) * g.rows + row] : 0;
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (t + a < g.tiles)
                g.table[(t + a) * g.rows + row] = length;
            length += n[a];
        }
    }
    /* running sum: through this thread, in the warp, then in the block */
    uint32_t upto = length;
    for (int step = 1; step < WARP; step *= 2) {
        uint32_t before = __shfl_up_sync(0xffffffffu, upto, step);
        upto += lane >= step ? before : 0;
    }
    if (lane == WARP - 1)
        sums[warp] = upto;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        upto += sums[w];
    if (threadIdx.x == blockDim.x - 1)
        base = atomicAdd(g.taken, upto);
    __syncthreads();
    if (row < g.rows) {
        g.firsts[row] = base + upto - length;
        g.lengths[row] = length;
    }
}

/* One block per tile; its ids, as rows of y, are read TILE at a time. */
static __global__ void place_rows(gathering g)
{
    __shared__ int32_t own[TILE];
    int64_t begin = blockIdx.x * g.tile, end = begin + g.tile;
    end = end < g.total ? end : g.total;
    for (int64_t mine = begin; mine < end; mine += blockDim.x) {
        int64_t p = mine + threadIdx.x, leaf = p < end ? leaf_of(g, p) : 0;
        int64_t row = p < end ? row_of(g, p, leaf) : -1;
        uint32_t before = 0;
        for (int64_t from = begin; from < mine + blockDim.x && from < end; from += TILE) {
            int64_t n = end - from < TILE ? end - from : (int64_t)TILE;
            __syncthreads();
            for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
                own[i] = (int32_t)row_of(g, from + i, leaf_of(g, from + i));
            __syncthreads();
            n = p - from < n ? p - from : n;
#pragma unroll 4
            for (int i = 0; i < (int)n; i++)
                before += own[i] == (int32_t)row;
        }
        if (row < 0)
            continue;
        uint32_t at = g.firsts[row] + g.table[blockIdx.x * g.rows + row] + before;
        g.given[at].row =
            (const char *)g.grads[leaf] + (p - g.begins[leaf]) * g.row_bytes;
        g.given[at].leaf = leaf;
    }
}

/* --- the sums --- */

/* Returns how far below the root the tree over n leaves separates a from b, a < b. */
__device__ inline int parting(int64_t a, int64_t b, int64_t n)
{
    int depth = 0;
    for (;; depth++) {
        int64_t left = 1;
        while (left * 2 < n)
            left *= 2;
        if (b < left) {
            n = left;
        } else if (a >= left) {
            a -= left, b -= left, n -= left;
        } else {
            return depth;
        }
    }
}

enum { LEVELS = 32 }; /* upper limit for a tree */

/* Adds the rows of one leaf from i on, in order; i ends after them. */
template <class A>
__device__ inline void add_leaf(typename A::V (&sum)[A::N], const given_row *given, uint32_t *i,
    uint32_t end, int64_t c, int64_t cols)
{
    int64_t leaf = given[*i].leaf;
    load_row<A>(sum, given[*i].row, c, cols);
    for (++*i; *i < end && given[*i].leaf == leaf; ++*i) {
        typename A::V v[A::N];
        load_row<A>(v, given[*i].row, c, cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            sum[j] += v[j];
    }
}

/* Handles a single leaf, which needs no tree: loads do not wait for sums. */
template <class A>
__device__ inline void add_only_leaf(typename A::V (&sum)[A::N], const given_row *given,
    uint32_t end, int64_t c, int64_t cols)
{
    bool aligned = (uintptr_t)given[0].row % (A::N * sizeof(typename A::T)) == 0;
    load_row<A>(sum, given[0].row, c, cols);
    uint32_t i = 1;
    for (; aligned && i + AHEAD <= end; i += AHEAD) {
        typename A::V v[AHEAD][A::N];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            load<A>(v[a], given[i + a].row, c, cols);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int j = 0; j < A::N; j++)
                sum[j] += v[a][j];
    }
    for (; i < end; i++) {
        typename A::V v[A::N];
        load_row<A>(v, given[i].row, c, cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            sum[j] += v[j];
    }
}

/* Adds the leaves that have the id, joining each with its neighbour at the depth of the tree
 * where the two separate. It keeps a stack of sums, and joins deeper ones before it pushes the
 * next. If a leaf is absent, 0 is added somewhere above its neighbour, which turns a sum of -0
 * to 0; this is done once, at the end. */
template <class A>
__device__ inline void add_tree(typename A::V (&sum)[A::N], const given_row *given,
    uint32_t end, int64_t leaves, int64_t c, int64_t cols)
{
    typename A::V held[LEVELS][A::N];
    int depth[LEVELS], top = 0; /* depth: where held[i] and the one above it separate */
    uint32_t i = 0;
    int64_t present = 1;
    add_leaf<A>(sum, given, &i, end, c, cols);
    for (;; present++) {
        int next = i < end ? parting(given[i - 1].leaf, given[i].leaf, leaves) : -1;
        while (top > 0 && depth[top - 1] > next) {
            top--;
#pragma unroll
            for (int j = 0; j < A::N; j++)
                sum[j] = held[top][j] + sum[j];
        }
        if (i == end)
            break;
#pragma unroll
        for (int j = 0; j < A::N; j++)
            held[top][j] = sum[j];
        depth[top++] = next;
        add_leaf<A>(sum, given, &i, end, c, cols);
    }
#pragma unroll
    for (int j = 0; j < A::N; j++)
        sum[j] = present < leaves ? sum[j] + typename A::V(0) : sum[j];
}

struct gathered {
    gathering g;
    void *y;
    int64_t cols;
    float scale;
    bool accumulate;
};

/* One block per (row, ...): blockDim.x slots of columns at a time. */
template <class A, bool tree> __global__ void add_rows(gathered k)
{
    typedef typename A::T T;
    typedef typename A::V V;
    int64_t row = blockIdx.x;
    uint32_t length = k.g.lengths[row];
    const given_row *given = k.g.given + k.g.firsts[row];
    T *y = (T *)k.y + row * k.cols;
    EACH_SLOT(A, c, k.cols, 0)
    {
        V sum[A::N] = {}, old[A::N];
        if (length && tree)
            add_tree<A>(sum, given, length, k.g.leaves, c, k.cols);
        else if (length)
            add_only_leaf<A>(sum, given, length, c, k.cols);
        if (k.accumulate)
            load<A>(old, y, c, k.cols);
#pragma unroll
        for (int j = 0; j < A::N; j++) {
            V scaled = sum[j] * V(k.scale);
            sum[j] = k.accumulate ? old[j] + scaled : scaled;
        }
        store<A>(y, c, k.cols, sum);
    }
}

/* --- the host's part --- */

static size_t in_16(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* Copies the lists of pointers to the GPU; only tests have them on the host. */
static bool bring_lists(const choir__k_embedding_backward *k, gathering *g)
{
    g->ids = k->ids;
    g->grads = k->grads;
    g->counts = k->counts;
    if (choir__cuda_gpu_of(k->counts) >= 0)
        return true;
    size_t each = (size_t)k->leaves * sizeof(int64_t);
    char *to = (char *)choir__cuda_scratch(1, 3 * each);
    if (!to)
        return false;
    g->ids = (const int64_t *const *)to;
    g->grads = (const void *const *)(to + each);
    g->counts = (const int64_t *)(to + 2 * each);
    for (int64_t l = 0; l < k->leaves; l += LISTED) {
        listing some = {};
        some.count = (int)choir__min(LISTED, k->leaves - l);
        memcpy(some.ids, k->ids + l, (size_t)some.count * sizeof some.ids[0]);
        memcpy(some.grads, k->grads + l, (size_t)some.count * sizeof some.grads[0]);
        memcpy(some.counts, k->counts + l, (size_t)some.count * sizeof some.counts[0]);
        some.to_ids = (const int64_t **)to + l;
        some.to_grads = (const void **)(to + each) + l;
        some.to_counts = (int64_t *)(to + 2 * each) + l;
        launch(list_leaves, 1, LISTED, 0, some);
    }
    return true;
}

static bool lay_out(const choir__k_embedding_backward *k, gathering *g)
{
    g->leaves = k->leaves;
    g->total = k->total;
    g->rows = k->rows;
    g->first = k->first;
    g->padding = k->padding;
    g->row_bytes = k->cols * (int64_t)choir_dtype_size(k->dtype);
    g->tile = choir__max(TILE, (k->total + TILES - 1) / TILES);
    g->tiles = (k->total + g->tile - 1) / g->tile;
    size_t table = in_16((size_t)(g->tiles * g->rows) * sizeof *g->table);
    size_t each = in_16((size_t)g->rows * sizeof *g->firsts);
    size_t begins = in_16((size_t)(g->leaves + 1) * sizeof *g->begins);
    char *p = (char *)choir__cuda_scratch(
        0, table + 2 * each + begins + 16 + (size_t)g->total * sizeof *g->given);
    if (!p)
        return false;
    g->table = (uint32_t *)p;
    g->firsts = (uint32_t *)(p += table);
    g->lengths = (uint32_t *)(p += each);
    g->begins = (int64_t *)(p += each);
    g->taken = (uint32_t *)(p += begins);
    g->given = (given_row *)(p + 16);
    return choir__cuda_ok(cudaMemsetAsync(g->table, 0, table, choir__cuda_here()->stream),
        "embedding_backward's cudaMemsetAsync");
}

template <class A> static void launch_sums_by(const gathered &s)
{
    int64_t slots = (s.cols + A::N - 1) / A::N;
    unsigned threads = (unsigned)choir__min(256, (slots + WARP - 1) / WARP * WARP);
    launch(s.g.leaves > 1 ? add_rows<A, true> : add_rows<A, false>, (unsigned)s.g.rows, threads,
        0, s);
}

static void launch_sums(const choir__k_embedding_backward *k, const gathering *g)
{
    gathered s = {*g, k->y, k->cols, k->scale, k->accumulate};
    bool slots = lead_of(1, k->y) == 0 && g->row_bytes % 16 == 0;
    if (k->dtype == CHOIR_F64)
        slots ? launch_sums_by<access<double, 2>>(s) : launch_sums_by<access<double, 1>>(s);
    else
        slots ? launch_sums_by<access<float, 4>>(s) : launch_sums_by<access<float, 1>>(s);
}

extern "C" void choir__cuda_embedding_backward(const choir__k_embedding_backward *k)
{
    gathering g = {};
    if (k->rows <= 0 || k->cols <= 0 || !lay_out(k, &g) || !bring_lists(k, &g))
        return;
    launch(begin_leaves, 1, WARP, 0, g);
    if (g.total > 0)
        launch(count_ids, grid_for(g.total), BLOCK, 0, g);
    launch(begin_ids, (unsigned)((g.rows + SORT_THREADS - 1) / SORT_THREADS), SORT_THREADS, 0,
        g);
    if (g.total > 0)
        launch(place_rows, (unsigned)g.tiles, SORT_THREADS, 0, g);
    launch_sums(k, &g);
}
