/* Attention on tensor cores, backward: see attention_mma.cu.
 *
 * Blocks do not add to each other's results, so the backward is deterministic and each output is
 * written once. One kernel has a block per run of keys, which walks along the queries (of all heads
 * of the group, in order) and sums gk and gv; another has a block per run of queries, which walks
 * along the keys and sums gq. So S and gy v^T are computed twice: seven products, 7/2 of the
 * forward's FLOPs, where one kernel with atomics needs five. P and gS are rounded to T as operands.
 *
 * Warps have 32 rows (M = 2) where two such blocks fit into a multiprocessor's shared memory, as
 * on sm_80, 90 and 100: of a step's 128 HMMA each fragment that ldmatrix reads then serves two, 48
 * in place of 72. Elsewhere, and for D = 128, whose sums fill the registers, warps have 16. */
#include "device/cuda/attention/attention_mma.cuh"

/* 128 rows of the sums, gk and gv or gq; the other side in steps. */
template <class T, int D, int M> struct backward_tiles {
    enum { OWN = 128, WARPS = OWN / 16 / M, STEP = D > 64 || M > 1 ? 32 : 64 };
    T own[2][OWN][D + GAP];      /* k and v, or q and gy */
    T step[2][2][STEP][D + GAP]; /* q and gy, or k and v; two buffers of each */
    float lse[2][STEP], delta[2][STEP];
};

/* Returns a row's log sum exp in units of log 2; for a row that does not exist or saw nothing,
 * a value that makes all its exponentials 0. */
static __device__ inline float lse_at(const attend &k, int64_t head, int64_t t)
{
    float lse = t < k.n.t ? ((const float *)k.lse)[head * k.n.t + t] : INFINITY;
    return lse == -INFINITY ? INFINITY : lse * LOG2E;
}

static __device__ inline float delta_at(const attend &k, int64_t head, int64_t t)
{
    return t < k.n.t ? ((const float *)k.delta)[head * k.n.t + t] : 0;
}

/* --- gk and gv --- */

/* Replaces S, in units of log 2 / c, by P, and gP by gS. Columns are queries. */
template <int STEP>
static __device__ inline void soften_columns(float (&p)[STEP / 8][4],
    float (&gs)[STEP / 8][4], const float *lse, const float *delta, float c)
{
    int q = lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        float2 less = *(const float2 *)(lse + n * 8 + q);
        float2 mean = *(const float2 *)(delta + n * 8 + q);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[n][i] = exp2_quick(p[n][i] * c - (i % 2 ? less.y : less.x));
            gs[n][i] = p[n][i] * (gs[n][i] - (i % 2 ? mean.y : mean.x));
        }
    }
}

/* Where a walk along the queries of a group's heads is: the tile's first query, and the head. */
struct walk {
    int t, head;
};

static __device__ inline void go_on(walk &w, int step, int begin, int end)
{
    w.t += step;
    if (w.t == end) {
        w.t = begin;
        w.head++;
    }
}

/* Computes gk and gv. A warp's tiles are transposed: rows are its keys, columns queries. */
template <class T, int D, int M>
static __global__ void __launch_bounds__(256 / M, M) attention_keys(attend k)
{
    typedef backward_tiles<T, D, M> tiles;
    constexpr int STEP = tiles::STEP;
    tiles &x = *dynamic_shared<tiles>();
    int runs = (int)((k.n.s + tiles::OWN - 1) / tiles::OWN), d = (int)k.n.d;
    int64_t pair = blockIdx.x / runs, b = pair / k.n.g, group = pair % k.n.g;
    int s0 = blockIdx.x % runs * tiles::OWN; /* a causal head's longest run first */
    int row = threadIdx.x / WARP * 16 * M;   /* the warp's first row in the tile */
    int heads = (int)(k.n.h / k.n.g), aligned = k.aligned, queries = (int)k.n.t;
    float p[M][STEP / 8][4], gs[M][STEP / 8][4], gk[M][D / 8][4], gv[M][D / 8][4];
    limits seen[M];
    clear(gk);
    clear(gv);
#pragma unroll
    for (int m = 0; m < M; m++)
        seen[m] = queries_of(k.n, s0 + row + 16 * m);
    fill_tile<D, tiles::OWN>(
        x.own[0][0], head_of<T>(k.k, b, group), k.k.t, s0, (int)k.n.s, d, aligned);
    fill_tile<D, tiles::OWN>(
        x.own[1][0], head_of<T>(k.v, b, group), k.v.t, s0, (int)k.n.s, d, aligned);
    int from = first_query(k.n, s0) / STEP, last = least(k.n.s, s0 + tiles::OWN) - 1;
    int steps = (end_of_queries(k.n, last) + STEP - 1) / STEP - from; /* per head */
    steps = steps < 0 ? 0 : steps;
    walk now = {from * STEP, 0}, next = now;
    int end = (from + steps) * STEP;
    for (int j = -1; j < steps * heads; j++) {
        __syncthreads();
        if (j + 1 < steps * heads) {
            int half = (j + 1) & 1;
            int64_t h = group * heads + next.head, head = b * k.n.h + h;
            fill_tile<D, STEP>(x.step[half][0][0], head_of<T>(k.q, b, h), k.q.t, next.t,
                queries, d, aligned);
            fill_tile<D, STEP>(x.step[half][1][0], head_of<T>(k.gy, b, h), k.gy.t, next.t,
                queries, d, aligned);
            for (int i = threadIdx.x; i < STEP; i += blockDim.x) {
                x.lse[half][i] = lse_at(k, head, next.t + i);
                x.delta[half][i] = delta_at(k, head, next.t + i);
            }
            go_on(next, STEP, from * STEP, end);
        }
        close_copies();
        if (j < 0)
            continue;
        wait_copies<1>();
        __syncthreads();
        int half = j & 1, t0 = now.t;
        const T *bias = bias_of<T>(k.bias, b, group * heads + now.head);
        go_on(now, STEP, from * STEP, end);
        bool all = all_see(k.n, t0, STEP, s0 + row, 16 * M);
        clear(p);
        clear(gs);
        scores<D, STEP>(p, x.own[0][row], x.step[half][0][0]);
        scores<D, STEP>(gs, x.own[1][row], x.step[half][1][0]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const T *at = bias ? bias + t0 * k.bias.stride[2] + s0 + row + 16 * m : 0;
            dress<STEP, T>(p[m], seen[m], t0, all, {at, 1, k.bias.stride[2]}, k.n.scale);
            soften_columns<STEP>(
                p[m], gs[m], x.lse[half], x.delta[half], bias ? 1 : k.n.scale * LOG2E);
        }
        weigh<D, STEP>(gv, p, x.step[half][1][0]);
        weigh<D, STEP>(gk, gs, x.step[half][0][0]);
    }
    close_copies(); /* without any step, the first ones are still in flight */
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        int mine = row + 16 * m;
        if (k.gk.p)
            put_rows<D>(x.own[0][mine], gk[m], k.n.scale, k.n.scale,
                head_of<T>(k.gk, b, group), k.gk.t, s0 + mine, (int)k.n.s, d, aligned);
        if (k.gv.p)
            put_rows<D>(x.own[1][mine], gv[m], 1, 1, head_of<T>(k.gv, b, group), k.gv.t,
                s0 + mine, (int)k.n.s, d, aligned);
    }
}

/* --- gq --- */

/* Replaces gP by gS, from S in units of log 2 / c. Rows are queries. */
template <int STEP>
static __device__ inline void soften_rows(const float (&p)[STEP / 8][4],
    float (&gs)[STEP / 8][4], const float (&lse)[2], const float (&delta)[2], float c)
{
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            gs[n][i] = exp2_quick(p[n][i] * c - lse[i / 2]) * (gs[n][i] - delta[i / 2]);
}

template <class T, int D, int M>
static __global__ void __launch_bounds__(256 / M, M) attention_queries(attend k)
{
    typedef backward_tiles<T, D, M> tiles;
    constexpr int STEP = tiles::STEP;
    tiles &x = *dynamic_shared<tiles>();
    int runs = (int)((k.n.t + tiles::OWN - 1) / tiles::OWN), d = (int)k.n.d;
    int run = runs - 1 - blockIdx.x % runs;
    int64_t head = blockIdx.x / runs, b = head / k.n.h, h = head % k.n.h;
    int64_t group = h / (k.n.h / k.n.g);
    int t0 = run * tiles::OWN, keys = (int)k.n.s, queries = (int)k.n.t;
    int row = threadIdx.x / WARP * 16 * M;
    const T *bias = bias_of<T>(k.bias, b, h);
    float p[M][STEP / 8][4], gs[M][STEP / 8][4], gq[M][D / 8][4], lse[M][2], delta[M][2];
    float c = bias ? 1 : k.n.scale * LOG2E;
    limits seen[M];
    clear(gq);
#pragma unroll
    for (int m = 0; m < M; m++) {
        int t = t0 + row + 16 * m;
        seen[m] = keys_of(k.n, t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            lse[m][half] = lse_at(k, head, t + lane_id() / 4 + 8 * half);
            delta[m][half] = delta_at(k, head, t + lane_id() / 4 + 8 * half);
        }
    }
    fill_tile<D, tiles::OWN>(
        x.own[0][0], head_of<T>(k.q, b, h), k.q.t, t0, queries, d, k.aligned);
    fill_tile<D, tiles::OWN>(
        x.own[1][0], head_of<T>(k.gy, b, h), k.gy.t, t0, queries, d, k.aligned);
    int from = first_key(k.n, t0) / STEP, last = least(k.n.t, t0 + tiles::OWN) - 1;
    int to = (end_of_keys(k.n, last) + STEP - 1) / STEP;
    for (int j = from - 1; j < to; j++) {
        __syncthreads();
        if (j + 1 < to) {
            int half = (j + 1) & 1, first = (j + 1) * STEP;
            fill_tile<D, STEP>(x.step[half][0][0], head_of<T>(k.k, b, group), k.k.t, first,
                keys, d, k.aligned);
            fill_tile<D, STEP>(x.step[half][1][0], head_of<T>(k.v, b, group), k.v.t, first,
                keys, d, k.aligned);
        }
        close_copies();
        if (j < from)
            continue;
        wait_copies<1>();
        __syncthreads();
        int half = j & 1;
        bool all = all_see(k.n, t0 + row, 16 * M, j * STEP, STEP);
        clear(p);
        clear(gs);
        scores<D, STEP>(p, x.own[0][row], x.step[half][0][0]);
        scores<D, STEP>(gs, x.own[1][row], x.step[half][1][0]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            int t = t0 + row + 16 * m;
            const T *at = bias ? bias + t * k.bias.stride[2] + j * STEP : 0;
            dress<STEP, T>(
                p[m], seen[m], j * STEP, all, {at, k.bias.stride[2], 1}, k.n.scale);
            soften_rows<STEP>(p[m], gs[m], lse[m], delta[m], c);
        }
        weigh<D, STEP>(gq, gs, x.step[half][0][0]);
    }
    close_copies(); /* without any step, the first ones are still in flight */
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++)
        put_rows<D>(x.own[0][row + 16 * m], gq[m], k.n.scale, k.n.scale,
            head_of<T>(k.gq, b, h), k.gq.t, t0 + row + 16 * m, queries, d, k.aligned);
}

/* --- choice of the kernel --- */

template <class T, int D, int M> static void launch_both(const attend *k)
{
    typedef backward_tiles<T, D, M> tiles;
    int64_t of_s = (k->n.s + tiles::OWN - 1) / tiles::OWN;
    int64_t of_t = (k->n.t + tiles::OWN - 1) / tiles::OWN;
    if (k->gk.p || k->gv.p)
        launch(attention_keys<T, D, M>, (unsigned)(k->n.b * k->n.g * of_s),
            tiles::WARPS * WARP, sizeof(tiles), *k);
    if (k->gq.p)
        launch(attention_queries<T, D, M>, (unsigned)(k->n.b * k->n.h * of_t),
            tiles::WARPS * WARP, sizeof(tiles), *k);
}

/* Two blocks share a multiprocessor, whose shared memory is 1 KiB more than a block's, and each
 * takes 1 KiB for itself. */
template <class T, int D> static void pick_rows(const attend *k)
{
    size_t two = 2 * sizeof(backward_tiles<T, D, 2>) + 1024;
    if (two <= (size_t)choir__cuda_here()->most_shared)
        launch_both<T, D, 2>(k);
    else
        launch_both<T, D, 1>(k);
}

template <class T> static void go(const attend *k)
{
    if (k->n.d <= 32)
        pick_rows<T, 32>(k);
    else if (k->n.d <= 64)
        pick_rows<T, 64>(k);
    else
        launch_both<T, 128, 1>(k);
}

/* Returns the bytes of shared memory, which are the same for both 16-bit types. D = 128 needs
 * more than sm_86, sm_89 and sm_120 have. */
size_t choir__attention_mma_backward_shared(int64_t d)
{
    return d <= 32   ? sizeof(backward_tiles<bf16, 32, 1>)
           : d <= 64 ? sizeof(backward_tiles<bf16, 64, 1>)
                     : sizeof(backward_tiles<bf16, 128, 1>);
}

void choir__attention_mma_backward(const attend *k)
{
    k->dtype == CHOIR_BF16 ? go<bf16>(k) : go<f16>(k);
}
