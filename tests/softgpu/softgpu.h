/* CUDA for a software-emulated GPU: the part of the language that kernels use, for a C++
 * compiler.
 *
 * With CHOIR_SOFT_GPU defined a .cu file includes this file in place of <cuda_runtime.h> and is
 * compiled as C++: `g++ -x c++ -std=c++17 -DCHOIR_SOFT_GPU -Itests/softgpu -I.../cuda/include`.
 * A kernel is then a plain function, and each of its threads a call; block.c makes the calls
 * and lets the threads wait for each other. The library libsoftgpu.so imitates libcudart and
 * libcublasLt, with the real headers.
 *
 * Functions that are missing here must not be used by kernels: among them are float atomics,
 * whose sums depend on which thread is first. softgpu_math.h has the functions of single
 * threads. */
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "async.h"
#include "block.h"

/* The headers leave all of these empty for a compiler that isn't nvcc. */
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#define __shared__   static /* one block runs at a time */
#define __constant__ static const
#define __launch_bounds__(...)

#define threadIdx (*(const uint3 *)&softgpu_here.thread)
#define blockIdx  (*(const uint3 *)&softgpu_here.block)
#define blockDim  (*(const dim3 *)&softgpu_here.threads)
#define gridDim   (*(const dim3 *)&softgpu_here.blocks)
#define warpSize  32

#include "softgpu_math.h"

/* --- waiting --- */

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    softgpu_barrier(file, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    softgpu_warp_barrier(mask);
}

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* --- shuffles: every lane names the lane whose value it reads --- */

template <class T> struct softgpu_given {
    T value, taken;
    int from;
};

template <class T> void softgpu_exchange(void *const lanes[SOFTGPU_WARP])
{
    for (int i = 0; i < SOFTGPU_WARP; i++) {
        softgpu_given<T> *mine = (softgpu_given<T> *)lanes[i];
        if (!mine)
            continue;
        const softgpu_given<T> *source = (const softgpu_given<T> *)lanes[mine->from];
        if (!source)
            softgpu_wrong("a shuffle reads lane %d, which takes no part in it", mine->from);
        mine->taken = source->value;
    }
}

/* from: the lane to read. own: the lane keeps its value, as its source is outside its group. */
template <class T>
T softgpu_shuffle(unsigned mask, T value, int from, bool own, const char *what)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "no such shuffle");
    softgpu_given<T> given = {value, value, own ? softgpu_lane() : from};
    softgpu_warp(mask, &given, softgpu_exchange<T>, what);
    return given.taken;
}

template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    int first = softgpu_lane() / width * width;
    return softgpu_shuffle(mask, value, first + (lane & (width - 1)), false, "__shfl_sync");
}

template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int lane = softgpu_lane(), from = lane ^ bits;
    bool own = from >= lane / width * width + width;
    return softgpu_shuffle(mask, value, from, own, "__shfl_xor_sync");
}

template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32)
{
    int lane = softgpu_lane(), from = lane + (int)step;
    bool own = lane % width + (int)step >= width;
    return softgpu_shuffle(mask, value, from, own, "__shfl_down_sync");
}

template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32)
{
    int lane = softgpu_lane(), from = lane - (int)step;
    bool own = lane % width < (int)step;
    return softgpu_shuffle(mask, value, from, own, "__shfl_up_sync");
}

/* --- votes --- */

struct softgpu_ballot {
    bool yes;
    unsigned all; /* bits of the lanes that said yes */
    unsigned here;
};

inline void softgpu_count(void *const lanes[SOFTGPU_WARP])
{
    unsigned all = 0, here = 0;
    for (int i = 0; i < SOFTGPU_WARP; i++) {
        if (lanes[i]) {
            here |= 1u << i;
            all |= (unsigned)((softgpu_ballot *)lanes[i])->yes << i;
        }
    }
    for (int i = 0; i < SOFTGPU_WARP; i++)
        if (lanes[i])
            ((softgpu_ballot *)lanes[i])->all = all, ((softgpu_ballot *)lanes[i])->here = here;
}

inline softgpu_ballot softgpu_vote(unsigned mask, int yes, const char *what)
{
    softgpu_ballot mine = {yes != 0, 0, 0};
    softgpu_warp(mask, &mine, softgpu_count, what);
    return mine;
}

inline unsigned __ballot_sync(unsigned mask, int yes)
{
    return softgpu_vote(mask, yes, "__ballot_sync").all;
}
inline int __any_sync(unsigned mask, int yes)
{
    return softgpu_vote(mask, yes, "__any_sync").all != 0;
}
inline int __all_sync(unsigned mask, int yes)
{
    softgpu_ballot b = softgpu_vote(mask, yes, "__all_sync");
    return b.all == b.here;
}

inline int softgpu_block_vote(int yes, int kind, const char *file, int line)
{
    static int count;
    softgpu_barrier(file, line);
    __atomic_store_n(&count, 0, __ATOMIC_RELAXED);
    softgpu_barrier(file, -line);
    __atomic_fetch_add(&count, yes != 0, __ATOMIC_RELAXED);
    softgpu_barrier(file, line);
    int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    return kind == 0 ? count : kind == 1 ? count == threads : count != 0;
}

inline int __syncthreads_count(
    int yes, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return softgpu_block_vote(yes, 0, file, line);
}
inline int __syncthreads_and(
    int yes, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return softgpu_block_vote(yes, 1, file, line);
}
inline int __syncthreads_or(
    int yes, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return softgpu_block_vote(yes, 2, file, line);
}

/* --- launching --- */

/* Like cudaLaunchKernel, for kernels of one argument, which is copied. */
template <class A>
cudaError_t softgpu_launch(
    void (*kernel)(A), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const A &args)
{
    softgpu_kernel k;
    k.run = [](void (*fn)(void), const void *copy) { ((void (*)(A))fn)(*(const A *)copy); };
    k.kernel = (void (*)(void))kernel;
    k.blocks = grid;
    k.threads = block;
    k.shared = shared;
    A copy = args;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&copy); /* it may hold old pointers, which launch.c would find */
#endif
    return softgpu_issue_kernel(&k, stream, &copy, sizeof copy);
}

template <class T> T *softgpu_dynamic_shared()
{
    return (T *)softgpu_shared_memory;
}

#endif
