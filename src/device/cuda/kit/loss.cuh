/* Combines rows' losses into one number: the end of every loss over class scores. */
#ifndef CHOIR_LOSS_CUH
#define CHOIR_LOSS_CUH

#include "device/cuda/kit/kernel.cuh"

/* Rows' losses and counts, in scratch memory: f64 if dtype is, else f32. */
struct row_losses {
    const void *losses, *counts; /* (rows); counts NULL: no mean is computed */
    void *loss, *count;          /* (), of the same type */
    int64_t rows;
};

enum { FINISH_THREADS = 1024 };

/* One block with as many threads as rows, in whole warps: on the soft GPU each thread costs as
 * much as a row. */
inline unsigned finish_threads(int64_t rows)
{
    int64_t warps = (rows + WARP - 1) / WARP, most = FINISH_THREADS / WARP;
    return WARP * (unsigned)(warps < 1 ? 1 : warps < most ? warps : most);
}

/* Adds rows in f64: each thread's in order, then the threads' sums. */
template <class T>
__global__ void __launch_bounds__(FINISH_THREADS) finish_losses(row_losses k)
{
    typedef wide<T> V;
    double total = 0, counted = 0;
    for (int64_t r = threadIdx.x; r < k.rows; r += blockDim.x) {
        total += ((const V *)k.losses)[r];
        if (k.counts)
            counted += ((const V *)k.counts)[r];
    }
    total = block_sum(total);
    counted = k.counts ? block_sum(counted) : 1;
    if (threadIdx.x != 0)
        return;
    *(V *)k.loss = V(counted != 0 ? total / counted : 0);
    *(V *)k.count = V(counted);
}

inline void launch_finish(choir_dtype dtype, const row_losses &k)
{
    choose(dtype,
        [&](auto t) { launch(finish_losses<decltype(t)>, 1, finish_threads(k.rows), 0, k); });
}

/* Returns scratch for rows' losses, followed by their counts; NULL without memory. */
inline void *row_scratch(choir_dtype dtype, int64_t rows, void **counts)
{
    size_t bytes = (size_t)rows * wide_size(dtype);
    char *p = (char *)choir__cuda_scratch(0, 2 * bytes);
    *counts = p ? p + bytes : NULL;
    return p;
}

#endif
