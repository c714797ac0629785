/* Philox on vectors. The rounds run on a vector of counters, one per 64-bit lane, which has
 * room for the products; until the end only a lane's lower half is meaningful. Lane l has
 * counter (l / 2) + (l % 2) W/4, so that combining pairs of words leaves them in the order of
 * the elements. */
#ifndef CHOIR_ISA_PHILOX_H
#define CHOIR_ISA_PHILOX_H

#include "base/rng.h"
#include "device/cpu/isa/isa.h"

typedef uint64_t lvec __attribute__((vector_size(4 * W)));

/* The product of the lanes' lower halves, and the even or odd lanes of a and b side by side. */
#if defined(__AVX512F__)
INLINE lvec l_mul(lvec a, lvec b)
{
    return (lvec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
INLINE lvec l_mul(lvec a, lvec b)
{
    return (lvec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
#else
INLINE lvec l_mul(lvec a, lvec b)
{
#if defined(__SSE2__)
    return (lvec)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec){a[0], b[0]};
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec){a[1], b[1]};
}
#endif

/* Computes the words of W/2 counters from lo on: the words of W elements, and of the next W
 * elements. */
INLINE void philox(uint64_t key, uint64_t hi, uint64_t lo, ivec words[2])
{
    lvec counter;
    for (int l = 0; l < W / 2; l++)
        counter[l] = lo + (uint64_t)(l / 2 + l % 2 * (W / 4));
    lvec zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    lvec c0 = counter, c1 = counter >> 32, c2 = zero + hi, c3 = zero + (hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        lvec p0 = l_mul(c0, m0), p1 = l_mul(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    lvec low = (c0 & 0xffffffff) | c1 << 32, high = (c2 & 0xffffffff) | c3 << 32;
    words[0] = (ivec)l_even(low, high);
    words[1] = (ivec)l_odd(low, high);
}

/* Converts words to numbers in [0, 1), as choir__unit. */
INLINE vec v_unit(ivec words)
{
    return __builtin_convertvector(words >> 8 & 0xffffff, vec) * 0x1p-24f;
}

#endif
