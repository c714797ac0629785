/* How kernels for GPUs are written here.
 *
 * A kernel takes one struct by value. Most take the kernel table's own struct, and the table's
 * function is a line that picks the type and the grid:
 *
 *     template <class T> __global__ void relu(choir__k_unary k)
 *     {
 *         for (int64_t i = first_thread(); i < k.n; i += all_threads())
 *             put((T *)k.y + i, fmaxf(get((const T *)k.x + i), 0));
 *     }
 *     extern "C" void choir__cuda_relu(const choir__k_unary *k)
 *     {
 *         choose(k->dtype, [&](auto t) { launch(relu<decltype(t)>, grid_for(k->n), 256, 0, *k); });
 *     }
 *
 * T is float, double, bf16 or f16. Memory holds T; arithmetic is in wide<T>: double for double,
 * float for the rest, rounded once when it is stored.
 *
 * Results do not depend on the number of blocks in flight or on their order: the order of a sum
 * depends on the shape alone, and floats are never added by atomics.
 *
 * The tests build these files with a C++ compiler for a GPU in software (tests/softgpu):
 * CHOIR_SOFT_GPU is defined then, and softgpu/softgpu.h defines the parts of CUDA that are used
 * here. Kernels use nothing else. */
#ifndef CHOIR_KERNEL_CUH
#define CHOIR_KERNEL_CUH

#include "device/cuda/cuda.h"
#include "device/cuda/kit/number.cuh"

enum { WARP = 32, BLOCK = 256 };

/* --- types --- */

/* Calls f with a value of the type that dtype names. */
template <class F> void choose(choir_dtype dtype, F f)
{
    switch (dtype) {
    case CHOIR_F64: f(double()); break;
    case CHOIR_BF16: f(bf16()); break;
    case CHOIR_F16: f(f16()); break;
    default: f(float()); break;
    }
}

/* Returns the size of wide<T> in bytes. */
inline size_t wide_size(choir_dtype dtype)
{
    return dtype == CHOIR_F64 ? sizeof(double) : sizeof(float);
}

/* --- 16 bytes at a time, the widest access a thread has --- */

/* Loads 16 bytes in one access; a compiler may split a plain load or store. */
__device__ inline uint4 load_16(const void *p)
{
#ifdef CHOIR_SOFT_GPU
    uint4 words;
    softgpu_aligned(p, sizeof words);
    memcpy(&words, p, sizeof words);
    return words;
#else
    return __ldca((const uint4 *)p);
#endif
}

__device__ inline void store_16(void *p, uint4 words)
{
#ifdef CHOIR_SOFT_GPU
    softgpu_aligned(p, sizeof words);
    memcpy(p, &words, sizeof words);
#else
    __stwb((uint4 *)p, words);
#endif
}

/* --- launching --- */

__device__ inline int64_t first_thread()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline int64_t all_threads()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Returns the number of blocks for n elements, `each` per block: at most as many as fill the
 * GPU; threads then loop. */
inline unsigned grid_for(int64_t n, int64_t each = BLOCK)
{
    int64_t wanted = (n + each - 1) / each, most = 8 * choir__cuda_here()->multiprocessors;
    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

/* Launches kernel<<<grid, block, shared>>>(args) on the current stream. A refused launch fails
 * the queue after the task (cuda/errors.c), with a message that names the op. Only the
 * launch's own result counts: CUDA's last error may be one that a library left behind. */
template <class A, class B>
void launch(void (*kernel)(A), dim3 grid, dim3 block, size_t shared, const B &args)
{
    A copy = args;
    choir__cuda *here = choir__cuda_here();
    cudaError_t error = cudaSuccess;
    if (shared > 48 << 10) /* more than this only on demand */
        error = cudaFuncSetAttribute((const void *)kernel,
            cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error == cudaSuccess) {
#ifdef CHOIR_SOFT_GPU
        error = softgpu_launch(kernel, grid, block, shared, here->stream, copy);
#else
        void *pointers[] = {&copy};
        error = cudaLaunchKernel(
            (const void *)kernel, grid, block, pointers, shared, here->stream);
#endif
    }
    if (here->launched == cudaSuccess)
        here->launched = error;
}

/* Returns the shared memory that a launch requests with `shared`, aligned to 16. */
template <class T> __device__ inline T *dynamic_shared()
{
#ifdef CHOIR_SOFT_GPU
    return softgpu_dynamic_shared<T>();
#else
    extern __shared__ __align__(16) unsigned char choir__dynamic_shared[];
    return (T *)choir__dynamic_shared;
#endif
}

/* --- reductions: the tree does not depend on the data --- */

/* Return the sum, or the largest, over a warp's lanes, on every lane. */
template <class V> __device__ inline V warp_sum(V v)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

template <class V> __device__ inline V warp_max(V v)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        V other = __shfl_xor_sync(0xffffffffu, v, step);
        v = v > other || v != v ? v : other; /* NaN stays */
    }
    return v;
}

/* Return the sum, or the largest, over a block whose threads are a multiple of WARP, at most
 * 1024. All threads call it, and all have the result. */
template <class V> __device__ inline V block_sum(V v)
{
    __shared__ V part[WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_sum(v);
    __syncthreads(); /* an earlier call's readers are done */
    if (lane == 0)
        part[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : V(0));
}

template <class V> __device__ inline V block_max(V v)
{
    __shared__ V part[WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0)
        part[warp] = v;
    __syncthreads();
    return warp_max(part[lane < warps ? lane : 0]);
}

/* --- faults --- */

/* Reports a fault; cuda/cuda.h says what value, limit, at and number mean for each kind. */
__device__ inline void raise_fault(choir__cuda_fault *fault, choir__cuda_wrong what,
    int64_t value, int64_t limit, int64_t at = 0, double number = 0)
{
    if (atomicCAS(&fault->taken, 0, 1) != 0)
        return;
    fault->value = value;
    fault->limit = limit;
    fault->at = at;
    fault->number = number;
    __threadfence_system();
    fault->what = what;
}

#endif
