/* One launch for all parameters: how the work on a table of entries is distributed to threads.
 *
 * The table is in device memory, so the host knows the number of entries but not their sizes. A
 * tiny kernel computes running totals of the pieces that the entries need. Workers (blocks or
 * warps, as many as fill the GPU) then take pieces in turn, and find a piece's entry by binary
 * search. A piece is
 *
 *     a chunk    CHUNK elements of an entry, for element-wise work
 *     a unit     a row of dimension 0 of more than WARP elements, or WARP shorter rows: for
 *                sums per row, whose order depends on the row's length alone
 */
#ifndef CHOIR_ENTRIES_CUH
#define CHOIR_ENTRIES_CUH

#include "device/cuda/kit/kernel.cuh"

enum { QUAD = 4, CHUNK = 2 * QUAD * BLOCK }; /* a thread has two quads of a chunk */

/* Totals of the entries before each entry, and at [count] of all. */
enum { CHUNKS, UNITS, ENTRY_ROWS, TOTALS };
typedef struct totals {
    int64_t of[TOTALS];
} totals;

typedef struct entry_table {
    const choir__opt_entry *entries;
    int64_t count;
    totals *before; /* (count + 1) */
} entry_table;

__host__ __device__ inline int64_t rows_of(const choir__opt_entry *e)
{
    return e->n > 0 && e->row > 0 ? e->n / e->row : 0;
}

__device__ inline totals asked_by(const choir__opt_entry *e)
{
    int64_t rows = rows_of(e);
    return {
        {(e->n + CHUNK - 1) / CHUNK, e->row > WARP ? rows : (rows + WARP - 1) / WARP, rows}};
}

/* One block adds BLOCK entries at a time, over doubling distances. */
static __global__ void fill_totals(entry_table t)
{
    __shared__ int64_t sum[BLOCK];
    totals all = {{0, 0, 0}};
    for (int64_t first = 0; first < t.count; first += BLOCK) {
        int64_t at = first + threadIdx.x;
        totals mine = {{0, 0, 0}};
        if (at < t.count)
            mine = asked_by(&t.entries[at]);
        for (int kind = 0; kind < TOTALS; kind++) {
            __syncthreads(); /* the previous value was read */
            sum[threadIdx.x] = mine.of[kind];
            for (int step = 1; step < BLOCK; step *= 2) {
                __syncthreads();
                int64_t other = (int)threadIdx.x >= step ? sum[threadIdx.x - step] : 0;
                __syncthreads();
                sum[threadIdx.x] += other;
            }
            __syncthreads();
            if (at < t.count)
                t.before[at].of[kind] = all.of[kind] + sum[threadIdx.x] - mine.of[kind];
            all.of[kind] += sum[BLOCK - 1];
        }
    }
    if (threadIdx.x == 0)
        t.before[t.count] = all;
}

/* Makes the table's totals in scratch slot 0; before NULL: no memory. */
static inline entry_table table_of(const choir__opt_entry *entries, int64_t count)
{
    entry_table t = {entries, count, NULL};
    t.before = (totals *)choir__cuda_scratch(0, (size_t)(count + 1) * sizeof(totals));
    if (t.before)
        launch(fill_totals, 1, BLOCK, 0, t);
    return t;
}

/* Returns the entry that contains piece i of a kind: the last entry whose total before it is at
 * most i. */
__device__ inline int64_t entry_with(const entry_table &t, int64_t i, int kind)
{
    int64_t low = 0, high = t.count;
    while (low + 1 < high) {
        int64_t middle = (low + high) / 2;
        if (t.before[middle].of[kind] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Number of blocks for work whose size the host does not know: as many as a GPU holds at a time
 * of kernels with __launch_bounds__(BLOCK, resident), so that all blocks run together. */
enum { RESIDENT = 4 };

static inline unsigned rounds(int resident)
{
    return (unsigned)(resident * choir__cuda_here()->multiprocessors);
}

/* --- four elements at a time, in one access if aligned: the arithmetic does not change --- */

template <class T> struct alignas(QUAD * sizeof(T)) quad {
    T at[QUAD];
};

template <class T> __device__ inline void load_quad(float *v, const T *p, int64_t left)
{
    quad<T> q;
    if (left >= QUAD && (uintptr_t)p % sizeof q == 0) {
        q = *(const quad<T> *)p;
    } else {
        for (int i = 0; i < QUAD; i++)
            q.at[i] = i < left ? p[i] : T(0.0f);
    }
    for (int i = 0; i < QUAD; i++)
        v[i] = get(&q.at[i]);
}

template <class T> __device__ inline void store_quad(T *p, const float *v, int64_t left)
{
    quad<T> q;
    for (int i = 0; i < QUAD; i++)
        put(&q.at[i], v[i]);
    if (left >= QUAD && (uintptr_t)p % sizeof q == 0) {
        *(quad<T> *)p = q;
        return;
    }
    for (int i = 0; i < QUAD; i++)
        if (i < left)
            p[i] = q.at[i];
}

/* Loads elements of a parameter of either type. */
__device__ inline void load_param(float *v, const choir__opt_entry &e, int64_t i)
{
    if (!e.half)
        load_quad(v, e.param + i, e.n - i);
    else if (e.half_dtype == CHOIR_BF16)
        load_quad(v, (const bf16 *)e.half + i, e.n - i);
    else
        load_quad(v, (const f16 *)e.half + i, e.n - i);
}

__device__ inline void store_param(const choir__opt_entry &e, int64_t i, const float *v)
{
    if (!e.half)
        store_quad(e.param + i, v, e.n - i);
    else if (e.half_dtype == CHOIR_BF16)
        store_quad((bf16 *)e.half + i, v, e.n - i);
    else
        store_quad((f16 *)e.half + i, v, e.n - i);
}

/* Returns the factor for a group's gradients. */
__device__ inline float clip_of(const choir__k_optim &k, const choir__opt_hyper &h)
{
    float clip = k.clip ? *k.clip : 1.0f;
    return h.maximize ? -clip : clip;
}

#endif
