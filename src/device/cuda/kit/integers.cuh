/* Kernels of all dtypes: integers beside floats, and elements that are only moved. */
#ifndef CHOIR_INTEGERS_CUH
#define CHOIR_INTEGERS_CUH

#include "device/cuda/kit/kernel.cuh"

__device__ inline int64_t get(const int64_t *p) { return *p; }
__device__ inline int32_t get(const int32_t *p) { return *p; }
__device__ inline uint8_t get(const uint8_t *p) { return *p; }

/* Calls f with a value of the type that dtype names; a bool is a byte. */
template <class F> void choose_any(choir_dtype dtype, F f)
{
    switch (dtype) {
    case CHOIR_I64: f(int64_t()); break;
    case CHOIR_I32: f(int32_t()); break;
    case CHOIR_U8:
    case CHOIR_BOOL: f(uint8_t()); break;
    default: choose(dtype, f); break;
    }
}

/* Calls f with a word of `size` bytes. */
template <class F> void choose_word(size_t size, F f)
{
    switch (size) {
    case 1: f(uint8_t()); break;
    case 2: f(uint16_t()); break;
    case 4: f(uint32_t()); break;
    default: f(uint64_t()); break;
    }
}

#endif
