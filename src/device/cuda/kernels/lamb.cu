/* LAMB: one launch updates the moments and sums rows of p^2 and u^2 in f64, one joins an
 * entry's rows by the fixed tree, one updates the parameters. u is computed twice instead of
 * stored. As for the gradients' norm, a row of more than WARP elements is summed by a warp, a
 * shorter one by a thread. */
#include "device/cuda/kit/entries.cuh"
#include "device/cuda/kit/tree.cuh"

enum { MEASURERS = 3 }; /* blocks at a time: the kernel needs many registers */

struct lamb_args {
    choir__k_lamb k;
    entry_table table;
};

__device__ static inline float lamb_update(const choir__opt_hyper &h, float p, float m, float v)
{
    float u = m * h.inv_bias1 / (sqrtf(v * h.inv_bias2) + h.eps);
    return h.decoupled ? u + p * h.weight_decay : u;
}

/* Updates the moments of up to four elements at i, and adds to the sums. */
__device__ static inline void lamb_quad(const choir__opt_entry &e, const choir__opt_hyper &h,
    float clip, int64_t i, int64_t left, double *weight, double *update)
{
    float p[QUAD], g[QUAD], m[QUAD], v[QUAD];
    load_quad(p, e.param + i, left);
    load_quad(g, e.grad + i, left);
    load_quad(m, e.m + i, left);
    load_quad(v, e.v + i, left);
    for (int j = 0; j < QUAD; j++) {
        float gj = g[j] * clip;
        if (!h.decoupled)
            gj += p[j] * h.weight_decay;
        m[j] = m[j] * h.beta1 + gj * h.take1;
        v[j] = v[j] * h.beta2 + gj * gj * (1 - h.beta2);
        if (j < left) {
            weight[j] += square(p[j]);
            update[j] += square(lamb_update(h, p[j], m[j], v[j]));
        }
    }
    store_quad(e.m + i, m, left);
    store_quad(e.v + i, v, left);
}

/* Sums one row of n elements at `first` with `lanes` threads; this is thread `lane`. */
__device__ static inline void lamb_row(const choir__opt_entry &e, const choir__opt_hyper &h,
    float clip, int64_t first, int lane, int lanes, double *weight, double *update)
{
    double p[QUAD] = {0, 0, 0, 0}, u[QUAD] = {0, 0, 0, 0};
    for (int64_t i = lane * QUAD; i < e.row; i += lanes * QUAD)
        lamb_quad(e, h, clip, first + i, e.row - i, p, u);
    *weight = (p[0] + p[1]) + (p[2] + p[3]);
    *update = (u[0] + u[1]) + (u[2] + u[3]);
}

static __global__ void __launch_bounds__(BLOCK, MEASURERS) measure(lamb_args args)
{
    const choir__k_lamb &k = args.k;
    const totals all = args.table.before[k.count];
    const int lane = threadIdx.x % WARP;
    if (k.found && *k.found != 0)
        return;
    for (int64_t unit = first_thread() / WARP; unit < all.of[UNITS];
         unit += all_threads() / WARP) {
        const int64_t at = entry_with(args.table, unit, UNITS);
        const choir__opt_entry e = k.entries[at];
        const choir__opt_hyper h = k.hyper[e.group];
        const int lanes = e.row > WARP ? WARP : 1;
        const int64_t local = unit - args.table.before[at].of[UNITS];
        const int64_t r = lanes > 1 ? local : local * WARP + lane;
        double *rows = k.rows + args.table.before[at].of[ENTRY_ROWS], weight = 0, update = 0;
        if (r < rows_of(&e))
            lamb_row(
                e, h, clip_of(k, h), r * e.row, lanes > 1 ? lane : 0, lanes, &weight, &update);
        if (lanes > 1) {
            weight = warp_sum(weight);
            update = warp_sum(update);
        }
        if (r < rows_of(&e) && (lanes == 1 || lane == 0)) {
            rows[r] = weight;
            rows[all.of[ENTRY_ROWS] + r] = update;
        }
    }
}

/* Returns an entry's sums: of its own rows, or of the whole parameter's rows. */
__device__ static inline double *sums_of(
    const lamb_args &args, int64_t at, int64_t *n, int64_t *apart)
{
    const choir__opt_entry &e = args.k.entries[at];
    bool whole = args.k.part == CHOIR__LAMB_STEP;
    *n = whole ? e.whole_rows : rows_of(&e);
    *apart = whole ? args.k.whole_rows : args.table.before[args.k.count].of[ENTRY_ROWS];
    return args.k.rows + (whole ? e.whole_at : args.table.before[at].of[ENTRY_ROWS]);
}

/* Joins the sums of an entry: one block per entry and kind of sum. */
static __global__ void join_entries(lamb_args args)
{
    int64_t n, apart;
    double *rows = sums_of(args, blockIdx.x / 2, &n, &apart);
    if (args.k.found && *args.k.found != 0)
        return;
    tree_by_block(rows + (blockIdx.x % 2 ? apart : 0), n);
}

static __global__ void __launch_bounds__(BLOCK, RESIDENT) lamb_step(lamb_args args)
{
    const choir__k_lamb &k = args.k;
    const int64_t chunks = args.table.before[k.count].of[CHUNKS];
    if (k.found && *k.found != 0)
        return;
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const int64_t at = entry_with(args.table, chunk, CHUNKS);
        const choir__opt_entry e = k.entries[at];
        const choir__opt_hyper h = k.hyper[e.group];
        const int64_t first = (chunk - args.table.before[at].of[CHUNKS]) * CHUNK;
        int64_t n, apart;
        const double *rows = sums_of(args, at, &n, &apart);
        const float weight = (float)sqrt(rows[0]), update = (float)sqrt(rows[apart]);
        const bool trust = h.trust && weight != 0 && update != 0;
        const float rate = trust ? h.lr * (weight / update) : h.lr;
#pragma unroll
        for (int part = 0; part < CHUNK; part += QUAD * BLOCK) {
            float p[QUAD], m[QUAD], v[QUAD];
            int64_t i = first + part + threadIdx.x * QUAD;
            if (i >= e.n)
                break;
            load_quad(p, e.param + i, e.n - i);
            load_quad(m, e.m + i, e.n - i);
            load_quad(v, e.v + i, e.n - i);
            for (int j = 0; j < QUAD; j++)
                p[j] -= lamb_update(h, p[j], m[j], v[j]) * rate;
            store_quad(e.param + i, p, e.n - i);
        }
    }
}

extern "C" void choir__cuda_lamb(const choir__k_lamb *k)
{
    if (k->count == 0)
        return;
    lamb_args args = {*k, table_of(k->entries, k->count)};
    if (!args.table.before)
        return;
    if (k->part != CHOIR__LAMB_STEP)
        launch(measure, rounds(MEASURERS), BLOCK, 0, args);
    if (k->part == CHOIR__LAMB_MEASURE)
        return;
    launch(join_entries, (unsigned)(2 * k->count), BLOCK, 0, args);
    launch(lamb_step, rounds(RESIDENT), BLOCK, 0, args);
}
