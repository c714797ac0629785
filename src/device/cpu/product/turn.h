/* Transposes blocks of 32-bit elements: 4 k of as many entries as a vector has lanes. */
#ifndef CHOIR_PRODUCT_TURN_H
#define CHOIR_PRODUCT_TURN_H

#include "device/cpu/isa/isa.h"

/* Lanes of a and b in turn, within each group of four lanes: MIX_LOW has lanes 0 and 1 of the
 * group, MIX_HIGH 2 and 3; PAIR_LOW and PAIR_HIGH move two lanes at once. */
#if defined(__AVX512F__)
#define MIX_LOW(a, b)   _mm512_unpacklo_ps(a, b)
#define MIX_HIGH(a, b)  _mm512_unpackhi_ps(a, b)
#define PAIR_LOW(a, b)  (vec) _mm512_unpacklo_pd((__m512d)(a), (__m512d)(b))
#define PAIR_HIGH(a, b) (vec) _mm512_unpackhi_pd((__m512d)(a), (__m512d)(b))
#elif defined(__AVX2__)
#define MIX_LOW(a, b)   _mm256_unpacklo_ps(a, b)
#define MIX_HIGH(a, b)  _mm256_unpackhi_ps(a, b)
#define PAIR_LOW(a, b)  (vec) _mm256_unpacklo_pd((__m256d)(a), (__m256d)(b))
#define PAIR_HIGH(a, b) (vec) _mm256_unpackhi_pd((__m256d)(a), (__m256d)(b))
#else
#ifdef __clang__
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (ivec){i, j, k, l})
#endif
#define MIX_LOW(a, b)   MIX(a, b, 0, 4, 1, 5)
#define MIX_HIGH(a, b)  MIX(a, b, 2, 6, 3, 7)
#define PAIR_LOW(a, b)  MIX(a, b, 0, 1, 4, 5)
#define PAIR_HIGH(a, b) MIX(a, b, 2, 3, 6, 7)
#endif

/* Four elements of each of W / 4 entries, which are `apart` bytes from each other. */
INLINE vec quarters(const char *from, int64_t apart)
{
#if defined(__AVX512F__)
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float *)from));
    x = _mm512_mask_broadcast_f32x4(x, 0x00f0, _mm_loadu_ps((const float *)(from + apart)));
    x = _mm512_mask_broadcast_f32x4(x, 0x0f00, _mm_loadu_ps((const float *)(from + 2 * apart)));
    return _mm512_mask_broadcast_f32x4(
        x, 0xf000, _mm_loadu_ps((const float *)(from + 3 * apart)));
#elif defined(__AVX2__)
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)from)),
        _mm_loadu_ps((const float *)(from + apart)), 1);
#else
    (void)apart;
    return v_load((const float *)from);
#endif
}

/* y = 4 k of W entries: the transpose of from (W entries, 4 k); `apart`: bytes from one entry
 * to the next. Bits move as they are. */
INLINE void turned_of(vec y[4], const void *from, int64_t apart)
{
    vec r[4], low[2], high[2];
    for (int i = 0; i < 4; i++) /* entries i, 4 + i, ... */
        r[i] = quarters((const char *)from + i * apart, 4 * apart);
    for (int i = 0; i < 2; i++) { /* k 0, 1 and 2, 3 of entries 2 i and 2 i + 1 */
        low[i] = MIX_LOW(r[2 * i], r[2 * i + 1]);
        high[i] = MIX_HIGH(r[2 * i], r[2 * i + 1]);
    }
    y[0] = PAIR_LOW(low[0], low[1]);
    y[1] = PAIR_HIGH(low[0], low[1]);
    y[2] = PAIR_LOW(high[0], high[1]);
    y[3] = PAIR_HIGH(high[0], high[1]);
}

/* to (4 k, W of `each` entries) = the same; `each`: 32-bit elements from one k to the next. */
INLINE void turn(void *to, int64_t each, const void *from, int64_t apart)
{
    vec y[4];
    turned_of(y, from, apart);
    for (int k = 0; k < 4; k++)
        v_store((float *)to + k * each, y[k]);
}

#if defined(__AVX512F__)
enum { TURNS_LINES = 1 };

/* As turn does, but for 16 k, and `apart` counts elements. Each line of a cache is loaded once.
 * Entries that are a power of two from each other share few sets of a cache, and would drive
 * one another out. */
INLINE void turn_lines(float *to, int64_t each, const float *from, int64_t apart)
{
    vec r[16], x[16];
    for (int i = 0; i < 16; i++)
        r[i] = v_load(from + i * apart);
    /* lane group j of x[i + l] has k 4 j + l of entries i to i + 3 */
    for (int i = 0; i < 16; i += 4) {
        const vec low[2] = {MIX_LOW(r[i], r[i + 1]), MIX_LOW(r[i + 2], r[i + 3])};
        const vec high[2] = {MIX_HIGH(r[i], r[i + 1]), MIX_HIGH(r[i + 2], r[i + 3])};
        x[i] = PAIR_LOW(low[0], low[1]);
        x[i + 1] = PAIR_HIGH(low[0], low[1]);
        x[i + 2] = PAIR_LOW(high[0], high[1]);
        x[i + 3] = PAIR_HIGH(high[0], high[1]);
    }
    for (int l = 0; l < 4; l++) { /* lane groups of four vectors, as a matrix, are turned */
        const vec a = _mm512_shuffle_f32x4(x[l], x[4 + l], 0x44),
                  b = _mm512_shuffle_f32x4(x[8 + l], x[12 + l], 0x44),
                  c = _mm512_shuffle_f32x4(x[l], x[4 + l], 0xee),
                  d = _mm512_shuffle_f32x4(x[8 + l], x[12 + l], 0xee);
        v_store(to + l * each, _mm512_shuffle_f32x4(a, b, 0x88));
        v_store(to + (4 + l) * each, _mm512_shuffle_f32x4(a, b, 0xdd));
        v_store(to + (8 + l) * each, _mm512_shuffle_f32x4(c, d, 0x88));
        v_store(to + (12 + l) * each, _mm512_shuffle_f32x4(c, d, 0xdd));
    }
}
#else
enum { TURNS_LINES = 0 };

INLINE void turn_lines(float *to, int64_t each, const float *from, int64_t apart)
{
    (void)to, (void)each, (void)from, (void)apart;
}
#endif

/* As turn does, but for four entries, and `apart` counts elements. */
INLINE void turn4(float *to, int64_t each, const float *from, int64_t apart)
{
    vec4 r[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], from + i * apart, sizeof r[i]);
    for (int k = 0; k < 4; k++) {
        const vec4 entries = {r[0][k], r[1][k], r[2][k], r[3][k]};
        memcpy(to + k * each, &entries, sizeof entries);
    }
}

#endif
