/* The micro-kernel: a tile of C stays in registers while one chain runs over k.
 *
 *     sums (rows, columns) = a (rows, depth) b (depth, columns)
 *
 * of at most TALL rows and BROAD columns; of TALLEST rows where one vector has all columns.
 *
 * b is packed in panels of BROAD columns, and a in panels of TALL rows, one k after the other;
 * or a's rows are where they were, if few tiles read them, or where images are (bands.h). Each
 * sum is one chain of fused multiply-adds from +0, so neither the tile's size nor the vectors'
 * width is in its bits. The number of rows and of vectors in a row is a constant of each copy
 * of the loop, so that edges of a matrix cost no more than they need. */
#ifndef CHOIR_PRODUCT_TILE_H
#define CHOIR_PRODUCT_TILE_H

#include "device/cpu/product/levels.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/product.h"

/* TALL x VECTORS sums, a row of b and an element of a fill the registers: 32 of AVX-512 and
 * NEON, 16 of AVX2. TALLEST x 1 are enough sums that none waits for the one before. WAYS: lines
 * of a set of the first cache; as many rows of A stay in it, however far from each other they
 * are. */
#if defined(__AVX512F__)
enum { TALL = 8, TALLEST = 8, VECTORS = 3, WAYS = 12 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define EACH_TALLER(X)
#elif defined(__AVX2__)
enum { TALL = 6, TALLEST = 12, VECTORS = 2, WAYS = 8 };
#define EACH_ROW(X)    X(1) X(2) X(3) X(4) X(5) X(6)
#define EACH_TALLER(X) X(7) X(8) X(9) X(10) X(11) X(12)
#elif defined(__aarch64__)
enum { TALL = 8, TALLEST = 12, VECTORS = 3, WAYS = 4 };
#define EACH_ROW(X)    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define EACH_TALLER(X) X(9) X(10) X(11) X(12)
#else
enum { TALL = 4, TALLEST = 4, VECTORS = 2, WAYS = 4 };
#define EACH_ROW(X) X(1) X(2) X(3) X(4)
#define EACH_TALLER(X)
#endif
enum { BROAD = VECTORS * RW };

/* MOST_M, MOST_N: rows of A and columns of B that are packed at a time, of B at most MOST_B
 * bytes. FEW_M: rows of a block whose chains wait in levels; FEWER_M: the same where packing B
 * again costs nothing. Multiples of TALL and BROAD. SMALL_B: bytes of B up to which tiles go
 * along the rows of C. With AVX-512 a panel of B has 96 KiB and 8 rows of A have 16: these stay
 * in the first cache, and B's block in the second, of at least 1 MiB. */
#if defined(__AVX512F__)
enum {
    MOST_M = 96,
    FEW_M = 576,
    FEWER_M = 288,
    MOST_N = 336,
    MOST_B = 704 << 10,
    SMALL_B = MOST_B
};
#else
enum {
    MOST_M = 144,
    FEW_M = 576,
    FEWER_M = 576,
    MOST_N = 1152,
    MOST_B = 4 << 20,
    SMALL_B = 128 << 10
};
#endif
enum { CHAIN = CHOIR__CHAIN, STEP = 1 }; /* STEP: a panel's depth is a multiple of it */

/* Terms of a section of several chains (sections.h). */
INLINE int64_t most_deep(const choir__k_matmul *k)
{
    (void)k;
    return CHAIN;
}

typedef real cell; /* an element of a panel */

typedef struct tile {
    const real *a, *b;
    int64_t a_row, a_next; /* a_row: the distance of a's rows, whose terms lie side by side; 0:
                            * the rows lie side by side, and a_next is the distance of terms */
    const span *spans;     /* a's terms: k is from `a` on */
    int span_count;
    real *to; /* receives the sums, in whole vectors */
    int64_t to_row;
    levels near, far; /* sums of earlier chains, which are added, the near ones first */
    const real *bias; /* is added to each row, if not NULL */
    bool accumulate;  /* the old values of `to` are added */
} tile;

enum { ENDS_IN_REGISTERS = 1 }; /* run_tile adds the bias and the old values */

/* The loops over constants are unrolled, or the sums would be in memory. */
#define ROWS_    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++)
#define VECTORS_ _Pragma("GCC unroll 3") for (int j = 0; j < vectors; j++)

/* Keeps the compiler from giving a register to the address of each row. */
#define HIDE(x, y) __asm__("" : "+r"(x), "+r"(y))

INLINE void tile_of(const tile *t, const int rows, const int vectors, const bool beside)
{
    reals sum[TALLEST][VECTORS];
    const real *b = t->b;
    real *to = t->to;
    const int64_t to_row = t->to_row, next = beside ? t->a_next : 1;
    int64_t apart = t->a_row, apart3 = 3 * apart;
    ROWS_ VECTORS_ __builtin_prefetch(to + i * to_row + j * RW, 1);
    ROWS_ VECTORS_ sum[i][j] = (reals){0};
    for (const span *s = t->spans, *end = s + t->span_count; s < end; s++) {
        const int64_t below = beside ? 4 : 4 * t->a_row;
        const real *upper = t->a + s->k, *lower = upper + below, *lowest = lower + below;
        for (int64_t k = 0; k < s->some; k++, b += BROAD) {
            reals right[VECTORS];
            VECTORS_ right[j] = r_load(b + j * RW);
            HIDE(apart, apart3);
            ROWS_
            {
                const int64_t at = beside ? i % 4 : i % 4 == 3 ? apart3 : i % 4 * apart;
                reals left = r_set((i < 4 ? upper : i < 8 ? lower : lowest)[at]);
                VECTORS_ sum[i][j] = r_fma(left, right[j], sum[i][j]);
            }
            upper += next;
            lower += next;
            lowest += next;
        }
    }
    for (uint64_t left = t->near.takes; left; left &= left - 1) {
        const real *half = lowest_level(&t->near, left);
        ROWS_ VECTORS_ sum[i][j] = r_load(half + i * BROAD + j * RW) + sum[i][j];
    }
    for (uint64_t left = t->far.takes; left; left &= left - 1) {
        const real *half = lowest_level(&t->far, left);
        ROWS_ VECTORS_ sum[i][j] = r_load(half + i * BROAD + j * RW) + sum[i][j];
    }
    if (t->bias)
        ROWS_ VECTORS_ sum[i][j] += r_load(t->bias + j * RW);
    if (t->accumulate)
        ROWS_ VECTORS_ sum[i][j] = r_load(to + i * to_row + j * RW) + sum[i][j];
    ROWS_ VECTORS_ r_store(to + i * to_row + j * RW, sum[i][j]);
}

#define BESIDE_(rows)                                                                          \
    case rows:                                                                                 \
        tile_of(t, rows, vectors, true);                                                       \
        break;
#define APART_(rows)                                                                           \
    case rows: tile_of(t, rows, vectors, false); break;

INLINE void run_rows(const tile *t, int64_t rows, const int vectors)
{
    if (!t->a_row)
        switch (rows) {
            EACH_ROW(BESIDE_)
        }
    else
        switch (rows) {
            EACH_ROW(APART_)
        }
}

/* A tile of one vector; above TALL rows, they are apart. */
INLINE void run_column(const tile *t, int64_t rows)
{
    const int vectors = 1;
    switch (rows) {
        EACH_TALLER(APART_)
    default: run_rows(t, rows, vectors);
    }
}

/* Writes as many whole vectors of each row as have all columns. */
static void run_tile(const tile *t, int64_t rows, int64_t columns)
{
    if (VECTORS > 2 && columns > 2 * RW)
        run_rows(t, rows, VECTORS);
    else if (columns > RW)
        run_rows(t, rows, 2);
    else
        run_column(t, rows);
}

/* True if run_tile writes these sums and none beside them. */
INLINE bool writes_exactly(int64_t rows, int64_t columns)
{
    (void)rows;
    return columns % RW == 0;
}

/* Called before and after the tiles of a core. */
INLINE void begin_tiles(void)
{
}
INLINE void end_tiles(void)
{
}

/* These may round sums to bf16, if that has a faster way than vectors. */
INLINE bool round_tile(uint16_t *c, int64_t c_row, const real *sums, const real *const level[],
    int n, int64_t rows)
{
    (void)c, (void)c_row, (void)sums, (void)level, (void)n, (void)rows;
    return false;
}

INLINE bool run_rounded(
    const tile *t, int64_t rows, int64_t columns, uint16_t *c, int64_t c_row)
{
    (void)c, (void)c_row;
    run_tile(t, rows, columns);
    return false;
}

#endif
