/* The micro-kernel: a tile of C stays in registers while one chain runs over k.
 *
 *     sums (rows, columns) = a (rows, depth) b (depth, columns)
 *
 * of at most TALL rows and BROAD columns.
 *
 * b is packed in panels of BROAD columns, and a in panels of TALL rows, one k after the other;
 * or the rows of a are where they were, if few tiles read them. Each sum is one chain of fused
 * multiply-adds from +0, so neither the tile's size nor the vectors' width is in its bits. The
 * number of rows and of vectors in a row is a constant of each copy of the loop, so that edges
 * of a matrix cost no more than they need. */
#ifndef CHOIR_PRODUCT_TILE_H
#define CHOIR_PRODUCT_TILE_H

#include "device/cpu/product/product.h"
#include "device/cpu/product/reals.h"

/* TALL x VECTORS sums, a row of b and an element of a fill the registers: 32 of AVX-512 and
 * NEON, 16 of AVX2. */
#if defined(__AVX512F__)
enum { TALL = 12, VECTORS = 2 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif defined(__AVX2__)
enum { TALL = 6, VECTORS = 2 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6)
#elif defined(__aarch64__)
enum { TALL = 8, VECTORS = 3 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
enum { TALL = 4, VECTORS = 2 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4)
#endif
enum { BROAD = VECTORS * RW };

/* MOST_M, MOST_N: rows of A and columns of B that are packed at a time, of B at most MOST_B
 * bytes. FEW_M: rows of a block whose chains wait in levels. Multiples of TALL and BROAD.
 * SMALL_B: bytes of B up to which tiles go along the rows of C. */
enum { MOST_M = 144, FEW_M = 576, MOST_N = 1152, MOST_B = 4 << 20, SMALL_B = 128 << 10 };
enum { CHAIN = CHOIR__CHAIN };

typedef struct tile {
    const real *a, *b;
    int64_t a_row, depth; /* a_row: 0, or the distance of rows of an `a` that is not packed */
    real *to;             /* receives the sums, in whole vectors */
    int64_t to_row;
} tile;

/* The loops over constants are unrolled, or the sums would be in memory. */
#define ROWS_    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++)
#define VECTORS_ _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++)

INLINE void tile_of(const tile *t, const int rows, const int vectors, const bool packed)
{
    reals sum[TALL][VECTORS];
    const real *a[TALL], *b = t->b;
    real *to = t->to;
    const int64_t to_row = t->to_row;
    ROWS_ a[i] = packed ? t->a + i : t->a + i * t->a_row;
    ROWS_ __builtin_prefetch(to + i * to_row, 1);
    ROWS_ VECTORS_ sum[i][j] = (reals){0};
    for (int64_t k = 0; k < t->depth; k++, b += BROAD) {
        reals right[VECTORS];
        VECTORS_ right[j] = r_load(b + j * RW);
        ROWS_
        {
            reals left = r_set(packed ? a[0][k * TALL + i] : a[i][k]);
            VECTORS_ sum[i][j] = r_fma(left, right[j], sum[i][j]);
        }
    }
    ROWS_ VECTORS_ r_store(to + i * to_row + j * RW, sum[i][j]);
}

#define BROAD_PACKED(rows)                                                                     \
    case rows:                                                                                 \
        tile_of(t, rows, VECTORS, true);                                                       \
        break;
#define NARROW_PACKED(rows)                                                                    \
    case rows:                                                                                 \
        tile_of(t, rows, 1, true);                                                             \
        break;
#define BROAD_PLAIN(rows)                                                                      \
    case rows:                                                                                 \
        tile_of(t, rows, VECTORS, false);                                                      \
        break;
#define NARROW_PLAIN(rows)                                                                     \
    case rows: tile_of(t, rows, 1, false); break;

/* Writes one vector of each row if that has all columns, else VECTORS. */
static void run_tile(const tile *t, int64_t rows, int64_t columns)
{
    const bool broad = columns > RW;
    if (broad && !t->a_row)
        switch (rows) {
            EACH_ROW(BROAD_PACKED)
        }
    else if (!t->a_row)
        switch (rows) {
            EACH_ROW(NARROW_PACKED)
        }
    else if (broad)
        switch (rows) {
            EACH_ROW(BROAD_PLAIN)
        }
    else
        switch (rows) {
            EACH_ROW(NARROW_PLAIN)
        }
}

/* True if run_tile writes these sums and none beside them. */
INLINE bool writes_exactly(int64_t rows, int64_t columns)
{
    (void)rows;
    return columns == BROAD || columns == RW;
}

/* Before and after the tiles of a core. */
INLINE void begin_tiles(void)
{
}
INLINE void end_tiles(void)
{
}

/* Rounds the sums of a whole tile to bf16, if that has a faster way than vectors. */
INLINE bool round_tile(uint16_t *c, int64_t c_row, const real *sums, int64_t rows)
{
    (void)c, (void)c_row, (void)sums, (void)rows;
    return false;
}

#endif
