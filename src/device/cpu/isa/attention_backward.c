/* The backward pass of attention: five products a block of queries, and one pass over its rows
 * of scores and of their gradients.
 *
 *     S = q k^T    P = exp(scale S + bias - lse)                      gv += P^T gy
 *                  G = gy v^T    G = scale P (G - rowsum(P G))    gq = G k    gk += G^T q
 *
 * The gradients of keys and values are added to where they are, query by query in order. */
#include "device/cpu/isa/attention.h"

typedef struct work {
    float *q, *gy;  /* (rows, D), gathered */
    float *kt, *vt; /* transposed */
    float *k;       /* in panels of columns */
    float *s, *g;   /* (rows, keys) */
} work;

static work work_new(const shape *n)
{
    const int64_t rows = block_rows(n), d = whole_panels(n->d), s = block_scores(n);
    int64_t q = rows * d, kt = whole_panels(n->s) * n->d, k = n->s * d;
    size_t floats = (size_t)(2 * q + 2 * kt + k + 2 * s);
    float *at = choir__cpu_scratch(choir__cpu_context_current(), floats * sizeof *at);
    work w = {.q = at, .gy = at + q};
    w.kt = w.gy + q;
    w.vt = w.kt + kt;
    w.k = w.vt + kt;
    w.s = w.k + k;
    w.g = w.s + s;
    return w;
}

/* Replaces s, the scores, by probabilities, and g, their gradient, by scale times the gradient
 * of the scores; the rest of the last 16 lanes by zeros. */
INLINE void backward_row(
    float *s, float *g, const float *bias, float *gbias, int64_t n, float scale, float lse)
{
    vec sum[L] = {{0}}, zero = {0};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec z = v_load(s + at) * scale - lse;
            if (bias)
                z += v_get(bias + at, left);
            vec p = v_keep(v_exp_below(z), left, zero);
            v_store(s + at, p);
            sum[j] += v_keep(p * v_load(g + at), left, zero);
        }
    float dot = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec gs = v_keep(v_load(s + at) * (v_load(g + at) - dot), left, zero);
            if (gbias)
                v_put(gbias + at, v_get(gbias + at, left) + gs, left);
            v_store(g + at, gs * scale);
        }
}

static void score_gradients(
    const choir__k_attention_backward *a, const block *k, const work *w, int64_t b, int64_t h)
{
    const float *lse = (const float *)a->lse + (b * a->n.h + h) * a->n.t;
    float *s = w->s, *g = w->g;
    for (int64_t t = k->queries.from; t < k->queries.to; t++, s += k->width, g += k->width) {
        span seen = seen_by(&a->n, t), at = {seen.from - k->keys.from, seen.to - k->keys.from};
        const float *bias = bias_row(&a->bias, b, h, t);
        float *gbias = bias_row(&a->gbias, b, h, t);
        if (bias)
            backward_row(s + at.from, g + at.from, bias + seen.from,
                gbias ? gbias + seen.from : NULL, at.to - at.from, a->n.scale, lse[t]);
        else
            backward_row(
                s + at.from, g + at.from, NULL, NULL, at.to - at.from, a->n.scale, lse[t]);
        clear_beside(s, at, k->width);
        clear_beside(g, at, k->width);
    }
}

/* y (keys, d) += s^T x; x (queries, D) gathered */
static void add_of_queries(
    const block *k, const choir__heads *y, int64_t b, int64_t g, const float *s, const float *x)
{
    const int64_t d = k->n->d, x_row = whole_panels(d);
    for (int64_t key = k->keys.from; key < k->keys.to && y->p; key += TALL) {
        int64_t rows = choir__min(TALL, k->keys.to - key);
        span q = seeing(k->n, key, rows, k->queries);
        int64_t r = q.from - k->queries.from;
        for (int64_t c = 0; c < d && q.from < q.to; c += BROAD)
            tile(&(tile_of){row_of(y, b, g, key) + c, s + r * k->width + key - k->keys.from,
                     x + r * x_row + c, y->t, 1, k->width, x_row, q.to - q.from, d - c, true},
                rows);
    }
}

static void backward_head(
    const choir__k_attention_backward *a, const work *w, int64_t b, int64_t h)
{
    const shape *n = &a->n;
    const int64_t g = h / (n->h / n->g);
    for (int64_t t = 0; t < n->t; t += block_rows(n)) {
        const block k = block_at(n, t, block_rows(n));
        gather(w->q, &a->q, b, h, t, k.queries.to - t, n->d);
        gather(w->gy, &a->gy, b, h, t, k.queries.to - t, n->d);
        scores(&k, w->s, w->q, w->kt);
        scores(&k, w->g, w->gy, w->vt);
        score_gradients(a, &k, w, b, h);
        add_of_queries(&k, &a->gv, b, g, w->s, w->gy);
        add_of_queries(&k, &a->gk, b, g, w->g, w->q);
        if (a->gq.p)
            of_keys(&k, row_of(&a->gq, b, h, t), a->gq.t, w->g, w->k);
    }
}

static void clear_head(const choir__heads *y, int64_t b, int64_t g, const shape *n)
{
    for (int64_t s = 0; s < n->s && y->p; s++)
        clear(row_of(y, b, g, s), 0, n->d);
}

void KERNEL(attention_backward)(const choir__k_attention_backward *a)
{
    F32_ONLY(attention_backward, a);
    const shape *n = &a->n;
    const work w = work_new(n);
    const int64_t each = n->h / n->g; /* query heads per head of keys */
    for (int64_t b = 0; b < n->b; b++)
        for (int64_t h = 0; h < n->h; h++) {
            if (h % each == 0) {
                gather_transposed(w.kt, &a->k, b, h / each, n->s, n->d);
                gather_transposed(w.vt, &a->v, b, h / each, n->s, n->d);
                gather_panels(w.k, &a->k, b, h / each, n->s, n->d);
                clear_head(&a->gk, b, h / each, n);
                clear_head(&a->gv, b, h / each, n);
            }
            backward_head(a, &w, b, h);
        }
}
