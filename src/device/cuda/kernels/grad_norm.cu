/* The norm of all gradients: f64 sums of squares of each row of dimension 0, and the fixed tree
 * over the rows of all entries. A row's sum depends on the row alone. A row of more than WARP
 * elements is summed by a warp, a shorter one by a thread. */
#include "device/cuda/kit/entries.cuh"
#include "device/cuda/kit/tree.cuh"

struct norm_args {
    choir__k_grad_norm k;
    entry_table table; /* without entries: `before` is NULL */
};

/* Sums a row with a warp: quads in turn, four sums per lane. */
__device__ static inline double long_row(const float *x, int64_t n)
{
    double sum[QUAD] = {0, 0, 0, 0};
#pragma unroll 4
    for (int64_t i = threadIdx.x % WARP * QUAD; i < n; i += WARP * QUAD) {
        float v[QUAD];
        load_quad(v, x + i, n - i);
        for (int j = 0; j < QUAD; j++)
            sum[j] += square(v[j]);
    }
    return warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static __global__ void __launch_bounds__(BLOCK, RESIDENT) sum_rows(norm_args args)
{
    const choir__k_grad_norm &k = args.k;
    const int64_t units = args.table.before[k.count].of[UNITS], lane = threadIdx.x % WARP;
    for (int64_t unit = first_thread() / WARP; unit < units; unit += all_threads() / WARP) {
        const int64_t at = entry_with(args.table, unit, UNITS);
        const choir__opt_entry &e = k.entries[at];
        const int64_t local = unit - args.table.before[at].of[UNITS];
        double *rows = k.rows + k.given + args.table.before[at].of[ENTRY_ROWS];
        if (e.row > WARP) {
            double sum = long_row(e.grad + local * e.row, e.row);
            if (lane == 0)
                rows[local] = sum;
        } else if (local * WARP + lane < rows_of(&e)) {
            const float *x = e.grad + (local * WARP + lane) * e.row;
            double sum = 0;
            for (int64_t i = 0; i < e.row; i++)
                sum += square(x[i]);
            rows[local * WARP + lane] = sum;
        }
    }
}

__device__ static inline int64_t all_rows(const norm_args &args)
{
    return args.k.given +
           (args.table.before ? args.table.before[args.k.count].of[ENTRY_ROWS] : 0);
}

static __global__ void __launch_bounds__(BLOCK, RESIDENT) join_rows(norm_args args)
{
    const int64_t n = all_rows(args);
    for (int64_t first = blockIdx.x * (int64_t)LEAVES; first < n; first += gridDim.x * LEAVES) {
        double *x = args.k.rows + first;
        double node = tree_node(x, leaves_from(first, n));
        if (threadIdx.x == 0)
            x[0] = node;
    }
}

static __global__ void finish(norm_args args)
{
    const choir__k_grad_norm &k = args.k;
    const int64_t n = all_rows(args);
    join_nodes(k.rows, n);
    if (threadIdx.x)
        return;
    double sum = n ? k.rows[0] : 0; /* finite if all gradients are: squares of f32 in f64 */
    float inverse = k.inverse ? *k.inverse : 1.0f;
    float norm = (float)(sqrt(sum) * (double)inverse), clip = k.max_norm / (norm + 1e-6f);
    *k.norm = norm;
    k.clip[0] = (k.max_norm > 0 && !(clip >= 1.0f) ? clip : 1.0f) * inverse; /* NaN stays */
    if (!k.inverse)
        return;
    k.clip[1] = isfinite(sum) ? 0.0f : 1.0f;
    k.clip[2] += k.clip[1];
}

extern "C" void choir__cuda_grad_norm(const choir__k_grad_norm *k)
{
    norm_args args = {*k, {NULL, 0, NULL}};
    if (k->count) {
        args.table = table_of(k->entries, k->count);
        if (!args.table.before)
            return;
        launch(sum_rows, rounds(RESIDENT), BLOCK, 0, args);
    }
    if (!k->norm)
        return;
    launch(join_rows, (unsigned)choir__cuda_here()->multiprocessors, BLOCK, 0, args);
    launch(finish, 1, BLOCK, 0, args);
}
