/* Convolutions by quads (device/cpu/product/winograd.h), in plain loops: all of y, gx or gw. */
#ifndef CHOIR_TEST_CONV_QUADS_H
#define CHOIR_TEST_CONV_QUADS_H

#include "base/tree.h"
#include "conv_trials.h"

enum { LEAF = 128, GROUP = 4 * LEAF }; /* terms of a leaf of K; quads of a product of gw */

/* --- sums --- */

/* The fixed tree over parts [0, n). */
static float tree_of(const float *parts, int64_t n)
{
    int64_t left = 1;
    if (n == 1)
        return parts[0];
    while (2 * left < n)
        left *= 2;
    return tree_of(parts, left) + tree_of(parts + left, n - left);
}

/* A product's element: K cut into leaves of at most LEAF terms, a chain each. */
static float leaves_of(const float *a, const float *b, int64_t n)
{
    const int64_t leaves = (n + LEAF - 1) / LEAF;
    float sums[64] = {0};
    assert_true(leaves <= (int64_t)CHOIR_COUNT(sums));
    for (int64_t l = 0; l < leaves; l++) {
        int64_t from, to;
        choir__tree_run(n, l, leaves, &from, &to);
        for (int64_t i = from; i < to; i++)
            sums[l] = fmaf(a[i], b[i], sums[l]);
    }
    return tree_of(sums, leaves);
}

/* --- transforms, of one row or column --- */

static void by_b(const float d[4], float to[4])
{
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
}

static void by_g(const float g[3], float to[4])
{
    to[0] = g[0];
    to[1] = 0.5f * (g[0] + g[2] + g[1]);
    to[2] = 0.5f * (g[0] + g[2] - g[1]);
    to[3] = g[2];
}

static void by_a(const float g[2], float to[4])
{
    to[0] = g[0];
    to[1] = g[0] + g[1];
    to[2] = g[0] - g[1];
    to[3] = -g[1];
}

static void by_a_back(const float m[4], float to[2])
{
    to[0] = m[0] + m[1] + m[2];
    to[1] = m[1] - m[2] - m[3];
}

static void by_g_back(const float s[4], float to[3])
{
    const float both = 0.5f * (s[1] + s[2]);
    to[0] = s[0] + both;
    to[1] = 0.5f * (s[1] - s[2]);
    to[2] = both + s[3];
}

/* Transforms the columns of x (from, from), then the rows: y (to, to). */
#define TWICE(by, from, to)                                                                    \
    static void by##_twice(const float x[from][from], float y[to][to])                         \
    {                                                                                          \
        float half[to][from], column[from], mixed[to];                                         \
        for (int j = 0; j < from; j++) {                                                       \
            for (int i = 0; i < from; i++)                                                     \
                column[i] = x[i][j];                                                           \
            by(column, mixed);                                                                 \
            for (int i = 0; i < to; i++)                                                       \
                half[i][j] = mixed[i];                                                         \
        }                                                                                      \
        for (int i = 0; i < to; i++)                                                           \
            by(half[i], y[i]);                                                                 \
    }
TWICE(by_b, 4, 4)
TWICE(by_g, 3, 4)
TWICE(by_a, 2, 4)
TWICE(by_a_back, 4, 2)
TWICE(by_g_back, 4, 3)

/* --- passes --- */

/* Images (n, h, w, channels). */
typedef struct pixels {
    const array *of;
    int64_t n, h, w, channels;
} pixels;

static float pixel_at(const pixels *p, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const bool there = h >= 0 && h < p->h && w >= 0 && w < p->w;
    return there ? (float)get(p->of, ((n * p->h + h) * p->w + w) * p->channels + c) : 0;
}

/* Writes the transformed patch whose first pixel is (h, w) to each of 16 lists, at `at`. */
static void list_patch(float *const lists[16], int64_t at, const pixels *p, int64_t n,
    int64_t h, int64_t w, int64_t c)
{
    float d[4][4], mixed[4][4];
    for (int i = 0; i < 16; i++)
        d[i / 4][i % 4] = pixel_at(p, n, h + i / 4, w + i % 4, c);
    by_b_twice((const float(*)[4])d, mixed);
    for (int i = 0; i < 16; i++)
        lists[i][at] = mixed[i / 4][i % 4];
}

static void new_lists(float *lists[16], int64_t n)
{
    for (int i = 0; i < 16; i++)
        lists[i] = calloc((size_t)n, sizeof(float));
}

static void free_lists(float *lists[16])
{
    for (int i = 0; i < 16; i++)
        free(lists[i]);
}

/* The weights from channel `from` to channel `to` of y; for gx they are turned. */
static void list_weights(
    float *const lists[16], int64_t at, const trial *t, bool turned, int64_t from, int64_t to)
{
    float g[3][3], mixed[4][4];
    for (int i = 0; i < 9; i++)
        g[i / 3][i % 3] = (float)get(&t->w,
            turned ? (from * 9 + 8 - i) * t->k.s.c + to : (to * 9 + i) * t->k.s.c + from);
    by_g_twice((const float(*)[3])g, mixed);
    for (int i = 0; i < 16; i++)
        lists[i][at] = mixed[i / 4][i % 4];
}

/* The outputs (y or gx) of images x, whose first patch begins at -pad. */
static void images_by_quads(const trial *t, const pixels *x, const pixels *y, int64_t pad_h,
    int64_t pad_w, bool turned, array *to)
{
    float *d[16], *g[16];
    new_lists(d, x->channels);
    new_lists(g, x->channels * y->channels);
    for (int64_t o = 0; o < y->channels; o++)
        for (int64_t c = 0; c < x->channels; c++)
            list_weights(g, o * x->channels + c, t, turned, c, o);
    for (int64_t q = 0; q < y->n * y->h * y->w; q++) {
        const int64_t n = q / y->w / y->h, h = q / y->w % y->h, w = q % y->w;
        if (h % 2 || w % 2)
            continue;
        for (int64_t c = 0; c < x->channels; c++)
            list_patch(d, c, x, n, h - pad_h, w - pad_w, c);
        for (int64_t o = 0; o < y->channels; o++) {
            float m[4][4], out[2][2];
            for (int i = 0; i < 16; i++)
                m[i / 4][i % 4] = leaves_of(d[i], g[i] + o * x->channels, x->channels);
            by_a_back_twice((const float(*)[4])m, out);
            for (int i = 0; i < 4; i++)
                if (h + i / 2 < y->h && w + i % 2 < y->w)
                    put(to, ((n * y->h + h + i / 2) * y->w + w + i % 2) * y->channels + o,
                        turned || !t->k.bias ? out[i / 2][i % 2]
                                             : out[i / 2][i % 2] + (float)get(&t->bias, o));
        }
    }
    free_lists(d);
    free_lists(g);
}

/* An element of the tree over GROUPs of quads. */
static float groups_of(const float *a, const float *b, int64_t n)
{
    float sums[64];
    int64_t groups = 0;
    assert_true(n <= GROUP * (int64_t)CHOIR_COUNT(sums));
    for (int64_t i = 0; i < n; i += GROUP)
        sums[groups++] = leaves_of(a + i, b + i, choir__min(GROUP, n - i));
    return tree_of(sums, groups);
}

static void weights_by_quads(const trial *t, const pixels *x, const pixels *y, array *to)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t rows = (s->oh + 1) / 2, cols = (s->ow + 1) / 2, quads = s->n * rows * cols;
    float *d[16], *g[16];
    new_lists(d, quads * s->c);
    new_lists(g, quads * s->o);
    for (int64_t q = 0; q < quads; q++) {
        const int64_t n = q / cols / rows, h = 2 * (q / cols % rows), w = 2 * (q % cols);
        for (int64_t c = 0; c < s->c; c++)
            list_patch(d, c * quads + q, x, n, h - s->pad_h, w - s->pad_w, c);
        for (int64_t o = 0; o < s->o; o++) {
            float gy[2][2], mixed[4][4];
            for (int i = 0; i < 4; i++)
                gy[i / 2][i % 2] = pixel_at(y, n, h + i / 2, w + i % 2, o);
            by_a_twice((const float(*)[2])gy, mixed);
            for (int i = 0; i < 16; i++)
                g[i][o * quads + q] = mixed[i / 4][i % 4];
        }
    }
    for (int64_t o = 0; o < s->o; o++)
        for (int64_t c = 0; c < s->c; c++) {
            float sums[4][4], gw[3][3];
            for (int i = 0; i < 16; i++)
                sums[i / 4][i % 4] = groups_of(g[i] + o * quads, d[i] + c * quads, quads);
            by_g_back_twice((const float(*)[4])sums, gw);
            for (int i = 0; i < 9; i++)
                put(to, (o * 9 + i) * s->c + c, gw[i / 3][i % 3]);
        }
    free_lists(d);
    free_lists(g);
}

static void by_quads(const trial *t, int pass, array *to)
{
    const choir__conv_shape *s = &t->k.s;
    const pixels x = {&t->x, s->n, s->h, s->w, s->c}, y = {&t->y, s->n, s->oh, s->ow, s->o};
    if (pass == FORWARD)
        images_by_quads(t, &x, &y, s->pad_h, s->pad_w, false, to);
    else if (pass == INPUT)
        images_by_quads(t, &y, &x, 2 - s->pad_h, 2 - s->pad_w, true, to);
    else
        weights_by_quads(t, &x, &y, to);
}

#endif
