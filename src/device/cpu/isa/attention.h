/* Shared by attention's two directions: the keys that a query sees, and a head's operands in
 * the order in which tiles read them. */
#ifndef CHOIR_ISA_ATTENTION_H
#define CHOIR_ISA_ATTENTION_H

#include "device/cpu/isa/halves.h"
#include "device/cpu/isa/tile.h"
#include "device/cpu/isa/vector_math.h"

/* Upper limits of a block of queries: rows, rows under a causal mask, scores. */
enum { QUERIES = 128, CAUSAL = 64, SCORES = 1 << 17 };

typedef choir__attention_shape shape;

typedef struct span {
    int64_t from, to;
} span;

INLINE int64_t whole_panels(int64_t n)
{
    return (n + BROAD - 1) / BROAD * BROAD;
}

INLINE int64_t block_rows(const shape *n)
{
    int64_t most = n->causal ? CAUSAL : QUERIES, blocks = (n->t + most - 1) / most;
    while (blocks < n->t && (n->t + blocks - 1) / blocks > 16 &&
           (n->t + blocks - 1) / blocks * n->s > SCORES)
        blocks *= 2;
    return (n->t + blocks - 1) / blocks;
}

/* Returns the keys that query t sees; none where all keys are before its window, or after it.
 */
INLINE span seen_by(const shape *n, int64_t t)
{
    int64_t at = t + n->ahead, to = n->causal ? choir__max(0, choir__min(n->s, at + 1)) : n->s;
    return (span){n->window ? choir__min(choir__max(0, at - n->window + 1), to) : 0, to};
}

/* Returns the keys that any of queries t ... t + rows - 1 sees. */
INLINE span seen_by_rows(const shape *n, int64_t t, int64_t rows)
{
    return (span){seen_by(n, t).from, seen_by(n, t + rows - 1).to};
}

/* Returns the queries among `queries` that see any of the keys s ... s + count - 1. */
INLINE span seeing(const shape *n, int64_t s, int64_t count, span queries)
{
    if (n->causal)
        queries.from = choir__max(queries.from, s - n->ahead);
    if (n->window)
        queries.to = choir__min(queries.to, s + count - 1 + n->window - n->ahead);
    return queries;
}

INLINE float *row_of(const choir__heads *x, int64_t b, int64_t h, int64_t t)
{
    return (float *)x->p + b * x->b + h * x->h + t * x->t;
}

/* Moves the operand to its row t. */
INLINE choir__heads from_row(choir__heads x, int64_t t)
{
    if (x.p)
        x.p = (float *)x.p + t * x.t;
    return x;
}

INLINE float *bias_row(const choir__attention_bias *a, int64_t b, int64_t h, int64_t t)
{
    return a->p ? (float *)a->p + b % a->samples * a->stride[0] + h * a->stride[1] +
                      t * a->stride[2]
                : NULL;
}

INLINE void clear(float *y, int64_t from, int64_t to)
{
    for (int64_t c = from; c < to; c += W)
        v_put(y + c, (vec){0}, to - c);
}

/* Clears the lanes beside the scores `seen` in a row of `width`, in whole groups of 16 lanes:
 * tiles read up to TALL - 1 more on each side. */
INLINE void clear_beside(float *s, span seen, int64_t width)
{
    int64_t written = seen.from + (seen.to - seen.from + 15) / 16 * 16;
    clear(s, choir__max(0, seen.from - TALL), seen.from);
    clear(s, written, choir__min(width, seen.to + TALL));
}

/* --- a head's rows, (rows, d) in its tensor, as tiles read them; zeros fill up --- */

/* (rows, D), D of whole panels */
INLINE void gather(
    float *to, const choir__heads *x, int64_t b, int64_t h, int64_t t, int64_t rows, int64_t d)
{
    const float *from = row_of(x, b, h, t);
    for (int64_t r = 0; r < rows; r++, from += x->t)
        for (int64_t c = 0; c < whole_panels(d); c += W, to += W)
            v_store(to, v_get(from + c, d - c));
}

/* (D / BROAD, rows, BROAD): panels of columns */
INLINE void gather_panels(
    float *to, const choir__heads *x, int64_t b, int64_t h, int64_t rows, int64_t d)
{
    for (int64_t panel = 0; panel < d; panel += BROAD) {
        const float *from = row_of(x, b, h, 0);
        for (int64_t r = 0; r < rows; r++, from += x->t)
            for (int64_t c = panel; c < panel + BROAD; c += W, to += W)
                v_store(to, v_get(from + c, d - c));
    }
}

/* (4): elements of a (0 ... 3) and b (4 ... 7) */
#ifdef __clang__
#define MIX4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t ivec4 __attribute__((vector_size(16)));
#define MIX4(a, b, i, j, k, l) __builtin_shuffle(a, b, (ivec4){i, j, k, l})
#endif

/* to (4, BROAD) = the transpose of from (4, 4), rows `step` apart */
INLINE void transpose4(float *to, const float *from, int64_t step)
{
    vec4 r[4], low[2], high[2];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], from + i * step, sizeof r[i]);
    for (int i = 0; i < 2; i++) { /* columns 0, 1 and 2, 3 of rows 2 i and 2 i + 1 */
        low[i] = MIX4(r[2 * i], r[2 * i + 1], 0, 4, 1, 5);
        high[i] = MIX4(r[2 * i], r[2 * i + 1], 2, 6, 3, 7);
    }
    r[0] = MIX4(low[0], low[1], 0, 1, 4, 5);
    r[1] = MIX4(low[0], low[1], 2, 3, 6, 7);
    r[2] = MIX4(high[0], high[1], 0, 1, 4, 5);
    r[3] = MIX4(high[0], high[1], 2, 3, 6, 7);
    for (int i = 0; i < 4; i++)
        memcpy(to + i * BROAD, &r[i], sizeof r[i]);
}

/* (rows / BROAD, d, BROAD): panels of rows, transposed */
INLINE void gather_transposed(
    float *to, const choir__heads *x, int64_t b, int64_t h, int64_t rows, int64_t d)
{
    for (int64_t panel = 0; panel < rows; panel += BROAD, to += d * BROAD)
        for (int64_t r = 0; r < BROAD; r += 4) {
            const float *from = row_of(x, b, h, panel + r);
            int64_t there = choir__max(0, choir__min(4, rows - panel - r)), c = 0;
            for (; there == 4 && c + 4 <= d; c += 4)
                transpose4(to + c * BROAD + r, from + c, x->t);
            for (; c < d; c++)
                for (int64_t i = 0; i < 4; i++)
                    to[c * BROAD + r + i] = i < there ? from[i * x->t + c] : 0.0f;
        }
}

/* --- a block of queries: what a head's blocks share, and one block's place --- */

typedef struct block {
    const shape *n;
    span queries;
    span keys; /* keys that any query sees; `from` is the first key of a panel */
    /* width of a row of scores in memory: whole panels, room for 16 lanes from any key on, and
     * not a power of two, because such rows would share few cache sets */
    int64_t width;
} block;

INLINE block block_at(const shape *n, int64_t t, int64_t rows)
{
    rows = choir__min(rows, n->t - t);
    block k = {n, {t, t + rows}, seen_by_rows(n, t, rows), 0};
    k.keys.from = k.keys.from / BROAD * BROAD;
    k.width = (whole_panels(k.keys.to - k.keys.from) + 15) / 16 * 16 + 16;
    k.width += k.width % 64 == 0 ? 16 : 0;
    return k;
}

/* Returns the number of floats that a block's scores need. */
INLINE int64_t block_scores(const shape *n)
{
    return block_rows(n) * (whole_panels(n->s) + BROAD + 48);
}

/* s (queries, keys) = x y^T, where a query sees a key; x (queries, D) gathered, y transposed */
INLINE void scores(const block *k, float *s, const float *x, const float *y)
{
    const int64_t d = k->n->d, x_row = whole_panels(d);
    for (int64_t key = k->keys.from; key < k->keys.to; key += BROAD)
        for (int64_t t = k->queries.from; t < k->queries.to; t += TALL) {
            int64_t rows = choir__min(TALL, k->queries.to - t), r = t - k->queries.from;
            span seen = seen_by_rows(k->n, t, rows);
            if (key + BROAD > seen.from && key < seen.to)
                tile(&(tile_of){s + r * k->width + key - k->keys.from, x + r * x_row,
                         y + key * d, k->width, x_row, 1, BROAD, d, BROAD, false},
                    rows);
        }
}

/* y (queries, d) = or += s x; x in panels of columns */
INLINE void of_keys(
    const block *k, float *y, int64_t y_row, const float *s, const float *x, bool add)
{
    const int64_t d = k->n->d;
    for (int64_t t = k->queries.from; t < k->queries.to; t += TALL) {
        int64_t rows = choir__min(TALL, k->queries.to - t), r = t - k->queries.from;
        span seen = seen_by_rows(k->n, t, rows);
        for (int64_t c = 0; c < d; c += BROAD)
            tile(&(tile_of){y + r * y_row + c, s + r * k->width + seen.from - k->keys.from,
                     x + c * k->n->s + seen.from * BROAD, y_row, k->width, 1, BROAD,
                     seen.to - seen.from, d - c, add},
                rows);
    }
}

/* Replaces a row's products s[0, n) by scores c tanh(scale s / c), c the soft cap. slope, if
 * not NULL: receives the derivatives of the scores by the products. */
INLINE void cap_row(float *s, float *slope, int64_t n, const shape *of)
{
    const vec one = v_set(1.0f);
    const float in = of->scale / of->softcap;
    for (int64_t c = 0; c < n; c += W) {
        vec bent = v_tanh(v_load(s + c) * in);
        v_store(s + c, bent * of->softcap);
        if (slope)
            v_store(slope + c, (one - bent * bent) * of->scale);
    }
}

/* Returns the factor that turns what scores() wrote, perhaps capped, into scores. */
INLINE float score_factor(const shape *n)
{
    return n->softcap > 0 ? 1.0f : n->scale;
}

/* --- chunks: kernels/attention.h --- */

INLINE int64_t chunks_of(const shape *n)
{
    return n->chunks > 1 ? n->chunks : 1;
}

/* Returns the call for one chunk of queries and one of keys, at these leaves: all of their
 * heads and samples. Without chunks it is the call itself. */
INLINE choir__k_attention pair_of(const choir__k_attention *a, int64_t queries, int64_t keys)
{
    choir__k_attention p = *a;
    const int64_t chunks = chunks_of(&a->n);
    if (chunks == 1)
        return p;
    const int64_t t = a->n.t / chunks, q = queries * t, k = keys * t;
    p.n.t = p.n.s = t;
    p.n.ahead =
        t * (choir__chunk_of_leaf(queries, chunks) - choir__chunk_of_leaf(keys, chunks));
    p.n.chunks = 0;
    p.lse_row = a->lse_row ? a->lse_row : a->n.t;
    p.q = from_row(a->q, q), p.y = from_row(a->y, q);
    p.gy = from_row(a->gy, q), p.gq = from_row(a->gq, q);
    p.k = from_row(a->k, k), p.v = from_row(a->v, k);
    p.gk = from_row(a->gk, k), p.gv = from_row(a->gv, k);
    p.lse = (float *)a->lse + q;
    p.delta = a->delta ? (float *)a->delta + q : NULL;
    if (a->bias.p)
        p.bias.p = (float *)a->bias.p + q * a->bias.stride[2] + k;
    return p;
}

/* Returns whether any of queries t ... t + rows - 1 sees a key. */
INLINE bool sees(const shape *n, int64_t t, int64_t rows)
{
    span seen = seen_by_rows(n, t, rows);
    return seen.from < seen.to;
}

/* --- 16-bit operands: the heads of one head of keys are widened, and their results rounded ---
 */

/* True if a call with 16-bit operands is computed here: chunks, and a bias, are f32. */
INLINE bool takes_halves(const choir__k_attention *a)
{
    return is_half(a->dtype) && !a->bias.p && !a->begun && !a->open && chunks_of(&a->n) == 1;
}

/* An operand's heads [from, from + heads) of one sample, as f32 in memory of their own. */
typedef struct wide_heads {
    const choir__heads *of;
    choir__heads wide; /* p NULL: of has none */
    int64_t b, from, heads, rows, d;
    choir_dtype dtype;
} wide_heads;

/* Takes room at *at. */
INLINE wide_heads wide_heads_new(
    float **at, const choir__k_attention *a, const choir__heads *of, int64_t b, int64_t g)
{
    const bool keys = of == &a->k || of == &a->v || of == &a->gk || of == &a->gv;
    const int64_t each = keys ? 1 : a->n.h / a->n.g, rows = keys ? a->n.s : a->n.t;
    wide_heads w = {
        of, {NULL, 0, rows * a->n.d, a->n.d}, b, g * each, each, rows, a->n.d, a->dtype};
    if (of->p) {
        w.wide.p = *at;
        *at += each * rows * a->n.d;
    }
    return w;
}

INLINE uint16_t *half_row(const wide_heads *w, int64_t h, int64_t r)
{
    return (uint16_t *)w->of->p + w->b * w->of->b + (w->from + h) * w->of->h + r * w->of->t;
}

INLINE void widen_heads(const wide_heads *w)
{
    for (int64_t h = 0; h < w->heads && w->of->p; h++)
        for (int64_t r = 0; r < w->rows; r++)
            widening(w->dtype)(row_of(&w->wide, 0, h, r), half_row(w, h, r), w->d);
}

INLINE void round_heads(const wide_heads *w)
{
    for (int64_t h = 0; h < w->heads && w->of->p; h++)
        for (int64_t r = 0; r < w->rows; r++)
            rounding(w->dtype)(half_row(w, h, r), row_of(&w->wide, 0, h, r), w->d);
}

/* Returns memory for all operands of one head of keys. */
INLINE float *wide_room(const choir__k_attention *a)
{
    const int64_t each = a->n.h / a->n.g;
    const size_t floats = (size_t)(4 * (each * a->n.t + a->n.s) * a->n.d);
    return choir__cpu_wide(choir__cpu_context_current(), floats * sizeof(float));
}

/* Returns the f32 call for sample b and head g of the keys, with the operands that are given
 * later. */
INLINE choir__k_attention of_one_head(const choir__k_attention *a, int64_t b, int64_t g)
{
    choir__k_attention one = *a;
    const int64_t each = a->n.h / a->n.g, at = choir__lse_at(a, b, g * each);
    one.n.b = one.n.g = 1;
    one.n.h = each;
    one.lse = (float *)a->lse + at;
    one.delta = a->delta ? (float *)a->delta + at : NULL;
    one.lse_row = a->lse_row ? a->lse_row : a->n.t;
    one.dtype = CHOIR_F32;
    return one;
}

#endif
