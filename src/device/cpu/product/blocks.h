/* The product of two matrices, block by block.
 *
 * C is cut into blocks of rows and columns. For a block, one section of k (sections.h) after
 * the other is computed: A's rows are packed MOST_M at a time, to stay in the second cache, and
 * B's panels when their first tile needs them, one of which stays in the first cache.
 *
 *     for each block of C (rows, MOST_N columns)
 *         for each section
 *             for MOST_M rows:  pack A, or lay its rows (pack.h), or read them in place,
 *                               or in a band of images (bands.h)
 *                 for each panel of B:  pack it, the first time
 *                     for each panel of A:  a tile, for each chain of the section
 *
 * Sums go to C as ends.h says; sums that wait for others are in levels (levels.h).
 */
#ifndef CHOIR_PRODUCT_BLOCKS_H
#define CHOIR_PRODUCT_BLOCKS_H

#include "device/cpu/product/ends.h"

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

/* Rows of a block whose part of A is packed, or laid, or read where it is, in one section. */
typedef struct strip {
    const job *w;
    const section *section;
    int64_t row, column; /* the block's first element */
    int64_t first, rows; /* the strip in the block */
    int64_t m, n;        /* the block's rows and columns */
    const cell *a, *room_b;
    int64_t a_row, a_next; /* rows' distances, as in a tile */
    bool packed, laid;     /* a is from pack_rows, or from lay_rows */
    bool once;             /* a panel of B serves this strip alone: panels share their room */
    tile_rows *tiles;
    int tile_count;
    const band_terms *pieces; /* unless it is NULL, tiles read a band of images */
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

/* The spans of chain i in A; one: receives them if they are a single one. */
static const span *spans_of(const strip *s, int i, span *one, int *count)
{
    const chain *c = &s->section->chains[i];
    if (s->pieces) {
        *count = s->pieces->begin[i + 1] - s->pieces->begin[i];
        return s->pieces->pieces + s->pieces->begin[i];
    }
    *count = s->packed || s->laid ? 1 : c->spans;
    *one = (span){c->at * (s->packed ? TALL : 1), 0, c->depth};
    return s->packed || s->laid ? one : &s->section->spans[c->span];
}

/* The panel of B at column j of the block. Panels that are packed together are used before the
 * next ones replace them, if they serve one strip: then they stay in the second cache. */
INLINE cell *panel_of(const strip *s, int64_t j)
{
    return (cell *)s->room_b + (s->once ? j % (TOGETHER * BROAD) : j) * s->section->deep;
}

/* The tile of these rows of the strip, at column j of the block. */
static void run_place(const strip *s, const tile_rows *rows, int64_t j)
{
    const job *w = s->w;
    real *far = w->levels + whole(s->m, TALL) * j + (s->first + rows->row) * BROAD;
    const cell *b = panel_of(s, j);
    const place p = {.row = s->row + s->first + rows->row,
        .column = s->column + j,
        .rows = rows->rows,
        .columns = choir__min(BROAD, s->n - j)};
    real sums[TALLEST * BROAD] __attribute__((aligned(64)));
    for (int i = 0; i < s->section->count; i++) {
        const chain *c = &s->section->chains[i];
        span one;
        tile t = {.a = s->a + rows->at,
            .b = b + c->at * BROAD,
            .a_row = s->a_row,
            .a_next = s->a_next,
            .to_row = BROAD,
            .near = {w->near, TALLEST * BROAD, c->near},
            .far = {far, w->level, c->takes & ~c->near}};
        t.spans = spans_of(s, i, &one, &t.span_count);
        if (c->level < 0) {
            end_chain(w, &p, &t, sums);
        } else {
            t.to = c->kept ? far + c->level * w->level : w->near + c->level * TALLEST * BROAD;
            run_tile(&t, p.rows, p.columns);
        }
    }
}

/* Lists tiles of TALL rows each. */
static void list_tiles(strip *s)
{
    const int64_t apart = TALL * (s->packed ? s->section->deep : s->a_row);
    s->tile_count = 0;
    for (int64_t r = 0; r < s->rows; r += TALL, s->tile_count++)
        s->tiles[s->tile_count] =
            (tile_rows){r, choir__min(TALL, s->rows - r), s->tile_count * apart};
}

/* Makes A's rows ready for the tiles. */
static void prepare_rows(strip *s)
{
    const job *w = s->w;
    const section *x = s->section;
    const int64_t row = s->row + s->first;
    s->a = w->room_a;
    s->packed = s->laid = false;
    if (reads_in_place(&w->a, s->rows, s->n, x)) {
        s->a = element_at(&w->a, row, 0);
        s->a_row = w->a.apart;
    } else if (stays_rows(&w->a, x)) {
        s->laid = true;
        s->a_row = x->deep + APART;
        lay_rows(w->room_a, s->a_row, &w->a, row, s->rows, x, w->gathered);
    } else {
        s->packed = true;
        s->a_row = 0, s->a_next = TALL;
        pack_rows(w->room_a, &w->a, row, s->rows, x, w->gathered);
    }
    list_tiles(s);
}

/* Makes a band of images ready for the tiles. Where windows lie along k, all strips of a
 * section read one band. */
static void prepare_band(strip *s, band *b)
{
    const job *w = s->w;
    const section *x = s->section;
    const int64_t row = s->row + s->first;
    if (!b->turned)
        lay_band(w->room_a, b, row, s->rows, w->a.dtype);
    else if (s->first == 0)
        lay_band(w->room_a, b, x->spans[0].k, x->depth, w->a.dtype);
    s->a = b->laid ? w->room_a : w->a.windows->images;
    s->a_row = b->turned ? 0 : b->step;
    s->a_next = b->turned ? b->step : 1;
    const bool narrow = !b->turned && s->n <= RW;
    s->tile_count = band_tiles(s->tiles, b, row, s->rows, narrow ? TALLEST : TALL);
    if (s->first == 0)
        list_terms(&w->lists->pieces, b, x);
    s->pieces = &w->lists->pieces;
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
    band here = w->band;
    strip s = {.w = w,
        .section = x,
        .row = row,
        .column = column,
        .m = m,
        .n = n,
        .room_b = room_b,
        .once = !along && !w->packed && m <= w->strip,
        .tiles = w->lists->tiles};
    if (along && !w->packed)
        pack_columns(room_b, &w->b, column, n, x, w->gathered);
    for (; s.first < m; s.first += w->strip) {
        s.rows = choir__min(w->strip, m - s.first);
        if (w->banded)
            prepare_band(&s, &here);
        else
            prepare_rows(&s);
        for (int r = 0; along && r < s.tile_count; r++)
            for (int64_t j = 0; j < n; j += BROAD)
                run_place(&s, &s.tiles[r], j);
        for (int64_t j = 0; !along && j < n; j += BROAD) {
            if (s.first == 0 && !w->packed && j % (TOGETHER * BROAD) == 0)
                pack_columns(panel_of(&s, j), &w->b, column + j,
                    choir__min(TOGETHER * BROAD, n - j), x, w->gathered);
            for (int r = 0; r < s.tile_count; r++)
                run_place(&s, &s.tiles[r], j);
        }
    }
}

/* Says how tiles read A's windows, and how many rows a strip has. */
static void choose_strips(job *w)
{
    const choir__windows *v = w->a.windows;
    w->strip = MOST_M;
    w->banded = v && (w->turned || rows_are_windows(v, &w->terms));
    if (!w->banded)
        return;
    w->band = band_of(v, w->a.dtype, w->turned);
    if (!w->turned && v->cols <= MOST_M)
        w->strip = MOST_M / v->cols * v->cols;
}

/* Cells for A's rows of a strip, `deep` places each. */
static int64_t cells_of_rows(const job *w, int64_t rows, int64_t deep)
{
    if (w->banded)
        return whole(band_cells(&w->band, w->turned ? deep : choir__min(w->strip, rows)), ROOM);
    return whole(whole(choir__min(w->strip, rows), TALL) * (deep + APART), ROOM);
}

/* Computes the job's part of C. */
static void run_job(job *w)
{
    const terms *t = &w->terms;
    choose_strips(w);
    const int64_t deep = choir__min(t->most, t->deep);
    const int64_t few = w->packed ? FEWER_M : FEW_M;
    const int64_t rows = t->several ? choir__min(few, w->m) : w->m;
    const int64_t fit = MOST_B / (choir__max(deep, 1) * (int64_t)sizeof(cell)) / BROAD * BROAD;
    const int64_t columns = choir__min(choir__min(MOST_N, fit), w->n);
    const int64_t a = cells_of_rows(w, rows, deep),
                  b = w->packed ? 0 : whole(whole(columns, BROAD) * deep, ROOM);
    const int64_t gathered =
        t->gathers || (w->a.windows && !w->banded) || w->b.windows
            ? choir__max(choir__min(MOST_M, rows), whole(columns, BROAD)) * deep
            : 0;
    const int64_t near = t->levels * TALLEST * BROAD;
    w->level = t->several ? whole(rows, TALL) * whole(columns, BROAD) : 0;
    w->lists = choir__cpu_panel(choir__cpu_context_current(),
        sizeof *w->lists + (size_t)(a + b) * sizeof(cell) +
            (size_t)(near + t->levels * w->level + gathered) * sizeof(real));
    w->room_a = (cell *)(w->lists + 1); /* a multiple of 64 bytes */
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
