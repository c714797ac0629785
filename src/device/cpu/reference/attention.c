/* Reference kernels for attention: one query at a time, with its scores in an array. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"

static int64_t first_key(const choir__attention_shape *n, int64_t t)
{
    return n->window ? choir__max(0, t - n->window + 1) : 0;
}

static int64_t end_of_keys(const choir__attention_shape *n, int64_t t)
{
    return n->causal ? choir__min(n->s, t + 1) : n->s;
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

static double score(const choir__heads *q, int64_t i, const choir__heads *k, int64_t j,
    const choir__attention_bias *bias, int64_t at, const choir__attention_shape *n,
    choir_dtype dtype)
{
    return (double)n->scale * dot(q, i, k, j, n->d, dtype) + get_or(bias->p, at, dtype, 0);
}

static void forward_query(
    const choir__k_attention *k, int64_t b, int64_t h, int64_t t, double *score_of)
{
    const choir__attention_shape *n = &k->n;
    int64_t g = h / (n->h / n->g), first = first_key(n, t), end = end_of_keys(n, t);
    int64_t q = row_of(&k->q, b, h, t), y = row_of(&k->y, b, h, t);
    int64_t bias = k->bias.p ? bias_row(&k->bias, b, h, t) : 0;
    double top = -INFINITY, sum = 0;
    for (int64_t s = first; s < end; s++) {
        score_of[s] =
            score(&k->q, q, &k->k, row_of(&k->k, b, g, s), &k->bias, bias + s, n, k->dtype);
        top = fmax(top, score_of[s]);
    }
    for (int64_t s = first; s < end; s++)
        sum += choir__exp(score_of[s] - top);
    for (int64_t c = 0; c < n->d; c++) {
        double out = 0;
        for (int64_t s = first; s < end; s++)
            out += choir__exp(score_of[s] - top) / sum *
                   get(k->v.p, row_of(&k->v, b, g, s) + c, k->dtype);
        put(k->y.p, y + c, k->dtype, out);
    }
    put(k->lse, (b * n->h + h) * n->t + t, sums_of(k->dtype), top + choir__log(sum));
}

void choir__reference_attention(const choir__k_attention *k)
{
    double *scores = choir__alloc((size_t)k->n.s * sizeof *scores);
    for (int64_t b = 0; b < k->n.b; b++)
        for (int64_t h = 0; h < k->n.h; h++)
            for (int64_t t = 0; t < k->n.t; t++)
                forward_query(k, b, h, t, scores);
    free(scores);
}

static void backward_query(
    const choir__k_attention_backward *k, int64_t b, int64_t h, int64_t t, double *p)
{
    const choir__attention_shape *n = &k->n;
    int64_t g = h / (n->h / n->g), first = first_key(n, t), end = end_of_keys(n, t);
    int64_t q = row_of(&k->q, b, h, t), gy = row_of(&k->gy, b, h, t);
    int64_t bias = k->bias.p ? bias_row(&k->bias, b, h, t) : 0;
    double lse = get(k->lse, (b * n->h + h) * n->t + t, sums_of(k->dtype)), sum = 0;
    for (int64_t s = first; s < end; s++) {
        int64_t key = row_of(&k->k, b, g, s), value = row_of(&k->v, b, g, s);
        p[s] = choir__exp(score(&k->q, q, &k->k, key, &k->bias, bias + s, n, k->dtype) - lse);
        sum += p[s] * dot(&k->gy, gy, &k->v, value, n->d, k->dtype);
        add_row(&k->gv, row_of(&k->gv, b, g, s), p[s], &k->gy, gy, n->d, k->dtype);
    }
    for (int64_t s = first; s < end; s++) {
        int64_t key = row_of(&k->k, b, g, s), value = row_of(&k->v, b, g, s);
        double gs = p[s] * (dot(&k->gy, gy, &k->v, value, n->d, k->dtype) - sum);
        double scaled = gs * (double)n->scale;
        add_row(&k->gq, row_of(&k->gq, b, h, t), scaled, &k->k, key, n->d, k->dtype);
        add_row(&k->gk, row_of(&k->gk, b, g, s), scaled, &k->q, q, n->d, k->dtype);
        if (k->gbias.p) {
            int64_t at = bias_row(&k->gbias, b, h, t) + s;
            put(k->gbias.p, at, k->dtype, get(k->gbias.p, at, k->dtype) + gs);
        }
    }
}

void choir__reference_attention_backward(const choir__k_attention_backward *k)
{
    double *p = choir__alloc((size_t)k->n.s * sizeof *p);
    clear(&k->gq, k->n.h, k->n.t, &k->n, k->dtype);
    clear(&k->gk, k->n.g, k->n.s, &k->n, k->dtype);
    clear(&k->gv, k->n.g, k->n.s, &k->n, k->dtype);
    for (int64_t b = 0; b < k->n.b; b++)
        for (int64_t h = 0; h < k->n.h; h++)
            for (int64_t t = 0; t < k->n.t; t++)
                backward_query(k, b, h, t, p);
    free(p);
}
