/* Attention on tensor cores: bf16 and f16, heads of up to 128 numbers (padded to 32, 64, 128).
 *
 * A block takes 64 to 128 queries of a head and walks along the keys, 64 or 32 at a time, with
 * an online softmax (Dao et al., 2022): the scores of a tile stay in registers from their
 * product to the next one, in f32 except P and gS, which are rounded to T as operands of the
 * second product. Tiles are loaded by cp.async, the next one during work on this one.
 *
 * In the backward blocks do not add to each other's results, so it is deterministic and each
 * output is written once. One kernel has a block per run of keys, which walks along the queries
 * (of all heads of the group, in order) and sums gk and gv; another has a block per run of
 * queries, which walks along the keys and sums gq. So S and gy v^T are computed twice: seven
 * products, where one kernel with atomics needs five.
 *
 * The limits, for gpt2's shape (B 32, H 12, T 1024, D 64, causal): the forward has 4 B H T^2 D
 * / 2 = 52 GFLOP and 201 MB of memory traffic, which take 65 us at the card's 790 TFLOP/s for
 * products and 42 us at 4.8 TB/s; and 201 million exponentials, 56 us at 16 per clock and
 * multiprocessor. So products and exponentials are the limit, not memory. mma.sync takes its
 * second operand from shared memory: an instruction of 4096 FLOP reads 256 bytes, of which a
 * multiprocessor delivers 128 per clock, half of what its tensor cores need. So in the forward
 * a warp has 32 queries if there are enough registers (D <= 64): each fragment is used twice.
 * The backward has twice as many sums, which leaves room for 16 rows per warp. It has 180 GFLOP
 * in seven products, 7/2 of the forward's. wgmma, which reads both operands from shared memory
 * itself, would use the rest; cuDNN's kernels do. None of these times was measured. */
#include "device/cuda/attention.cuh"
#include "device/cuda/mma.cuh"

/* elements between rows in shared memory, so that rows are in different banks */
enum { GAP = 8 };

static const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* --- tiles --- */

/* Loads rows [first, first + ROWS) of a head into a tile, with zeros beyond `count` rows and d
 * columns. */
template <int D, int ROWS, class T>
static __device__ inline void fill_tile(
    T *tile, const T *head, int64_t stride, int first, int count, int d, bool aligned)
{
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += blockDim.x) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        bool there = first + row < count;
        T *to = tile + row * (D + GAP) + col;
        const T *from = head + (int64_t)(first + row) * stride + col;
        if (aligned) {
            copy16(to, there && col < d ? from : head, there && col < d);
            continue;
        }
        for (int e = 0; e < 8; e++)
            put(to + e, there && col + e < d ? get(from + e) : 0);
    }
}

/* Writes a warp's 16 rows of sums, times a factor for rows g and g + 8, to rows [first, ...) of
 * a head, through its own 16 rows of a tile. */
template <int D, class T>
static __device__ inline void put_rows(T *tile, const float (&sum)[D / 8][4], float low,
    float high, T *head, int64_t stride, int first, int count, int d, bool aligned)
{
    int lane = lane_id(), g = lane / 4, q = lane % 4 * 2;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        T *at = tile + g * (D + GAP) + n * 8 + q;
        *(uint32_t *)at = pack<T>(sum[n][0] * low, sum[n][1] * low);
        *(uint32_t *)(at + 8 * (D + GAP)) = pack<T>(sum[n][2] * high, sum[n][3] * high);
    }
    __syncwarp();
    for (int i = lane; i < 16 * (D / 8); i += WARP) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        const T *from = tile + row * (D + GAP) + col;
        T *to = head + (int64_t)(first + row) * stride + col;
        if (first + row >= count || col >= d)
            continue;
        if (aligned)
            *(uint4 *)to = *(const uint4 *)from;
        else
            for (int e = 0; e < 8 && col + e < d; e++)
                to[e] = from[e];
    }
}

/* sum (16, COLS) += A (16, D) times the transpose of B (COLS, D), both in shared memory. */
template <int D, int COLS, class T>
static __device__ inline void scores(float (&sum)[COLS / 8][4], const T *a, const T *b)
{
    uint32_t first[4], second[2][2];
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        load_first(first, a + k, D + GAP);
#pragma unroll
        for (int n = 0; n < COLS; n += 16) {
            load_second(second, b + n * (D + GAP) + k, D + GAP);
            multiply_add<T>(sum[n / 8], first, second[0]);
            multiply_add<T>(sum[n / 8 + 1], first, second[1]);
        }
    }
}

/* sum (16, D) += P (16, COLS), in registers, times B (COLS, D). */
template <int D, int COLS, class T>
static __device__ inline void weigh(
    float (&sum)[D / 8][4], const float (&p)[COLS / 8][4], const T *b)
{
    uint32_t first[4], second[2][2];
#pragma unroll
    for (int k = 0; k < COLS; k += 16) {
        as_first<T>(first, p[k / 8], p[k / 8 + 1]);
#pragma unroll
        for (int n = 0; n < D; n += 16) {
            load_second_turned(second, b + k * (D + GAP) + n, D + GAP);
            multiply_add<T>(sum[n / 8], first, second[0]);
            multiply_add<T>(sum[n / 8 + 1], first, second[1]);
        }
    }
}

template <int COUNT> static __device__ inline void clear(float (&sum)[COUNT][4])
{
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[n][i] = 0;
}

/* --- forward --- */

/* 4 warps of 16 M queries each. M fragments share each of K's and V's fragments. */
template <class T, int D, int M> struct forward_tiles {
    enum { WARPS = 4, KEYS = 64, QUERIES = WARPS * 16 * M };
    T q[QUERIES][D + GAP], k[2][KEYS][D + GAP], v[2][KEYS][D + GAP];
};

/* A lane's state of its rows g and g + 8: the largest score so far, and the sum of the
 * exponentials that the lane has computed itself. */
struct running {
    float top[2], sum[2];
};

/* Replaces s by 2^(s c - top c), and scales down sums with an older top. */
template <int D, int KEYS>
static __device__ inline void soften(
    float (&s)[KEYS / 8][4], float (&out)[D / 8][4], running &r, float c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = r.top[half], sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0 : top * c; /* no key seen so far */
        float shrink = exp2_quick(r.top[half] * c - base);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++)
                sum += s[n][i] = exp2_quick(s[n][i] * c - base);
        r.top[half] = top;
        r.sum[half] = r.sum[half] * shrink + sum;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            out[n][2 * half] *= shrink, out[n][2 * half + 1] *= shrink;
    }
}

/* Adds the bias to the scores, which are then in units of log 2, and hides keys that are not
 * seen. t: the query of the lane's row g; s0: the tile's first key. */
template <int KEYS, class T>
static __device__ inline void dress(float (&s)[KEYS / 8][4], const attend &k, const T *bias,
    int t, int s0, bool all, float scale)
{
    if (all && !bias)
        return;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = t + i / 2 * 8, key = s0 + n * 8 + lane_id() % 4 * 2 + i % 2;
            if (!all && !sees(k.n, row, key))
                s[n][i] = -INFINITY;
            else if (bias)
                s[n][i] = (s[n][i] * scale + get(bias + row * k.bias.stride[2] + key)) * LOG2E;
        }
}

template <class T, int D, int M>
static __global__ void __launch_bounds__(128) attention_forward(attend k)
{
    typedef forward_tiles<T, D, M> tiles;
    constexpr int KEYS = tiles::KEYS, QUERIES = tiles::QUERIES;
    tiles &x = *dynamic_shared<tiles>();
    int runs = (int)((k.n.t + QUERIES - 1) / QUERIES);
    int run = runs - 1 - blockIdx.x % runs; /* a causal head's longest run first */
    int64_t head = blockIdx.x / runs, b = head / k.n.h, h = head % k.n.h;
    int64_t group = h / (k.n.h / k.n.g);
    int d = (int)k.n.d, t0 = run * QUERIES, warp = threadIdx.x / WARP;
    int g = lane_id() / 4, row = warp * 16 * M; /* the warp's first row in the tile */
    const T *keys = head_of<T>(k.k, b, group), *values = head_of<T>(k.v, b, group);
    const T *bias = bias_of<T>(k.bias, b, h);
    float c = bias ? 1 : k.n.scale * LOG2E;
    float s[M][KEYS / 8][4], out[M][D / 8][4];
    running r[M];
#pragma unroll
    for (int m = 0; m < M; m++) {
        clear(out[m]);
        r[m] = {{-INFINITY, -INFINITY}, {0, 0}};
    }
    int from = first_key(k.n, t0) / KEYS, last = least(k.n.t, t0 + QUERIES) - 1;
    int to = (end_of_keys(k.n, last) + KEYS - 1) / KEYS;
    fill_tile<D, QUERIES>(x.q[0], head_of<T>(k.q, b, h), k.q.t, t0, (int)k.n.t, d, k.aligned);
    for (int j = from - 1; j < to; j++) {
        __syncthreads(); /* the other half of the buffers is free */
        if (j + 1 < to) {
            int half = (j + 1) & 1, first = (j + 1) * KEYS, count = (int)k.n.s;
            fill_tile<D, KEYS>(x.k[half][0], keys, k.k.t, first, count, d, k.aligned);
            fill_tile<D, KEYS>(x.v[half][0], values, k.v.t, first, count, d, k.aligned);
        }
        close_copies();
        if (j < from)
            continue;
        wait_copies<1>();
        __syncthreads();
        bool all = all_see(k.n, t0 + row, 16 * M, j * KEYS, KEYS);
        const T *kt = x.k[j & 1][0], *vt = x.v[j & 1][0];
        uint32_t first[4], second[2][2];
#pragma unroll
        for (int m = 0; m < M; m++)
            clear(s[m]);
#pragma unroll
        for (int l = 0; l < D; l += 16) {
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++)
                load_first(a[m], x.q[row + 16 * m] + l, D + GAP);
#pragma unroll
            for (int n = 0; n < KEYS; n += 16) {
                load_second(second, kt + n * (D + GAP) + l, D + GAP);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    multiply_add<T>(s[m][n / 8], a[m], second[0]);
                    multiply_add<T>(s[m][n / 8 + 1], a[m], second[1]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            dress<KEYS>(s[m], k, bias, t0 + row + 16 * m + g, j * KEYS, all, k.n.scale);
            soften<D, KEYS>(s[m], out[m], r[m], c);
        }
#pragma unroll
        for (int l = 0; l < KEYS; l += 16)
#pragma unroll
            for (int n = 0; n < D; n += 16) {
                load_second_turned(second, vt + l * (D + GAP) + n, D + GAP);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    as_first<T>(first, s[m][l / 8], s[m][l / 8 + 1]);
                    multiply_add<T>(out[m][n / 8], first, second[0]);
                    multiply_add<T>(out[m][n / 8 + 1], first, second[1]);
                }
            }
    }
    close_copies(); /* without any step, the first ones are still in flight */
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        float inverse[2];
        int t = t0 + row + 16 * m;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = r[m].sum[half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            inverse[half] = sum > 0 ? 1 / sum : 0;
            if (lane_id() % 4 == 0 && t + g + 8 * half < k.n.t)
                ((float *)k.lse)[head * k.n.t + t + g + 8 * half] =
                    sum > 0 ? r[m].top[half] * c * LN2 + logf(sum) : -INFINITY;
        }
        put_rows<D>(x.q[row + 16 * m], out[m], inverse[0], inverse[1], head_of<T>(k.y, b, h),
            k.y.t, t, (int)k.n.t, d, k.aligned);
    }
}

/* --- backward --- */

/* 8 warps with 16 rows each of the sums, gk and gv or gq; the other side in steps. */
template <class T, int D> struct backward_tiles {
    enum { WARPS = 8, OWN = WARPS * 16, STEP = D > 64 ? 32 : 64 };
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

/* Computes gk and gv. A warp's tiles are transposed: rows are its keys, columns queries. */
template <class T, int D> static __global__ void __launch_bounds__(256) attention_keys(attend k)
{
    typedef backward_tiles<T, D> tiles;
    constexpr int STEP = tiles::STEP;
    tiles &x = *dynamic_shared<tiles>();
    int runs = (int)((k.n.s + tiles::OWN - 1) / tiles::OWN), d = (int)k.n.d;
    int64_t pair = blockIdx.x / runs, b = pair / k.n.g, group = pair % k.n.g;
    int s0 = blockIdx.x % runs * tiles::OWN; /* a causal head's longest run first */
    int row = threadIdx.x / WARP * 16, g = lane_id() / 4, q = lane_id() % 4 * 2;
    int heads = (int)(k.n.h / k.n.g), aligned = k.aligned, queries = (int)k.n.t;
    float p[STEP / 8][4], gs[STEP / 8][4], gk[D / 8][4], gv[D / 8][4];
    clear(gk);
    clear(gv);
    fill_tile<D, tiles::OWN>(
        x.own[0][0], head_of<T>(k.k, b, group), k.k.t, s0, (int)k.n.s, d, aligned);
    fill_tile<D, tiles::OWN>(
        x.own[1][0], head_of<T>(k.v, b, group), k.v.t, s0, (int)k.n.s, d, aligned);
    int from = first_query(k.n, s0) / STEP, last = least(k.n.s, s0 + tiles::OWN) - 1;
    int steps = (end_of_queries(k.n, last) + STEP - 1) / STEP - from; /* per head */
    steps = steps < 0 ? 0 : steps;
    for (int j = -1; j < steps * heads; j++) {
        __syncthreads();
        if (j + 1 < steps * heads) {
            int half = (j + 1) & 1, first = (from + (j + 1) % steps) * STEP;
            int64_t h = group * heads + (j + 1) / steps, head = b * k.n.h + h;
            fill_tile<D, STEP>(
                x.step[half][0][0], head_of<T>(k.q, b, h), k.q.t, first, queries, d, aligned);
            fill_tile<D, STEP>(
                x.step[half][1][0], head_of<T>(k.gy, b, h), k.gy.t, first, queries, d, aligned);
            for (int i = threadIdx.x; i < STEP; i += blockDim.x) {
                x.lse[half][i] = lse_at(k, head, first + i);
                x.delta[half][i] = delta_at(k, head, first + i);
            }
        }
        close_copies();
        if (j < 0)
            continue;
        wait_copies<1>();
        __syncthreads();
        int half = j & 1, t0 = (from + j % steps) * STEP;
        const T *bias = bias_of<T>(k.bias, b, group * heads + j / steps);
        bool all = all_see(k.n, t0, STEP, s0 + row, 16);
        clear(p);
        clear(gs);
        scores<D, STEP>(p, x.own[0][row], x.step[half][0][0]);
        scores<D, STEP>(gs, x.own[1][row], x.step[half][1][0]);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int col = n * 8 + q + i % 2, t = t0 + col, s = s0 + row + g + i / 2 * 8;
                bool seen = all || sees(k.n, t, s);
                float z = p[n][i] * k.n.scale * LOG2E;
                if (bias && seen)
                    z += get(bias + t * k.bias.stride[2] + s) * LOG2E;
                p[n][i] = seen ? exp2_quick(z - x.lse[half][col]) : 0;
                gs[n][i] = p[n][i] * (gs[n][i] - x.delta[half][col]);
            }
        weigh<D, STEP>(gv, p, x.step[half][1][0]);
        weigh<D, STEP>(gk, gs, x.step[half][0][0]);
    }
    close_copies(); /* without any step, the first ones are still in flight */
    wait_copies<0>();
    __syncthreads();
    if (k.gk.p)
        put_rows<D>(x.own[0][row], gk, k.n.scale, k.n.scale, head_of<T>(k.gk, b, group), k.gk.t,
            s0 + row, (int)k.n.s, d, aligned);
    if (k.gv.p)
        put_rows<D>(x.own[1][row], gv, 1, 1, head_of<T>(k.gv, b, group), k.gv.t, s0 + row,
            (int)k.n.s, d, aligned);
}

/* Computes gq. */
template <class T, int D>
static __global__ void __launch_bounds__(256) attention_queries(attend k)
{
    typedef backward_tiles<T, D> tiles;
    constexpr int STEP = tiles::STEP;
    tiles &x = *dynamic_shared<tiles>();
    int runs = (int)((k.n.t + tiles::OWN - 1) / tiles::OWN), d = (int)k.n.d;
    int run = runs - 1 - blockIdx.x % runs;
    int64_t head = blockIdx.x / runs, b = head / k.n.h, h = head % k.n.h;
    int64_t group = h / (k.n.h / k.n.g);
    int t0 = run * tiles::OWN, keys = (int)k.n.s, queries = (int)k.n.t;
    int row = threadIdx.x / WARP * 16, g = lane_id() / 4, q = lane_id() % 4 * 2;
    const T *bias = bias_of<T>(k.bias, b, h);
    float p[STEP / 8][4], gs[STEP / 8][4], gq[D / 8][4], lse[2], delta[2];
    clear(gq);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        lse[half] = lse_at(k, head, t0 + row + g + 8 * half);
        delta[half] = delta_at(k, head, t0 + row + g + 8 * half);
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
        bool all = all_see(k.n, t0 + row, 16, j * STEP, STEP);
        clear(p);
        clear(gs);
        scores<D, STEP>(p, x.own[0][row], x.step[half][0][0]);
        scores<D, STEP>(gs, x.own[1][row], x.step[half][1][0]);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int t = t0 + row + g + i / 2 * 8, s = j * STEP + n * 8 + q + i % 2;
                bool seen = all || sees(k.n, t, s);
                float z = p[n][i] * k.n.scale * LOG2E;
                if (bias && seen)
                    z += get(bias + t * k.bias.stride[2] + s) * LOG2E;
                gs[n][i] = seen ? exp2_quick(z - lse[i / 2]) * (gs[n][i] - delta[i / 2]) : 0;
            }
        weigh<D, STEP>(gq, gs, x.step[half][0][0]);
    }
    close_copies(); /* without any step, the first ones are still in flight */
    wait_copies<0>();
    __syncthreads();
    put_rows<D>(x.own[0][row], gq, k.n.scale, k.n.scale, head_of<T>(k.gq, b, h), k.gq.t,
        t0 + row, queries, d, k.aligned);
}

/* --- choice of the kernel --- */

template <class T, int D> static void forward_of(const attend *k)
{
    constexpr int M = D > 64 ? 1 : 2;
    typedef forward_tiles<T, D, M> tiles;
    int64_t runs = (k->n.t + tiles::QUERIES - 1) / tiles::QUERIES;
    launch(attention_forward<T, D, M>, (unsigned)(k->n.b * k->n.h * runs), tiles::WARPS * WARP,
        sizeof(tiles), *k);
}

template <class T, int D> static void backward_of(const attend *k)
{
    typedef backward_tiles<T, D> tiles;
    int64_t of_s = (k->n.s + tiles::OWN - 1) / tiles::OWN;
    int64_t of_t = (k->n.t + tiles::OWN - 1) / tiles::OWN;
    if (k->gk.p || k->gv.p)
        launch(attention_keys<T, D>, (unsigned)(k->n.b * k->n.g * of_s), tiles::WARPS * WARP,
            sizeof(tiles), *k);
    if (k->gq.p)
        launch(attention_queries<T, D>, (unsigned)(k->n.b * k->n.h * of_t), tiles::WARPS * WARP,
            sizeof(tiles), *k);
}

template <class T> static void go(const attend *k, bool back)
{
    if (k->n.d <= 32)
        back ? backward_of<T, 32>(k) : forward_of<T, 32>(k);
    else if (k->n.d <= 64)
        back ? backward_of<T, 64>(k) : forward_of<T, 64>(k);
    else
        back ? backward_of<T, 128>(k) : forward_of<T, 128>(k);
}

/* Both 16-bit types need the same size. */
template <int D> static size_t shared_of(bool back)
{
    constexpr int M = D > 64 ? 1 : 2;
    return back ? sizeof(backward_tiles<bf16, D>) : sizeof(forward_tiles<bf16, D, M>);
}

/* A scale <= 0 would invert the largest score. The backward of D = 128 needs more than the
 * shared memory of an sm_86, 89 or 120. */
bool choir__attention_mma_fits(const attend *k, bool back)
{
    const choir__cuda *cuda = choir__cuda_here();
    int64_t d = k->n.d;
    size_t shared = d <= 32   ? shared_of<32>(back)
                    : d <= 64 ? shared_of<64>(back)
                              : shared_of<128>(back);
    return (k->dtype == CHOIR_BF16 || k->dtype == CHOIR_F16) && d <= 128 && k->n.scale > 0 &&
           cuda->capability >= 80 && shared <= (size_t)cuda->most_shared;
}

void choir__attention_mma(const attend *k)
{
    k->dtype == CHOIR_BF16 ? go<bf16>(k, false) : go<f16>(k, false);
}

void choir__attention_mma_backward(const attend *k)
{
    k->dtype == CHOIR_BF16 ? go<bf16>(k, true) : go<f16>(k, true);
}
