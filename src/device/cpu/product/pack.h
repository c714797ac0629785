/* Panels: operands of a product in the order in which tiles read them.
 *
 * A panel has `each` entries (rows of A or columns of B) and is stored one k after the other:
 * (depth, each), +0 where the matrix has no more entries. 16-bit elements are widened on the
 * way, which is exact. */
#ifndef CHOIR_PRODUCT_PACK_H
#define CHOIR_PRODUCT_PACK_H

#include "base/half.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/tile.h"
#include "device/cpu/product/turn.h"

/* Panels that are packed together. */
enum { TOGETHER = 8 };

/* Packs entries whose elements lie side by side: a line of a cache of all entries at a time, so
 * that as many lines are on their way; a vector of entries at a time, then four, the last four
 * of a whole panel once more if `each` is no multiple of 4. */
INLINE void pack_turned(
    real *to, const real *from, int64_t apart, int64_t there, int64_t depth, const int64_t each)
{
    enum { LINE = 64 / sizeof(real), AHEAD = 4 * LINE };
    for (int64_t k = 0; k < depth; k += LINE, to += LINE * each, from += LINE) {
        int64_t some = choir__min(LINE, depth - k), i = 0;
        if (k + AHEAD < depth)
            for (int64_t j = 0; j < there; j++)
                __builtin_prefetch(from + j * apart + AHEAD);
        while (!IS_DOUBLE && some == LINE && i < there && (i + 4 <= there || there == each)) {
            int64_t first = choir__min(i, each - 4);
            const bool many = i + W <= there;
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

INLINE void pack_reals(real *to, const real *from, int64_t apart, int64_t next, int64_t there,
    int64_t depth, const int64_t each)
{
    if (next == 1) {
        pack_turned(to, from, apart, there, depth, each);
        return;
    }
    for (int64_t k = 0; k < depth; k++, to += each, from += next)
        for (int64_t i = 0; i < each; i++)
            to[i] = i < there ? from[i * apart] : 0;
}

/* Packs whole panels whose entries lie side by side: a piece of a row goes to TOGETHER panels,
 * so that each line of a cache is read once. More panels, whose distance is often a power of
 * two, would share too few sets of the first cache. */
INLINE void pack_beside(
    real *to, const real *from, int64_t next, int64_t panels, int64_t depth, const int64_t each)
{
    enum { AHEAD = 8, LINE = 64 / sizeof(real) };
    for (int64_t k = 0; k < depth; k++, to += each, from += next) {
        for (int64_t i = 0; i < panels * each; i += LINE)
            __builtin_prefetch(from + AHEAD * next + i); /* may lie beyond the matrix */
        for (int64_t p = 0; p < panels; p++)
            memcpy(to + p * depth * each, from + p * each, (size_t)each * sizeof *to);
    }
}

/* Packs 16-bit entries: rows of elements that lie side by side are widened at once. */
INLINE void pack_halves(real *to, const uint16_t *from, const matrix *x, int64_t there,
    int64_t depth, const int64_t each)
{
    enum {
        SOME = 64,
        MOST = (int)TALL > (int)BROAD ? (int)TALL : (int)BROAD
    }; /* elements of an entry, widened before they are turned */
    bool bf16 = x->dtype == CHOIR_BF16;
    choir__convert_row *widen = bf16 ? choir__widen_bf16 : choir__widen_f16;
    real row[MOST * SOME];
    for (int64_t k = 0; x->next == 1 && k < depth; k += SOME) {
        int64_t some = choir__min(SOME, depth - k);
        for (int64_t i = 0; i < there; i++)
            widen(row + i * SOME, from + i * x->apart + k, some);
        pack_turned(to + k * each, row, SOME, there, some, each);
    }
    for (int64_t k = 0; x->next != 1 && k < depth; k++, to += each, from += x->next) {
        if (x->apart == 1)
            widen(to, from, there);
        else
            for (int64_t i = 0; i < there; i++)
                to[i] = bf16 ? choir__f32_from_bf16(from[i * x->apart])
                             : choir__f32_from_f16(from[i * x->apart]);
        for (int64_t i = there; i < each; i++)
            to[i] = 0;
    }
}

/* Packs entries [first, first + count) and k [from, from + depth): (count / each, depth, each).
 */
INLINE void pack(real *to, const matrix *x, int64_t first, int64_t count, int64_t from,
    int64_t depth, const int64_t each)
{
    int64_t i = 0;
    if (x->apart == 1 && x->next != 1 && !is_half(x->dtype))
        for (int64_t panels; i + each <= count;
             i += panels * each, to += panels * each * depth) {
            panels = choir__min(TOGETHER, (count - i) / each);
            pack_beside(to, element_at(x, first + i, from), x->next, panels, depth, each);
        }
    for (; i < count; i += each, to += each * depth) {
        const void *p = element_at(x, first + i, from);
        int64_t there = choir__min(each, count - i);
        if (is_half(x->dtype))
            pack_halves(to, p, x, there, depth, each);
        else
            pack_reals(to, p, x->apart, x->next, there, depth, each);
    }
}

/* The interface to blocks.h. */
typedef real cell; /* an element of a panel */
enum { STEP = 1 }; /* a panel's depth is a multiple of it */

INLINE void pack_panels(cell *to, const matrix *x, int64_t first, int64_t count, int64_t from,
    int64_t depth, const bool rows)
{
    pack(to, x, first, count, from, depth, rows ? TALL : BROAD);
}

/* True if so few tiles, of n columns, read a row of A that packing it would not pay. Rows that
 * share few sets of a cache are packed. */
INLINE bool reads_in_place(const matrix *a, int64_t rows, int64_t n, int64_t depth)
{
    enum { FEW = 8, SETS = 1024 };
    (void)rows, (void)depth;
    return a->next == 1 && n <= FEW * BROAD && (TALL < WAYS || a->apart % SETS) &&
           !is_half(a->dtype) && !a->windows;
}

/* A tile is broader than tall, so C^T would fill fewer lanes where A has few rows. */
INLINE bool turns(const choir__k_matmul *k)
{
    (void)k;
    return false;
}

#endif
