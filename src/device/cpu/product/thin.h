/* Products of few rows, as texts need that are written a token at a time.
 *
 *     C (rows, N) = A (rows, K) B (K, N), of at most THIN rows
 *
 * An element of B meets so few rows that a panel of B, which is written and read once more,
 * would cost more than the sums. B is read where it is, at the rate of memory:
 *
 *     columns side by side:  some rows of B at a time, along C's rows, whose sums are in the
 *                            first cache
 *     k side by side:        4 (16-bit elements: 8) k of W columns at a time, transposed in
 *                            registers; the sums stay in registers
 *
 * A is packed as one panel of THIN rows. Sums are chains and levels, as everywhere. */
#ifndef CHOIR_PRODUCT_THIN_H
#define CHOIR_PRODUCT_THIN_H

#include "device/cpu/product/blocks.h"
#include "device/cpu/product/thin_held.h"

/* SUMS: of a group of columns that lie side by side, 16 KiB. DEEP: rows of B at a time.
 * MOST_SUMS: vectors of sums in registers, of at most MOST_VECTORS of a row. GROUPS: vectors of
 * other columns that are computed together, so that few rows have enough sums under way. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { MOST_SUMS = 16 };
#else
enum { MOST_SUMS = 8 };
#endif
enum { SUMS = 4096, DEEP = 16, MOST_VECTORS = 4, GROUPS = 2 };

typedef struct thin {
    const job *w;
    int64_t rows;  /* rows of C, rounded up to the number that is computed together */
    const real *a; /* (deep, THIN) */
    real *sums;    /* (rows, room): of one group of columns */
    real *levels;  /* (levels, rows, room): sums of earlier chains */
    int64_t room;  /* columns of a group */
    bool turned;   /* k lie side by side */
} thin;

/* A span of k, and the group's columns. */
typedef struct piece {
    const real *a;
    const char *b;
    int64_t next, apart; /* bytes in b: from one k, and from one column, to the next */
    int64_t before;      /* bytes of earlier k, where k lie side by side */
    int64_t depth, columns;
    real *sums;
    int64_t room;
} piece;

#define THIN_ROWS    _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)
#define THIN_VECTORS _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)
#define UNROLL       _Pragma("GCC unroll 8")

/* W elements of one k; the last W - n are zeros. */
INLINE vec row_part(const char *from, int64_t n, const choir_dtype dtype)
{
    const size_t size = is_half(dtype) ? 2 : 4;
    char some[4 * W] = {0};
    if (n < W)
        from = memcpy(some, from, (size_t)n * size);
    return is_half(dtype) ? widened((const uint16_t *)from, dtype == CHOIR_BF16)
                          : v_load((const float *)from);
}

/* Adds `deep` terms to `vectors` of sums of each row, from column j on, which has n elements.
 */
INLINE void add_beside(const piece *p, const real *a, const char *b, int64_t j, int64_t n,
    const int rows, const int vectors, int deep, const choir_dtype dtype)
{
    const int64_t size = is_half(dtype) ? 2 : 4, next = p->next, ahead = deep * next;
    real *to = p->sums + j;
    vec sum[THIN][MOST_VECTORS];
    b += j * size;
    THIN_ROWS THIN_VECTORS sum[i][v] = v_load(to + i * p->room + v * W);
    for (int l = 0; l < deep; l++, a += THIN, b += next) {
        vec right[MOST_VECTORS];
        THIN_VECTORS right[v] = row_part(b + v * W * size, n, dtype);
        THIN_VECTORS __builtin_prefetch(b + ahead + v * W * size, 0, 2); /* maybe beyond B */
        THIN_ROWS
        {
            const vec left = v_set(a[i]);
            THIN_VECTORS sum[i][v] = v_fma(left, right[v], sum[i][v]);
        }
    }
    THIN_ROWS THIN_VECTORS v_store(to + i * p->room + v * W, sum[i][v]);
}

INLINE void columns_beside(const piece *p, const int rows, const choir_dtype dtype)
{
    const int vectors = rows * MOST_VECTORS <= MOST_SUMS ? MOST_VECTORS : MOST_SUMS / rows;
    for (int64_t k = 0, deep; k < p->depth; k += deep) {
        const real *a = p->a + k * THIN;
        const char *b = p->b + k * p->next;
        int64_t j = 0;
        deep = choir__min(DEEP, p->depth - k);
        for (; j + vectors * W <= p->columns; j += vectors * W)
            add_beside(p, a, b, j, W, rows, vectors, (int)deep, dtype);
        for (; j + W <= p->columns; j += W)
            add_beside(p, a, b, j, W, rows, 1, (int)deep, dtype);
        if (j < p->columns)
            add_beside(p, a, b, j, p->columns - j, rows, 1, (int)deep, dtype);
    }
}

/* Element `from` of W columns. */
INLINE vec lanes_of(const char *from, int64_t apart, const choir_dtype dtype)
{
    float x[W];
    for (int i = 0; i < W; i++, from += apart)
        if (is_half(dtype))
            widen_row(x + i, (const uint16_t *)from, 1, dtype == CHOIR_BF16);
        else
            memcpy(x + i, from, sizeof *x);
    return v_load(x);
}

/* Adds a span's terms to the sums of `groups` vectors of columns. */
INLINE void columns_apart(
    const piece *p, const int rows, const int groups, const choir_dtype dtype)
{
    const int each = is_half(dtype) ? 2 : 1; /* elements in 32 bits */
    const int64_t apart = p->apart, size = is_half(dtype) ? 2 : 4;
    const real *a = p->a;
    const char *b = p->b, *end = b + p->depth * size;
    const char *ahead = b + groups * W * apart + (groups * W - 1) * p->before;
    vec sum[GROUPS][THIN];
    UNROLL for (int g = 0; g < groups; g++) THIN_ROWS sum[g][i] =
        v_load(p->sums + i * p->room + g * W);
    for (; end - b >= 16; b += 16, a += 4 * each * THIN, ahead += 16 * groups * W) {
        UNROLL for (int i = 0; i < 16 * groups * W; i += LINE)
            __builtin_prefetch(ahead + i, 0, 2); /* the next columns, maybe beyond B */
        UNROLL for (int g = 0; g < groups; g++)
        {
            vec right[4];
            turned_of(right, b + g * W * apart, apart);
            UNROLL for (int l = 0; l < 4 * each; l++)
            {
                const vec x =
                    each == 1 ? right[l] : half_of(right[l / 2], l % 2, dtype == CHOIR_BF16);
                THIN_ROWS sum[g][i] = v_fma(v_set(a[l * THIN + i]), x, sum[g][i]);
            }
        }
    }
    for (; b < end; b += size, a += THIN)
        UNROLL for (int g = 0; g < groups; g++)
        {
            const vec x = lanes_of(b + g * W * apart, apart, dtype);
            THIN_ROWS sum[g][i] = v_fma(v_set(a[i]), x, sum[g][i]);
        }
    UNROLL for (int g = 0; g < groups; g++)
        THIN_ROWS v_store(p->sums + i * p->room + g * W, sum[g][i]);
}

#define EACH_FEW(X) X(1) X(2) X(4) X(8)
#define BESIDE(rows)                                                                           \
    case rows:                                                                                 \
        columns_beside(p, rows, dtype);                                                        \
        break;
#define APART(rows)                                                                            \
    case rows:                                                                                 \
        if (p->columns == W)                                                                   \
            columns_apart(p, rows, 1, dtype);                                                  \
        else                                                                                   \
            columns_apart(p, rows, GROUPS, dtype);                                             \
        break;

INLINE void add_piece(const piece *p, int64_t rows, const bool turned, const choir_dtype dtype)
{
    if (turned)
        switch (rows) {
            EACH_FEW(APART)
        }
    else
        switch (rows) {
            EACH_FEW(BESIDE)
        }
}

static void add_f32(const piece *p, int64_t rows, bool turned)
{
    add_piece(p, rows, turned, CHOIR_F32);
}

static void add_bf16(const piece *p, int64_t rows, bool turned)
{
    add_piece(p, rows, turned, CHOIR_BF16);
}

static void add_f16(const piece *p, int64_t rows, bool turned)
{
    add_piece(p, rows, turned, CHOIR_F16);
}

/* Computes a chain of each of the group's sums. */
static void run_chain(
    const thin *t, const section *s, const chain *c, int64_t column, int64_t columns)
{
    const job *w = t->w;
    const matrix *b = &w->b;
    const int64_t size = (int64_t)choir_dtype_size(b->dtype), n = t->rows * t->room;
    memset(t->sums, 0, (size_t)n * sizeof *t->sums);
    for (int i = c->span; i < c->span + c->spans; i++) {
        const span *x = &s->spans[i];
        if (b->held) {
            add_held_span(b, t->rows, t->a + (s->at + x->at) * THIN, column, columns, x,
                t->sums, t->room);
            continue;
        }
        const piece p = {.a = t->a + (s->at + x->at) * THIN,
            .b = element_at(b, column, x->k),
            .next = b->next * size,
            .apart = b->apart * size,
            .before = x->k * size,
            .depth = x->some,
            .columns = columns,
            .sums = t->sums,
            .room = t->room};
        (b->dtype == CHOIR_BF16     ? add_bf16
            : b->dtype == CHOIR_F16 ? add_f16
                                    : add_f32)(&p, t->rows, t->turned);
    }
    for (uint64_t left = c->takes; left; left &= left - 1) {
        const real *level = t->levels + __builtin_ctzll(left) * n;
        for (int64_t i = 0; i < n; i++)
            t->sums[i] = level[i] + t->sums[i];
    }
    if (c->level >= 0)
        memcpy(t->levels + c->level * n, t->sums, (size_t)n * sizeof *t->sums);
}

/* Computes columns [column, column + columns); C receives them from `first` on. */
static void run_group(const thin *t, int64_t column, int64_t columns, int64_t first)
{
    const job *w = t->w;
    section s;
    for (position at = {0, 0}; next_section(&w->terms, &at, &s);)
        for (int i = 0; i < s.count; i++)
            run_chain(t, &s, &s.chains[i], column, columns);
    for (int64_t i = 0; i < w->m; i++)
        for (int64_t j = first - column, some; j < columns; j += some) {
            some = choir__min(BROAD, columns - j);
            end_row(w, t->sums + i * t->room + j, w->row + i, column + j, some);
        }
}

/* Packs A's rows as one panel. */
static void pack_few(real *to, const job *w)
{
    section s;
    for (position at = {0, 0}; next_section(&w->terms, &at, &s);)
        pack(to + s.at * THIN, &w->a, w->row, w->m, s.spans, s.span_count, s.deep, THIN);
}

/* True if run_thin computes the job. */
INLINE bool is_thin(const job *w)
{
    const matrix *b = &w->b;
    return w->m <= THIN && !w->packed && !w->a.windows && !b->windows &&
           (!b->held || is_read_held(b)) && !w->terms.gathers &&
           (b->apart == 1 || (b->next == 1 && w->k->n >= W));
}

static void run_thin(const job *w)
{
    const bool turned = w->b.apart != 1;
    const int64_t rows = w->m <= 2 ? w->m : w->m <= 4 ? 4 : THIN;
    const int64_t room = w->b.held ? HELD_GROUPS * W : turned ? GROUPS * W : SUMS / rows;
    const int64_t end = w->column + w->n, n = rows * room, deep = w->terms.deep * THIN;
    real *a = choir__cpu_panel(choir__cpu_context_current(),
        (size_t)(whole(deep, ROOM) + (w->terms.levels + 1) * n) * sizeof *a);
    const thin t = {w, rows, a, a + whole(deep, ROOM), a + whole(deep, ROOM) + n, room, turned};
    pack_few(a, w);
    for (int64_t j = w->column, some; j < end; j += some) {
        some = choir__min(room, end - j);
        if (turned && some < room)
            some = choir__min(some, W);
        const int64_t from = turned && some < W ? choir__max(0, j + some - W) : j;
        run_group(&t, from, turned ? whole(some, W) : some, j);
    }
}

#endif
