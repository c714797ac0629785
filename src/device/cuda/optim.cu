/* A step of SGD or Adam over all parameters in one launch.
 *
 * Memory is the limit: for each parameter Adam reads 16 bytes (parameter, gradient, both
 * moments) and writes 12. A thread loads all values of eight elements before it computes the
 * first, 16 bytes at a time. The alignment of a shard only changes how it is moved: the same
 * line of code does the arithmetic. */
#include "device/cuda/entries.cuh"

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

extern "C" void choir__cuda_adam(const choir__k_adam *k)
{
    step_all<adam_rule>(k);
}
