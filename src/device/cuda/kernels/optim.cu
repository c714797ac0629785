/* A step of SGD or Adam over all parameters in one launch.
 *
 * Memory is the limit: for each parameter Adam reads 16 bytes (parameter, gradient, both
 * moments) and writes 12. A thread loads all values of eight elements before it computes the
 * first, 16 bytes at a time. The alignment of a shard only changes how it is moved: the same
 * line of code does the arithmetic. */
#include "device/cuda/kit/entries.cuh"

extern "C" {
#include "device/code_map.h"
}

struct step_args {
    choir__k_optim k;
    entry_table table;
};

/* The inputs and outputs of the step of four elements at i. */
struct four {
    float p[QUAD], g[QUAD], m[QUAD], v[QUAD], top[QUAD];
};

struct sgd_rule {
    __device__ static void read(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &h, int64_t i)
    {
        load_param(q.p, e, i);
        load_quad(q.g, e.grad + i, e.n - i);
        if (h.momentum != 0 && !h.first)
            load_quad(q.m, e.m + i, e.n - i);
    }
    __device__ static void move(
        four &q, const choir__opt_entry &, const choir__opt_hyper &h, float clip)
    {
        for (int j = 0; j < QUAD; j++) {
            float g = q.g[j] * clip + q.p[j] * h.weight_decay;
            if (h.momentum != 0) {
                q.m[j] = h.first ? g : q.m[j] * h.momentum + g * (1 - h.dampening);
                g = h.nesterov ? g + q.m[j] * h.momentum : q.m[j];
            }
            q.p[j] -= g * h.lr;
        }
    }
    __device__ static void write(
        const four &q, const choir__opt_entry &e, const choir__opt_hyper &h, int64_t i)
    {
        store_param(e, i, q.p);
        if (h.momentum != 0)
            store_quad(e.m + i, q.m, e.n - i);
    }
};

struct adam_rule {
    __device__ static void read(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        load_param(q.p, e, i);
        load_quad(q.g, e.grad + i, e.n - i);
        load_quad(q.m, e.m + i, e.n - i);
        load_quad(q.v, e.v + i, e.n - i);
        if (e.top)
            load_quad(q.top, e.top + i, e.n - i);
    }
    __device__ static void move(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &h, float clip)
    {
        for (int j = 0; j < QUAD; j++) {
            float p = q.p[j], g = q.g[j] * clip;
            if (h.decoupled)
                p -= p * (h.lr * h.weight_decay);
            else
                g += p * h.weight_decay;
            q.m[j] = q.m[j] * h.beta1 + g * (1 - h.beta1);
            q.v[j] = q.v[j] * h.beta2 + g * g * (1 - h.beta2);
            float w = q.v[j];
            if (e.top)
                w = q.top[j] = q.top[j] > w ? q.top[j] : w; /* NaN stays */
            q.p[j] = p - q.m[j] * h.step_size / (sqrtf(w) * h.rsqrt_bias2 + h.eps);
        }
    }
    __device__ static void write(
        const four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        store_quad(e.m + i, q.m, e.n - i);
        store_quad(e.v + i, q.v, e.n - i);
        if (e.top)
            store_quad(e.top + i, q.top, e.n - i);
        store_param(e, i, q.p);
    }
};

struct lion_rule {
    __device__ static void read(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        load_param(q.p, e, i);
        load_quad(q.g, e.grad + i, e.n - i);
        load_quad(q.m, e.m + i, e.n - i);
    }
    __device__ static void move(
        four &q, const choir__opt_entry &, const choir__opt_hyper &h, float clip)
    {
        for (int j = 0; j < QUAD; j++) {
            float g = q.g[j] * clip, c = q.m[j] * h.beta1 + g * (1 - h.beta1);
            float p = q.p[j] - q.p[j] * (h.lr * h.weight_decay);
            q.p[j] = p - (c > 0 ? h.lr : c < 0 ? -h.lr : c); /* 0 or NaN: c */
            q.m[j] = q.m[j] * h.beta2 + g * (1 - h.beta2);
        }
    }
    __device__ static void write(
        const four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        store_quad(e.m + i, q.m, e.n - i);
        store_param(e, i, q.p);
    }
};

struct rmsprop_rule {
    __device__ static void read(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        load_param(q.p, e, i);
        load_quad(q.g, e.grad + i, e.n - i);
        load_quad(q.v, e.v + i, e.n - i);
        if (e.m)
            load_quad(q.m, e.m + i, e.n - i);
        if (e.top)
            load_quad(q.top, e.top + i, e.n - i);
    }
    __device__ static void move(
        four &q, const choir__opt_entry &e, const choir__opt_hyper &h, float clip)
    {
        for (int j = 0; j < QUAD; j++) {
            float g = q.g[j] * clip + q.p[j] * h.weight_decay;
            float w = q.v[j] = q.v[j] * h.beta2 + g * g * (1 - h.beta2);
            if (e.top) {
                q.top[j] = q.top[j] * h.beta2 + g * (1 - h.beta2);
                w -= q.top[j] * q.top[j];
            }
            float u = g / (sqrtf(w) + h.eps);
            if (e.m)
                u = q.m[j] = q.m[j] * h.momentum + u;
            q.p[j] -= u * h.lr;
        }
    }
    __device__ static void write(
        const four &q, const choir__opt_entry &e, const choir__opt_hyper &, int64_t i)
    {
        store_quad(e.v + i, q.v, e.n - i);
        if (e.m)
            store_quad(e.m + i, q.m, e.n - i);
        if (e.top)
            store_quad(e.top + i, q.top, e.n - i);
        store_param(e, i, q.p);
    }
};

template <class Rule> __global__ void __launch_bounds__(BLOCK, RESIDENT) step(step_args args)
{
    enum { QUADS = CHUNK / (QUAD * BLOCK) };
    const choir__k_optim &k = args.k;
    const int64_t chunks = args.table.before[k.count].of[CHUNKS];
    if (k.found && *k.found != 0)
        return;
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const int64_t at = entry_with(args.table, chunk, CHUNKS);
        const choir__opt_entry e = k.entries[at];
        if (e.apart || e.m_codes)
            continue;
        const choir__opt_hyper h = k.hyper[e.group];
        const float clip = clip_of(k, h);
        const int64_t first =
            (chunk - args.table.before[at].of[CHUNKS]) * CHUNK + threadIdx.x * QUAD;
        four q[QUADS];
#pragma unroll
        for (int j = 0; j < QUADS; j++)
            if (first + j * QUAD * BLOCK < e.n)
                Rule::read(q[j], e, h, first + j * QUAD * BLOCK);
#pragma unroll
        for (int j = 0; j < QUADS; j++)
            if (first + j * QUAD * BLOCK < e.n) {
                Rule::move(q[j], e, h, clip);
                Rule::write(q[j], e, h, first + j * QUAD * BLOCK);
            }
    }
}

template <class Rule> static void step_all(const choir__k_optim *k)
{
    if (k->count == 0)
        return;
    entry_table table = table_of(k->entries, k->count);
    if (table.before)
        launch(step<Rule>, rounds(RESIDENT), BLOCK, 0, step_args{*k, table});
}

extern "C" void choir__cuda_sgd(const choir__k_sgd *k)
{
    step_all<sgd_rule>(k);
}

extern "C" void choir__cuda_lion(const choir__k_lion *k)
{
    step_all<lion_rule>(k);
}

extern "C" void choir__cuda_rmsprop(const choir__k_rmsprop *k)
{
    step_all<rmsprop_rule>(k);
}

/* --- Adam, whose state may be codes: a thread block takes such an entry's rows in turn --- */

struct coded_args {
    choir__k_optim k;
    float m[256], v[256]; /* the numbers for which codes stand */
};

/* These numbers in shared memory, and the middle between two neighbours. */
struct coded_maps {
    float m[256], v[256], m_middle[256], v_middle[256];
};

static_assert((int)BLOCK == (int)CHOIR__CODED_BLOCK && BLOCK == 256,
    "a thread per element and per code");

__device__ static void fill_maps(coded_maps *maps, const coded_args &args)
{
    const int i = (int)threadIdx.x, next = i < 255 ? i + 1 : i;
    maps->m[i] = args.m[i];
    maps->v[i] = args.v[i];
    maps->m_middle[i] = i < 255 ? (args.m[i] + args.m[next]) * 0.5f : INFINITY;
    maps->v_middle[i] = i < 255 ? (args.v[i] + args.v[next]) * 0.5f : INFINITY;
    __syncthreads();
}

/* Returns the code whose number is nearest to x. */
__device__ static int nearest_code(const float *middle, float x)
{
    int at = 0;
    for (int step = 128; step; step /= 2)
        at += x > middle[at + step - 1] ? step : 0;
    return at;
}

/* Returns the largest magnitude of the block's threads; NaN if any is NaN. */
__device__ static float most_of(float x)
{
    __shared__ float most[BLOCK];
    __syncthreads(); /* the previous result was read */
    most[threadIdx.x] = fabsf(x);
    for (int half = BLOCK / 2; half; half /= 2) {
        __syncthreads();
        float other = (int)threadIdx.x < half ? most[threadIdx.x + half] : 0;
        if ((int)threadIdx.x < half && CHOIR__SURPASSES(other, most[threadIdx.x]))
            most[threadIdx.x] = other;
    }
    __syncthreads();
    return most[0];
}

/* Updates one element per thread of a block of 8-bit state; `in`: the thread has one. */
__device__ static void coded_element(const coded_maps &maps, const choir__opt_entry &e,
    const choir__opt_hyper &h, float clip, int64_t i, int64_t block, bool in)
{
    four q = {};
    choir__opt_entry one = e;
    one.n = i + 1; /* the quad's other elements are zeros */
    if (in) {
        load_param(q.p, one, i);
        q.g[0] = e.grad[i];
        q.m[0] = maps.m[e.m_codes[i]] * e.m_most[block];
        q.v[0] = maps.v[e.v_codes[i]] * e.v_most[block];
        adam_rule::move(q, one, h, clip);
        store_param(one, i, q.p);
    }
    const float m_most = most_of(in ? q.m[0] : 0), v_most = most_of(in ? q.v[0] : 0);
    if (in) {
        int m = nearest_code(maps.m_middle, m_most > 0 ? q.m[0] / m_most : 0);
        int v = nearest_code(maps.v_middle, v_most > 0 ? q.v[0] / v_most : 0);
        bool below = maps.m[m] < 0;
        m += q.m[0] < 0 && !below ? -1 : q.m[0] > 0 && below ? 1 : 0; /* the sign stays */
        e.m_codes[i] = (uint8_t)m;
        e.v_codes[i] = (uint8_t)v;
    }
    if (threadIdx.x == 0) {
        e.m_most[block] = m_most;
        e.v_most[block] = v_most;
    }
}

static __global__ void __launch_bounds__(BLOCK, RESIDENT) coded_step(const coded_args args)
{
    __shared__ coded_maps maps;
    const choir__k_optim &k = args.k;
    fill_maps(&maps, args);
    if (k.found && *k.found != 0)
        return;
    for (int64_t at = 0; at < k.count; at++) {
        const choir__opt_entry e = k.entries[at];
        if (!e.m_codes)
            continue;
        const choir__opt_hyper h = k.hyper[e.group];
        const int64_t each = (e.row + CHOIR__CODED_BLOCK - 1) / CHOIR__CODED_BLOCK;
        for (int64_t block = blockIdx.x; block < rows_of(&e) * each; block += gridDim.x) {
            const int64_t column = block % each * CHOIR__CODED_BLOCK + threadIdx.x;
            coded_element(maps, e, h, clip_of(k, h), block / each * e.row + column, block,
                column < e.row);
        }
    }
}

extern "C" void choir__cuda_adam(const choir__k_adam *k)
{
    step_all<adam_rule>(k);
    if (!k->coded || k->count == 0)
        return;
    coded_args args = {*k, {}, {}};
    const choir__code_maps *maps = choir__code_maps_get();
    memcpy(args.m, maps->m.value, sizeof args.m);
    memcpy(args.v, maps->v.value, sizeof args.v);
    launch(coded_step, rounds(RESIDENT), BLOCK, 0, args);
}

/* --- averages of parameters --- */

static __global__ void __launch_bounds__(BLOCK, RESIDENT) average(step_args args)
{
    const choir__k_optim &k = args.k;
    const int64_t chunks = args.table.before[k.count].of[CHUNKS];
    const float take = k.hyper->take;
    if (take == 0)
        return;
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const int64_t at = entry_with(args.table, chunk, CHUNKS);
        const choir__opt_entry e = k.entries[at];
        const int64_t first = (chunk - args.table.before[at].of[CHUNKS]) * CHUNK;
        if (!e.average)
            continue;
        for (int part = 0; part < CHUNK; part += QUAD * BLOCK) {
            float p[QUAD], a[QUAD];
            const int64_t i = first + part + threadIdx.x * QUAD;
            if (i >= e.n)
                break;
            load_quad(p, e.param + i, e.n - i);
            load_quad(a, e.average + i, e.n - i);
            for (int j = 0; j < QUAD; j++)
                a[j] = take == 1 ? p[j] : a[j] + (p[j] - a[j]) * take;
            store_quad(e.average + i, a, e.n - i);
        }
    }
}

extern "C" void choir__cuda_average(const choir__k_average *k)
{
    if (k->count == 0)
        return;
    entry_table table = table_of(k->entries, k->count);
    if (table.before)
        launch(average, rounds(RESIDENT), BLOCK, 0, step_args{*k, table});
}
