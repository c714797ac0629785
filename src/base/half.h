/* The two 16-bit floats, as bits in a uint16_t.
 *
 * bf16 is the upper half of an f32: 8 bits of exponent, 7 of fraction. f16 is IEEE binary16: 5
 * bits of exponent, 10 of fraction. Widening is exact; narrowing rounds to nearest, ties to
 * even. A NaN stays a NaN, quiet, with its sign and the leading bits of its payload, as the
 * processor's own conversions do it. */
#ifndef CHOIR_HALF_H
#define CHOIR_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t choir__bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float choir__f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float choir__f32_from_bf16(uint16_t half)
{
    return choir__f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t choir__bf16_from_f32(float value)
{
    uint32_t bits = choir__bits_of_f32(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) /* rounding could turn a NaN into an infinity */
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

static inline float choir__f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1Fu, fraction = half & 0x3FFu;
    if (exponent == 0x1Fu) {
        uint32_t quiet = fraction ? 0x400000u : 0;
        return choir__f32_of_bits(sign | 0x7F800000u | fraction << 13 | quiet);
    }
    if (exponent == 0) { /* zero, or a subnormal in units of 2^-24 */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return choir__f32_of_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

static inline uint16_t choir__f16_from_f32(float value)
{
    uint32_t bits = choir__bits_of_f32(value);
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (size >> 13 & 0x3FFu));
    if (size >= 0x477FF000u) /* >= 65520, halfway above the largest f16 */
        return (uint16_t)(sign | 0x7C00u);
    if (size >= 0x38800000u) { /* >= 2^-14, the smallest normal */
        uint32_t rounded = size + 0xFFFu + (size >> 13 & 1u);
        return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
    }
    /* Subnormal: 0.5 has the unit 2^-24, so this addition rounds at the right place. */
    float sum = choir__f32_of_bits(size) + 0.5f;
    return (uint16_t)(sign | (choir__bits_of_f32(sum) - 0x3F000000u));
}

/* Converts a row of n elements, from 16 bits to f32 (widen) or back (narrow). The two rows do
 * not overlap. */
typedef void choir__convert_row(void *to, const void *from, int64_t n);
choir__convert_row choir__widen_bf16, choir__widen_f16, choir__narrow_bf16, choir__narrow_f16;

#endif
