/* Max and average pooling over channels-last images: for each output pixel, its window's pixels are
 * taken one after another, all channels at a time. */
#include "device/cpu/isa/isa.h"

/* One output pixel's window: which input pixels, and where each is in the window. */
typedef struct window {
    int64_t h0, w0; /* its corner in x, maybe outside */
    const choir__conv_shape *s;
    int64_t image;
} window;

/* The input pixel under window place at, or -1 in the padding. */
INLINE int64_t pixel(const window *w, int64_t at)
{
    int64_t h = w->h0 + at / w->s->kw * w->s->dilation_h;
    int64_t x = w->w0 + at % w->s->kw * w->s->dilation_w;
    if (h < 0 || h >= w->s->h || x < 0 || x >= w->s->w)
        return -1;
    return (w->image * w->s->h + h) * w->s->w + x;
}

static window window_of(const choir__conv_shape *s, int64_t out)
{
    int64_t ow = out % s->ow, oh = out / s->ow % s->oh;
    return (window){.h0 = oh * s->stride_h - s->pad_h, .w0 = ow * s->stride_w - s->pad_w, .s = s,
        .image = out / (s->ow * s->oh)};
}

INLINE ivec index_get(const uint8_t *p, int64_t left)
{
    ivec v = {0};
    if (left >= W)
        for (int i = 0; i < W; i++)
            v[i] = p[i];
    else
        for (int i = 0; i < left; i++)
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
    int64_t places = k->s.kh * k->s.kw, c = 0;
    for (; c < k->s.c; c += W) {
        int64_t left = k->s.c - c;
        vec best = {0}, index = {0};
        bool any = false;
        for (int64_t at = 0; at < places; at++) {
            int64_t p = pixel(w, at);
            if (p < 0)
                continue;
            vec x = v_get((const float *)k->x + p * k->s.c + c, left);
            if (any) {
                mask more = v_gt(x, best);
                best = v_sel(more, x, best);
                index = v_sel(more, v_set((float)at), index);
            } else {
                best = x;
                index = v_set((float)at);
                any = true;
            }
        }
        v_put((float *)k->y + out * k->s.c + c, best, left);
        if (k->index)
            index_put(k->index + out * k->s.c + c, __builtin_convertvector(index, ivec), left);
    }
}

static void average_pixel(const choir__k_pool *k, const window *w, int64_t out)
{
    int64_t places = k->s.kh * k->s.kw;
    for (int64_t c = 0; c < k->s.c; c += W) {
        int64_t left = k->s.c - c;
        vec sum = {0};
        for (int64_t at = 0; at < places; at++) {
            int64_t p = pixel(w, at);
            if (p >= 0)
                sum += v_get((const float *)k->x + p * k->s.c + c, left);
        }
        v_put((float *)k->y + out * k->s.c + c, sum / (float)places, left);
    }
}

void KERNEL(pool)(const choir__k_pool *k)
{
    F32_ONLY(pool, k);
    int64_t pixels = k->s.n * k->s.oh * k->s.ow;
    for (int64_t out = 0; out < pixels; out++) {
        window w = window_of(&k->s, out);
        if (k->max)
            max_pixel(k, &w, out);
        else
            average_pixel(k, &w, out);
    }
}

/* Windows may overlap: each adds its share, in the order of the output's pixels. */
void KERNEL(pool_backward)(const choir__k_pool_backward *k)
{
    F32_ONLY(pool_backward, k);
    const choir__conv_shape *s = &k->s;
    int64_t places = s->kh * s->kw, pixels = s->n * s->oh * s->ow, channels = s->c;
    memset(k->gx, 0, (size_t)(s->n * s->h * s->w * channels) * sizeof(float));
    for (int64_t out = 0; out < pixels; out++) {
        window w = window_of(s, out);
        const float *gy = (const float *)k->gy + out * channels;
        for (int64_t at = 0; at < places; at++) {
            int64_t p = pixel(&w, at);
            if (p < 0)
                continue;
            float *gx = (float *)k->gx + p * channels;
            for (int64_t c = 0; c < channels; c += W) {
                int64_t left = channels - c;
                vec g = v_get(gy + c, left);
                if (k->max) {
                    ivec index = index_get(k->index + out * channels + c, left);
                    vec place = __builtin_convertvector(index, vec);
                    g = v_sel(v_eq(place, v_set((float)at)), g, (vec){0});
                } else {
                    g /= (float)places;
                }
                v_put(gx + c, v_get(gx + c, left) + g, left);
            }
        }
    }
}
