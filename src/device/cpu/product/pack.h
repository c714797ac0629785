/* Panels: operands of a product in the order in which tiles read them.
 *
 * A panel has `each` entries (rows of A or columns of B) and is stored one k after the other:
 * (deep, each), +0 where the matrix has no more entries. It is packed in pieces of `depth` k.
 * 16-bit elements are widened on the way, which is exact. */
#ifndef CHOIR_PRODUCT_PACK_H
#define CHOIR_PRODUCT_PACK_H

#include "base/half.h"
#include "device/cpu/product/half_vectors.h"
#include "device/cpu/product/held_panels.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/tile.h"
#include "device/cpu/product/sections.h"
#include "device/cpu/product/turn.h"
#include "device/cpu/product/windows.h"

/* Panels that are packed together. */
enum { TOGETHER = 8, MOST_EACH = (int)TALL > (int)BROAD ? (int)TALL : (int)BROAD };

/* Packs entries whose elements lie side by side: a line of a cache of all entries at a time, so
 * that as many lines are on their way; a vector of entries at a time, then four, the last four
 * of a whole panel once more if `each` is no multiple of 4. after: the next span. */
INLINE void pack_turned(real *to, const real *from, const real *after, int64_t apart,
    int64_t there, int64_t depth, const int64_t each)
{
    enum { LINE = 64 / sizeof(real), AHEAD = 4 * LINE };
    const int64_t ahead = choir__min(AHEAD, depth);
    for (int64_t k = 0; k < depth; k += LINE, to += LINE * each, from += LINE) {
        int64_t some = choir__min(LINE, depth - k), i = 0;
        const real *then = k + ahead < depth ? from + ahead : after + k + ahead - depth;
        for (int64_t j = 0; j < there; j++)
            __builtin_prefetch(then + j * apart); /* may lie beyond the matrix */
        while (!IS_DOUBLE && some == LINE && i < there && (i + 4 <= there || there == each)) {
            int64_t first = choir__min(i, each - 4);
            const bool many = i + W <= there;
            if (TURNS_LINES && many) {
                turn_lines((float *)to + i, each, (const float *)from + i * apart, apart);
                i += W;
                continue;
            }
            for (int l = 0; l < (int)LINE; l += 4)
                if (many)
                    turn((float *)to + l * each + i, each, (const float *)from + i * apart + l,
                        apart * (int64_t)sizeof(float));
                else
                    turn4((float *)to + l * each + first, each,
                        (const float *)from + first * apart + l, apart);
            i = many ? i + W : first + 4;
        }
        for (; i < each; i++)
            for (int64_t l = 0; l < some; l++)
                to[l * each + i] = i < there ? from[i * apart + l] : 0;
    }
}

INLINE void pack_reals(real *to, const real *from, const real *after, int64_t apart,
    int64_t next, int64_t there, int64_t depth, const int64_t each)
{
    if (next == 1) {
        pack_turned(to, from, after, apart, there, depth, each);
        return;
    }
    for (int64_t k = 0; k < depth; k++, to += each, from += next)
        for (int64_t i = 0; i < each; i++)
            to[i] = i < there ? from[i * apart] : 0;
}

INLINE void widen_row(float *to, const uint16_t *from, int64_t n, const bool bf16)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(to + i, widened(from + i, bf16));
    for (; i < n; i++)
        to[i] = bf16 ? choir__f32_from_bf16(from[i]) : choir__f32_from_f16(from[i]);
}

/* Packs whole panels whose entries lie side by side: a piece of a row goes to TOGETHER panels,
 * so that each line of a cache is read once. More panels, whose distance is often a power of
 * two, would share too few sets of the first cache. next: elements of `dtype`. */
INLINE void pack_beside(real *to, const void *from, int64_t next, int64_t panels, int64_t depth,
    int64_t deep, const int64_t each, const choir_dtype dtype)
{
    enum { AHEAD = 8, BYTES = 64 };
    const int64_t size = is_half(dtype) ? 2 : sizeof(real), run = panels * each;
    const char *at = from;
    real row[TOGETHER * MOST_EACH];
    for (int64_t k = 0; k < depth; k++, to += each, at += next * size) {
        const real *line = (const real *)at;
        for (int64_t i = 0; i < run * size; i += BYTES)
            __builtin_prefetch(at + AHEAD * next * size + i); /* may lie beyond the matrix */
        if (is_half(dtype)) {
            widen_row((float *)row, (const uint16_t *)at, run, dtype == CHOIR_BF16);
            line = row;
        }
        for (int64_t p = 0; p < panels; p++)
            memcpy(to + p * deep * each, line + p * each, (size_t)each * sizeof *to);
    }
}

/* Chooses the copy of pack_beside. */
INLINE void pack_beside_as(real *to, const void *from, const matrix *x, int64_t panels,
    int64_t depth, int64_t deep, const int64_t each)
{
    if (x->dtype == CHOIR_BF16)
        pack_beside(to, from, x->next, panels, depth, deep, each, CHOIR_BF16);
    else if (x->dtype == CHOIR_F16)
        pack_beside(to, from, x->next, panels, depth, deep, each, CHOIR_F16);
    else
        pack_beside(to, from, x->next, panels, depth, deep, each, CHOIR_F32);
}

/* Packs 16-bit entries: rows of elements that lie side by side are widened at once. */
INLINE void pack_halves(real *to, const uint16_t *from, const matrix *x, int64_t there,
    int64_t depth, const int64_t each)
{
    enum { SOME = 64 }; /* elements of an entry, widened before they are turned */
    const bool bf16 = x->dtype == CHOIR_BF16;
    float row[MOST_EACH * SOME];
    for (int64_t k = 0; x->next == 1 && k < depth; k += SOME) {
        int64_t some = choir__min(SOME, depth - k);
        for (int64_t i = 0; i < there; i++) {
            const uint16_t *entry = from + i * x->apart + k;
            __builtin_prefetch(entry + 2 * SOME); /* may lie beyond the matrix */
            __builtin_prefetch(entry + 2 * SOME + SOME / 2);
            widen_row(row + i * SOME, entry, some, bf16);
        }
        pack_turned(
            to + k * each, (const real *)row, (const real *)row, SOME, there, some, each);
    }
    for (int64_t k = 0; x->next != 1 && k < depth; k++, to += each, from += x->next)
        for (int64_t i = 0; i < each; i++) {
            const uint16_t half = i < there ? from[i * x->apart] : 0;
            to[i] = bf16 ? choir__f32_from_bf16(half) : choir__f32_from_f16(half);
        }
}

/* Packs `there` entries of an operand in blocks, from entry `first` and element k on. An entry
 * is a row of memory; a few of its elements at a time are expanded, and turned. */
INLINE void pack_held_rows(real *to, const matrix *x, int64_t first, int64_t there, int64_t k,
    int64_t depth, const int64_t each)
{
    enum { SOME = 64, APART = SOME + 2 * HELD_ROOM };
    const int64_t begin = k % RUN; /* so that all but the first piece are whole runs */
    float rows[MOST_EACH * APART];
    for (int64_t l = 0, some; l < depth; l += some) {
        some = choir__min(l ? SOME : SOME - begin, depth - l);
        for (int64_t i = 0; i < there; i++)
            expand_piece(x, rows + i * APART, first + i, k + l, some);
        pack_turned(to + l * each, (const real *)rows + HELD_ROOM, (const real *)rows, APART,
            there, some, each);
    }
}

/* Packs entries of an operand in blocks, a row of memory having an element of each: a piece of
 * a row goes to some panels (pack_beside). */
INLINE void pack_held_beside(real *to, const matrix *x, int64_t first, int64_t there, int64_t k,
    int64_t depth, int64_t deep, const int64_t each)
{
    float room[TOGETHER * MOST_EACH + 2 * HELD_ROOM];
    for (int64_t l = 0; l < depth; l++, to += each) {
        const real *row = (const real *)expand_piece(x, room, k + l, first, there);
        int64_t i = 0;
        for (; i + each <= there; i += each)
            memcpy(to + i * deep, row + i, (size_t)each * sizeof *to);
        for (int64_t j = i; i < there && j < i + each; j++)
            to[i * deep + j - i] = j < there ? row[j] : 0;
    }
}

/* Packs the spans of entries of an operand in blocks, as `pack` does. */
INLINE void pack_held(real *to, const matrix *x, int64_t first, int64_t count,
    const span *spans, int span_count, int64_t deep, const int64_t each)
{
    const int64_t some = (x->next == 1 ? 1 : TOGETHER) * each;
    for (int64_t i = 0; i < count; i += some)
        for (const span *s = spans; s < spans + span_count; s++) {
            real *y = to + i * deep + s->at * each;
            const int64_t there = choir__min(some, count - i);
            if (x->next == 1)
                pack_held_rows(y, x, first + i, there, s->k, s->some, each);
            else
                pack_held_beside(y, x, first + i, there, s->k, s->some, deep, each);
        }
}

/* Blocks are expanded into much room on the stack, which other operands do not take: small
 * products run on the program's own thread. */
__attribute__((noinline)) static void pack_held_tall(real *to, const matrix *x, int64_t first,
    int64_t count, const span *spans, int span_count, int64_t deep)
{
    pack_held(to, x, first, count, spans, span_count, deep, TALL);
}

__attribute__((noinline)) static void pack_held_broad(real *to, const matrix *x, int64_t first,
    int64_t count, const span *spans, int span_count, int64_t deep)
{
    pack_held(to, x, first, count, spans, span_count, deep, BROAD);
}

/* Packs the spans of entries [first, first + count): (count / each, deep, each). */
INLINE void pack(real *to, const matrix *x, int64_t first, int64_t count, const span *spans,
    int span_count, int64_t deep, const int64_t each)
{
    int64_t i = 0;
    if (x->held) {
        (each == TALL ? pack_held_tall : pack_held_broad)(
            to, x, first, count, spans, span_count, deep);
        return;
    }
    if (x->apart == 1 && x->next != 1)
        for (int64_t panels; i + each <= count; i += panels * each) {
            panels = choir__min(TOGETHER, (count - i) / each);
            for (const span *s = spans; s < spans + span_count; s++)
                pack_beside_as(to + i * deep + s->at * each, element_at(x, first + i, s->k), x,
                    panels, s->some, deep, each);
        }
    for (; i < count; i += each)
        for (const span *s = spans; s < spans + span_count; s++) {
            const bool last = s + 1 == spans + span_count;
            const void *p = element_at(x, first + i, s->k);
            const void *after = last ? element_at(x, first + i + each, spans->k)
                                     : element_at(x, first + i, s[1].k);
            real *y = to + i * deep + s->at * each;
            int64_t there = choir__min(each, count - i);
            if (is_half(x->dtype))
                pack_halves(y, p, x, there, s->some, each);
            else
                pack_reals(y, p, after, x->apart, x->next, there, s->some, each);
        }
}

/* The interface to blocks.h. */
INLINE void pack_panels(cell *to, const matrix *x, int64_t first, int64_t count,
    const span *spans, int span_count, int64_t deep, const bool rows)
{
    pack(to, x, first, count, spans, span_count, deep, rows ? TALL : BROAD);
}

/* True if so few tiles, of n columns, read a row of A that packing it would not pay. Rows that
 * share few sets of a cache are packed. */
INLINE bool reads_in_place(const matrix *a, int64_t rows, int64_t n, const section *s)
{
    enum { FEW = 8, SETS = 1024 };
    (void)rows;
    return !s->gathers && a->next == 1 && n <= FEW * BROAD &&
           (TALL < WAYS || a->apart % SETS) && !is_half(a->dtype) && !a->windows;
}

/* True if rows of A, which are gathered or widened anyway, stay rows (lay_rows). */
INLINE bool stays_rows(const matrix *a, const section *s)
{
    return !s->gathers && (a->windows || (is_half(a->dtype) && a->next == 1));
}

INLINE void lay_halves(real *to, const matrix *x, int64_t entry, const span *s)
{
    const uint16_t *from = element_at(x, entry, s->k);
    if (x->dtype == CHOIR_BF16)
        widen_row((float *)to + s->at, from, s->some, true);
    else
        widen_row((float *)to + s->at, from, s->some, false);
}

/* Lays the section's terms of rows [first, first + count) in rows, `apart` cells from each
 * other, which tiles read like those that are in place. room: for halves that are gathered. */
static void lay_rows(real *to, int64_t apart, const matrix *a, int64_t first, int64_t count,
    const section *s, void *room)
{
    const matrix gathered = {.p = room, .apart = s->depth, .next = 1, .dtype = a->dtype};
    const span all = {0, 0, s->depth};
    const bool half = is_half(a->dtype);
    if (a->windows)
        gather_windows(half ? room : to, half ? s->depth : apart, a->windows, first, count,
            s->spans[0].k, s->depth, s->depth);
    for (int64_t i = 0; half && i < count; i++)
        if (a->windows)
            lay_halves(to + i * apart, &gathered, i, &all);
        else
            for (int j = 0; j < s->span_count; j++)
                lay_halves(to + i * apart, a, first + i, &s->spans[j]);
}

/* Tiles read images (bands.h), which are laid as elements that tiles multiply. */
enum { READS_BANDS = 1 };
INLINE void lay_elements(cell *to, const void *from, int64_t n, choir_dtype dtype)
{
    if (is_half(dtype))
        widen_row((float *)to, from, n, dtype == CHOIR_BF16);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* A tile is broader than tall, so C^T would fill fewer lanes where A has few rows. */
INLINE bool turns(const choir__k_matmul *k)
{
    (void)k;
    return false;
}

#endif
