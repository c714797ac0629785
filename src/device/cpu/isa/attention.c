/* Attention, head by head and one block of queries at a time: two products forward, five
 * backward, and one pass over the block's rows of scores between them.
 *
 *     forward    S = q k^T    P = softmax(scale S + bias)    y = P v
 *     backward   S = q k^T    P = exp(scale S + bias - lse)  gv += P^T gy
 *                G = gy v^T   G = scale P (G - rowsum(P G))  gq = G k      gk += G^T q
 *
 * A block has as many queries as keep its scores in the cache. The T x T matrix is never
 * stored, and a causal block leaves out the keys after its last query; those after the other
 * queries it computes in vain, so it is half as high. Heads are strided in
 * their tensors (a row of q is followed by the other heads'), which slows oneDNN's products, so
 * a head is first copied to rows without gaps: this takes a fifth of the time that it saves. */
#include "device/cpu/isa/vector_math.h"

enum { QUERIES = 128, CAUSAL = 64, SCORES = 1 << 17 }; /* upper limits of a block */

typedef choir__attention_shape shape;

/* Rows without gaps: a copy in the workspace, or the operand itself if it has no gaps. */
typedef struct head {
    const float *rows;
    float *space;
} head;

typedef struct work {
    int64_t rows; /* of queries in a block */
    /* a block sees all keys, and no other block or head adds to their gradients */
    bool whole;
    head q, gy, k, v;    /* (rows, D) the first two, (S, D) the others */
    float *s, *g, *part; /* (rows, S), (rows, S), (S, D) */
} work;

static int64_t block_rows(const shape *n)
{
    int64_t most = n->causal ? CAUSAL : QUERIES, blocks = (n->t + most - 1) / most;
    while (blocks < n->t && (n->t + blocks - 1) / blocks > 16 &&
           (n->t + blocks - 1) / blocks * n->s > SCORES)
        blocks *= 2;
    return (n->t + blocks - 1) / blocks;
}

static float *carve(char **at, int64_t count)
{
    float *p = (float *)*at;
    *at += ((size_t)count * sizeof *p + 63) & ~(size_t)63;
    return p;
}

static work work_new(const shape *n, bool backward)
{
    work w = {.rows = block_rows(n)};
    w.whole = w.rows == n->t && n->h == n->g && (!n->causal || n->s <= n->t);
    int64_t q = w.rows * n->d, k = n->s * n->d, s = w.rows * n->s;
    size_t floats = (size_t)(backward ? 2 * q + 3 * k + 2 * s : q + 2 * k + s);
    char *at =
        choir__cpu_workspace(choir__cpu_context_current(), floats * sizeof(float) + 8 * 64);
    w.q.space = carve(&at, q);
    w.k.space = carve(&at, k);
    w.v.space = carve(&at, k);
    w.s = carve(&at, s);
    if (backward) {
        w.gy.space = carve(&at, q);
        w.g = carve(&at, s);
        w.part = carve(&at, k);
    }
    return w;
}

static float *row_of(const choir__heads *x, int64_t b, int64_t h, int64_t t)
{
    return (float *)x->p + b * x->b + h * x->h + t * x->t;
}

static void gather(
    head *to, const choir__heads *x, int64_t b, int64_t h, int64_t t, int64_t rows, int64_t d)
{
    const float *from = row_of(x, b, h, t);
    to->rows = x->t == d ? from : to->space;
    for (int64_t r = 0; r < rows && x->t != d; r++)
        for (int64_t c = 0; c < d; c += W)
            v_put(to->space + r * d + c, v_get(from + r * x->t + c, d - c), d - c);
}

/* c (m, n) = a (m, k) b (k, n), with strides of rows and columns. */
static void product(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col,
    const float *b, int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k)
{
    KERNEL(matmul)
    (&(choir__k_matmul){.a = a,
        .b = b,
        .c = c,
        .batch0 = 1,
        .batch1 = 1,
        .m = m,
        .n = n,
        .k = k,
        .a_row = a_row,
        .a_col = a_col,
        .b_row = b_row,
        .b_col = b_col,
        .c_row = c_row,
        .dtype = CHOIR_F32});
}

/* --- the keys that a block and a query see --- */

typedef struct span {
    int64_t from, to; /* keys */
} span;

static span seen_by(const shape *n, int64_t t)
{
    return (span){n->window ? choir__max(0, t - n->window + 1) : 0,
        n->causal ? choir__min(n->s, t + 1) : n->s};
}

/* Returns the keys that queries t ... t + rows - 1 see. */
static span seen_by_block(const shape *n, int64_t t, int64_t rows)
{
    return (span){seen_by(n, t).from, seen_by(n, t + rows - 1).to};
}

static float *bias_row(const choir__attention_bias *a, int64_t b, int64_t h, int64_t t)
{
    return a->p ? (float *)a->p + b % a->samples * a->stride[0] + h * a->stride[1] +
                      t * a->stride[2]
                : NULL;
}

static void clear(float *y, int64_t from, int64_t to)
{
    for (int64_t c = from; c < to; c += W)
        v_put(y + c, (vec){0}, to - c);
}

/* --- forward --- */

/* Replaces s[0, n) by softmax(scale s + bias); log sum exp is *top + log of the result. */
INLINE float softmax_row(float *s, const float *bias, int64_t n, float scale, float *top)
{
    vec max[L], sum[L] = {{0}}, low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec z = v_get(s + at, left) * scale;
            if (bias) {
                z += v_get(bias + at, left);
                v_put(s + at, z, left);
            }
            max[j] = v_max(max[j], v_keep(z, left, low));
        }
    float most = *top = lanes_max(max), factor = bias ? 1 : scale;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec e = v_exp_below(v_get(s + at, left) * factor - most);
            v_put(s + at, e, left);
            sum[j] += v_keep(e, left, (vec){0});
        }
    float total = lanes_sum(sum), inverse = 1.0f / total;
    for (int64_t c = 0; c < n; c += W)
        v_put(s + c, v_get(s + c, n - c) * inverse, n - c);
    return total;
}

/* Turns scores s (rows, keys) into probabilities; row r is query t + r of head (b, h). */
static void probabilities(const choir__k_attention *k, float *s, span keys, int64_t rows,
    int64_t b, int64_t h, int64_t t)
{
    int64_t width = keys.to - keys.from;
    float *lse = (float *)k->lse + (b * k->n.h + h) * k->n.t + t, total[QUERIES];
    for (int64_t r = 0; r < rows; r++, s += width) {
        span seen = seen_by(&k->n, t + r);
        const float *bias = bias_row(&k->bias, b, h, t + r);
        int64_t from = seen.from - keys.from, n = seen.to - seen.from;
        total[r] = bias ? softmax_row(s + from, bias + seen.from, n, k->n.scale, &lse[r])
                        : softmax_row(s + from, NULL, n, k->n.scale, &lse[r]);
        clear(s, 0, from);
        clear(s, from + n, width);
    }
    for (int64_t r = 0; r < rows; r += W)
        v_put(lse + r, v_get(lse + r, rows - r) + v_log(v_get(total + r, rows - r)), rows - r);
}

static void forward_head(const choir__k_attention *k, work *w, int64_t b, int64_t h)
{
    int64_t d = k->n.d;
    for (int64_t t = 0; t < k->n.t; t += w->rows) {
        int64_t rows = choir__min(w->rows, k->n.t - t);
        span keys = seen_by_block(&k->n, t, rows);
        int64_t width = keys.to - keys.from;
        gather(&w->q, &k->q, b, h, t, rows, d);
        product(w->s, width, w->q.rows, d, 1, w->k.rows + keys.from * d, 1, d, rows, width, d);
        probabilities(k, w->s, keys, rows, b, h, t);
        product(row_of(&k->y, b, h, t), k->y.t, w->s, width, 1, w->v.rows + keys.from * d, d, 1,
            rows, d, width);
    }
}

void KERNEL(attention)(const choir__k_attention *k)
{
    F32_ONLY(attention, k);
    const shape *n = &k->n;
    work w = work_new(n, false);
    for (int64_t b = 0; b < n->b; b++)
        for (int64_t h = 0; h < n->h; h++) {
            if (h % (n->h / n->g) == 0) {
                gather(&w.k, &k->k, b, h / (n->h / n->g), 0, n->s, n->d);
                gather(&w.v, &k->v, b, h / (n->h / n->g), 0, n->s, n->d);
            }
            forward_head(k, &w, b, h);
        }
}

/* --- backward --- */

/* Replaces s, the scores, by probabilities, and g, their gradient, by scale times the gradient
 * of the scores. */
INLINE void backward_row(
    float *s, float *g, const float *bias, float *gbias, int64_t n, float scale, float lse)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec z = v_get(s + at, left) * scale - lse;
            if (bias)
                z += v_get(bias + at, left);
            vec p = v_keep(v_exp_below(z), left, (vec){0});
            v_put(s + at, p, left);
            sum[j] += p * v_get(g + at, left);
        }
    float dot = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += W) {
        vec gs = v_get(s + c, n - c) * (v_get(g + c, n - c) - dot);
        if (gbias)
            v_put(gbias + c, v_get(gbias + c, n - c) + gs, n - c);
        v_put(g + c, gs * scale, n - c);
    }
}

static void score_gradients(const choir__k_attention_backward *k, work *w, span keys,
    int64_t rows, int64_t b, int64_t h, int64_t t)
{
    int64_t width = keys.to - keys.from;
    const float *lse = (const float *)k->lse + (b * k->n.h + h) * k->n.t;
    float *s = w->s, *g = w->g;
    for (int64_t r = t; r < t + rows; r++, s += width, g += width) {
        span seen = seen_by(&k->n, r);
        int64_t from = seen.from - keys.from, to = seen.to - keys.from;
        const float *bias = bias_row(&k->bias, b, h, r);
        float *gbias = bias_row(&k->gbias, b, h, r);
        if (bias)
            backward_row(s + from, g + from, bias + seen.from, gbias ? gbias + seen.from : NULL,
                to - from, k->n.scale, lse[r]);
        else
            backward_row(s + from, g + from, NULL, NULL, to - from, k->n.scale, lse[r]);
        clear(s, 0, from);
        clear(s, to, width);
        clear(g, 0, from);
        clear(g, to, width);
    }
}

/* Adds a^T x to rows keys.from ... of y, a (rows, keys), x (rows, D); `whole`: writes it, since
 * nothing else is added. */
static void add_product(const choir__heads *y, int64_t b, int64_t g, span keys, bool whole,
    const float *a, const float *x, float *part, int64_t rows, int64_t d)
{
    int64_t width = keys.to - keys.from, step = whole ? y->t : d;
    if (!y->p)
        return;
    float *to = row_of(y, b, g, keys.from);
    product(whole ? to : part, step, a, 1, width, x, d, 1, width, d, rows);
    for (int64_t r = 0; r < width && !whole; r++, to += y->t, part += d)
        for (int64_t c = 0; c < d; c += W)
            v_put(to + c, v_get(to + c, d - c) + v_get(part + c, d - c), d - c);
}

static void backward_head(const choir__k_attention_backward *k, work *w, int64_t b, int64_t h)
{
    const shape *n = &k->n;
    int64_t d = n->d, g = h / (n->h / n->g);
    for (int64_t t = 0; t < n->t; t += w->rows) {
        int64_t rows = choir__min(w->rows, n->t - t);
        span keys = seen_by_block(n, t, rows);
        int64_t width = keys.to - keys.from, at = keys.from * d;
        gather(&w->q, &k->q, b, h, t, rows, d);
        gather(&w->gy, &k->gy, b, h, t, rows, d);
        product(w->s, width, w->q.rows, d, 1, w->k.rows + at, 1, d, rows, width, d);
        product(w->g, width, w->gy.rows, d, 1, w->v.rows + at, 1, d, rows, width, d);
        score_gradients(k, w, keys, rows, b, h, t);
        add_product(&k->gv, b, g, keys, w->whole, w->s, w->gy.rows, w->part, rows, d);
        add_product(&k->gk, b, g, keys, w->whole, w->g, w->q.rows, w->part, rows, d);
        if (k->gq.p)
            product(row_of(&k->gq, b, h, t), k->gq.t, w->g, width, 1, w->k.rows + at, d, 1,
                rows, d, width);
    }
}

static void clear_head(const choir__heads *y, int64_t b, int64_t g, const shape *n)
{
    for (int64_t s = 0; s < n->s && y->p; s++)
        clear(row_of(y, b, g, s), 0, n->d);
}

void KERNEL(attention_backward)(const choir__k_attention_backward *k)
{
    F32_ONLY(attention_backward, k);
    const shape *n = &k->n;
    work w = work_new(n, true);
    for (int64_t b = 0; b < n->b; b++)
        for (int64_t h = 0; h < n->h; h++) {
            int64_t g = h / (n->h / n->g);
            if (h % (n->h / n->g) == 0) {
                gather(&w.k, &k->k, b, g, 0, n->s, n->d);
                gather(&w.v, &k->v, b, g, 0, n->s, n->d);
                if (!w.whole) {
                    clear_head(&k->gk, b, g, n);
                    clear_head(&k->gv, b, g, n);
                }
            }
            backward_head(k, &w, b, h);
        }
}
