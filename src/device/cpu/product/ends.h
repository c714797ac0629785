/* The end of a tile's sums: the bias, the old C, one rounding to C's type.
 *
 * A tile writes its sums to C at once where it can (takes_vectors); else end_rows ends them, or
 * end_turned where C has the transpose of the tiles. */
#ifndef CHOIR_PRODUCT_ENDS_H
#define CHOIR_PRODUCT_ENDS_H

#include "base/half.h"
#include "device/cpu/product/bands.h"
#include "device/cpu/product/half_vectors.h"
#include "device/cpu/product/product.h"

/* Lists that are too large for a stack of 64 KiB. */
typedef struct lists {
    tile_rows tiles[MOST_M]; /* tiles of a strip */
    band_terms pieces;       /* pieces of a section */
    real turned[BROAD * BROAD] __attribute__((aligned(64)));
} lists;

/* One product of two matrices, and the part of C that this core computes. */
typedef struct job {
    const choir__k_matmul *k;
    matrix a, b;
    void *c;
    bool turned; /* a and b are k's, exchanged, and C has the transpose of the tiles */
    bool banded; /* tiles read A from a band of images */
    band band;
    int64_t strip; /* rows of A that are prepared at a time, at most MOST_M */
    lists *lists;
    const cell *packed; /* all of B, or NULL */
    terms terms;
    int64_t row, column, m, n; /* the part: its first element and its size */
    cell *room_a, *room_b;
    void *gathered; /* room for entries that are gathered before they are packed */
    real *near;     /* levels of one tile */
    real *levels;   /* levels of a block */
    int64_t level;  /* elements of a level of a block */
} job;

/* A tile's place in its block, and what becomes of its sums. */
typedef struct place {
    int64_t row, column; /* the first element in C */
    int64_t rows, columns;
} place;

INLINE void round_row(uint16_t *c, const real *y, int64_t columns)
{
    int64_t j = 0;
    for (; j + W <= columns; j += W)
        round_vector(c + j, v_load((const float *)y + j), true);
    for (; j < columns; j++)
        c[j] = choir__bf16_from_f32((float)y[j]);
}

/* Adds the bias and the old C to a row of sums, which it writes to C. */
static void end_row(const job *w, real *y, int64_t row, int64_t column, int64_t columns)
{
    const choir__k_matmul *k = w->k;
    int64_t at = row * k->c_row + column;
    const real *bias = k->bias;
    if (bias)
        for (int64_t j = 0; j < columns; j++)
            y[j] += bias[column + j];
    if (is_half(k->dtype) && !k->wide) {
        bool bf16 = k->dtype == CHOIR_BF16;
        uint16_t *c = (uint16_t *)w->c + at;
        real old[(int)BROAD > (int)TALL ? BROAD : TALL];
        if (k->accumulate) {
            (bf16 ? choir__widen_bf16 : choir__widen_f16)(old, c, columns);
            for (int64_t j = 0; j < columns; j++)
                y[j] = old[j] + y[j];
        }
        if (bf16)
            round_row(c, y, columns);
        else
            choir__narrow_f16(c, y, columns);
        return;
    }
    real *c = (real *)w->c + at;
    if (k->accumulate)
        for (int64_t j = 0; j < columns; j++)
            c[j] = c[j] + y[j];
    else
        memcpy(c, y, (size_t)columns * sizeof *c);
}

/* True if a tile's sums, with the bias where tiles add it, are only rounded, in whole vectors;
 * most are. */
static bool is_rounded(const job *w, const place *p)
{
    const choir__k_matmul *k = w->k;
    if (!is_half(k->dtype) || k->wide || k->accumulate)
        return false;
    return ENDS_IN_REGISTERS ? !w->turned && p->columns % W == 0
                             : !k->bias && p->columns == BROAD;
}

/* Ends the rows of a tile. */
static void end_rows(const job *w, const place *p, const real *sums)
{
    const choir__k_matmul *k = w->k;
    uint16_t *c = (uint16_t *)w->c + p->row * k->c_row + p->column;
    if (is_rounded(w, p) && round_tile(c, k->c_row, sums, NULL, 0, p->rows))
        return;
    for (int64_t i = 0; i < p->rows; i++, c += k->c_row)
        if (is_rounded(w, p))
            for (int j = 0; j < p->columns; j += W)
                round_vector(
                    c + j, v_load((const float *)sums + i * BROAD + j), k->dtype == CHOIR_BF16);
        else
            end_row(w, (real *)sums + i * BROAD, p->row + i, p->column, p->columns);
}

/* Ends a tile whose transpose C receives. */
static void end_turned(const job *w, const place *p, const real *sums)
{
    real *turned = w->lists->turned;
    place there = *p;
    there.row = p->column, there.column = p->row;
    there.rows = p->columns, there.columns = p->rows;
    if (TALL % W == 0 && !IS_DOUBLE)
        for (int i = 0; i < p->rows; i += W)
            for (int j = 0; j < p->columns; j += 4)
                turn((float *)turned + j * BROAD + i, BROAD,
                    (const float *)sums + i * BROAD + j, BROAD * sizeof *sums);
    else
        for (int i = 0; i < p->rows; i++)
            for (int j = 0; j < p->columns; j++)
                turned[j * BROAD + i] = sums[i * BROAD + j];
    end_rows(w, &there, turned);
}

/* True if a tile can write its sums to C, in whole vectors. */
static bool takes_vectors(const job *w, const place *p)
{
    const choir__k_matmul *k = w->k;
    return !w->turned && writes_exactly(p->rows, p->columns) &&
           (ENDS_IN_REGISTERS || (!k->bias && !k->accumulate)) &&
           (!is_half(k->dtype) || k->wide);
}

#endif
