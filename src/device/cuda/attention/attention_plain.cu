/* Attention without tensor cores: f32, f64, and heads that attention_mma.cu does not support.
 *
 * A block has 256 threads, 16 by 16, and tiles of 64 queries by 64 keys; a thread holds 4 by 4
 * of a tile: rows 4y + i, columns x + 16j. All three kernels consist of two steps: pairs()
 * computes a tile of row-by-row products over D (scores, or gy v^T), and weigh() multiplies a
 * tile of weights in shared memory by rows. An output of more than 64 or 128 columns is cut
 * into slabs; each slab's blocks compute the scores again.
 *
 * gbias is computed here for every dtype: a block has a tile of it, and walks in order over the
 * samples, heads and queries that share the tile. */
#include "device/cuda/attention/attention.cuh"

enum { SIDE = 64, DEEP = 16, THREADS = 256 };

/* Shared memory. slab: columns of an output, 16 J. */
template <class V, int J> struct space {
    V a[DEEP][SIDE + 4], b[DEEP][SIDE + 4]; /* pairs(): transposed */
    V p[SIDE][SIDE + 1];                    /* weights */
    V rows[DEEP][16 * J];
};

/* Rows [first, count) of a head. */
template <class T> struct rows_of {
    const T *head;
    int64_t stride;
    int first, count;
};

template <class T>
static __device__ inline rows_of<T> rows(
    const choir__heads &x, int64_t b, int64_t h, int64_t first, int64_t count)
{
    return {head_of<T>(x, b, h), x.t, (int)first, (int)count};
}

/* acc[i][j] = the product of row 4y + i of x and row x + 16j of y. */
template <class T, class V, int J>
static __device__ inline void pairs(
    V (&acc)[4][4], space<V, J> &s, const rows_of<T> &x, const rows_of<T> &y, int d)
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            acc[i][j] = 0;
    for (int l = 0; l < d; l += DEEP) {
        __syncthreads();
        for (int r = ty; r < SIDE; r += THREADS / DEEP) {
            bool in = l + tx < d;
            s.a[tx][r] = in && x.first + r < x.count
                             ? get(x.head + (int64_t)(x.first + r) * x.stride + l + tx)
                             : V(0);
            s.b[tx][r] = in && y.first + r < y.count
                             ? get(y.head + (int64_t)(y.first + r) * y.stride + l + tx)
                             : V(0);
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEEP; c++) {
            V a[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = s.a[c][ty * 4 + i], b[i] = s.b[c][tx + 16 * i];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] += a[i] * b[j];
        }
    }
}

/* out[i][j] += weights (64, 64) times rows of x: row 4y + i, column from + x + 16j. turned:
 * the weights' transpose. */
template <class T, class V, int J>
static __device__ inline void weigh(V (&out)[4][J], space<V, J> &s, const V (&w)[4][4],
    bool turned, const rows_of<T> &x, int from, int d)
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = ty * 4 + i, col = tx + 16 * j;
            s.p[turned ? col : row][turned ? row : col] = w[i][j];
        }
    for (int l = 0; l < SIDE; l += DEEP) {
        __syncthreads();
        for (int i = threadIdx.x; i < DEEP * 16 * J; i += THREADS) {
            int r = i / (16 * J), col = i % (16 * J), row = x.first + l + r;
            s.rows[r][col] = row < x.count && from + col < d
                                 ? get(x.head + (int64_t)row * x.stride + from + col)
                                 : V(0);
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEEP; c++) {
            V a[4], b[J];
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = s.p[ty * 4 + i][l + c];
#pragma unroll
            for (int j = 0; j < J; j++)
                b[j] = s.rows[c][tx + 16 * j];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < J; j++)
                    out[i][j] += a[i] * b[j];
        }
    }
}

template <class T, class V, int J>
static __device__ inline void put_rows(const V (&out)[4][J], V factor, T *head, int64_t stride,
    int first, int count, int from, int d)
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < J; j++) {
            int row = first + ty * 4 + i, col = from + tx + 16 * j;
            if (row < count && col < d)
                put(head + (int64_t)row * stride + col, out[i][j] * factor);
        }
}

/* The largest over the 16 threads that share rows. */
template <class V> static __device__ inline V row_max(V v)
{
    for (int step = 8; step > 0; step /= 2) {
        V other = __shfl_xor_sync(0xffffffffu, v, step);
        v = v > other ? v : other;
    }
    return v;
}

template <class V> static __device__ inline V row_sum(V v)
{
    for (int step = 8; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* The scaled product, or its bent form under a soft cap. */
template <class V> static __device__ inline V capped(const attend &k, V product)
{
    V z = product * V(k.n.scale), cap = V(k.n.softcap);
    return cap > 0 ? cap * tanh(z / cap) : z;
}

/* The derivative of capped() by the scaled product. */
template <class V> static __device__ inline V slope_of(const attend &k, V product)
{
    if (!(k.n.softcap > 0))
        return V(1);
    V bent = tanh(product * V(k.n.scale) / V(k.n.softcap));
    return 1 - bent * bent;
}

/* Turns a product into a score: scaled, perhaps capped, with its bias. */
template <class T, class V>
static __device__ inline V dressed(
    const attend &k, const T *bias, V product, int64_t t, int64_t s)
{
    V z = capped(k, product);
    return bias ? z + get(bias + t * k.bias.stride[2] + s) : z;
}

/* --- forward --- */

template <class T, int J>
static __global__ void __launch_bounds__(THREADS) plain_forward(attend k)
{
    typedef wide<T> V;
    space<V, J> &x = *dynamic_shared<space<V, J>>();
    int slabs = (int)((k.n.d + 16 * J - 1) / (16 * J)), slab = blockIdx.x % slabs;
    int runs = (int)((k.n.t + SIDE - 1) / SIDE), run = blockIdx.x / slabs % runs;
    int64_t head = blockIdx.x / slabs / runs, b = head / k.n.h, h = head % k.n.h;
    int64_t group = h / (k.n.h / k.n.g);
    int d = (int)k.n.d, t0 = run * SIDE, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const T *bias = bias_of<T>(k.bias, b, h);
    V s[4][4], out[4][J] = {{0}}, top[4], sum[4] = {0};
#pragma unroll
    for (int i = 0; i < 4; i++)
        top[i] = -INFINITY;
    int last = least(k.n.t, t0 + SIDE) - 1, end = end_of_keys(k.n, last);
    for (int s0 = first_key(k.n, t0) / SIDE * SIDE; s0 < end; s0 += SIDE) {
        pairs(s, x, rows<T>(k.q, b, h, t0, k.n.t), rows<T>(k.k, b, group, s0, k.n.s), d);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            V before = top[i], mine = 0;
            int t = t0 + ty * 4 + i;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int key = s0 + tx + 16 * j;
                s[i][j] = sees(k.n, t, key) ? dressed(k, bias, s[i][j], t, key) : -INFINITY;
                top[i] = s[i][j] > top[i] ? s[i][j] : top[i];
            }
            top[i] = row_max(top[i]);
            V base = top[i] == -INFINITY ? V(0) : top[i], shrink = exp(before - base);
#pragma unroll
            for (int j = 0; j < 4; j++)
                mine += s[i][j] = exp(s[i][j] - base);
            sum[i] = sum[i] * shrink + row_sum(mine);
#pragma unroll
            for (int j = 0; j < J; j++)
                out[i][j] *= shrink;
        }
        weigh(out, x, s, false, rows<T>(k.v, b, group, s0, k.n.s), slab * 16 * J, d);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int t = t0 + ty * 4 + i;
#pragma unroll
        for (int j = 0; j < J; j++)
            out[i][j] *= sum[i] > 0 ? 1 / sum[i] : V(0);
        if (slab == 0 && tx == 0 && t < k.n.t)
            ((V *)k.lse)[head * k.n.t + t] = top[i] + log(sum[i]);
    }
    put_rows(out, V(1), head_of<T>(k.y, b, h), k.y.t, t0, (int)k.n.t, slab * 16 * J, d);
}

/* --- backward --- */

/* Computes P of a tile and the gradient of its scores, or (of_products) of the scaled products
 * below them; 0 where a query does not see a key. */
template <class T, class V, int J>
static __device__ inline void weights(V (&p)[4][4], V (&gs)[4][4], space<V, J> &x,
    const attend &k, int64_t b, int64_t h, int t0, int s0, bool of_products)
{
    int64_t group = h / (k.n.h / k.n.g), head = b * k.n.h + h;
    const T *bias = bias_of<T>(k.bias, b, h);
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16, d = (int)k.n.d;
    pairs(p, x, rows<T>(k.q, b, h, t0, k.n.t), rows<T>(k.k, b, group, s0, k.n.s), d);
    pairs(gs, x, rows<T>(k.gy, b, h, t0, k.n.t), rows<T>(k.v, b, group, s0, k.n.s), d);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int t = t0 + ty * 4 + i;
        V lse = t < k.n.t ? ((const V *)k.lse)[head * k.n.t + t] : V(0);
        V delta = t < k.n.t ? ((const V *)k.delta)[head * k.n.t + t] : V(0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int key = s0 + tx + 16 * j;
            bool seen = sees(k.n, t, key) && lse != -INFINITY;
            V slope = of_products ? slope_of(k, p[i][j]) : V(1);
            p[i][j] = seen ? exp(dressed(k, bias, p[i][j], t, key) - lse) : V(0);
            gs[i][j] = seen ? p[i][j] * (gs[i][j] - delta) * slope : V(0);
        }
    }
}

/* Computes gk and gv of 64 keys: over the group's heads, then the queries. */
template <class T, int J> static __global__ void __launch_bounds__(THREADS) plain_keys(attend k)
{
    typedef wide<T> V;
    space<V, J> &x = *dynamic_shared<space<V, J>>();
    int slabs = (int)((k.n.d + 16 * J - 1) / (16 * J)), from = blockIdx.x % slabs * 16 * J;
    int runs = (int)((k.n.s + SIDE - 1) / SIDE), run = blockIdx.x / slabs % runs;
    int64_t pair = blockIdx.x / slabs / runs, b = pair / k.n.g, group = pair % k.n.g;
    int64_t heads = k.n.h / k.n.g;
    int d = (int)k.n.d, s0 = run * SIDE, last = least(k.n.s, s0 + SIDE) - 1;
    V p[4][4], gs[4][4], gk[4][J] = {{0}}, gv[4][J] = {{0}};
    for (int64_t h = group * heads; h < (group + 1) * heads; h++)
        for (int t0 = first_query(k.n, s0) / SIDE * SIDE; t0 < end_of_queries(k.n, last);
             t0 += SIDE) {
            weights<T>(p, gs, x, k, b, h, t0, s0, true);
            weigh(gv, x, p, true, rows<T>(k.gy, b, h, t0, k.n.t), from, d);
            weigh(gk, x, gs, true, rows<T>(k.q, b, h, t0, k.n.t), from, d);
        }
    if (k.gk.p)
        put_rows(gk, V(k.n.scale), head_of<T>(k.gk, b, group), k.gk.t, s0, (int)k.n.s, from, d);
    if (k.gv.p)
        put_rows(gv, V(1), head_of<T>(k.gv, b, group), k.gv.t, s0, (int)k.n.s, from, d);
}

/* Computes gq of 64 queries. */
template <class T, int J>
static __global__ void __launch_bounds__(THREADS) plain_queries(attend k)
{
    typedef wide<T> V;
    space<V, J> &x = *dynamic_shared<space<V, J>>();
    int slabs = (int)((k.n.d + 16 * J - 1) / (16 * J)), from = blockIdx.x % slabs * 16 * J;
    int runs = (int)((k.n.t + SIDE - 1) / SIDE), run = blockIdx.x / slabs % runs;
    int64_t head = blockIdx.x / slabs / runs, b = head / k.n.h, h = head % k.n.h;
    int64_t group = h / (k.n.h / k.n.g);
    int d = (int)k.n.d, t0 = run * SIDE, last = least(k.n.t, t0 + SIDE) - 1;
    V p[4][4], gs[4][4], gq[4][J] = {{0}};
    int end = end_of_keys(k.n, last);
    for (int s0 = first_key(k.n, t0) / SIDE * SIDE; s0 < end; s0 += SIDE) {
        weights<T>(p, gs, x, k, b, h, t0, s0, true);
        weigh(gq, x, gs, false, rows<T>(k.k, b, group, s0, k.n.s), from, d);
    }
    put_rows(gq, V(k.n.scale), head_of<T>(k.gq, b, h), k.gq.t, t0, (int)k.n.t, from, d);
}

/* --- the bias --- */

/* The number of heads and of runs of queries that gbias distinguishes. */
static __device__ inline int64_t own_heads(const attend &k)
{
    return k.gbias.stride[1] ? k.n.h : 1;
}

static __device__ inline int own_runs(const attend &k)
{
    return k.gbias.stride[2] ? (int)((k.n.t + SIDE - 1) / SIDE) : 1;
}

/* Sums a tile's rows, in order: column x + 16j is in every thread of y = 0. */
template <class V> static __device__ inline void sum_rows(V (&sum)[4][4], V (*space)[SIDE + 1])
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++)
        space[ty][tx + 16 * j] = sum[0][j] + sum[1][j] + sum[2][j] + sum[3][j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4 && ty == 0; j++) {
        sum[0][j] = 0;
        for (int y = 0; y < THREADS / 16; y++)
            sum[0][j] += space[y][tx + 16 * j];
    }
}

/* One block per (sample, head, run of queries, run of keys) of gbias. */
template <class T> static __global__ void __launch_bounds__(THREADS) plain_bias(attend k)
{
    typedef wide<T> V;
    space<V, 1> &x = *dynamic_shared<space<V, 1>>();
    int of_s = (int)((k.n.s + SIDE - 1) / SIDE), of_t = own_runs(k);
    int s0 = blockIdx.x % of_s * SIDE, run = blockIdx.x / of_s % of_t;
    int64_t head = blockIdx.x / of_s / of_t % own_heads(k);
    int64_t sample = blockIdx.x / of_s / of_t / own_heads(k);
    bool each_head = k.gbias.stride[1] != 0, each_query = k.gbias.stride[2] != 0;
    V p[4][4], gs[4][4], sum[4][4] = {{0}};
    for (int64_t b = sample; b < k.n.b; b += k.gbias.samples)
        for (int64_t h = each_head ? head : 0; h < (each_head ? head + 1 : k.n.h); h++)
            for (int t0 = run * SIDE; t0 < (each_query ? (run + 1) * SIDE : k.n.t);
                 t0 += SIDE) {
                weights<T>(p, gs, x, k, b, h, t0, s0, false);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sum[i][j] += gs[i][j];
            }
    T *out = bias_of<T>(k.gbias, sample, head);
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    if (!each_query)
        sum_rows(sum, x.p);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int64_t t = run * SIDE + ty * 4 + i, key = s0 + tx + 16 * j;
            if (key >= k.n.s || t >= k.n.t || (!each_query && (ty || i)))
                continue;
            T *at = out + t * k.gbias.stride[2] + key;
            put(at, get(at) + sum[i][j]);
        }
}

/* --- choice of the kernel --- */

template <class T, int J> static void forward_of(const attend *k)
{
    int64_t slabs = (k->n.d + 16 * J - 1) / (16 * J), runs = (k->n.t + SIDE - 1) / SIDE;
    launch(plain_forward<T, J>, (unsigned)(k->n.b * k->n.h * runs * slabs), THREADS,
        sizeof(space<wide<T>, J>), *k);
}

template <class T, int J> static void backward_of(const attend *k)
{
    int64_t slabs = (k->n.d + 16 * J - 1) / (16 * J);
    int64_t of_s = (k->n.s + SIDE - 1) / SIDE, of_t = (k->n.t + SIDE - 1) / SIDE;
    if (k->gk.p || k->gv.p)
        launch(plain_keys<T, J>, (unsigned)(k->n.b * k->n.g * of_s * slabs), THREADS,
            sizeof(space<wide<T>, J>), *k);
    if (k->gq.p)
        launch(plain_queries<T, J>, (unsigned)(k->n.b * k->n.h * of_t * slabs), THREADS,
            sizeof(space<wide<T>, J>), *k);
}

void choir__attention_plain(const attend *k)
{
    choose(k->dtype, [&](auto t) {
        k->n.d <= 64 ? forward_of<decltype(t), 4>(k) : forward_of<decltype(t), 8>(k);
    });
}

void choir__attention_plain_backward(const attend *k)
{
    choose(k->dtype, [&](auto t) {
        k->n.d <= 64 ? backward_of<decltype(t), 4>(k) : backward_of<decltype(t), 8>(k);
    });
}

void choir__attention_plain_bias(const attend *k)
{
    int64_t of_s = (k->n.s + SIDE - 1) / SIDE, of_t = (k->n.t + SIDE - 1) / SIDE;
    int64_t heads = k->gbias.stride[1] ? k->n.h : 1, runs = k->gbias.stride[2] ? of_t : 1;
    choose(k->dtype, [&](auto t) {
        launch(plain_bias<decltype(t)>, (unsigned)(k->gbias.samples * heads * runs * of_s),
            THREADS, sizeof(space<wide<decltype(t)>, 1>), *k);
    });
}
