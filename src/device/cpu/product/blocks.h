/* The product of two matrices, block by block.
 *
 * C is cut into blocks of rows and columns. For a block, one chain of k after the other is
 * computed: A's rows are packed MOST_M at a time, to stay in the second cache, and B's panels
 * when their first tile needs them, one of which stays in the first cache.
 *
 *     for each block of C (rows, MOST_N columns)
 *         for each chain
 *             for MOST_M rows:  pack A
 *                 for each panel of B:  pack it, the first time;  for each panel of A:  a tile
 *
 * A tile writes its sums to C at once where it can, else end_rows ends them. Those of chains
 * that wait for others are in levels (levels.h). */
#ifndef CHOIR_PRODUCT_BLOCKS_H
#define CHOIR_PRODUCT_BLOCKS_H

#include "base/half.h"
#include "device/cpu/product/product.h"
#include "device/cpu/product/windows.h"
#ifdef PAIRS
#include "device/cpu/product/pairs_pack.h"
#else
#include "device/cpu/product/pack.h"
#endif

enum { ROOM = 64 }; /* cells that the room of panels is a multiple of */

/* Packs rows of A. room: for windows that are gathered first, (count, depth in whole steps). */
static void pack_rows(cell *to, const matrix *a, int64_t first, int64_t count, int64_t from,
    int64_t depth, void *room)
{
    matrix rows = *a;
    if (a->windows) {
        rows.p = room, rows.apart = whole(depth, STEP), rows.next = 1;
        gather_windows(room, rows.apart, a->windows, first, count, from, depth, rows.apart);
        first = from = 0;
    }
    pack_panels(to, &rows, first, count, from, depth, true);
}

/* Packs columns of B. room: (depth, count). */
static void pack_columns(cell *to, const matrix *b, int64_t first, int64_t count, int64_t from,
    int64_t depth, void *room)
{
    matrix columns = *b;
    if (b->windows) {
        columns.p = room, columns.apart = 1, columns.next = count;
        gather_windows(room, count, b->windows, from, depth, first, count, count);
        first = from = 0;
    }
    pack_panels(to, &columns, first, count, from, depth, false);
}

/* One product of two matrices, and the part of C that this core computes. */
typedef struct job {
    const choir__k_matmul *k;
    matrix a, b;
    void *c;
    bool turned;        /* a and b are k's, exchanged, and C has the transpose of the tiles */
    const cell *packed; /* all of B, or NULL */
    int64_t chains;
    int64_t row, column, m, n; /* the part: its first element and its size */
    cell *room_a, *room_b;
    void *gathered; /* room for windows that are packed */
    real *levels;
    int64_t level; /* elements of a level */
} job;

/* A tile's place in its block, and what becomes of its sums. */
typedef struct place {
    int64_t row, column; /* the first element in C */
    int64_t rows, columns;
    levels waiting;
    real *leaves; /* the level that receives the sums, or NULL: C does */
} place;

/* Rounds sums to bf16, as choir__bf16_from_f32 does. */
INLINE void round_vector(uint16_t *c, vec x)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * W)));
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    const uvec bits = (uvec)x, up = bits + 0x7fff + (bits >> 16 & 1);
    const uvec nan = (uvec)((ivec)(bits & 0x7fffffff) > 0x7f800000);
    const halves y =
        __builtin_convertvector(((nan & (bits | 0x400000)) | (~nan & up)) >> 16, halves);
    memcpy(c, &y, sizeof y);
}

INLINE void round_row(uint16_t *c, const real *y, int64_t columns)
{
    int64_t j = 0;
    for (; j + W <= columns; j += W)
        round_vector(c + j, v_load((const float *)y + j));
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

/* Ends the rows of a tile. Most tiles of bf16 are whole and only rounded. */
static void end_rows(const job *w, const place *p, const real *sums)
{
    const choir__k_matmul *k = w->k;
    if (k->dtype == CHOIR_BF16 && !k->wide && !k->bias && !k->accumulate &&
        p->columns == BROAD) {
        uint16_t *c = (uint16_t *)w->c + p->row * k->c_row + p->column;
        if (!p->waiting.takes && round_tile(c, k->c_row, sums, p->rows))
            return;
        for (int64_t i = 0; i < p->rows; i++, c += k->c_row)
            for (int j = 0; j < BROAD; j += W)
                round_vector(c + j, v_load((const float *)sums + i * BROAD + j));
        return;
    }
    for (int64_t i = 0; i < p->rows; i++)
        end_row(w, (real *)sums + i * BROAD, p->row + i, p->column, p->columns);
}

/* Ends a square tile whose transpose C receives. */
static void end_turned(const job *w, const place *p, const real *sums)
{
    real turned[TALL * BROAD] __attribute__((aligned(64)));
    place there = *p;
    there.row = p->column, there.column = p->row;
    there.rows = p->columns, there.columns = p->rows;
    for (int i = 0; i < p->rows; i += W)
        for (int j = 0; j < p->columns; j += 4)
            turn(turned + j * TALL + i, TALL, sums + i * BROAD + j, BROAD * sizeof *sums);
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

/* Rows of a block whose part of A is packed, in one chain. */
typedef struct strip {
    const job *w;
    int64_t row, column; /* the block's first element */
    int64_t first, rows; /* the strip in the block */
    int64_t m, n;        /* the block's rows and columns */
    int64_t depth, deep; /* the chain's, and a panel's */
    const cell *a, *room_b;
    int64_t a_row, a_panel; /* tile.a_row; from one tile's rows to the next in a */
    uint64_t takes;
    int leaves;
} strip;

/* The tile at row r of the strip and column j of the block. */
static void run_place(const strip *s, int64_t r, int64_t j)
{
    const job *w = s->w;
    const int64_t rows = choir__min(TALL, s->rows - r), columns = choir__min(BROAD, s->n - j);
    real *level0 = w->levels + whole(s->m, TALL) * j + (s->first + r) * BROAD;
    const place p = {.row = s->row + s->first + r,
        .column = s->column + j,
        .rows = rows,
        .columns = columns,
        .waiting = {level0, w->level, s->takes},
        .leaves = s->leaves >= 0 ? level0 + s->leaves * w->level : NULL};
    real sums[TALL * BROAD] __attribute__((aligned(64)));
    tile t = {.a = s->a + r / TALL * s->a_panel,
        .b = s->room_b + j * s->deep,
        .a_row = s->a_row,
        .depth = s->depth,
        .to = p.leaves ? p.leaves : sums,
        .to_row = BROAD,
        .waiting = p.waiting};
    const bool at_once = !p.leaves && takes_vectors(w, &p);
    if (at_once) {
        t.to = (real *)w->c + p.row * w->k->c_row + p.column;
        t.to_row = w->k->c_row;
        t.bias = w->k->bias ? (const real *)w->k->bias + p.column : NULL;
        t.accumulate = w->k->accumulate;
    }
    run_tile(&t, rows, columns);
    if (!at_once && !p.leaves)
        (w->turned ? end_turned : end_rows)(w, &p, sums);
}

/* Rows [row, row + m) and columns [column, column + n) in chain i. A panel of B serves all
 * tiles below it while it is in the first cache; if all of B is small, tiles go along C's rows.
 */
static void run_chain(
    const job *w, int64_t i, int64_t row, int64_t column, int64_t m, int64_t n)
{
    const int64_t from = i * CHAIN, depth = choir__min(CHAIN, w->k->k - from),
                  deep = whole(depth, STEP);
    const bool last = i == w->chains - 1, along = n * deep * (int64_t)sizeof(cell) <= SMALL_B;
    const int ones = __builtin_ctzll(~(uint64_t)i);
    cell *room_b = w->packed ? (cell *)w->packed + from * whole(w->k->n, BROAD) + column * deep
                             : w->room_b;
    strip s = {.w = w,
        .row = row,
        .column = column,
        .m = m,
        .n = n,
        .depth = depth,
        .deep = deep,
        .room_b = room_b,
        .takes = last ? (uint64_t)i : (uint64_t)i & ((UINT64_C(1) << ones) - 1),
        .leaves = last ? -1 : ones};
    if (along && !w->packed)
        pack_columns(room_b, &w->b, column, n, from, depth, w->gathered);
    for (; s.first < m; s.first += MOST_M) {
        s.rows = choir__min(MOST_M, m - s.first);
        if (reads_in_place(&w->a, s.rows, n, depth)) {
            s.a = element_at(&w->a, row + s.first, from);
            s.a_row = w->a.apart;
            s.a_panel = TALL * w->a.apart;
        } else {
            pack_rows(w->room_a, &w->a, row + s.first, s.rows, from, depth, w->gathered);
            s.a = w->room_a;
            s.a_row = 0;
            s.a_panel = TALL * deep;
        }
        for (int64_t r = 0; along && r < s.rows; r += TALL)
            for (int64_t j = 0; j < n; j += BROAD)
                run_place(&s, r, j);
        for (int64_t j = 0; !along && j < n; j += BROAD) {
            if (s.first == 0 && !w->packed && j % (TOGETHER * BROAD) == 0)
                pack_columns(room_b + j * deep, &w->b, column + j,
                    choir__min(TOGETHER * BROAD, n - j), from, depth, w->gathered);
            for (int64_t r = 0; r < s.rows; r += TALL)
                run_place(&s, r, j);
        }
    }
}

/* Computes the job's part of C. */
static void run_job(job *w)
{
    const int64_t deep = whole(choir__min(CHAIN, w->k->k), STEP);
    const int64_t few = w->packed ? FEWER_M : FEW_M;
    const int64_t rows = w->chains > 1 ? choir__min(few, w->m) : w->m;
    const int64_t fit = MOST_B / (choir__max(deep, 1) * (int64_t)sizeof(cell)) / BROAD * BROAD;
    const int64_t columns = choir__min(choir__min(MOST_N, fit), w->n);
    const int level_count = w->chains > 1 ? 64 - __builtin_clzll((uint64_t)w->chains - 1) : 0;
    const int64_t a = whole(whole(choir__min(MOST_M, rows), TALL) * deep, ROOM),
                  b = w->packed ? 0 : whole(whole(columns, BROAD) * deep, ROOM);
    const int64_t windows = w->a.windows || w->b.windows
                                ? choir__max(choir__min(MOST_M, rows), whole(columns, BROAD))
                                : 0;
    w->level = whole(rows, TALL) * whole(columns, BROAD);
    w->room_a = choir__cpu_panel(choir__cpu_context_current(),
        (size_t)(a + b) * sizeof(cell) +
            (size_t)(level_count * w->level + windows * deep) * sizeof(real));
    w->room_b = w->room_a + a;
    w->levels = (real *)(w->room_b + b);
    w->gathered = w->levels + level_count * w->level;
    for (int64_t j = 0; j < w->n; j += columns)
        for (int64_t i = 0; i < w->m; i += rows)
            for (int64_t chain = 0; chain < w->chains; chain++)
                run_chain(w, chain, w->row + i, w->column + j, choir__min(rows, w->m - i),
                    choir__min(columns, w->n - j));
}

#endif
