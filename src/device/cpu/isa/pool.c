/* Max and average pooling over channels-last images: for each output pixel, its window's pixels
 * are visited one after another, all channels at a time. */
#include "device/cpu/isa/isa.h"

/* One output pixel's window without the padding: rows i0 ... i1 and columns j0 ... j1 of the
 * window, and the input pixel (maybe outside) under its corner. */
typedef struct window {
    int64_t i0, i1, j0, j1, corner;
} window;

/* Computes the window places t whose input from + t * step is in [0, n). */
INLINE void clip(
    int64_t from, int64_t step, int64_t places, int64_t n, int64_t *t0, int64_t *t1)
{
    *t0 = from < 0 ? (-from + step - 1) / step : 0;
    *t1 = from + (places - 1) * step < n ? places : (n - 1 - from) / step + 1;
}

static window window_of(const choir__conv_shape *s, int64_t image, int64_t oh, int64_t ow)
{
    window w;
    int64_t h = oh * s->stride_h - s->pad_h, x = ow * s->stride_w - s->pad_w;
    clip(h, s->dilation_h, s->kh, s->h, &w.i0, &w.i1);
    clip(x, s->dilation_w, s->kw, s->w, &w.j0, &w.j1);
    w.corner = (image * s->h + h) * s->w + x;
    return w;
}

/* Returns the input pixel under place (i, j). */
INLINE int64_t pixel(const choir__conv_shape *s, const window *w, int64_t i, int64_t j)
{
    return w->corner + i * s->dilation_h * s->w + j * s->dilation_w;
}

INLINE ivec index_get(const uint8_t *p, int64_t left)
{
    uint8_t part[W] = {0};
    ivec v = {0};
    if (left < W)
        p = memcpy(part, p, (size_t)left);
    for (int i = 0; i < W; i++)
        v[i] = p[i];
    return v;
}

INLINE void index_put(uint8_t *p, ivec v, int64_t left)
{
    if (left >= W)
        for (int i = 0; i < W; i++)
            p[i] = (uint8_t)v[i];
    else
        for (int i = 0; i < left; i++)
            p[i] = (uint8_t)v[i];
}

static void max_pixel(const choir__k_pool *k, const window *w, int64_t out)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t c = 0; c < s->c; c += W) {
        int64_t left = s->c - c;
        const float *x = (const float *)k->x + c;
        vec best = v_get(x + pixel(s, w, w->i0, w->j0) * s->c, left);
        vec index = v_set((float)(w->i0 * s->kw + w->j0));
        for (int64_t i = w->i0; i < w->i1; i++)
            for (int64_t j = w->j0; j < w->j1; j++) {
                vec v = v_get(x + pixel(s, w, i, j) * s->c, left);
                mask more = v_surpasses(v, best);
                best = v_sel(more, v, best);
                index = v_sel(more, v_set((float)(i * s->kw + j)), index);
            }
        v_put((float *)k->y + out * s->c + c, best, left);
        if (k->index)
            index_put((uint8_t *)k->index + out * s->c + c,
                __builtin_convertvector(index, ivec), left);
    }
}

static void average_pixel(const choir__k_pool *k, const window *w, int64_t out)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t c = 0; c < s->c; c += W) {
        int64_t left = s->c - c;
        const float *x = (const float *)k->x + c;
        vec sum = {0};
        for (int64_t i = w->i0; i < w->i1; i++)
            for (int64_t j = w->j0; j < w->j1; j++)
                sum += v_get(x + pixel(s, w, i, j) * s->c, left);
        v_put((float *)k->y + out * s->c + c, sum / (float)(s->kh * s->kw), left);
    }
}

void KERNEL(pool)(const choir__k_pool *k)
{
    F32_ONLY(pool, k);
    int64_t out = 0;
    for (int64_t n = 0; n < k->s.n; n++)
        for (int64_t oh = 0; oh < k->s.oh; oh++)
            for (int64_t ow = 0; ow < k->s.ow; ow++, out++) {
                window w = window_of(&k->s, n, oh, ow);
                if (k->max)
                    max_pixel(k, &w, out);
                else
                    average_pixel(k, &w, out);
            }
}

/* Adds each place's share of the gradient: all of it if it was the maximum, or an equal
 * part. */
static void spread_pixel(const choir__k_pool_backward *k, const window *w, int64_t out)
{
    const choir__conv_shape *s = &k->s;
    float part = 1.0f / (float)(s->kh * s->kw);
    for (int64_t c = 0; c < s->c; c += W) {
        int64_t left = s->c - c;
        vec g = v_get((const float *)k->gy + out * s->c + c, left), index = {0};
        if (k->max) {
            ivec at = index_get((const uint8_t *)k->index + out * s->c + c, left);
            index = __builtin_convertvector(at, vec);
        } else {
            g *= part;
        }
        for (int64_t i = w->i0; i < w->i1; i++)
            for (int64_t j = w->j0; j < w->j1; j++) {
                float *gx = (float *)k->gx + pixel(s, w, i, j) * s->c + c;
                mask here = v_eq(index, v_set((float)(i * s->kw + j)));
                vec share = k->max ? v_sel(here, g, (vec){0}) : g;
                v_put(gx, v_get(gx, left) + share, left);
            }
    }
}

/* Windows may overlap: their gradients are added in the order of the output's pixels. */
void KERNEL(pool_backward)(const choir__k_pool_backward *k)
{
    F32_ONLY(pool_backward, k);
    const choir__conv_shape *s = &k->s;
    memset(k->gx, 0, (size_t)(s->n * s->h * s->w * s->c) * sizeof(float));
    int64_t out = 0;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++, out++) {
                window w = window_of(s, n, oh, ow);
                spread_pixel(k, &w, out);
            }
}
