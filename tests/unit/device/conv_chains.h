/* The rule of the chain (device/cpu/product/product.h) for convolutions by windows, in plain
 * loops: an element of y, gx or gw. */
#ifndef CHOIR_TEST_CONV_CHAINS_H
#define CHOIR_TEST_CONV_CHAINS_H

#include "conv_trials.h"

enum { CHAIN = 512 };

/* Terms of an element: factors, and how many there are by now. */
typedef struct terms {
    double *a, *b;
    int64_t n;
} terms;

static double chain(const terms *x, int64_t first, int64_t n, choir_dtype dtype)
{
    double sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum = dtype == CHOIR_F64 ? fma(x->a[i], x->b[i], sum)
                                 : (double)fmaf((float)x->a[i], (float)x->b[i], (float)sum);
    return sum;
}

/* The fixed tree over chains [first, first + n). */
static double tree(const terms *x, int64_t first, int64_t n, choir_dtype dtype)
{
    if (n == 1)
        return chain(x, first * CHAIN, choir__min(CHAIN, x->n - first * CHAIN), dtype);
    int64_t left = 1;
    while (2 * left < n)
        left *= 2;
    const double a = tree(x, first, left, dtype), b = tree(x, first + left, n - left, dtype);
    return dtype == CHOIR_F64 ? a + b : (double)((float)a + (float)b);
}

static double sum_of(const terms *x, choir_dtype dtype)
{
    return x->n ? tree(x, 0, (x->n - 1) / CHAIN + 1, dtype) : 0;
}

static void add(terms *x, double a, double b)
{
    x->a[x->n] = a;
    x->b[x->n++] = b;
}

/* Returns the pixel of x, in one dimension, that place k of output o sees, or -1 for padding.
 */
static int64_t seen(
    int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t dilation, int64_t size)
{
    const int64_t at = o * stride - pad + k * dilation;
    return at >= 0 && at < size ? at : -1;
}

/* Place (i, j, c) of the window of output (n, oh, ow), or 0 in the padding. */
static double x_at(
    const trial *t, int64_t n, int64_t oh, int64_t ow, int64_t i, int64_t j, int64_t channel)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t h = seen(oh, i, s->stride_h, s->pad_h, s->dilation_h, s->h);
    const int64_t w = seen(ow, j, s->stride_w, s->pad_w, s->dilation_w, s->w);
    return h < 0 || w < 0 ? 0 : get(&t->x, ((n * s->h + h) * s->w + w) * s->c + channel);
}

static double y_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, o = element % s->o, pixel = element / s->o;
    for (int64_t q = 0; q < s->kh * s->kw * in; q++)
        add(x,
            x_at(t, pixel / s->ow / s->oh, pixel / s->ow % s->oh, pixel % s->ow, q / in / s->kw,
                q / in % s->kw, o / (s->o / s->groups) * in + q % in),
            get(&t->w, o * s->kh * s->kw * in + q));
    const double sum = sum_of(x, t->k.dtype);
    if (!t->k.bias)
        return sum;
    return t->k.dtype == CHOIR_F64 ? sum + get(&t->bias, o)
                                   : (double)((float)sum + (float)get(&t->bias, o));
}

static double gw_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, length = s->kh * s->kw * in;
    const int64_t o = element / length, q = element % length;
    for (int64_t pixel = 0; pixel < s->n * s->oh * s->ow; pixel++)
        add(x, get(&t->y, pixel * s->o + o),
            x_at(t, pixel / s->ow / s->oh, pixel / s->ow % s->oh, pixel % s->ow, q / in / s->kw,
                q / in % s->kw, o / (s->o / s->groups) * in + q % in));
    return sum_of(x, t->k.dtype);
}

/* Places on the stride have terms. Beyond gy a term is 0. */
static double gx_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, c = element % s->c;
    const int64_t pixel = element / s->c, n = pixel / s->w / s->h;
    for (int64_t q = 0; q < s->kh * s->kw; q++) {
        const int64_t h = pixel / s->w % s->h + s->pad_h - q / s->kw * s->dilation_h;
        const int64_t w = pixel % s->w + s->pad_w - q % s->kw * s->dilation_w;
        if (h % s->stride_h || w % s->stride_w)
            continue;
        const int64_t oh = h / s->stride_h, ow = w / s->stride_w;
        const bool there = h >= 0 && w >= 0 && oh < s->oh && ow < s->ow;
        for (int64_t o = c / in * out; o < (c / in + 1) * out; o++)
            add(x, there ? get(&t->y, ((n * s->oh + oh) * s->ow + ow) * s->o + o) : 0,
                get(&t->w, (o * s->kh * s->kw + q) * in + c % in));
    }
    return sum_of(x, t->k.dtype);
}

/* An element of what a pass computes. */
static double by_chains(const trial *t, int pass, int64_t element)
{
    static double (*const of[PASSES])(const trial *, terms *, int64_t) = {y_of, gx_of, gw_of};
    const size_t room = (size_t)terms_of(&t->k.s, pass) * sizeof(double);
    terms x = {.a = malloc(room), .b = malloc(room)};
    const double sum = of[pass](t, &x, element);
    free(x.a);
    free(x.b);
    return sum;
}

#endif
