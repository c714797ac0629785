/* Fused multiply-adds, which products alone use: each term of a sum is one of them.
 *
 * v_fma is x y + sum with one rounding, on every processor: by an instruction where the
 * instruction set has it, else in software, which is slow. */
#ifndef CHOIR_PRODUCT_FMA_H
#define CHOIR_PRODUCT_FMA_H

#include "device/cpu/isa/isa.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
INLINE vec v_fma(vec x, vec y, vec sum)
{
    return _mm512_fmadd_ps(x, y, sum);
}
#elif defined(__AVX2__)
INLINE vec v_fma(vec x, vec y, vec sum)
{
    return _mm256_fmadd_ps(x, y, sum);
}
#elif defined(__aarch64__)
INLINE vec v_fma(vec x, vec y, vec sum)
{
    return (vec)vfmaq_f32((float32x4_t)sum, (float32x4_t)x, (float32x4_t)y);
}
#else
typedef double doubles __attribute__((vector_size(8 * W)));
typedef int64_t longs __attribute__((vector_size(8 * W)));

/* The product of two floats is exact as a double. Its sum with a third is rounded to odd: if it
 * is not exact, its last bit becomes 1, by a step towards the exact value (Boldo and Melquiond,
 * 2008). So the second rounding, to float, sees on which side of a tie the exact value is. */
INLINE vec v_fma(vec x, vec y, vec sum)
{
    doubles p = __builtin_convertvector(x, doubles) * __builtin_convertvector(y, doubles);
    doubles c = __builtin_convertvector(sum, doubles), s = p + c, part = s - p;
    doubles lost = (p - (s - part)) + (c - part); /* NaN beside infinities */
    longs bits = (longs)s, below = lost < 0.0, inexact = below | (lost > 0.0);
    longs away = below ^ (s < 0.0), even = (bits & 1) - 1;
    return __builtin_convertvector((doubles)(bits + (inexact & even & (away | 1))), vec);
}
#endif

#endif
