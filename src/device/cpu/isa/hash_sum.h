/* The hash of words, a vector at a time: what hash.c does for tensors alone, and optim.c in the
 * pass of a step, for the tensors of one entry beside each other.
 *
 * A vector has W words, or W / 2 pairs of neighbours. The pairs' numbers
 * are computed beside them: multiples of the pairs' places, which grow by one addition per
 * vector, and the product of their halves. A word times a number is two products of 32 bits,
 * for which the words stay where they are; the sums of both are joined at the end of a row.
 *
 * With the halves of two words, a and b, and of their numbers, l and h, the sum's lower half is
 * al + bh, and its upper half ah + bl = (a + b) (l + h) - (al + bh), and 32 bits of it count:
 * three products serve two words. */
#ifndef CHOIR_ISA_HASH_SUM_H
#define CHOIR_ISA_HASH_SUM_H

#include "device/cpu/isa/isa.h"

enum { H = W / 2 };

typedef uint64_t pairs __attribute__((vector_size(4 * W)));
typedef uint32_t words __attribute__((vector_size(4 * W)));

/* Returns the products of the lower 32 bits. */
INLINE pairs product(pairs a, pairs b)
{
#if defined(__AVX512F__)
    return (pairs)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (pairs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (pairs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT64_C(0xffffffff)) * (b & UINT64_C(0xffffffff));
#endif
}

/* choir__hash_pair, given the places' multiples of CHOIR__HASH_STEP. */
INLINE pairs numbers_of(pairs z)
{
    z ^= z >> 32;
    z += product(z, z >> 32);
    return (z ^ z >> 32) | UINT64_C(0x100000001);
}

/* Replaces each NaN of f32. */
INLINE words one_nan(words x)
{
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (words)_mm512_mask_mov_epi32((__m512i)x, nan, _mm512_set1_epi32(0x7fc00000));
#elif defined(__AVX2__)
    __m256 nan = _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q);
    return (words)_mm256_blendv_ps((__m256)x, (__m256)_mm256_set1_epi32(0x7fc00000), nan);
#else
    words nan = (words)((ivec)(x & 0x7fffffffu) > 0x7f800000);
    return (x & ~nan) | (nan & 0x7fc00000u);
#endif
}

INLINE pairs load_pairs(const uint32_t *x, bool floats)
{
    words word;
    memcpy(&word, x, sizeof word);
    return (pairs)(floats ? one_nan(word) : word);
}

/* The sums of one tensor's words: of the lower halves, and of both. */
typedef struct hash_sums {
    pairs low, both;
} hash_sums;

/* Adds a vector of words; above: the numbers' upper halves. */
INLINE void add_words(hash_sums *s, pairs word, pairs number, pairs above)
{
    pairs upper = word >> 32;
    s->low += product(word, number) + product(upper, above);
    s->both += product(word + upper, number + above);
}

INLINE uint64_t joined(const hash_sums *s)
{
    pairs all = s->low + ((s->both - s->low) << 32);
    uint64_t sum = 0;
    for (int j = 0; j < H; j++)
        sum += all[j];
    return sum;
}

/* Returns the multiples of CHOIR__HASH_STEP of the pairs from an even place on. */
INLINE pairs steps_from(uint64_t place)
{
    pairs z = {0};
    for (int j = 0; j < H; j++)
        z[j] = (place / 2 + (uint64_t)j + 1) * CHOIR__HASH_STEP;
    return z;
}

/* Returns the hash of n words one by one. */
INLINE uint64_t sum_few(const uint32_t *x, int64_t n, uint64_t place, bool floats)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += choir__hash_element(x + i, floats ? CHOIR_F32 : CHOIR_I32, place + (uint64_t)i);
    return sum;
}

/* Adds the hashes of n f32 of each of `count` tensors, at most 4, whose places are the same:
 * the numbers of the places are computed once. ahead: words before they are needed, memory is
 * asked for them; 0: they are in the cache. */
INLINE void add_beside(uint64_t *const *sum, const float *const *x, int count, int64_t n,
    uint64_t place, int ahead)
{
    hash_sums sums[4] = {0};
    int64_t i = choir__min(n, (int64_t)(place & 1)), first = i;
    for (pairs z = steps_from(place + (uint64_t)i); i + W <= n; i += W) {
        pairs number = numbers_of(z), above = number >> 32;
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) {
            if (ahead)
                __builtin_prefetch(x[t] + i + ahead);
            add_words(&sums[t], load_pairs((const uint32_t *)x[t] + i, true), number, above);
        }
        z += H * CHOIR__HASH_STEP;
    }
    for (int t = 0; t < count; t++) {
        const uint32_t *w = (const uint32_t *)x[t];
        *sum[t] += joined(&sums[t]) + sum_few(w, first, place, true) +
                   sum_few(w + i, n - i, place + (uint64_t)i, true);
    }
}

#endif
