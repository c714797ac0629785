/* Kernels along one dimension of a tensor seen as (outer, n, inner): the greatest or least of a
 * line, and running sums. Short or interleaved lines have a thread each, so that neighbouring
 * threads read neighbouring memory; contiguous lines have a warp each. */
#include "device/cuda/kit/kernel.cuh"

/* The extreme so far: its value, and its place; of equal ones the first. */
template <class V> struct extreme_so_far {
    V value;
    int64_t at;
};

template <class V>
__device__ inline void keep(extreme_so_far<V> &e, V value, int64_t at, bool least)
{
    bool nan = value != value, has_nan = e.value != e.value;
    bool better = least ? value < e.value : value > e.value;
    bool equal = value == e.value || (nan && has_nan);
    if (at >= 0 && (e.at < 0 || (nan && !has_nan) || (better && !has_nan) ||
                       (equal && at < e.at))) {
        e.value = value;
        e.at = at;
    }
}

template <class T> __global__ void extreme_lines(choir__k_extreme k)
{
    typedef wide<T> V;
    for (int64_t l = first_thread(); l < k.outer * k.inner; l += all_threads()) {
        const T *x = (const T *)k.x + l / k.inner * k.n * k.inner + l % k.inner;
        extreme_so_far<V> e = {V(0), -1};
        for (int64_t i = 0; i < k.n; i++)
            keep(e, get(x + i * k.inner), i, k.least);
        put((T *)k.y + l, e.value);
        if (k.index)
            k.index[l] = e.at;
    }
}

template <class T> __global__ void extreme_rows(choir__k_extreme k)
{
    typedef wide<T> V;
    int64_t warps = (int64_t)gridDim.x * blockDim.y;
    for (int64_t l = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; l < k.outer; l += warps) {
        const T *x = (const T *)k.x + l * k.n;
        extreme_so_far<V> e = {V(0), -1};
        for (int64_t i = threadIdx.x; i < k.n; i += WARP)
            keep(e, get(x + i), i, k.least);
        for (int step = WARP / 2; step > 0; step /= 2) {
            V value = __shfl_xor_sync(0xffffffffu, e.value, step);
            int64_t at = __shfl_xor_sync(0xffffffffu, e.at, step);
            keep(e, value, at, k.least);
        }
        if (threadIdx.x == 0) {
            put((T *)k.y + l, e.value);
            if (k.index)
                k.index[l] = e.at;
        }
    }
}

extern "C" void choir__cuda_extreme(const choir__k_extreme *k)
{
    int64_t lines = k->outer * k->inner;
    if (lines > 0)
        choose(k->dtype, [&](auto t) {
            if (k->inner == 1)
                launch(extreme_rows<decltype(t)>, grid_for(lines, 8), dim3(WARP, 8), 0, *k);
            else
                launch(extreme_lines<decltype(t)>, grid_for(lines), BLOCK, 0, *k);
        });
}

/* --- running sums --- */

template <class T> __global__ void cumsum_lines(choir__k_cumsum k)
{
    for (int64_t l = first_thread(); l < k.outer * k.inner; l += all_threads()) {
        int64_t first = l / k.inner * k.n * k.inner + l % k.inner;
        double sum = 0;
        for (int64_t i = 0; i < k.n; i++) {
            int64_t at = first + (k.back ? k.n - 1 - i : i) * k.inner;
            sum += (double)get((const T *)k.x + at);
            put((T *)k.y + at, (wide<T>)sum);
        }
    }
}

/* A warp takes WARP terms at a time: it adds over doubling distances, then what came before. */
template <class T> __global__ void cumsum_rows(choir__k_cumsum k)
{
    int64_t warps = (int64_t)gridDim.x * blockDim.y;
    int lane = threadIdx.x;
    for (int64_t l = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; l < k.outer; l += warps) {
        double before = 0;
        for (int64_t first = 0; first < k.n; first += WARP) {
            int64_t i = first + lane, at = l * k.n + (k.back ? k.n - 1 - i : i);
            double sum = i < k.n ? (double)get((const T *)k.x + at) : 0;
            for (int step = 1; step < WARP; step *= 2) {
                double other = __shfl_up_sync(0xffffffffu, sum, step);
                sum += lane >= step ? other : 0;
            }
            sum += before;
            if (i < k.n)
                put((T *)k.y + at, (wide<T>)sum);
            before = __shfl_sync(0xffffffffu, sum, WARP - 1);
        }
    }
}

extern "C" void choir__cuda_cumsum(const choir__k_cumsum *k)
{
    int64_t lines = k->outer * k->inner;
    if (lines > 0 && k->n > 0)
        choose(k->dtype, [&](auto t) {
            if (k->inner == 1)
                launch(cumsum_rows<decltype(t)>, grid_for(lines, 8), dim3(WARP, 8), 0, *k);
            else
                launch(cumsum_lines<decltype(t)>, grid_for(lines), BLOCK, 0, *k);
        });
}
