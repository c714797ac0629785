/* Panels of an operand that is held in blocks of few bits (base/quant): its values are expanded
 * piece by piece while they are packed, and no other copy of them is made.
 *
 * The blocks lie along the rows of memory. Either an entry is a row, whose elements then lie
 * along k, or a row has an element of each entry. A panel is packed once for all rows of A.
 * Under 16-bit operands a value is rounded to their type first, as it is where the operand is
 * expanded as a whole. */
#ifndef CHOIR_PRODUCT_HELD_PANELS_H
#define CHOIR_PRODUCT_HELD_PANELS_H

#include "base/half.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/runs.h"

/* HELD_ROOM: cells that expand_piece may write before and behind a piece. */
enum { HELD_ROOM = RUN };

/* Rounds to 16 bits and back. */
INLINE void round_piece(float *y, int64_t n, choir_dtype dtype)
{
    if (dtype == CHOIR_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = choir__f32_from_bf16(choir__bf16_from_f32(y[i]));
    if (dtype == CHOIR_F16)
        for (int64_t i = 0; i < n; i++) {
#if defined(__F16C__)
            y[i] = _cvtsh_ss(_cvtss_sh(y[i], _MM_FROUND_TO_NEAREST_INT));
#else
            y[i] = choir__f32_from_f16(choir__f16_from_f32(y[i]));
#endif
        }
}

/* Expands elements [first, first + n) of a row of memory to room that has HELD_ROOM cells more
 * on both sides, and returns where the first one is: whole runs are expanded, and a row has no
 * parts of them. */
static float *expand_piece(const matrix *x, float *room, int64_t row, int64_t first, int64_t n)
{
    const uint8_t *at = (const uint8_t *)x->p + row * x->row_bytes;
    float *y = room + HELD_ROOM;
    if (choir__quant_types[x->held].values == 1) {
        choir__quant_decode(x->held, y, at, first, n);
    } else {
        const int64_t before = first % RUN, runs = (before + n + RUN - 1) / RUN;
        expand_runs(x->held, y - before, at, first / RUN, runs);
    }
    round_piece(y, n, x->dtype);
    return y;
}

#endif
