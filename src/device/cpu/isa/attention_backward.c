/* The backward pass of attention: five products a block of queries, and one pass over its rows
 * of scores and of their gradients.
 *
 *     S = q k^T    P = exp(scale S + bias - lse)                      gv += P^T gy
 *                  G = gy v^T    G = scale P (G - rowsum(P G))    gq = G k    gk += G^T q
 *
 * The gradients of keys and values are added to where they are, query by query in order. With
 * chunks (kernels/attention.h) that holds for one leaf of queries and one of keys, and the
 * leaves of queries are then added in the tree. */
#include "device/cpu/isa/attention.h"

typedef struct work {
    float *q, *gy;  /* (rows, D), gathered */
    float *kt, *vt; /* transposed */
    float *k;       /* in panels of columns */
    float *s, *g;   /* (rows, keys) */
    float *slope;   /* (keys): of a row's scores, under a soft cap */
    float *nodes;   /* (levels, 2, keys, D): sums of leaves; see keys_of_leaves */
} work;

/* Returns the nodes that are on the stack at most while n leaves are added. */
INLINE int64_t levels_of(int64_t n)
{
    int64_t levels = 1;
    for (; n > 1; n /= 2)
        levels++;
    return levels;
}

/* n: the shape of a pair */
static work work_new(const shape *n, int64_t chunks)
{
    const int64_t rows = block_rows(n), d = whole_panels(n->d), s = block_scores(n);
    int64_t q = rows * d, kt = whole_panels(n->s) * n->d, k = n->s * d;
    int64_t nodes = chunks > 1 ? levels_of(chunks) * 2 * n->s * n->d : 0;
    int64_t slope = n->softcap > 0 ? s / block_rows(n) : 0;
    size_t floats = (size_t)(2 * q + 2 * kt + k + 2 * s + nodes + slope);
    float *at = choir__cpu_scratch(choir__cpu_context_current(), floats * sizeof *at);
    work w = {.q = at, .gy = at + q};
    w.kt = w.gy + q;
    w.vt = w.kt + kt;
    w.k = w.vt + kt;
    w.s = w.k + k;
    w.g = w.s + s;
    w.nodes = w.g + s;
    w.slope = w.nodes + nodes;
    return w;
}

/* Replaces s, the scores, by probabilities, and g, their gradient, by the gradient of the
 * scores times scale, or times `slope` element by element; the rest of the last 16 lanes by
 * zeros. delta NULL: the row's own sum of P G.
 */
INLINE void backward_row(float *s, float *g, const float *bias, float *gbias,
    const float *slope, int64_t n, float scale, float lse, const float *delta)
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
    float dot = delta ? *delta : lanes_sum(sum);
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec gs = v_keep(v_load(s + at) * (v_load(g + at) - dot), left, zero);
            if (gbias)
                v_put(gbias + at, v_get(gbias + at, left) + gs, left);
            v_store(g + at, slope ? v_keep(gs * v_load(slope + at), left, zero) : gs * scale);
        }
}

static void score_gradients(
    const choir__k_attention_backward *a, const block *k, const work *w, int64_t b, int64_t h)
{
    const int64_t head = choir__lse_at(a, b, h);
    const float *lse = (const float *)a->lse + head;
    float *s = w->s, *g = w->g;
    for (int64_t t = k->queries.from; t < k->queries.to; t++, s += k->width, g += k->width) {
        span seen = seen_by(&a->n, t), at = {seen.from - k->keys.from, seen.to - k->keys.from};
        const float *bias = bias_row(&a->bias, b, h, t);
        const float *delta = a->delta ? (const float *)a->delta + head + t : NULL;
        float *gbias = bias_row(&a->gbias, b, h, t);
        int64_t n = at.to - at.from;
        float less = lse[t] == -INFINITY ? INFINITY : lse[t]; /* no key is seen: P is 0 */
        if (a->n.softcap > 0) {
            cap_row(s + at.from, w->slope, n, &a->n);
            backward_row(s + at.from, g + at.from, bias ? bias + seen.from : NULL,
                gbias ? gbias + seen.from : NULL, w->slope, n, score_factor(&a->n), less,
                delta);
        } else if (bias)
            backward_row(s + at.from, g + at.from, bias + seen.from,
                gbias ? gbias + seen.from : NULL, NULL, n, a->n.scale, less, delta);
        else
            backward_row(
                s + at.from, g + at.from, NULL, NULL, NULL, n, a->n.scale, less, delta);
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

/* Adds head h's terms to a pair's gradients gk and gv, and writes gq, or adds to it. w has the
 * keys and values. */
static void backward_head(
    const choir__k_attention_backward *a, const work *w, int64_t b, int64_t h, bool adds)
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
            of_keys(&k, row_of(&a->gq, b, h, t), a->gq.t, w->g, w->k, adds);
    }
}

/* --- leaves --- */

static void clear_head(const choir__heads *y, int64_t b, int64_t g, int64_t rows, int64_t d)
{
    for (int64_t s = 0; s < rows && y->p; s++)
        clear(row_of(y, b, g, s), 0, d);
}

/* Returns node `level` of the stack as the gradient (0: of keys, 1: of values) of one head.
 * Without memory if `of` has none. */
static choir__heads node_of(
    const work *w, const shape *pair, int64_t level, int which, const choir__heads *of)
{
    float *p = w->nodes + (2 * level + which) * pair->s * pair->d;
    return (choir__heads){of->p ? p : NULL, 0, 0, pair->d};
}

/* y = x, or x + z: rows of a head */
static void add_rows(const choir__heads *y, int64_t b, int64_t g, const choir__heads *x,
    const choir__heads *z, const shape *pair)
{
    for (int64_t s = 0; s < pair->s && y->p; s++) {
        float *to = row_of(y, b, g, s);
        const float *one = row_of(x, 0, 0, s), *other = z ? row_of(z, 0, 0, s) : NULL;
        for (int64_t c = 0; c < pair->d; c += W) {
            vec sum = v_get(one + c, pair->d - c);
            if (other)
                sum += v_get(other + c, pair->d - c);
            v_put(to + c, sum, pair->d - c);
        }
    }
}

/* Adds the two nodes on top of the stack, whose height is `top`. */
static void join(
    const choir__k_attention_backward *a, const work *w, const shape *n, int64_t top)
{
    const choir__heads *of[] = {&a->gk, &a->gv};
    for (int i = 0; i < 2; i++) {
        const choir__heads left = node_of(w, n, top - 2, i, of[i]),
                           right = node_of(w, n, top - 1, i, of[i]);
        add_rows(&left, 0, 0, &left, &right, n);
    }
}

/* Computes one leaf of queries against one of keys, for the query heads of head g of the keys.
 * gk, gv: one head's, which the leaf's are written to. */
static void leaf_of_queries(const choir__k_attention_backward *pair, const work *w, int64_t b,
    int64_t g, const choir__heads *gk, const choir__heads *gv, bool adds)
{
    const int64_t each = pair->n.h / pair->n.g;
    choir__k_attention_backward own = *pair;
    own.gk = *gk, own.gv = *gv;
    clear_head(gk, b, g, pair->n.s, pair->n.d);
    clear_head(gv, b, g, pair->n.s, pair->n.d);
    for (int64_t h = g * each; h < (g + 1) * each; h++)
        if (!adds || sees(&pair->n, 0, pair->n.t))
            backward_head(&own, w, b, h, adds);
}

/* Computes the gradients of one leaf of keys, and its terms of gq. The queries' leaves are
 * added as in autograd's book: on a stack of nodes, where two that are halves of one become
 * that one. */
static void keys_of_leaves(const choir__k_attention_backward *a, const work *w, int64_t b,
    int64_t g, int64_t keys, bool adds)
{
    const int64_t chunks = chunks_of(&a->n);
    choir__k_attention_backward pair = pair_of(a, 0, keys);
    int64_t top = 0;
    if (chunks == 1) {
        leaf_of_queries(&pair, w, b, g, &pair.gk, &pair.gv, adds);
        return;
    }
    for (int64_t leaf = 0; leaf < chunks; leaf++) {
        pair = pair_of(a, leaf, keys);
        const choir__heads gk = node_of(w, &pair.n, top, 0, &a->gk),
                           gv = node_of(w, &pair.n, top, 1, &a->gv);
        leaf_of_queries(&pair, w, b, g, &gk, &gv, adds);
        top++;
        for (int64_t done = leaf + 1; done % 2 == 0; done /= 2, top--)
            join(a, w, &pair.n, top);
    }
    for (; top > 1; top--)
        join(a, w, &pair.n, top);
    const choir__heads gk = node_of(w, &pair.n, 0, 0, &a->gk),
                       gv = node_of(w, &pair.n, 0, 1, &a->gv);
    add_rows(&pair.gk, b, g, &gk, NULL, &pair.n);
    add_rows(&pair.gv, b, g, &gv, NULL, &pair.n);
}

static void attend_back(const choir__k_attention_backward *a)
{
    const int64_t chunks = chunks_of(&a->n), each = a->n.h / a->n.g;
    const choir__k_attention_backward first = pair_of(a, 0, 0);
    const shape *n = &first.n;
    const work w = work_new(n, chunks);
    for (int64_t b = 0; b < a->n.b; b++)
        for (int64_t g = 0; g < a->n.g; g++) {
            for (int64_t h = g * each; h < (g + 1) * each && chunks > 1; h++)
                clear_head(&a->gq, b, h, a->n.t, n->d);
            for (int64_t c = 0; c < chunks; c++) {
                const int64_t keys = chunks > 1 ? choir__leaf_of_chunk(c, chunks) : 0;
                const choir__heads k = from_row(a->k, keys * n->s),
                                   v = from_row(a->v, keys * n->s);
                gather_transposed(w.kt, &k, b, g, n->s, n->d);
                gather_transposed(w.vt, &v, b, g, n->s, n->d);
                gather_panels(w.k, &k, b, g, n->s, n->d);
                keys_of_leaves(a, &w, b, g, keys, chunks > 1 || a->begun);
            }
        }
}

void KERNEL(attention_backward)(const choir__k_attention_backward *a)
{
    if (!takes_halves(a)) {
        F32_ONLY(attention_backward, a);
        attend_back(a);
        return;
    }
    float *room = wide_room(a);
    for (int64_t b = 0; b < a->n.b; b++)
        for (int64_t g = 0; g < a->n.g; g++) {
            float *at = room;
            const wide_heads q = wide_heads_new(&at, a, &a->q, b, g),
                             k = wide_heads_new(&at, a, &a->k, b, g),
                             v = wide_heads_new(&at, a, &a->v, b, g),
                             gy = wide_heads_new(&at, a, &a->gy, b, g),
                             gq = wide_heads_new(&at, a, &a->gq, b, g),
                             gk = wide_heads_new(&at, a, &a->gk, b, g),
                             gv = wide_heads_new(&at, a, &a->gv, b, g);
            choir__k_attention_backward one = of_one_head(a, b, g);
            widen_heads(&q), widen_heads(&k), widen_heads(&v), widen_heads(&gy);
            one.q = q.wide, one.k = k.wide, one.v = v.wide, one.gy = gy.wide;
            one.gq = gq.wide, one.gk = gk.wide, one.gv = gv.wide;
            attend_back(&one);
            round_heads(&gq), round_heads(&gk), round_heads(&gv);
        }
}
