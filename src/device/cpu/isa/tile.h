/* One tile of a matrix product, whose sums stay in registers: attention's products, and the
 * small ones beside oneDNN (product/small.c), are made of it.
 *
 *     c (rows, columns) = or += a (rows, k) b (k, columns)    rows <= TALL, columns <= BROAD
 *
 * An element's sum runs over k in order, so its bits do not depend on how a matrix is cut into
 * tiles. A term is one fused multiply-add on every processor; where the file that includes this
 * one defines TERMS_APART, it is a product and an addition. */
#ifndef CHOIR_ISA_TILE_H
#define CHOIR_ISA_TILE_H

#include "device/cpu/product/fma.h"

enum { TALL = 6, VECTORS = 2, BROAD = VECTORS * W };

#ifdef TERMS_APART
#define ADD_TERM(x, y, sum) ((x) * (y) + (sum))
#else
#define ADD_TERM(x, y, sum) v_fma(x, y, sum)
#endif

typedef struct tile_of {
    float *c;
    const float *a, *b;
    int64_t c_row, a_row, a_col, b_row, k;
    int64_t columns; /* rows of b are whole panels: BROAD elements are read, for fewer, too */
    bool add;
} tile_of;

/* The loops over `rows`, a constant, and VECTORS are unrolled, or the sums would be in memory.
 */
INLINE void tile_rows(const tile_of *t, const int rows)
{
    vec sum[TALL][VECTORS];
    const float *a = t->a, *b = t->b;
    _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++)
        _Pragma("GCC unroll 2") for (int j = 0; j < VECTORS; j++) sum[i][j] =
            t->add ? v_get(t->c + i * t->c_row + j * W, t->columns - j * W) : (vec){0};
    for (int64_t k = t->k; k > 0; k--, a += t->a_col, b += t->b_row) {
        vec right[VECTORS];
        _Pragma("GCC unroll 2") for (int j = 0; j < VECTORS; j++) right[j] = v_load(b + j * W);
        _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++)
            _Pragma("GCC unroll 2") for (int j = 0; j < VECTORS; j++) sum[i][j] =
                ADD_TERM(v_set(a[i * t->a_row]), right[j], sum[i][j]);
    }
    _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++)
        _Pragma("GCC unroll 2") for (int j = 0; j < VECTORS; j++)
            v_put(t->c + i * t->c_row + j * W, sum[i][j], t->columns - j * W);
}

static inline void tile(const tile_of *t, int64_t rows)
{
    switch (rows) {
    case 1: tile_rows(t, 1); break;
    case 2: tile_rows(t, 2); break;
    case 3: tile_rows(t, 3); break;
    case 4: tile_rows(t, 4); break;
    case 5: tile_rows(t, 5); break;
    default: tile_rows(t, TALL);
    }
}

#endif
