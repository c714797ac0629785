/* Panels of an operand that is held in blocks of few bits (base/quant): its values are expanded
 * piece by piece while they are packed, and no other copy of them is made.
 *
 * The blocks lie along the rows of memory. Either an entry is a row, whose elements then lie
 * along k, or a row has an element of each entry. Under 16-bit operands a value is rounded to
 * their type first, as it is where the operand is expanded as a whole. */
#ifndef CHOIR_PRODUCT_HELD_H
#define CHOIR_PRODUCT_HELD_H

#include "base/half.h"
#include "base/quant/decode.h"
#include "device/cpu/product/matrix.h"

/* Reads values [first, first + n) of a row, at most a block. */
INLINE void expand_runs(
    const choir__quant type, float *y, const uint8_t *row, int64_t first, int64_t n)
{
    const int64_t each = choir__quant_types[type].values;
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t block = (first + i) / each, from = (first + i) % each;
        const uint8_t *b = row + block * choir__quant_types[type].bytes;
        for (int j = 0; j < 16; j++)
            y[i + j] = choir__quant_value(type, b, (int)from + j);
    }
}

static void expand_piece(const matrix *x, float *y, int64_t row, int64_t first, int64_t n)
{
    const uint8_t *at = (const uint8_t *)x->p + row * x->row_bytes;
    const bool runs = first % 16 == 0 && n % 16 == 0;
    if (runs && x->held == CHOIR__Q8_0)
        expand_runs(CHOIR__Q8_0, y, at, first, n);
    else if (runs && x->held == CHOIR__Q4_0)
        expand_runs(CHOIR__Q4_0, y, at, first, n);
    else if (runs && x->held == CHOIR__Q4_K)
        expand_runs(CHOIR__Q4_K, y, at, first, n);
    else if (runs && x->held == CHOIR__Q6_K)
        expand_runs(CHOIR__Q6_K, y, at, first, n);
    else
        choir__quant_decode(x->held, y, at, first, n);
    for (int64_t i = 0; x->dtype == CHOIR_BF16 && i < n; i++)
        y[i] = choir__f32_from_bf16(choir__bf16_from_f32(y[i]));
    for (int64_t i = 0; x->dtype == CHOIR_F16 && i < n; i++)
        y[i] = choir__f32_from_f16(choir__f16_from_f32(y[i]));
}

#endif
