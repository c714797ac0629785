/* Attention, head by head and one block of queries at a time: two products, and one pass over
 * the block's rows of scores between them.
 *
 *     S = q k^T    E = exp(scale S + bias - max)    y = E v / sum(E)
 *
 * (with a soft cap c, c tanh(scale S / c) in place of scale S).
 *
 * A block has as many queries as keep its scores in the cache; the T x T matrix is never
 * stored. Products run in tiles of our own (tile.h): a tile whose queries see none of its keys
 * is left out, which for 64 tokens is half of the work, and a head's matrices are too small for
 * a library's calls.
 *
 * With chunks (kernels/attention.h), a block takes one chunk of keys after the other, and
 * combines the partial results. A single query meets each key once, so its keys and values are
 * read where they are, and its sums have the same terms in the same order. */
#include "device/cpu/isa/attention.h"
#include "device/cpu/product/turn.h"

typedef struct work {
    float *q, *k, *v, *s; /* (rows, D) gathered, transposed, in panels, (rows, keys) */
    float *part;          /* (rows, D): the values of one more chunk of keys */
} work;

/* n: the shape of a pair */
static work work_new(const shape *n, int64_t chunks, bool combines)
{
    const int64_t rows = block_rows(n), d = whole_panels(n->d);
    int64_t q = rows * d, k = chunks * whole_panels(n->s) * n->d, v = chunks * n->s * d;
    int64_t s = block_scores(n), part = combines ? q : 0;
    size_t floats = (size_t)(q + k + v + s + part);
    float *at = choir__cpu_scratch(choir__cpu_context_current(), floats * sizeof *at);
    return (work){at, at + q, at + q + k, at + q + k + v, at + q + k + v + s};
}

/* Returns the largest of scale s[0, n) + bias; with a bias, replaces s by that sum. */
INLINE float largest_of_row(float *s, const float *bias, int64_t n, float scale)
{
    vec max[L], low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec z = v_load(s + at) * scale;
            if (bias) {
                z += v_get(bias + at, left);
                v_store(s + at, z);
            }
            max[j] = v_max(max[j], v_keep(z, left, low));
        }
    return lanes_max(max);
}

/* Replaces s[0, n) by exp(scale s - top), and the rest of its last 16 lanes by zeros; returns
 * the sum. */
INLINE float exp_of_row(float *s, int64_t n, float scale, float top)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            float *at = s + c + j * W;
            vec e = v_exp_below(v_load(at) * scale - top);
            e = v_keep(e, n - c - j * W, (vec){0});
            v_store(at, e);
            sum[j] += e;
        }
    return lanes_sum(sum);
}

/* Moves the beginning of `seen` to the first key that the bias does not mask: a document's sums
 * then begin with its own first key and have the bits of a row of its own, in any place of
 * a longer row. Leaves a span in which all keys are masked. */
INLINE span unmasked(span seen, const float *bias)
{
    const float masked = -1e29f;
    int64_t from = seen.from;
    while (from < seen.to && bias[from] <= masked)
        from++;
    return from < seen.to ? (span){from, seen.to} : seen;
}

/* Turns the block's scores into exp(score - the row's largest). The largest go to top, the sums
 * to total. The two loops are apart so that a row need not wait for the one before. */
static void exponentials(const choir__k_attention *a, const block *k, float *s, float *top,
    float *total, int64_t b, int64_t h)
{
    const int64_t t = k->queries.from, rows = k->queries.to - t, first = k->keys.from;
    const float factor = score_factor(&a->n);
    for (int64_t r = 0; r < rows; r++) {
        const float *bias = bias_row(&a->bias, b, h, t + r);
        span seen = seen_by(&a->n, t + r);
        if (bias)
            seen = unmasked(seen, bias);
        float *row = s + r * k->width + seen.from - first;
        int64_t n = seen.to - seen.from;
        if (a->n.softcap > 0)
            cap_row(row, NULL, n, &a->n);
        top[r] = bias ? largest_of_row(row, bias + seen.from, n, factor)
                      : largest_of_row(row, NULL, n, factor);
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *bias = bias_row(&a->bias, b, h, t + r);
        const span all = seen_by(&a->n, t + r), seen = bias ? unmasked(all, bias) : all,
                   at = {seen.from - first, seen.to - first};
        float *row = s + r * k->width;
        /* tiles read from the first key that any of their queries sees, with or without a bias
         */
        clear(row, choir__max(0, all.from - first - TALL), at.from);
        total[r] = exp_of_row(row + at.from, at.to - at.from, a->bias.p ? 1 : factor,
            top[r] == -INFINITY ? 0 : top[r]);
        clear_beside(row, at, k->width);
    }
}

/* A query that sees no key, as where the bias hides all, has sums of 0, and zeros. */
static void divide_rows(float *y, int64_t y_row, const float *total, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, y += y_row) {
        float inverse = total[r] == 0 ? 0 : 1.0f / total[r];
        for (int64_t c = 0; c < d; c += W)
            v_put(y + c, v_get(y + c, d - c) * inverse, d - c);
    }
}

/* --- partial results --- */

/* The results of a block's rows so far: y holds the values. */
typedef struct partial {
    float top[QUERIES], total[QUERIES];
    bool begun;
} partial;

/* y (d) = a y + b x */
INLINE void combine_row(float *y, const float *x, float a, float b, int64_t d)
{
    for (int64_t c = 0; c < d; c += W)
        v_put(y + c, v_get(y + c, d - c) * a + v_get(x + c, d - c) * b, d - c);
}

INLINE void copy_row(float *y, const float *x, int64_t d)
{
    for (int64_t c = 0; c < d; c += W)
        v_put(y + c, v_get(x + c, d - c), d - c);
}

/* Combines with the partial result x of another chunk of keys, whose values are `values`. */
static void combine(partial *p, float *y, int64_t y_row, const partial *x, const float *values,
    int64_t values_row, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, y += y_row, values += values_row) {
        if (x->total[r] == 0) /* the row sees none of these keys */
            continue;
        if (p->total[r] == 0) {
            p->top[r] = x->top[r];
            p->total[r] = x->total[r];
            copy_row(y, values, d);
            continue;
        }
        float top = x->top[r] > p->top[r] ? x->top[r] : p->top[r];
        float a = v_exp_below(v_set(p->top[r] - top))[0],
              b = v_exp_below(v_set(x->top[r] - top))[0];
        p->top[r] = top;
        p->total[r] = p->total[r] * a + x->total[r] * b;
        combine_row(y, values, a, b, d);
    }
}

/* Takes up the results that an earlier call left open, if it did. */
static void begin(partial *p, const choir__k_attention *a, int64_t b, int64_t h, span queries)
{
    const int64_t at = choir__lse_at(a, b, h) + queries.from;
    const size_t bytes = (size_t)(queries.to - queries.from) * sizeof(float);
    p->begun = a->begun;
    if (!a->begun)
        return;
    memcpy(p->top, (float *)a->lse + at, bytes);
    memcpy(p->total, (float *)a->sum + at, bytes);
}

/* Leaves the results open, or divides the values by the sums and writes log sum exp. */
static void end(
    partial *p, const choir__k_attention *a, float *y, int64_t b, int64_t h, span queries)
{
    const int64_t at = choir__lse_at(a, b, h) + queries.from, rows = queries.to - queries.from;
    float *lse = (float *)a->lse + at;
    if (a->open) {
        memcpy(lse, p->top, (size_t)rows * sizeof(float));
        memcpy((float *)a->sum + at, p->total, (size_t)rows * sizeof(float));
        return;
    }
    for (int64_t r = 0; r < rows; r += W)
        v_put(lse + r, v_get(p->top + r, rows - r) + v_log(v_get(p->total + r, rows - r)),
            rows - r);
    divide_rows(y, a->y.t, p->total, rows, a->n.d);
}

/* Adds what the block's queries, which w->q holds, see of a chunk of keys; kt, v: its keys and
 * values, gathered. */
static void add_keys(partial *p, const choir__k_attention *pair, const work *w, const float *kt,
    const float *v, int64_t b, int64_t h, span queries)
{
    const shape *n = &pair->n;
    const int64_t t = queries.from, rows = queries.to - t, d = n->d, row = whole_panels(d);
    const block k = block_at(n, t, rows);
    float *y = row_of(&pair->y, b, h, t);
    partial more, *to = p->begun ? &more : p;
    float *values = p->begun ? w->part : y;
    int64_t values_row = p->begun ? row : pair->y.t;
    scores(&k, w->s, w->q, kt);
    exponentials(pair, &k, w->s, to->top, to->total, b, h);
    of_keys(&k, values, values_row, w->s, v, false);
    if (p->begun)
        combine(p, y, pair->y.t, &more, values, row, rows, d);
    p->begun = true;
}

/* Computes one leaf of the queries of a head. */
static void forward_leaf(
    const choir__k_attention *a, const work *w, int64_t b, int64_t h, int64_t leaf)
{
    const int64_t chunks = chunks_of(&a->n), keys = a->n.s / chunks;
    const choir__k_attention own = pair_of(a, leaf, leaf);
    const shape *n = &own.n;
    for (int64_t t = 0; t < n->t; t += block_rows(n)) {
        const span queries = {t, choir__min(n->t, t + block_rows(n))};
        float *y = row_of(&own.y, b, h, t);
        partial p;
        begin(&p, &own, b, h, queries);
        gather(w->q, &own.q, b, h, t, queries.to - t, n->d);
        for (int64_t c = 0; c < chunks; c++) {
            const int64_t at = chunks > 1 ? choir__leaf_of_chunk(c, chunks) : 0;
            const choir__k_attention pair = pair_of(a, leaf, at);
            if (chunks == 1 || sees(&pair.n, t, queries.to - t))
                add_keys(&p, &pair, w, w->k + at * whole_panels(keys) * n->d,
                    w->v + at * keys * whole_panels(n->d), b, h, queries);
        }
        end(&p, &own, y, b, h, queries);
    }
}

static void attend_blocks(const choir__k_attention *a)
{
    const int64_t chunks = chunks_of(&a->n), keys = a->n.s / chunks, d = a->n.d;
    const choir__k_attention pair = pair_of(a, 0, 0);
    const work w = work_new(&pair.n, chunks, chunks > 1 || a->begun);
    const int64_t each = a->n.h / a->n.g; /* query heads per head of keys */
    for (int64_t b = 0; b < a->n.b; b++)
        for (int64_t h = 0; h < a->n.h; h++) {
            for (int64_t l = 0; l < chunks && h % each == 0; l++) {
                const choir__heads k = from_row(a->k, l * keys), v = from_row(a->v, l * keys);
                gather_transposed(w.k + l * whole_panels(keys) * d, &k, b, h / each, keys, d);
                gather_panels(w.v + l * keys * whole_panels(d), &v, b, h / each, keys, d);
            }
            for (int64_t l = 0; l < chunks; l++)
                forward_leaf(a, &w, b, h, l);
        }
}

/* --- one query, which a text has that is written token by token --- */

enum { GROUPS = 4 }; /* vectors of keys together: a sum waits for its last term */

/* s = q times `groups` vectors of keys, `row` apart */
INLINE void score_keys(
    float *s, const float *q, const float *keys, int64_t row, int64_t d, const int groups)
{
    const int64_t apart = row * (int64_t)sizeof(float);
    vec sum[GROUPS] = {{0}};
    for (int64_t c = 0; c < d; c += 4)
        _Pragma("GCC unroll 4") for (int g = 0; g < groups; g++)
        {
            vec right[4];
            turned_of(right, keys + g * W * row + c, apart);
            _Pragma("GCC unroll 4") for (int l = 0; l < 4; l++) sum[g] =
                v_fma(v_set(q[c + l]), right[l], sum[g]);
        }
    _Pragma("GCC unroll 4") for (int g = 0; g < groups; g++) v_store(s + g * W, sum[g]);
}

/* Writes the scores of the block's one query. rest: room for W keys. */
static void score_one(const block *k, float *s, const float *q, const choir__heads *of,
    int64_t b, int64_t g, float *rest)
{
    const int64_t d = k->n->d, end = k->keys.to;
    int64_t key = k->keys.from;
    for (; key + GROUPS * W <= end; key += GROUPS * W, s += GROUPS * W)
        score_keys(s, q, row_of(of, b, g, key), of->t, d, GROUPS);
    for (; key + W <= end; key += W, s += W)
        score_keys(s, q, row_of(of, b, g, key), of->t, d, 1);
    for (int64_t i = key; i < end; i++)
        memcpy(rest + (i - key) * d, row_of(of, b, g, i), (size_t)d * sizeof *rest);
    if (key == end)
        return;
    memset(rest + (end - key) * d, 0, (size_t)((W - (end - key)) * d) * sizeof *rest);
    score_keys(s, q, rest, d, d, 1);
}

/* y = the sum of `count` rows of values, times s */
static void values_of_one(
    float *y, const float *s, const float *values, int64_t row, int64_t count, int64_t d)
{
    for (int64_t c = 0, some; c < d; c += some) {
        const float *from = values + c;
        vec sum[GROUPS] = {{0}};
        some = choir__min(GROUPS * W, d - c);
        for (int64_t i = 0; i < count && some == GROUPS * W; i++, from += row)
            _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; g++) sum[g] =
                v_fma(v_set(s[i]), v_load(from + g * W), sum[g]);
        for (int64_t i = 0; i < count && some < GROUPS * W; i++, from += row)
            for (int g = 0; g * W < some; g++)
                sum[g] = v_fma(v_set(s[i]), v_load(from + g * W), sum[g]);
        for (int g = 0; g * W < some; g++)
            v_store(y + c + g * W, sum[g]);
    }
}

/* True if attend_one computes the call. */
static bool has_one_query(const choir__k_attention *a)
{
    return a->n.t == 1 && a->n.d % W == 0 && chunks_of(&a->n) == 1 && !a->begun && !a->open;
}

static void attend_one(const choir__k_attention *a)
{
    const int64_t d = a->n.d, each = a->n.h / a->n.g, room = block_scores(&a->n);
    const block k = block_at(&a->n, 0, 1);
    const span seen = seen_by(&a->n, 0);
    float *s =
        choir__cpu_scratch(choir__cpu_context_current(), (size_t)(room + W * d) * sizeof *s);
    partial p = {.begun = false};
    for (int64_t b = 0; b < a->n.b; b++)
        for (int64_t h = 0; h < a->n.h; h++) {
            float *y = row_of(&a->y, b, h, 0);
            score_one(&k, s, row_of(&a->q, b, h, 0), &a->k, b, h / each, s + room);
            exponentials(a, &k, s, p.top, p.total, b, h);
            values_of_one(y, s + seen.from - k.keys.from, row_of(&a->v, b, h / each, seen.from),
                a->v.t, seen.to - seen.from, d);
            end(&p, a, y, b, h, (span){0, 1});
        }
}

static void attend(const choir__k_attention *a)
{
    if (has_one_query(a))
        attend_one(a);
    else
        attend_blocks(a);
}

void KERNEL(attention)(const choir__k_attention *a)
{
    if (!takes_halves(a)) {
        F32_ONLY(attention, a);
        attend(a);
        return;
    }
    float *room = wide_room(a);
    for (int64_t b = 0; b < a->n.b; b++)
        for (int64_t g = 0; g < a->n.g; g++) {
            float *at = room;
            const wide_heads q = wide_heads_new(&at, a, &a->q, b, g),
                             k = wide_heads_new(&at, a, &a->k, b, g),
                             v = wide_heads_new(&at, a, &a->v, b, g),
                             y = wide_heads_new(&at, a, &a->y, b, g);
            choir__k_attention one = of_one_head(a, b, g);
            widen_heads(&q), widen_heads(&k), widen_heads(&v);
            one.q = q.wide, one.k = k.wide, one.v = v.wide, one.y = y.wide;
            attend(&one);
            round_heads(&y);
        }
}
