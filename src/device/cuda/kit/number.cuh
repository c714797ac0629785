/* The number types in memory, and the types that arithmetic on them uses. */
#ifndef CHOIR_NUMBER_CUH
#define CHOIR_NUMBER_CUH

#ifdef CHOIR_SOFT_GPU
#include "softgpu.h"
#else
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __nv_bfloat16 bf16;
typedef __half f16;

template <class T> struct wide_of {
    typedef float type;
};
template <> struct wide_of<double> {
    typedef double type;
};
template <class T> using wide = typename wide_of<T>::type;

__device__ inline float get(const float *p) { return *p; }
__device__ inline double get(const double *p) { return *p; }
__device__ inline float get(const bf16 *p) { return __bfloat162float(*p); }
__device__ inline float get(const f16 *p) { return __half2float(*p); }
__device__ inline void put(float *p, float x) { *p = x; }
__device__ inline void put(double *p, double x) { *p = x; }
__device__ inline void put(bf16 *p, float x) { *p = __float2bfloat16(x); }
__device__ inline void put(f16 *p, float x) { *p = __float2half(x); }

template <class V> __device__ inline V sigmoid(V x)
{
    return 1 / (1 + exp(-x));
}

#endif
