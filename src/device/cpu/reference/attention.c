/* Reference kernels for attention: one query at a time, with its scores in an array. Chunks
 * (kernels/attention.h) say only which keys a query sees, since sums are in double. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/reference/reference.h"

/* Returns the token at place i of a sequence of n, whose chunks lie as leaves. */
static int64_t token_at(const choir__attention_shape *n, int64_t i)
{
    if (n->chunks < 2)
        return i;
    int64_t each = n->t / n->chunks;
    return choir__chunk_of_leaf(i / each, n->chunks) * each + i % each;
}

/* Returns whether the query in row t sees the key in row s. */
static bool sees(const choir__attention_shape *n, int64_t t, int64_t s)
{
    int64_t query = token_at(n, t) + n->ahead, key = token_at(n, s);
    return (!n->causal || key <= query) && (!n->window || key > query - n->window);
}

/* Returns the type of lse for operands of dtype. */
static choir_dtype sums_of(choir_dtype dtype)
{
    return dtype == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
}

static int64_t row_of(const choir__heads *x, int64_t b, int64_t h, int64_t t)
{
    return b * x->b + h * x->h + t * x->t;
}

static int64_t bias_row(const choir__attention_bias *a, int64_t b, int64_t h, int64_t t)
{
    return b % a->samples * a->stride[0] + h * a->stride[1] + t * a->stride[2];
}

static double dot(const choir__heads *x, int64_t i, const choir__heads *y, int64_t j, int64_t d,
    choir_dtype dtype)
{
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += get(x->p, i + c, dtype) * get(y->p, j + c, dtype);
    return sum;
}

/* y[j] += factor x[i]: rows of d elements. */
static void add_row(const choir__heads *y, int64_t j, double factor, const choir__heads *x,
    int64_t i, int64_t d, choir_dtype dtype)
{
    for (int64_t c = 0; c < d && y->p; c++)
        put(y->p, j + c, dtype, get(y->p, j + c, dtype) + factor * get(x->p, i + c, dtype));
}

static void clear(const choir__heads *y, int64_t heads, int64_t rows,
    const choir__attention_shape *n, choir_dtype dtype)
{
    for (int64_t b = 0; b < n->b && y->p; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = 0; t < rows; t++)
                for (int64_t c = 0; c < n->d; c++)
                    put(y->p, row_of(y, b, h, t) + c, dtype, 0);
}

/* slope, if not NULL: receives the score's derivative by the scaled product. */
static double score(const choir__heads *q, int64_t i, const choir__heads *k, int64_t j,
    const choir__attention_bias *bias, int64_t at, const choir__attention_shape *n,
    choir_dtype dtype, double *slope)
{
    double z = (double)n->scale * dot(q, i, k, j, n->d, dtype), cap = (double)n->softcap;
    double bent = cap > 0 ? choir__tanh(z / cap) : 0;
    if (slope)
        *slope = 1 - bent * bent;
    return (cap > 0 ? cap * bent : z) + get_or(bias->p, at, dtype, 0);
}

/* Combines a query's maximum, sum and values o with the results of an earlier call. */
static void combine(const choir__k_attention *k, int64_t b, int64_t h, int64_t t, double *top,
    double *sum, double *o)
{
    choir_dtype sums = sums_of(k->dtype);
    int64_t at = choir__lse_at(k, b, h) + t, y = row_of(&k->y, b, h, t);
    double had_top = get(k->lse, at, sums), had = get(k->sum, at, sums);
    double more = fmax(*top, had_top);
    double a = had == 0 ? 0 : choir__exp(had_top - more),
           own = *sum == 0 ? 0 : choir__exp(*top - more);
    *sum = *sum * own + had * a;
    *top = more;
    for (int64_t c = 0; c < k->n.d; c++)
        o[c] = o[c] * own + (had == 0 ? 0 : get(k->y.p, y + c, k->dtype) * a);
}

static void forward_query(
    const choir__k_attention *k, int64_t b, int64_t h, int64_t t, double *score_of, double *o)
{
    const choir__attention_shape *n = &k->n;
    choir_dtype sums = sums_of(k->dtype);
    int64_t g = h / (n->h / n->g), at = choir__lse_at(k, b, h) + t;
    int64_t q = row_of(&k->q, b, h, t), y = row_of(&k->y, b, h, t);
    int64_t bias = k->bias.p ? bias_row(&k->bias, b, h, t) : 0;
    double top = -INFINITY, sum = 0;
    memset(o, 0, (size_t)n->d * sizeof *o);
    for (int64_t s = 0; s < n->s; s++)
        if (sees(n, t, s)) {
            score_of[s] = score(
                &k->q, q, &k->k, row_of(&k->k, b, g, s), &k->bias, bias + s, n, k->dtype, NULL);
            top = fmax(top, score_of[s]);
        }
    for (int64_t s = 0; s < n->s; s++) {
        if (!sees(n, t, s) || top == -INFINITY) /* the bias may hide all keys */
            continue;
        double e = choir__exp(score_of[s] - top);
        sum += e;
        for (int64_t c = 0; c < n->d; c++)
            o[c] += e * get(k->v.p, row_of(&k->v, b, g, s) + c, k->dtype);
    }
    if (k->begun)
        combine(k, b, h, t, &top, &sum, o);
    if (k->open)
        put(k->sum, at, sums, sum);
    put(k->lse, at, sums, k->open ? top : top + choir__log(sum));
    for (int64_t c = 0; c < n->d; c++)
        put(k->y.p, y + c, k->dtype, k->open ? o[c] : sum == 0 ? 0 : o[c] / sum);
}

void choir__reference_attention(const choir__k_attention *k)
{
    double *scores = choir__alloc((size_t)(k->n.s + k->n.d) * sizeof *scores);
    for (int64_t b = 0; b < k->n.b; b++)
        for (int64_t h = 0; h < k->n.h; h++)
            for (int64_t t = 0; t < k->n.t; t++)
                forward_query(k, b, h, t, scores, scores + k->n.s);
    free(scores);
}

static void backward_query(
    const choir__k_attention_backward *k, int64_t b, int64_t h, int64_t t, double *p)
{
    const choir__attention_shape *n = &k->n;
    int64_t g = h / (n->h / n->g), at = choir__lse_at(k, b, h) + t;
    int64_t q = row_of(&k->q, b, h, t), gy = row_of(&k->gy, b, h, t);
    int64_t bias = k->bias.p ? bias_row(&k->bias, b, h, t) : 0;
    double lse = get(k->lse, at, sums_of(k->dtype)), sum = 0;
    if (lse == -INFINITY) /* no key is seen */
        return;
    for (int64_t s = 0; s < n->s; s++) {
        if (!sees(n, t, s))
            continue;
        int64_t key = row_of(&k->k, b, g, s), value = row_of(&k->v, b, g, s);
        p[s] = choir__exp(
            score(&k->q, q, &k->k, key, &k->bias, bias + s, n, k->dtype, NULL) - lse);
        sum += p[s] * dot(&k->gy, gy, &k->v, value, n->d, k->dtype);
        add_row(&k->gv, row_of(&k->gv, b, g, s), p[s], &k->gy, gy, n->d, k->dtype);
    }
    sum = get_or(k->delta, at, sums_of(k->dtype), sum);
    for (int64_t s = 0; s < n->s; s++) {
        if (!sees(n, t, s))
            continue;
        int64_t key = row_of(&k->k, b, g, s), value = row_of(&k->v, b, g, s);
        double gs = p[s] * (dot(&k->gy, gy, &k->v, value, n->d, k->dtype) - sum);
        double slope;
        score(&k->q, q, &k->k, key, &k->bias, bias + s, n, k->dtype, &slope);
        double scaled = gs * slope * (double)n->scale;
        add_row(&k->gq, row_of(&k->gq, b, h, t), scaled, &k->k, key, n->d, k->dtype);
        add_row(&k->gk, row_of(&k->gk, b, g, s), scaled, &k->q, q, n->d, k->dtype);
        if (k->gbias.p) {
            int64_t to = bias_row(&k->gbias, b, h, t) + s;
            put(k->gbias.p, to, k->dtype, get(k->gbias.p, to, k->dtype) + gs);
        }
    }
}

void choir__reference_attention_backward(const choir__k_attention_backward *k)
{
    double *p = choir__alloc((size_t)k->n.s * sizeof *p);
    if (!k->begun)
        clear(&k->gq, k->n.h, k->n.t, &k->n, k->dtype);
    clear(&k->gk, k->n.g, k->n.s, &k->n, k->dtype);
    clear(&k->gv, k->n.g, k->n.s, &k->n, k->dtype);
    for (int64_t b = 0; b < k->n.b; b++)
        for (int64_t h = 0; h < k->n.h; h++)
            for (int64_t t = 0; t < k->n.t; t++)
                backward_query(k, b, h, t, p);
    free(p);
}
