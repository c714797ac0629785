/* Dropout: the rounds of Philox run on a vector of counters, one a 64-bit lane, where the
 * products live; only a lane's lower half means anything until the end. Lane l has counter (l /
 * 2) + (l % 2) W/4, so that pairing the words up leaves them in the order of the elements. */
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

/* The words of W/2 counters from lo on: those of W elements, and of the next W. */
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

void KERNEL(dropout)(const choir__k_dropout *k)
{
    F32_ONLY(dropout, k);
    const float *x = k->x;
    float *y = k->y, scale = 1.0f / (1.0f - k->p);
    vec least = v_set(k->p * 0x1p24f); /* unit(word) >= p, both sides times 2^24: exact */
    uint64_t step = *k->step;
    for (int64_t i = 0; i < k->n; i += 2 * W) {
        ivec words[2];
        philox(k->key, step, (uint64_t)i / 4, words);
        for (int j = 0; j < 2; j++) {
            int64_t at = i + j * W, left = k->n - at;
            vec unit = __builtin_convertvector(words[j] >> 8 & 0xffffff, vec);
            vec kept = v_get(x + at, left) * scale;
            v_put(y + at, v_sel(v_lt(unit, least), (vec){0}, kept), left);
        }
    }
}

/* Once a parameter, in f64: not worth a second implementation. */
void KERNEL(random)(const choir__k_random *k)
{
    choir__cpu_reference.random(k);
}
