/* Values of blocks of few bits, 16 at a time in vectors: base/quant/decode.h's formula,
 * operation by operation, so with its bits.
 *
 *     16 bytes of codes -> the codes of a run, less their middle, as signed bytes
 *                       -> f32, times the run's scale, less its minimum
 */
#ifndef CHOIR_PRODUCT_RUNS_H
#define CHOIR_PRODUCT_RUNS_H

#include "base/half.h"
#include "base/quant/decode.h"
#include "device/cpu/isa/isa.h"

enum { RUN = CHOIR__RUN };

typedef uint8_t run_bytes __attribute__((vector_size(RUN)));
typedef int8_t run_codes __attribute__((vector_size(RUN)));

INLINE run_bytes bytes_at(const uint8_t *from)
{
    run_bytes x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE run_bytes all_bytes(int x)
{
    return (run_bytes){0} + (uint8_t)x;
}

/* A byte of `one` for each bit that is set. */
INLINE run_bytes bytes_of_bits(uint32_t bits, int one)
{
    const uint64_t low = UINT64_C(0x0101010101010101) * (bits & 255),
                   high = UINT64_C(0x0101010101010101) * (bits >> 8 & 255);
    const uint64_t both[2] = {low, high};
    const run_bytes each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return (run_bytes)((bytes_at((const uint8_t *)both) & each) == each) & all_bytes(one);
}

INLINE run_codes codes_in(const choir__quant type, const choir__quant_run *r)
{
    const choir__quant_codes c = choir__quant_codes_of(type);
    run_bytes code = bytes_at(r->low);
    if (type == CHOIR__Q8_0)
        return (run_codes)code;
    code = code >> r->shift & all_bytes(c.mask);
    if (c.high_mask)
        code |= r->high
                    ? (bytes_at(r->high) >> r->high_shift & all_bytes(c.high_mask)) << c.place
                    : bytes_of_bits(r->bits, 1 << c.place);
    return (run_codes)(code - all_bytes(c.middle));
}

/* Writes the codes of a run as f32. */
INLINE void widen_codes(vec y[L], run_codes codes)
{
#if defined(__AVX512F__)
    y[0] = (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
#elif defined(__AVX2__)
    const __m128i all = (__m128i)codes;
    y[0] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all));
    y[1] = (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(all, 8)));
#else
    float wide[RUN];
    int8_t narrow[RUN];
    memcpy(narrow, &codes, sizeof narrow);
    for (int i = 0; i < RUN; i++)
        wide[i] = (float)narrow[i];
    LANES(j) y[j] = v_load(wide + j * W);
#endif
}

/* Writes run r of a block. */
INLINE void expand_run(const choir__quant type, float *y, const uint8_t *b, int r)
{
    const choir__quant_run run = choir__quant_run_of(type, b, r);
    vec code[L];
    widen_codes(code, codes_in(type, &run));
    LANES(j)
    {
        vec value = v_set(run.scale) * code[j];
        if (choir__quant_codes_of(type).least)
            value = value - v_set(run.least);
        v_store(y + j * W, value);
    }
}

/* Writes runs [first, first + n) of a row. */
INLINE void expand_runs_as(
    const choir__quant type, float *y, const uint8_t *row, int64_t first, int64_t n)
{
    const int each = (int)choir__quant_types[type].values / RUN;
    const int64_t bytes = choir__quant_types[type].bytes;
    const uint8_t *b = row + first / each * bytes;
    int r = (int)(first % each);
    for (; n > 0; n--, y += RUN) {
        expand_run(type, y, b, r);
        if (++r == each) {
            r = 0;
            b += bytes;
        }
    }
}

/* The types with blocks. */
#define EACH_BLOCKS(X)                                                                         \
    X(Q8_0) X(Q4_0) X(Q5_0) X(Q4_K) X(Q6_K) X(Q4_1) X(Q5_1) X(Q2_K) X(Q3_K) X(Q5_K)

#define EXPAND_RUNS(type)                                                                      \
    static void expand_runs_##type(float *y, const uint8_t *row, int64_t first, int64_t n)     \
    {                                                                                          \
        expand_runs_as(CHOIR__##type, y, row, first, n);                                       \
    }
EACH_BLOCKS(EXPAND_RUNS)

/* Writes runs [first, first + n) of a row of blocks. */
static void expand_runs(
    choir__quant type, float *y, const uint8_t *row, int64_t first, int64_t n)
{
    switch (type) {
#define EXPAND_CASE(type)                                                                      \
    case CHOIR__##type: expand_runs_##type(y, row, first, n); break;
        EACH_BLOCKS(EXPAND_CASE)
    default: break; /* a type of single values */
    }
}

#endif
