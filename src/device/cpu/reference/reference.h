/* The slow, simple kernels: an oracle for the fast ones, and the only kernels for f64.
 *
 * Each is the formula of device/kernels.h written as plain loops. Elements of any dtype are
 * read with get() and written with put(); in between everything is a double, and sums run in
 * index order. Nothing here is tuned: if a fast kernel and its reference disagree, the
 * reference should be the one that can be checked by reading it. */
#ifndef CHOIR_REFERENCE_H
#define CHOIR_REFERENCE_H

#include <math.h>
#include "base/half.h"
#include "base/math/functions.h"
#include "device/kernels.h"

#define X(name) void choir__reference_##name(const choir__k_##name *args);
CHOIR__KERNEL_LIST(X)
#undef X

static inline bool is_integer(choir_dtype dtype)
{
    return dtype == CHOIR_I64 || dtype == CHOIR_I32 || dtype == CHOIR_U8 || dtype == CHOIR_BOOL;
}

/* Reads an integer without conversion: a double would lose bits of an i64. */
static inline int64_t get_integer(const void *p, int64_t i, choir_dtype dtype)
{
    switch (dtype) {
    case CHOIR_I64: return ((const int64_t *)p)[i];
    case CHOIR_I32: return ((const int32_t *)p)[i];
    case CHOIR_U8: return ((const uint8_t *)p)[i];
    case CHOIR_BOOL: return ((const uint8_t *)p)[i] != 0;
    default: return 0;
    }
}

static inline void put_integer(void *p, int64_t i, choir_dtype dtype, int64_t value)
{
    switch (dtype) {
    case CHOIR_I64: ((int64_t *)p)[i] = value; break;
    case CHOIR_I32: ((int32_t *)p)[i] = (int32_t)value; break;
    case CHOIR_U8: ((uint8_t *)p)[i] = (uint8_t)value; break;
    case CHOIR_BOOL: ((uint8_t *)p)[i] = value != 0; break;
    default: break;
    }
}

static inline double get(const void *p, int64_t i, choir_dtype dtype)
{
    switch (dtype) {
    case CHOIR_F32: return ((const float *)p)[i];
    case CHOIR_F64: return ((const double *)p)[i];
    case CHOIR_BF16: return choir__f32_from_bf16(((const uint16_t *)p)[i]);
    case CHOIR_F16: return choir__f32_from_f16(((const uint16_t *)p)[i]);
    default: return (double)get_integer(p, i, dtype);
    }
}

/* Truncates towards zero. Values that do not fit the dtype, undefined in C, saturate; NaN gives
 * 0. */
static inline int64_t truncated(double value, choir_dtype dtype)
{
    int64_t least = dtype == CHOIR_I64 ? INT64_MIN : dtype == CHOIR_I32 ? INT32_MIN : 0;
    int64_t most = dtype == CHOIR_I64 ? INT64_MAX : dtype == CHOIR_I32 ? INT32_MAX : UINT8_MAX;
    if (isnan(value))
        return 0;
    if (value >= (double)most) /* 2^63 for i64, which does not fit */
        return most;
    return value <= (double)least ? least : (int64_t)value;
}

/* Writes one element. The 16-bit types are rounded from f32, as in a kernel that computes in
 * f32. */
static inline void put(void *p, int64_t i, choir_dtype dtype, double value)
{
    switch (dtype) {
    case CHOIR_F32: ((float *)p)[i] = (float)value; break;
    case CHOIR_F64: ((double *)p)[i] = value; break;
    case CHOIR_BF16: ((uint16_t *)p)[i] = choir__bf16_from_f32((float)value); break;
    case CHOIR_F16: ((uint16_t *)p)[i] = choir__f16_from_f32((float)value); break;
    case CHOIR_BOOL: ((uint8_t *)p)[i] = value != 0; break;
    default: put_integer(p, i, dtype, truncated(value, dtype)); break;
    }
}

/* Returns the type of weights and statistics for operands of dtype: f32 for 16 bits. */
static inline choir_dtype wide_dtype(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16 ? CHOIR_F32 : dtype;
}

/* Reads an optional operand; returns `otherwise` if it is not given. */
static inline double get_or(const void *p, int64_t i, choir_dtype dtype, double otherwise)
{
    return p ? get(p, i, dtype) : otherwise;
}

/* Returns the number of leaves in the left branch of the fixed tree over n >= 2 leaves: the
 * largest power of two below n. */
static inline int64_t left_leaves(int64_t n)
{
    int64_t left = 1;
    while (2 * left < n)
        left *= 2;
    return left;
}

/* Returns the sum of n leaves in the fixed tree, each rounded to dtype. */
static inline double sum_of_leaves(const double *leaf, int64_t n, choir_dtype dtype)
{
    if (n > 1) {
        int64_t left = left_leaves(n);
        return sum_of_leaves(leaf, left, dtype) + sum_of_leaves(leaf + left, n - left, dtype);
    }
    return dtype == CHOIR_F64 ? leaf[0] : (double)(float)leaf[0];
}

/* Advances an index over shape in row-major order; returns false after the last one. */
static inline bool next_index(int64_t *index, const int64_t *shape, int ndim)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++index[d] < shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static inline bool is_empty(const int64_t *shape, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (shape[d] <= 0)
            return true;
    return false;
}

static inline int64_t offset_of(const choir__strided *operand, const int64_t *index, int ndim)
{
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++)
        offset += index[d] * operand->stride[d];
    return offset;
}

#endif
