/* Pooling to a given size over channels-last images: the output's pixels one after another, all
 * channels of a window's pixels at a time. Each row of a window is summed separately and the
 * rows' sums are then added, so that a global average of a large image stays accurate. */
#include "device/cpu/isa/isa.h"

/* The input pixels [h0, h1) x [w0, w1) of one output pixel. */
typedef struct window {
    int64_t h0, h1, w0, w1;
} window;

INLINE int64_t first_of(int64_t i, int64_t in, int64_t out)
{
    return i * in / out;
}

INLINE int64_t end_of(int64_t i, int64_t in, int64_t out)
{
    return ((i + 1) * in + out - 1) / out;
}

INLINE window window_of(
    int64_t oh, int64_t ow, int64_t h, int64_t w, int64_t out_h, int64_t out_w)
{
    return (window){first_of(oh, h, out_h), end_of(oh, h, out_h), first_of(ow, w, out_w),
        end_of(ow, w, out_w)};
}

INLINE int64_t area(const window *a)
{
    return (a->h1 - a->h0) * (a->w1 - a->w0);
}

/* x and y point to channel 0 of the image's first pixel and of the output pixel. */
static void average(const choir__k_adaptive_pool *k, const window *a, const float *x, float *y)
{
    for (int64_t c = 0; c < k->s.c; c += W) {
        int64_t left = k->s.c - c;
        vec sum = {0};
        for (int64_t h = a->h0; h < a->h1; h++) {
            vec row = {0};
            for (int64_t w = a->w0; w < a->w1; w++)
                row += v_get(x + (h * k->s.w + w) * k->s.c + c, left);
            sum += row;
        }
        v_put(y + c, sum / (float)area(a), left);
    }
}

/* The index is stored as bits: an image may have more pixels than f32 counts. */
static void maximum(
    const choir__k_adaptive_pool *k, const window *a, const float *x, float *y, int32_t *index)
{
    for (int64_t c = 0; c < k->s.c; c += W) {
        int64_t left = k->s.c - c;
        int32_t first = (int32_t)(a->h0 * k->s.w + a->w0);
        vec best = v_get(x + first * k->s.c + c, left);
        ivec at = (ivec){0} + first;
        for (int64_t h = a->h0; h < a->h1; h++)
            for (int64_t w = a->w0; w < a->w1; w++) {
                vec v = v_get(x + (h * k->s.w + w) * k->s.c + c, left);
                mask more = v_surpasses(v, best);
                best = v_sel(more, v, best);
                at = (ivec)v_sel(more, (vec)((ivec){0} + (int32_t)(h * k->s.w + w)), (vec)at);
            }
        v_put(y + c, best, left);
        for (int i = 0; index && i < choir__min(W, left); i++)
            index[c + i] = at[i];
    }
}

void KERNEL(adaptive_pool)(const choir__k_adaptive_pool *k)
{
    F32_ONLY(adaptive_pool, k);
    int64_t out = 0;
    for (int64_t n = 0; n < k->s.n; n++)
        for (int64_t oh = 0; oh < k->s.oh; oh++)
            for (int64_t ow = 0; ow < k->s.ow; ow++, out++) {
                window a = window_of(oh, ow, k->s.h, k->s.w, k->s.oh, k->s.ow);
                const float *x = (const float *)k->x + n * k->s.h * k->s.w * k->s.c;
                float *y = (float *)k->y + out * k->s.c;
                if (k->max)
                    maximum(k, &a, x, y, k->index ? (int32_t *)k->index + out * k->s.c : NULL);
                else
                    average(k, &a, x, y);
            }
}

/* Windows may overlap: their gradients are added in the order of the output's pixels. */
void KERNEL(adaptive_pool_backward)(const choir__k_adaptive_pool_backward *k)
{
    F32_ONLY(adaptive_pool_backward, k);
    const int32_t *index = k->index;
    memset(k->gx, 0, (size_t)(k->s.n * k->s.h * k->s.w * k->s.c) * sizeof(float));
    int64_t out = 0;
    for (int64_t n = 0; n < k->s.n; n++)
        for (int64_t oh = 0; oh < k->s.oh; oh++)
            for (int64_t ow = 0; ow < k->s.ow; ow++, out++) {
                window a = window_of(oh, ow, k->s.h, k->s.w, k->s.oh, k->s.ow);
                float *gx = (float *)k->gx + n * k->s.h * k->s.w * k->s.c;
                const float *gy = (const float *)k->gy + out * k->s.c;
                for (int64_t c = 0; k->max && c < k->s.c; c++)
                    gx[index[out * k->s.c + c] * k->s.c + c] += gy[c];
                for (int64_t h = a.h0; !k->max && h < a.h1; h++)
                    for (int64_t w = a.w0; w < a.w1; w++)
                        for (int64_t c = 0; c < k->s.c; c += W) {
                            float *p = gx + (h * k->s.w + w) * k->s.c + c;
                            int64_t left = k->s.c - c;
                            vec g = v_get(gy + c, left) / (float)area(&a);
                            v_put(p, v_get(p, left) + g, left);
                        }
            }
}
