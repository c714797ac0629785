/* The values of blocks: the same formulas for processors and GPUs, one value at a time or 16.
 *
 * Whatever the type, 16 values that follow each other share a scale and a minimum: a run. Their
 * codes are some bits of 16 bytes, and of some types the upper bits are in 16 other bytes, or
 * in 16 bits:
 *
 *     code = (low >> shift & mask) | upper bits << place
 *     value = scale * (code - middle) - least
 *
 * A run is found once for all of its values, so vectors (device/cpu/product/runs.h) need no
 * more than the last two lines. Callers pass a constant type, so that compilers know the rest.
 */
#ifndef CHOIR_QUANT_DECODE_H
#define CHOIR_QUANT_DECODE_H

#include <string.h>
#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

#include "base/base.h"
#include "base/quant/quant.h"

enum { CHOIR__RUN = 16 };

typedef struct choir__quant_run {
    float scale, least;
    const uint8_t *low, *high; /* high: 16 bytes with upper bits, or NULL */
    int shift, high_shift;
    uint32_t bits; /* an upper bit for each value, where high is NULL */
} choir__quant_run;

/* How a type's codes are read. `high_mask` 0: a code has no upper bits. */
typedef struct choir__quant_codes {
    int mask, high_mask, place, middle;
    bool least; /* values have a minimum */
} choir__quant_codes;

CHOIR__BOTH static inline float choir__quant_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* f16 (two bytes at any address) as f32; base/half.h has it for processors alone. */
CHOIR__BOTH static inline float choir__quant_scale(const uint8_t *at)
{
    uint32_t half = at[0] | (uint32_t)at[1] << 8;
#if defined(__F16C__) && !defined(__CUDACC__)
    return _cvtsh_ss((uint16_t)half);
#else
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu,
             fraction = half & 0x3ffu;
    float normal = choir__quant_f32_of_bits(
        sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return exponent ? normal : sign ? -small : small;
#endif
}

/* The scale or minimum number j of a block of q4_K or q5_K, of 6 bits: 8 scales and 8 minima
 * share 12 bytes; the upper bits of the last four pairs are in the first eight. */
CHOIR__BOTH static inline uint32_t choir__quant_six_bits(const uint8_t *of, int j, bool minimum)
{
    const int at = minimum ? 4 : 0;
    if (j < 4)
        return of[at + j] & 63u;
    return (minimum ? of[j + 4] >> 4 : of[j + 4] & 15u) | (uint32_t)(of[at + j - 4] >> 6) << 4;
}

CHOIR__BOTH static inline choir__quant_codes choir__quant_codes_of(choir__quant type)
{
    choir__quant_codes c = {15, 0, 4, 0, false};
    switch (type) {
    case CHOIR__Q8_0: c.mask = 255; break; /* a code is a signed byte */
    case CHOIR__Q4_0: c.middle = 8; break;
    case CHOIR__Q4_1:
    case CHOIR__Q4_K: c.least = true; break;
    case CHOIR__Q5_0:
        c.high_mask = 1;
        c.middle = 16;
        break;
    case CHOIR__Q5_1:
    case CHOIR__Q5_K:
        c.high_mask = 1;
        c.least = true;
        break;
    case CHOIR__Q6_K:
        c.high_mask = 3;
        c.middle = 32;
        break;
    case CHOIR__Q2_K:
        c.mask = 3;
        c.least = true;
        break;
    case CHOIR__Q3_K:
        c.mask = 3;
        c.high_mask = 1;
        c.place = 2;
        c.middle = 4;
        break;
    default: break;
    }
    return c;
}

/* Returns run r of a block of 32 values: its bytes have the lower halves of run 0, and the
 * upper halves of run 1. q4_1 and q5_1 add their minimum, which is the same as to subtract
 * -minimum. */
CHOIR__BOTH static inline choir__quant_run choir__quant_run_of_32(
    choir__quant type, const uint8_t *b, int r)
{
    choir__quant_run run = {choir__quant_scale(b), 0, b + 2, NULL, 4 * r, 0, 0};
    if (type == CHOIR__Q8_0) {
        run.low = b + 2 + CHOIR__RUN * r;
        run.shift = 0;
    }
    if (type == CHOIR__Q4_1 || type == CHOIR__Q5_1) {
        run.least = -choir__quant_scale(b + 2);
        run.low += 2;
    }
    if (type == CHOIR__Q5_0 || type == CHOIR__Q5_1) {
        run.bits = run.low[2 * r] | (uint32_t)run.low[2 * r + 1] << 8;
        run.low += 4;
    }
    return run;
}

/* Returns run r of a block of 256 values. */
CHOIR__BOTH static inline choir__quant_run choir__quant_run_of_256(
    choir__quant type, const uint8_t *b, int r)
{
    choir__quant_run run = {0, 0, NULL, NULL, 0, 0, 0};
    const int part = CHOIR__RUN * (r & 1), pair = r >> 1, half = r >> 3;
    switch (type) {
    case CHOIR__Q4_K:
    case CHOIR__Q5_K: /* pairs of runs share a scale; two pairs share 32 bytes */
        run.scale = choir__quant_scale(b) * (float)choir__quant_six_bits(b + 4, pair, false);
        run.least = choir__quant_scale(b + 2) * (float)choir__quant_six_bits(b + 4, pair, true);
        run.low = b + (type == CHOIR__Q4_K ? 16 : 48) + 32 * (pair >> 1) + part;
        run.shift = 4 * (pair & 1);
        run.high = b + 16 + part; /* q5_K alone reads it */
        run.high_shift = pair;
        break;
    case CHOIR__Q6_K: /* halves of 128: four pairs of runs share 64 + 32 bytes */
        run.scale = choir__quant_scale(b + 208) * (float)(int8_t)b[192 + r];
        run.low = b + 64 * half + 32 * (pair & 1) + part;
        run.shift = 4 * (pair >> 1 & 1);
        run.high = b + 128 + 32 * half + part;
        run.high_shift = 2 * (pair & 3);
        break;
    case CHOIR__Q2_K: /* halves of 128: four pairs of runs share 32 bytes */
        run.scale = choir__quant_scale(b + 80) * (float)(b[r] & 15);
        run.least = choir__quant_scale(b + 82) * (float)(b[r] >> 4);
        run.low = b + 16 + 32 * half + part;
        run.shift = 2 * (pair & 3);
        break;
    case CHOIR__Q3_K: { /* the same; all eight pairs share 32 bytes of upper bits */
        const uint8_t *scales = b + 96;
        const int scale =
            (scales[r & 7] >> 4 * half & 15) | (scales[8 + (r & 3)] >> 2 * (r >> 2) & 3) << 4;
        run.scale = choir__quant_scale(b + 108) * (float)(scale - 32);
        run.low = b + 32 + 32 * half + part;
        run.shift = 2 * (pair & 3);
        run.high = b + part;
        run.high_shift = pair;
        break;
    }
    default: break;
    }
    return run;
}

/* Returns run r of a block, which has several values. */
CHOIR__BOTH static inline choir__quant_run choir__quant_run_of(
    choir__quant type, const uint8_t *b, int r)
{
    switch (type) {
    case CHOIR__Q2_K:
    case CHOIR__Q3_K:
    case CHOIR__Q4_K:
    case CHOIR__Q5_K:
    case CHOIR__Q6_K: return choir__quant_run_of_256(type, b, r);
    default: return choir__quant_run_of_32(type, b, r);
    }
}

/* Returns value i of a run. */
CHOIR__BOTH static inline float choir__quant_in_run(
    choir__quant type, const choir__quant_run *run, int i)
{
    const choir__quant_codes c = choir__quant_codes_of(type);
    int code = run->low[i] >> run->shift & c.mask;
    if (type == CHOIR__Q8_0)
        code = (int8_t)run->low[i];
    else if (c.high_mask)
        code |= (run->high ? run->high[i] >> run->high_shift & c.high_mask
                           : (int)(run->bits >> i & 1))
                << c.place;
    const float value = run->scale * (float)(code - c.middle);
    return c.least ? value - run->least : value;
}

/* Returns element i of a block. */
CHOIR__BOTH static inline float choir__quant_value(choir__quant type, const uint8_t *b, int i)
{
    uint32_t bits = 0;
    switch (type) {
    case CHOIR__F32: memcpy(&bits, b, sizeof bits); return choir__quant_f32_of_bits(bits);
    case CHOIR__F16: return choir__quant_scale(b);
    case CHOIR__BF16: return choir__quant_f32_of_bits(((uint32_t)b[1] << 8 | b[0]) << 16);
    default: break;
    }
    const choir__quant_run run = choir__quant_run_of(type, b, i / CHOIR__RUN);
    return choir__quant_in_run(type, &run, i % CHOIR__RUN);
}

#ifndef __cplusplus

/* Writes a whole block of several values. */
static inline void choir__quant_block(const choir__quant type, float *y, const uint8_t *b)
{
    const int runs = (int)choir__quant_types[type].values / CHOIR__RUN;
    for (int r = 0; r < runs; r++, y += CHOIR__RUN) {
        const choir__quant_run run = choir__quant_run_of(type, b, r);
        for (int i = 0; i < CHOIR__RUN; i++)
            y[i] = choir__quant_in_run(type, &run, i);
    }
}

#endif
#endif
