/* Vectors of bf16 and f16: widened to f32, which is exact, and rounded from it. */
#ifndef CHOIR_PRODUCT_HALF_VECTORS_H
#define CHOIR_PRODUCT_HALF_VECTORS_H

#include "base/half.h"
#include "device/cpu/isa/isa.h"

/* W elements of 16 bits, widened. */
INLINE vec widened(const uint16_t *from, const bool bf16)
{
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    typedef uint32_t uvec __attribute__((vector_size(4 * W)));
    halves x;
    memcpy(&x, from, sizeof x);
    if (bf16)
        return (vec)(__builtin_convertvector(x, uvec) << 16);
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps((__m256i)x);
#elif defined(__AVX2__)
    return (vec)_mm256_cvtph_ps((__m128i)x);
#else
    vec y;
    for (int i = 0; i < W; i++)
        y[i] = choir__f32_from_f16(x[i]);
    return y;
#endif
}

/* The first or the second of two 16-bit elements in each lane, widened. */
INLINE vec half_of(vec pairs, const bool second, const bool bf16)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * W)));
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    const uvec bits = (uvec)pairs;
    if (bf16)
        return (vec)(second ? bits & 0xffff0000 : bits << 16);
    const halves x = __builtin_convertvector(second ? bits >> 16 : bits & 0xffff, halves);
    return widened((const uint16_t *)&x, false);
}

/* Rounds sums to 16 bits, as choir__bf16_from_f32 and choir__f16_from_f32 do. */
INLINE void round_vector(uint16_t *c, vec x, const bool bf16)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * W)));
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    const uvec bits = (uvec)x, up = bits + 0x7fff + (bits >> 16 & 1);
    const uvec nan = (uvec)((ivec)(bits & 0x7fffffff) > 0x7f800000);
    const halves y =
        __builtin_convertvector(((nan & (bits | 0x400000)) | (~nan & up)) >> 16, halves);
    if (bf16) {
        memcpy(c, &y, sizeof y);
        return;
    }
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)c, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)(void *)c, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < W; i++)
        c[i] = choir__f16_from_f32(x[i]);
#endif
}

#endif
