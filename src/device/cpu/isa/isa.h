/* One source, three instruction sets. This folder is compiled three times, for baseline, AVX2
 * and AVX-512. This header has all differences between them: `vec`, the widest float vector of
 * the machine (4, 8 or 16 lanes), and a dozen operations on it.
 *
 * Two rules give the same bits everywhere. Element by element, a kernel runs the same
 * operations on a full vector and on the rest of a row, which v_get pads and v_put cuts. Across
 * elements, a sum keeps 16 lanes whatever the width of vec (L vectors, element c in lane c %
 * 16) and joins them in one order (lanes_sum). Fused multiply-add is used only in
 * products, as a named operation (product/fma.h). */
#ifndef CHOIR_ISA_H
#define CHOIR_ISA_H

#include <math.h>
#include <string.h>
#include "device/cpu/ways.h"
#include "device/kernels.h"

#define CHOIR__PASTE_(a, b) a##_##b
#define CHOIR__PASTE(a, b)  CHOIR__PASTE_(a, b)
#define KERNEL(name)        CHOIR__PASTE(choir__cpu_##name, CHOIR_ISA)
#define KERNEL_TABLE        CHOIR__PASTE(choir__cpu_table, CHOIR_ISA)

#define X(name) void KERNEL(name)(const choir__k_##name *args);
CHOIR__KERNEL_LIST(X)
#undef X
extern const choir__kernels KERNEL_TABLE;

/* These compute what oneDNN does not (multiply.c): product/own.c, product/convolution.c. */
void KERNEL(plain_matmul)(const choir__k_matmul *args);
void KERNEL(plain_conv)(const choir__k_conv *args);
void KERNEL(plain_conv_backward_input)(const choir__k_conv_backward_input *args);
void KERNEL(plain_conv_backward_weight)(const choir__k_conv_backward_weight *args);

/* Calls the reference kernel unless the dtype is f32: these kernels compute f32 only. */
#define F32_ONLY(name, args)                                                                   \
    do {                                                                                       \
        if ((args)->dtype != CHOIR_F32) {                                                      \
            CHOIR__BY_REFERENCE(name, args);                                                   \
            return;                                                                            \
        }                                                                                      \
    } while (0)

#define INLINE static inline __attribute__((always_inline))

INLINE bool is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX2__)
#define W 8
#else
#define W 4
#endif
#define L (16 / W)

/* Runs its body for the L vectors of 16 lanes, unrolled so that arrays of vec stay in
 * registers. */
#define LANES(j) _Pragma("GCC unroll 4") for (int j = 0; j < L; j++)

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));

INLINE vec v_load(const float *p)
{
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void v_store(float *p, vec x)
{
    memcpy(p, &x, sizeof x);
}

INLINE vec v_set(float x)
{
    return x - (vec){0};
}

/* v_part: n < W lanes from memory, the others from `rest`; v_cut stores n lanes. v_sel is m ? a
 * : b per lane; v_surpasses is CHOIR__SURPASSES; v_min and v_max return their second operand if
 * either is NaN. v_round rounds |x| < 2^22 to an integer, ties to even. v_ldexp is x 2^n for an
 * integer n, |n| <= 150. */
#if defined(__AVX512F__)
#include <immintrin.h>
typedef __mmask16 mask;

INLINE vec v_part(const float *p, int64_t n, vec rest)
{
    return _mm512_mask_loadu_ps(rest, (__mmask16)((1u << n) - 1), p);
}
INLINE void v_cut(float *p, vec x, int64_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
INLINE mask v_lt(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
INLINE mask v_eq(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
INLINE mask v_surpasses(vec x, vec best)
{
    return _mm512_mask_cmp_ps_mask(
        _mm512_cmp_ps_mask(best, best, _CMP_ORD_Q), x, best, _CMP_NLE_UQ);
}
INLINE vec v_sel(mask m, vec a, vec b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
INLINE bool v_any(mask m)
{
    return m != 0;
}
INLINE vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
INLINE vec v_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}
INLINE vec v_sqrt(vec x)
{
    return _mm512_sqrt_ps(x);
}
INLINE vec v_round(vec x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vec v_ldexp(vec x, vec n)
{
    return _mm512_scalef_ps(x, n);
}
#else
typedef ivec mask;

INLINE vec v_part(const float *p, int64_t n, vec rest)
{
    for (int64_t i = 0; i < n; i++)
        rest[i] = p[i];
    return rest;
}
INLINE void v_cut(float *p, vec x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = x[i];
}
INLINE mask v_lt(vec a, vec b)
{
    return a < b;
}
INLINE mask v_eq(vec a, vec b)
{
    return a == b;
}
INLINE mask v_surpasses(vec x, vec best)
{
    return ~(x <= best) & (best == best);
}
#if defined(__AVX2__)
#include <immintrin.h>
INLINE vec v_sel(mask m, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, (vec)m);
}
INLINE bool v_any(mask m)
{
    return _mm256_movemask_ps((vec)m) != 0;
}
INLINE vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
INLINE vec v_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}
INLINE vec v_sqrt(vec x)
{
    return _mm256_sqrt_ps(x);
}
INLINE vec v_round(vec x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
INLINE vec v_sel(mask m, vec a, vec b)
{
    return (vec)((m & (ivec)a) | (~m & (ivec)b));
}
INLINE bool v_any(mask m)
{
    return (m[0] | m[1] | m[2] | m[3]) != 0;
}
INLINE vec v_round(vec x)
{
    return (x + 0x1.8p23f) - 0x1.8p23f; /* the sum has no bits left for a fraction */
}
#if defined(__SSE2__)
#include <immintrin.h>
INLINE vec v_max(vec a, vec b)
{
    return _mm_max_ps(a, b);
}
INLINE vec v_min(vec a, vec b)
{
    return _mm_min_ps(a, b);
}
INLINE vec v_sqrt(vec x)
{
    return _mm_sqrt_ps(x);
}
#else
INLINE vec v_max(vec a, vec b)
{
    return v_sel(v_lt(b, a), a, b);
}
INLINE vec v_min(vec a, vec b)
{
    return v_sel(v_lt(a, b), a, b);
}
INLINE vec v_sqrt(vec x)
{
    for (int i = 0; i < W; i++)
        x[i] = sqrtf(x[i]);
    return x;
}
#endif
#endif
/* Multiplies by two factors, since 2^-150 is not a float; the first product is exact, the
 * second rounds. */
INLINE vec v_ldexp(vec x, vec n)
{
    ivec whole = __builtin_convertvector(n, ivec), half = whole >> 1;
    return x * (vec)((half + 127) << 23) * (vec)((whole - half + 127) << 23);
}
#endif

INLINE mask v_gt(vec a, vec b)
{
    return v_lt(b, a);
}

INLINE vec v_abs(vec x)
{
    return (vec)((ivec)x & 0x7fffffff);
}

/* Returns the magnitude of x >= 0 with the sign of s. */
INLINE vec v_sign(vec x, vec s)
{
    return (vec)((ivec)x | ((ivec)s & INT32_MIN));
}

/* Loads up to W of the `left` elements at p; lanes beyond them are `rest`. */
INLINE vec v_get_or(const float *p, int64_t left, vec rest)
{
    if (__builtin_expect(left >= W, 1))
        return v_load(p);
    return v_part(p, choir__max(left, 0), rest);
}

INLINE vec v_get(const float *p, int64_t left)
{
    return v_get_or(p, left, (vec){0});
}

INLINE void v_put(float *p, vec x, int64_t left)
{
    if (__builtin_expect(left >= W, 1))
        v_store(p, x);
    else
        v_cut(p, x, choir__max(left, 0));
}

/* Returns x in the first `left` lanes and rest in the others. */
INLINE vec v_keep(vec x, int64_t left, vec rest)
{
    static const float lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (__builtin_expect(left >= W, 1))
        return x;
    return v_sel(v_lt(v_load(lane), v_set((float)choir__max(left, 0))), x, rest);
}

/* The fixed tree over 16 lanes: lane i += i+8, then +4, +2, +1. */
typedef float vec4 __attribute__((vector_size(16)));

INLINE vec4 quarter(const vec *v, int i)
{
    vec4 q;
    memcpy(&q, (const char *)v + i * sizeof q, sizeof q);
    return q;
}

INLINE float lanes_sum(const vec *v)
{
    vec4 t = (quarter(v, 0) + quarter(v, 2)) + (quarter(v, 1) + quarter(v, 3));
    return (t[0] + t[2]) + (t[1] + t[3]);
}

INLINE float max_of(float a, float b)
{
    return a > b ? a : b;
}

INLINE vec4 max4(vec4 a, vec4 b)
{
#if defined(__SSE2__)
    return _mm_max_ps(a, b);
#else
    for (int i = 0; i < 4; i++)
        a[i] = max_of(a[i], b[i]);
    return a;
#endif
}

INLINE float lanes_max(const vec *v)
{
    vec4 t = max4(max4(quarter(v, 0), quarter(v, 2)), max4(quarter(v, 1), quarter(v, 3)));
    return max_of(max_of(t[0], t[2]), max_of(t[1], t[3]));
}

#endif
