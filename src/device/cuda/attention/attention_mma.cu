/* Attention on tensor cores, forward: bf16 and f16, heads of up to 128 numbers (padded to 32, 64,
 * 128). attention_mma_backward.cu has the backward.
 *
 * A block takes 64 to 128 queries of a head and walks along the keys, 64 at a time, with an online
 * softmax (Dao et al., 2022): the scores of a tile stay in registers from their product to the next
 * one, in f32 except P, which is rounded to T as operand of the second product. Tiles are loaded by
 * cp.async, the next one during work on this one.
 *
 * The limits, for gpt2's shape (B 32, H 12, T 1024, D 64, causal): 4 B H T^2 D / 2 = 52 GFLOP and
 * 201 MB of memory traffic, which take 65 us at the card's 790 TFLOP/s for products and 42 us at
 * 4.8 TB/s; and 201 million exponentials, 56 us at 16 per clock and multiprocessor. So products and
 * exponentials are the limit, not memory. A warp has 32 queries if there are enough registers
 * (D <= 64): each fragment of K and V is used twice. wgmma, which reads both operands from shared
 * memory itself, would use the rest; cuDNN's kernels do. None of these times was measured. */
#include "device/cuda/attention/attention_mma.cuh"

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
    limits seen[M];
    clear(out);
#pragma unroll
    for (int m = 0; m < M; m++) {
        r[m] = {{-INFINITY, -INFINITY}, {0, 0}};
        seen[m] = keys_of(k.n, t0 + row + 16 * m);
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
        clear(s);
        scores<D, KEYS>(s, x.q[row], kt);
#pragma unroll
        for (int m = 0; m < M; m++) {
            int t = t0 + row + 16 * m;
            const T *at = bias ? bias + t * k.bias.stride[2] + j * KEYS : 0;
            dress<KEYS, T>(
                s[m], seen[m], j * KEYS, all, {at, k.bias.stride[2], 1}, k.n.scale);
            soften<D, KEYS>(s[m], out[m], r[m], c);
        }
        weigh<D, KEYS>(out, s, vt);
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

/* --- choice of the kernel --- */

template <class T, int D> static void forward_of(const attend *k)
{
    constexpr int M = D > 64 ? 1 : 2;
    typedef forward_tiles<T, D, M> tiles;
    int64_t runs = (k->n.t + tiles::QUERIES - 1) / tiles::QUERIES;
    launch(attention_forward<T, D, M>, (unsigned)(k->n.b * k->n.h * runs), tiles::WARPS * WARP,
        sizeof(tiles), *k);
}

template <class T> static void go(const attend *k)
{
    if (k->n.d <= 32)
        forward_of<T, 32>(k);
    else if (k->n.d <= 64)
        forward_of<T, 64>(k);
    else
        forward_of<T, 128>(k);
}

/* Returns the bytes of shared memory, which are the same for both 16-bit types. */
static size_t shared_of(int64_t d)
{
    return d <= 32   ? sizeof(forward_tiles<bf16, 32, 2>)
           : d <= 64 ? sizeof(forward_tiles<bf16, 64, 2>)
                     : sizeof(forward_tiles<bf16, 128, 1>);
}

/* A scale <= 0 would invert the largest score. */
bool choir__attention_mma_fits(const attend *k, bool back)
{
    const choir__cuda *cuda = choir__cuda_here();
    size_t shared = back ? choir__attention_mma_backward_shared(k->n.d) : shared_of(k->n.d);
    return (k->dtype == CHOIR_BF16 || k->dtype == CHOIR_F16) && k->n.d <= 128 &&
           k->n.scale > 0 && !(k->n.softcap > 0) && cuda->capability >= 80 &&
           shared <= (size_t)cuda->most_shared;
}

void choir__attention_mma(const attend *k)
{
    k->dtype == CHOIR_BF16 ? go<bf16>(k) : go<f16>(k);
}
