/* The product of two matrices, block by block.
 *
 * C is cut into blocks of rows and columns. For a block, one section of k (sections.h) after
 * the other is computed: A's rows are packed MOST_M at a time, to stay in the second cache, and
 * B's panels when their first tile needs them, one of which stays in the first cache.
 *
 *     for each block of C (rows, MOST_N columns)
 *         for each section
 *             for MOST_M rows:  pack A, or lay its rows (pack.h), or read them in place
 *                 for each panel of B:  pack it, the first time
 *                     for each panel of A:  a tile, for each chain of the section
 *
 * A tile writes its sums to C at once where it can, else end_rows ends them. Those of chains
 * that wait for others are in levels (levels.h). */
#ifndef CHOIR_PRODUCT_BLOCKS_H
#define CHOIR_PRODUCT_BLOCKS_H

#include "base/half.h"
#include "device/cpu/product/product.h"
#ifdef PAIRS
#include "device/cpu/product/pairs_pack.h"
#else
#include "device/cpu/product/pack.h"
#endif
#include "device/cpu/product/windows.h"

/* Panels take a multiple of ROOM cells. Rows that are laid have APART free cells between them,
 * or they would share few sets of a cache. */
enum { ROOM = 64, APART = 16 };

/* Copies a span of entries of x, from entry `first` on, to y. */
static void gather_span(
    const matrix *y, const matrix *x, int64_t first, int64_t count, const span *s)
{
    const int64_t size = (int64_t)choir_dtype_size(x->dtype);
    if (y->apart == 1) { /* entries lie side by side in both */
        for (int64_t k = 0; k < s->some; k++)
            memcpy((char *)element_at(y, 0, s->at + k), element_at(x, first, s->k + k),
                (size_t)(count * size));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        char *to = (char *)element_at(y, i, s->at);
        const char *from = element_at(x, first + i, s->k);
        if (x->next == 1)
            memcpy(to, from, (size_t)(s->some * size));
        else
            for (int64_t l = 0; l < s->some; l++, to += size, from += x->next * size)
                memcpy(to, from, (size_t)size);
    }
}

/* Copies the section's terms of entries [first, first + count) to `room`, evenly apart, with +0
 * between chains. */
static matrix gather_terms(
    void *room, const matrix *x, int64_t first, int64_t count, const section *s)
{
    const bool beside = x->apart == 1 && x->next != 1;
    const int64_t size = (int64_t)choir_dtype_size(x->dtype);
    matrix y = {.p = room,
        .apart = beside ? 1 : s->deep,
        .next = beside ? count : 1,
        .dtype = x->dtype};
    memset(room, 0, (size_t)(count * s->deep * size));
    for (const chain *c = s->chains; c < s->chains + s->count; c++)
        for (int64_t done = 0; done < c->depth;) {
            const span p = span_of(s, c, done);
            gather_span(&y, x, first, count, &p);
            done += p.some;
        }
    return y;
}

/* Packs the section's terms of entries of x, which are rows of A or columns of B. room: for
 * entries that are gathered first. */
INLINE void pack_entries(cell *to, const matrix *x, int64_t first, int64_t count,
    const section *s, void *room, const bool rows)
{
    if (!x->windows && !s->gathers) {
        pack_panels(to, x, first, count, s->spans, s->span_count, s->deep, rows);
        return;
    }
    const span all = {0, 0, x->windows ? s->depth : s->deep};
    matrix y = {
        .p = room, .apart = rows ? s->deep : 1, .next = rows ? 1 : count, .dtype = x->dtype};
    if (!x->windows)
        y = gather_terms(room, x, first, count, s);
    else if (rows)
        gather_windows(
            room, y.apart, x->windows, first, count, s->spans[0].k, s->depth, y.apart);
    else
        gather_windows(room, y.next, x->windows, s->spans[0].k, s->depth, first, count, count);
    pack_panels(to, &y, 0, count, &all, 1, s->deep, rows);
}

static void pack_rows(
    cell *to, const matrix *a, int64_t first, int64_t count, const section *s, void *room)
{
    pack_entries(to, a, first, count, s, room, true);
}

static void pack_columns(
    cell *to, const matrix *b, int64_t first, int64_t count, const section *s, void *room)
{
    pack_entries(to, b, first, count, s, room, false);
}

/* One product of two matrices, and the part of C that this core computes. */
typedef struct job {
    const choir__k_matmul *k;
    matrix a, b;
    void *c;
    bool turned;        /* a and b are k's, exchanged, and C has the transpose of the tiles */
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

/* Rounds sums to 16 bits, as choir__bf16_from_f32 and choir__f16_from_f32 do. */
INLINE void round_vector(uint16_t *c, vec x, const bool bf16)
{
    typedef uint32_t uvec __attribute__((vector_size(4 * W)));
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    const uvec bits = (uvec)x, up = bits + 0x7fff + (bits >> 16 & 1);
    const uvec nan = (uvec)((ivec)(bits & 0x7fffffff) > 0x7f800000);
    const halves y =
        __builtin_convertvector(((nan & (bits | 0x400000)) | (~nan & up)) >> 16, halves);
    if (bf16) {
        memcpy(c, &y, sizeof y);
        return;
    }
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)c, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)(void *)c, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < W; i++)
        c[i] = choir__f16_from_f32(x[i]);
#endif
}

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

/* Rows of a block whose part of A is packed, in one section. */
typedef struct strip {
    const job *w;
    const section *section;
    int64_t row, column; /* the block's first element */
    int64_t first, rows; /* the strip in the block */
    int64_t m, n;        /* the block's rows and columns */
    const cell *a, *room_b;
    int64_t a_row, a_panel; /* tile.a_row; from one tile's rows to the next in a */
    bool laid;              /* a is from lay_rows */
} strip;

/* Computes the tile t of the last chain, whose sums go to C. */
static void end_chain(const job *w, const place *p, tile *t, real *sums)
{
    const choir__k_matmul *k = w->k;
    const int64_t at = p->row * k->c_row + p->column;
    t->to = sums;
    if (ENDS_IN_REGISTERS && k->bias && (takes_vectors(w, p) || is_rounded(w, p)))
        t->bias = (const real *)k->bias + p->column;
    if (takes_vectors(w, p)) {
        t->to = (real *)w->c + at;
        t->to_row = k->c_row;
        t->accumulate = k->accumulate;
        run_tile(t, p->rows, p->columns);
        return;
    }
    if (!w->turned && is_rounded(w, p)) {
        if (run_rounded(t, p->rows, p->columns, (uint16_t *)w->c + at, k->c_row))
            return;
    } else {
        run_tile(t, p->rows, p->columns);
    }
    (w->turned ? end_turned : end_rows)(w, p, sums);
}

/* The tile at row r of the strip and column j of the block. */
static void run_place(const strip *s, int64_t r, int64_t j)
{
    const job *w = s->w;
    real *far = w->levels + whole(s->m, TALL) * j + (s->first + r) * BROAD;
    const cell *a = s->a + r / TALL * s->a_panel, *b = s->room_b + j * s->section->deep;
    const place p = {.row = s->row + s->first + r,
        .column = s->column + j,
        .rows = choir__min(TALL, s->rows - r),
        .columns = choir__min(BROAD, s->n - j)};
    real sums[TALL * BROAD] __attribute__((aligned(64)));
    for (int i = 0; i < s->section->count; i++) {
        const chain *c = &s->section->chains[i];
        const span laid = {c->at, 0, c->depth};
        tile t = {.a = a + (s->a_row ? 0 : c->at * TALL),
            .b = b + c->at * BROAD,
            .a_row = s->a_row,
            .depth = c->depth,
            .spans = s->laid ? &laid : &s->section->spans[c->span],
            .span_count = s->laid ? 1 : c->spans,
            .to_row = BROAD,
            .near = {w->near, TALL * BROAD, c->near},
            .far = {far, w->level, c->takes & ~c->near}};
        if (c->level < 0) {
            end_chain(w, &p, &t, sums);
        } else {
            t.to = c->kept ? far + c->level * w->level : w->near + c->level * TALL * BROAD;
            run_tile(&t, p.rows, p.columns);
        }
    }
}

/* Rows [row, row + m) and columns [column, column + n) in a section. A panel of B serves all
 * tiles below it while it is in the first cache; if all of B is small, tiles go along C's rows.
 */
static void run_section(
    const job *w, const section *x, int64_t row, int64_t column, int64_t m, int64_t n)
{
    const bool along = n * x->deep * (int64_t)sizeof(cell) <= SMALL_B;
    cell *room_b = w->packed
                       ? (cell *)w->packed + x->at * whole(w->k->n, BROAD) + column * x->deep
                       : w->room_b;
    strip s = {
        .w = w, .section = x, .row = row, .column = column, .m = m, .n = n, .room_b = room_b};
    if (along && !w->packed)
        pack_columns(room_b, &w->b, column, n, x, w->gathered);
    for (; s.first < m; s.first += MOST_M) {
        s.rows = choir__min(MOST_M, m - s.first);
        if (reads_in_place(&w->a, s.rows, n, x)) {
            s.a = element_at(&w->a, row + s.first, 0);
            s.a_row = w->a.apart;
            s.a_panel = TALL * w->a.apart;
        } else if (stays_rows(&w->a, x)) {
            s.a = w->room_a;
            s.a_row = x->deep + APART;
            s.a_panel = TALL * s.a_row;
            s.laid = true;
            lay_rows(w->room_a, s.a_row, &w->a, row + s.first, s.rows, x, w->gathered);
        } else {
            pack_rows(w->room_a, &w->a, row + s.first, s.rows, x, w->gathered);
            s.a = w->room_a;
            s.a_row = 0;
            s.a_panel = TALL * x->deep;
        }
        for (int64_t r = 0; along && r < s.rows; r += TALL)
            for (int64_t j = 0; j < n; j += BROAD)
                run_place(&s, r, j);
        for (int64_t j = 0; !along && j < n; j += BROAD) {
            if (s.first == 0 && !w->packed && j % (TOGETHER * BROAD) == 0)
                pack_columns(room_b + j * x->deep, &w->b, column + j,
                    choir__min(TOGETHER * BROAD, n - j), x, w->gathered);
            for (int64_t r = 0; r < s.rows; r += TALL)
                run_place(&s, r, j);
        }
    }
}

/* Computes the job's part of C. */
static void run_job(job *w)
{
    const terms *t = &w->terms;
    const int64_t deep = choir__min(t->most, t->deep);
    const int64_t few = w->packed ? FEWER_M : FEW_M;
    const int64_t rows = t->several ? choir__min(few, w->m) : w->m;
    const int64_t fit = MOST_B / (choir__max(deep, 1) * (int64_t)sizeof(cell)) / BROAD * BROAD;
    const int64_t columns = choir__min(choir__min(MOST_N, fit), w->n);
    const int64_t a = whole(whole(choir__min(MOST_M, rows), TALL) * (deep + APART), ROOM),
                  b = w->packed ? 0 : whole(whole(columns, BROAD) * deep, ROOM);
    const int64_t gathered =
        t->gathers || w->a.windows || w->b.windows
            ? choir__max(choir__min(MOST_M, rows), whole(columns, BROAD)) * deep
            : 0;
    const int64_t near = t->levels * TALL * BROAD;
    w->level = t->several ? whole(rows, TALL) * whole(columns, BROAD) : 0;
    w->room_a = choir__cpu_panel(choir__cpu_context_current(),
        (size_t)(a + b) * sizeof(cell) +
            (size_t)(near + t->levels * w->level + gathered) * sizeof(real));
    w->room_b = w->room_a + a;
    w->near = (real *)(w->room_b + b);
    w->levels = w->near + near;
    w->gathered = w->levels + t->levels * w->level;
    for (int64_t j = 0; j < w->n; j += columns)
        for (int64_t i = 0; i < w->m; i += rows) {
            section s;
            for (position at = {0, 0}; next_section(t, &at, &s);)
                run_section(w, &s, w->row + i, w->column + j, choir__min(rows, w->m - i),
                    choir__min(columns, w->n - j));
        }
}

#endif
