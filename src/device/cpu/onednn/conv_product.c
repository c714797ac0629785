/* Convolutions as matrix products, where that is faster than oneDNN's convolution.
 *
 * Over channels-last images a 1x1 convolution is a product of (pixels, C) by (C, O); with a
 * stride, of the pixels that the window meets, gathered first. The weights' gradient of any
 * window is a product for each of its places: gy^T (O, pixels) by the pixels under that place
 * (pixels, C).
 *
 * oneDNN's convolutions (2.6) hold a block of pixels and go through all weights with it, which
 * is the fastest way as long as the weights stay in the cache. Those of a network's last, wide
 * layers (512 channels in and out: 1 MiB and up) do not, and its matrix product, which blocks
 * all three dimensions, is faster by a tenth to twice. So the rule, which depends on shapes
 * alone, is: WIDE channels both ways; and if pixels must be gathered, few of them, since they
 * are written and read once per place of the window. */
#include "device/cpu/onednn/onednn.h"

#include <string.h>

enum { WIDE = 512, FEW_BYTES = 8 << 20 };

typedef choir__conv_shape shape;

/* Returns the number of y's pixels, and the bytes of as many of x's. */
static int64_t pixels_of(const shape *s)
{
    return s->n * s->oh * s->ow;
}

static size_t taken_bytes(const shape *s)
{
    return (size_t)(pixels_of(s) * s->c) * sizeof(float);
}

static bool one_place(const shape *s)
{
    return s->kh == 1 && s->kw == 1 && s->pad_h == 0 && s->pad_w == 0;
}

/* True if x's pixels are those under the window's only place, in y's order, so that none need
 * gathering. (A transposed convolution with output padding has pixels at x's end that are under
 * no place.) */
static bool in_order(const shape *s)
{
    return one_place(s) && s->stride_h == 1 && s->stride_w == 1 && s->h == s->oh &&
           s->w == s->ow;
}

static bool wanted(const shape *s, choir_dtype dtype)
{
    return dtype == CHOIR_F32 && s->groups == 1 && s->c >= WIDE && s->o >= WIDE &&
           (in_order(s) || taken_bytes(s) <= FEW_BYTES);
}

static float *workspace(const shape *s)
{
    return choir__cpu_workspace(choir__cpu_context_current(), taken_bytes(s));
}

/* Returns the number of x's pixel under place (i, j) of y's pixel (n, oh, ow), or -1 in the
 * padding. */
static int64_t under(const shape *s, int64_t n, int64_t oh, int64_t ow, int64_t i, int64_t j)
{
    int64_t h = oh * s->stride_h - s->pad_h + i * s->dilation_h;
    int64_t w = ow * s->stride_w - s->pad_w + j * s->dilation_w;
    return h < 0 || h >= s->h || w < 0 || w >= s->w ? -1 : (n * s->h + h) * s->w + w;
}

/* Gathers the pixels under place (i, j), in y's order. */
static void take(const shape *s, const float *x, int64_t i, int64_t j, float *taken)
{
    size_t bytes = (size_t)s->c * sizeof *x;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++, taken += s->c) {
                int64_t pixel = under(s, n, oh, ow, i, j);
                if (pixel < 0)
                    memset(taken, 0, bytes);
                else
                    memcpy(taken, x + pixel * s->c, bytes);
            }
}

/* The reverse of `take` for a window of one place; pixels that it never meets become 0. */
static void put_back(const shape *s, const float *taken, float *x)
{
    size_t bytes = (size_t)s->c * sizeof *x;
    memset(x, 0, (size_t)(s->n * s->h * s->w) * bytes);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++, taken += s->c)
                memcpy(x + under(s, n, oh, ow, 0, 0) * s->c, taken, bytes);
}

/* y (pixels, O) = x (pixels, C) w^T (C, O) + bias */
bool choir__onednn_conv_product(const choir__k_conv *k)
{
    const shape *s = &k->s;
    const float *x = k->x;
    if (!one_place(s) || !wanted(s, k->dtype))
        return false;
    if (!in_order(s)) {
        float *taken = workspace(s);
        take(s, x, 0, 0, taken);
        x = taken;
    }
    choir__k_matmul product =
        choir__product_of(k->dtype, choir__rows_at(k->y, s->o), choir__rows_at(x, s->c),
            choir__transposed(choir__rows_at(k->w, s->c)), pixels_of(s), s->o, s->c);
    product.bias = k->bias;
    return choir__onednn_matmul(&product);
}

/* gx (pixels, C) = gy (pixels, O) w (O, C) */
bool choir__onednn_conv_product_input(const choir__k_conv_backward_input *k)
{
    const shape *s = &k->s;
    if (!one_place(s) || !wanted(s, k->dtype))
        return false;
    float *gx = in_order(s) ? k->gx : workspace(s);
    choir__k_matmul product = choir__product_of(k->dtype, choir__rows_at(gx, s->c),
        choir__rows_at(k->gy, s->o), choir__rows_at(k->w, s->c), pixels_of(s), s->c, s->o);
    bool done = choir__onednn_matmul(&product);
    if (done && !in_order(s))
        put_back(s, gx, k->gx);
    return done;
}

/* gw (O, place, C) = gy^T (O, pixels) x under the place (pixels, C). The primitive computes the
 * bias's gradient as a by-product, so it is left to that. */
bool choir__onednn_conv_product_weight(const choir__k_conv_backward_weight *k)
{
    const shape *s = &k->s;
    const float *x = k->x;
    if (k->gbias || !wanted(s, k->dtype))
        return false;
    int64_t places = s->kh * s->kw;
    float *taken = in_order(s) ? NULL : workspace(s);
    bool done = true;
    for (int64_t place = 0; done && place < places; place++) {
        if (taken)
            take(s, x, place / s->kw, place % s->kw, taken);
        choir__matrix c = choir__rows_at((float *)k->gw + place * s->c, places * s->c);
        choir__k_matmul product =
            choir__product_of(k->dtype, c, choir__transposed(choir__rows_at(k->gy, s->o)),
                choir__rows_at(taken ? taken : x, s->c), s->o, s->c, pixels_of(s));
        done = choir__onednn_matmul(&product);
    }
    return done;
}
