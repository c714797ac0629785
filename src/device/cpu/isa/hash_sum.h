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

/* --- tensors beside each other --- */

enum { BESIDE = 1024 }; /* words of a tensor at a time: few enough for the first cache */

/* Stores the numbers of n words' pairs, at most BESIDE, from an even place on. */
INLINE void numbers_from(uint64_t place, int64_t n, uint64_t numbers[BESIDE / 2])
{
    pairs z = steps_from(place);
    for (int64_t i = 0; i + W <= n; i += W) {
        pairs number = numbers_of(z);
        memcpy(numbers + i / 2, &number, sizeof number);
        z += H * CHOIR__HASH_STEP;
    }
}

INLINE pairs halves_exchanged(pairs x)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    return (pairs)_mm256_shuffle_epi32((__m256i)x, 0xb1);
#else
    return x << 32 | x >> 32;
#endif
}

/* Returns other bits than 0 if a word of one of the vectors is a NaN of f32. */
INLINE words with_nan(words a, words b)
{
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
    return (words)_mm512_maskz_set1_epi32(nan, -1);
#elif defined(__AVX2__)
    return (words)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
#else
    return (words)((ivec)(a & 0x7fffffffu) > 0x7f800000) |
           (words)((ivec)(b & 0x7fffffffu) > 0x7f800000);
#endif
}

/* The sums of one tensor's words: of the products' lower halves, and 32 bits of the sum of the
 * upper ones. */
typedef struct beside_sums {
    pairs low;
    words high;
} beside_sums;

/* Adds a vector of words and the next ones, which begin at its second word. */
INLINE void add_neighbours(
    beside_sums *s, words word, words next, pairs number, pairs exchanged)
{
    pairs lower = product((pairs)word, number) + product((pairs)next, exchanged);
#if defined(__AVX2__) || !defined(__SSE2__)
    s->high += word * (words)exchanged;
#else /* SSE2 has no 32-bit product of 32-bit words */
    s->high += (words)(product((pairs)word, exchanged) + product((pairs)next, number));
#endif
    s->low += lower;
}

INLINE uint64_t beside_joined(const beside_sums *s)
{
    uint64_t low = 0;
    uint32_t high = 0;
    for (int j = 0; j < H; j++)
        low += s->low[j];
#if defined(__AVX2__) || !defined(__SSE2__)
    for (int j = 0; j < W; j++)
        high += s->high[j];
#else
    for (int j = 0; j < W; j += 2)
        high += s->high[j];
#endif
    return low + ((uint64_t)high << 32);
}

/* Adds the hashes of n f32, at most BESIDE, of each of `count` tensors, at most 4, whose places
 * are the same: the numbers of the places, from the first even one, are computed before. room:
 * words that a tensor has from here on. ahead: words before they are needed, memory is asked
 * for them; 0: they are in the cache. The words of a tensor are multiplied where they lie, so
 * neither are they moved apart nor is each compared with NaN: a block that has one is done word
 * by word. */
INLINE void add_beside(uint64_t *const *sum, const float *const *x, int count, int64_t n,
    int64_t room, uint64_t place, const uint64_t *numbers, int ahead)
{
    beside_sums sums[4] = {0};
    words nan = {0};
    uint32_t any = 0;
    int64_t first = choir__min(n, (int64_t)(place & 1)), i = first;
    for (; i + W <= n && i + W < room; i += W) {
        pairs number;
        memcpy(&number, numbers + (i - first) / 2, sizeof number);
        pairs exchanged = halves_exchanged(number);
        words word = {0}, next, before;
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) {
            if (ahead)
                __builtin_prefetch(x[t] + i + ahead);
            before = word;
            memcpy(&word, x[t] + i, sizeof word);
            memcpy(&next, x[t] + i + 1, sizeof next);
            add_neighbours(&sums[t], word, next, number, exchanged);
            if (t % 2 || t == count - 1)
                nan |= with_nan(word, t % 2 ? before : word);
        }
    }
    for (int j = 0; j < W; j++)
        any |= nan[j];
    for (int t = 0; t < count; t++) {
        const uint32_t *w = (const uint32_t *)x[t];
        int64_t done = any ? first : i;
        *sum[t] += (any ? 0 : beside_joined(&sums[t])) + sum_few(w, first, place, true) +
                   sum_few(w + done, n - done, place + (uint64_t)done, true);
    }
}

#endif
