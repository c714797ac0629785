/* Panels of the class `amx`: 16-bit elements; 2 p and 2 p + 1 along k are a pair.
 *
 * A step is 32 k, +0 beyond the chain's end. A panel of A is (steps, 32 rows, 16 pairs), one of
 * B (steps, 16 pairs, 32 columns), as the instruction reads its operands. */
#ifndef CHOIR_PRODUCT_PAIRS_PACK_H
#define CHOIR_PRODUCT_PAIRS_PACK_H

#include "device/cpu/product/matrix.h"
#include "device/cpu/product/pairs_tile.h"
#include "device/cpu/product/sections.h"
#include "device/cpu/product/turn.h"

enum { TOGETHER = 8, HALF_STEP = STEP / 2 };

/* A step of a panel: `there` entries from entry `first` on, `some` elements from k on. */
typedef struct piece {
    const matrix *x;
    int64_t first, there, k, some;
} piece;

/* to (32 entries, 32 k): the piece, and +0. */
INLINE void gather(uint16_t *to, const piece *p)
{
    memset(to, 0, TALL * STEP * sizeof *to);
    for (int64_t i = 0; i < p->there; i++) {
        const uint16_t *from = element_at(p->x, p->first + i, p->k);
        for (int64_t k = 0; k < p->some; k++)
            to[i * STEP + k] = from[k * p->x->next];
    }
}

/* A row of pairs, of 32 entries that lie side by side; `there` of the two rows exist. */
INLINE void pair_row(uint32_t *to, const uint16_t *even, int64_t next, int64_t there)
{
    static const uint16_t zeros[BROAD];
    const uint16_t *odd = there > 1 ? even + next : zeros;
    if (there < 1)
        even = zeros;
    for (int i = 0; i < BROAD; i++)
        to[i] = even[i] | (uint32_t)odd[i] << 16;
}

/* to (16 pairs, 32 entries) of a piece of 32 entries that lie side by side. */
INLINE void pair_up(uint32_t *to, const piece *p)
{
    for (int64_t k = 0; k < STEP; k += 2)
        pair_row(
            to + k / 2 * BROAD, element_at(p->x, p->first, p->k + k), p->x->next, p->some - k);
}

/* Packs whole panels of columns that lie side by side: pieces of two rows go to all of them, so
 * that each line of a cache is read once. */
static void pack_beside(uint32_t *to, const matrix *x, int64_t first, int64_t panels, int64_t k,
    int64_t depth, int64_t deep)
{
    enum { AHEAD = 8 };
    const int64_t panel = deep / 2 * BROAD;
    for (int64_t i = 0; i < whole(depth, STEP); i += 2, to += BROAD) {
        const uint16_t *from = element_at(x, first, k + i);
        for (int64_t p = 0; p < panels; p++) {
            __builtin_prefetch(from + AHEAD * x->next + p * BROAD);
            __builtin_prefetch(from + (AHEAD + 1) * x->next + p * BROAD);
            pair_row(to + p * panel, from + p * BROAD, x->next, depth - i);
        }
    }
}

/* to (32 entries, 16 pairs) or, of columns, (16 pairs, 32 entries). */
INLINE void pack_piece(uint32_t *to, const piece *p, const bool rows)
{
    const matrix *x = p->x;
    uint32_t room[TALL * HALF_STEP];
    if (x->apart == 1 && x->next != 1 && p->there == TALL) {
        pair_up(rows ? room : to, p);
        for (int i = 0; rows && i < TALL; i += 4)
            for (int j = 0; j < HALF_STEP; j += W)
                turn(to + i * HALF_STEP + j, HALF_STEP, room + j * BROAD + i, BROAD * 4);
        return;
    }
    const uint16_t *from = element_at(x, p->first, p->k);
    int64_t apart = x->apart;
    if (x->next != 1 || p->there < TALL || p->some < STEP) {
        gather((uint16_t *)room, p);
        from = (const uint16_t *)room;
        apart = STEP;
    }
    for (int i = 0; rows && i < TALL; i++)
        memcpy(to + i * HALF_STEP, from + i * apart, STEP * sizeof *from);
    for (int i = 0; !rows && i < BROAD; i += W)
        for (int j = 0; j < HALF_STEP; j += 4)
            turn(to + j * BROAD + i, BROAD, from + i * apart + 2 * j, 2 * apart);
}

/* Packs a span, a step of TOGETHER panels at a time. */
INLINE void pack_span(cell *to, const matrix *x, int64_t first, int64_t count, const span *s,
    int64_t deep, const bool rows)
{
    int64_t done = 0, panels;
    to += s->at * TALL;
    if (!rows && x->apart == 1 && x->next != 1)
        for (; done + BROAD <= count; done += panels * BROAD) {
            panels = choir__min(TOGETHER, (count - done) / BROAD);
            pack_beside(
                (uint32_t *)(to + done * deep), x, first + done, panels, s->k, s->some, deep);
        }
    for (; done < count; done += TOGETHER * TALL)
        for (int64_t k = 0; k < s->some; k += STEP)
            for (int64_t i = done; i < choir__min(count, done + TOGETHER * TALL); i += TALL) {
                const piece p = {x, first + i, choir__min(TALL, count - i), s->k + k,
                    choir__min(STEP, s->some - k)};
                pack_piece((uint32_t *)(to + i * deep + k * TALL), &p, rows);
            }
}

/* Packs the spans of entries [first, first + count). A span begins with a step. */
INLINE void pack_panels(cell *to, const matrix *x, int64_t first, int64_t count,
    const span *spans, int span_count, int64_t deep, const bool rows)
{
    for (int i = 0; i < span_count; i++)
        pack_span(to, x, first, count, &spans[i], deep, rows);
}

/* True if tiles can read the rows of A where they are: whole steps of whole lines of a cache.
 * Rows that share few sets of a cache are packed. */
INLINE bool reads_in_place(const matrix *a, int64_t rows, int64_t n, const section *s)
{
    enum { SETS = 2048 };
    bool steps = a->next == 1 && rows % HALF_TALL == 0 && a->apart % STEP == 0 &&
                 (uintptr_t)a->p % 64 == 0 && a->apart % SETS && !a->windows && !s->gathers;
    (void)n;
    for (int i = 0; steps && i < s->span_count; i++)
        steps = s->spans[i].k % STEP == 0 && s->spans[i].some % STEP == 0;
    return steps;
}

/* Rows of pairs are packed. */
INLINE bool stays_rows(const matrix *a, const section *s)
{
    (void)a, (void)s;
    return false;
}

INLINE void lay_rows(cell *to, int64_t apart, const matrix *a, int64_t first, int64_t count,
    const section *s, void *room)
{
    (void)to, (void)apart, (void)a, (void)first, (void)count, (void)s, (void)room;
}

/* Tiles do not read images: pairs lie along k. */
enum { READS_BANDS = 0 };
INLINE void lay_elements(cell *to, const void *from, int64_t n, choir_dtype dtype)
{
    (void)to, (void)from, (void)n, (void)dtype;
}

/* True if C^T = B^T A^T is faster: B's columns are rows that tiles read in place, and packing A
 * takes less than B. It costs a turn of each tile of C. */
INLINE bool turns(const choir__k_matmul *k)
{
    return k->a_col == 1 && k->b_row == 1 && k->m < k->n && 2 * k->m < k->k;
}

#endif
