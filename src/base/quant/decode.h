/* The value of one element, and of a run: the same formulas for processors and GPUs.
 *
 * Loops call choir__quant_value with a constant type and constant halves of a block, so that
 * compilers take what belongs to the block out of the loop and use vectors. */
#ifndef CHOIR_QUANT_DECODE_H
#define CHOIR_QUANT_DECODE_H

#include <string.h>

#include "base/base.h"
#include "base/quant/quant.h"

CHOIR__BOTH static inline float choir__quant_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* f16 (two bytes at any address) as f32; base/half.h has it for processors alone. */
CHOIR__BOTH static inline float choir__quant_scale(const uint8_t *at)
{
    uint32_t half = at[0] | (uint32_t)at[1] << 8, sign = (half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    float normal = choir__quant_f32_of_bits(
        sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return exponent ? normal : sign ? -small : small;
}

/* The scale or minimum number j of a block of q4_K, of 6 bits: 8 scales and 8 minima share 12
 * bytes; the upper bits of the last four pairs are in the first eight. */
CHOIR__BOTH static inline uint32_t choir__quant_six_bits(const uint8_t *of, int j, bool minimum)
{
    const int at = minimum ? 4 : 0;
    if (j < 4)
        return of[at + j] & 63u;
    return (minimum ? of[j + 4] >> 4 : of[j + 4] & 15u) | (uint32_t)(of[at + j - 4] >> 6) << 4;
}

/* Returns element i of a block. */
CHOIR__BOTH static inline float choir__quant_value(choir__quant type, const uint8_t *b, int i)
{
    const int h = i & 15, upper = i >> 4 & 1; /* in a block of 32 */
    uint32_t bits = 0;
    switch (type) {
    case CHOIR__F32: memcpy(&bits, b, sizeof bits); return choir__quant_f32_of_bits(bits);
    case CHOIR__F16: return choir__quant_scale(b);
    case CHOIR__BF16: return choir__quant_f32_of_bits(((uint32_t)b[1] << 8 | b[0]) << 16);
    case CHOIR__Q8_0: return choir__quant_scale(b) * (float)(int8_t)b[2 + i];
    case CHOIR__Q4_0:
        return choir__quant_scale(b) * (float)((int)(b[2 + h] >> 4 * upper & 15) - 8);
    case CHOIR__Q5_0: {
        const int high = b[2 + (i >> 3)] >> (i & 7) & 1;
        return choir__quant_scale(b) *
               (float)((int)((b[6 + h] >> 4 * upper & 15) | high << 4) - 16);
    }
    case CHOIR__Q4_K: { /* runs of 32 share a scale; two of them share 32 bytes */
        const int j = i >> 5;
        const float scale =
            choir__quant_scale(b) * (float)choir__quant_six_bits(b + 4, j, false);
        const float least =
            choir__quant_scale(b + 2) * (float)choir__quant_six_bits(b + 4, j, true);
        const int code = b[16 + (j >> 1) * 32 + (i & 31)] >> 4 * (j & 1) & 15;
        return scale * (float)code - least;
    }
    case CHOIR__Q6_K: { /* halves of 128: four runs of 32 share 64 + 32 bytes */
        const int half = i >> 7, run = i >> 5 & 3, at = i & 31;
        const uint8_t low = b[64 * half + 32 * (run & 1) + at] >> 4 * (run >> 1) & 15;
        const uint8_t high = b[128 + 32 * half + at] >> 2 * run & 3;
        const float scale = choir__quant_scale(b + 208) * (float)(int8_t)b[192 + (i >> 4)];
        return scale * (float)((int)(low | high << 4) - 32);
    }
    default: return 0;
    }
}

#ifndef __cplusplus

/* Writes a whole block, in runs of 16 that share a scale. */
static inline void choir__quant_block(const choir__quant type, float *y, const uint8_t *b)
{
    const int n = (int)choir__quant_types[type].values;
    for (int run = 0; run < n; run += 16)
        for (int i = 0; i < (n < 16 ? n : 16); i++)
            y[run + i] = choir__quant_value(type, b, run + i);
}

#endif
#endif
