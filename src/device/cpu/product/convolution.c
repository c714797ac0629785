/* Convolutions by products of our own, whose operands are windows of images (windows.h).
 *
 *     y (pixels, O) = windows (pixels, places C) w^T                        for each group
 *     gw (O, places C) = gy^T (O, pixels) windows (pixels, places C)
 *     gx (pixels, C) = windows of gy (pixels, places O) w (places O, C)
 *
 * The rule of the chain holds with k running over (kh, kw, C), over (n, oh, ow), and over (kh,
 * kw, O). An input's gradient takes only places that reach a pixel of gy: with a stride, pixels
 * of x form classes by (h + pad) % stride, and each class has its own places. A 1x1 window
 * with stride 1 is a plain product. */
#include "device/cpu/product/windows.h"
#include "device/cpu/product/product.h"

typedef choir__conv_shape shape;

static bool as_it_lies(const shape *s)
{
    return s->kh == 1 && s->kw == 1 && s->pad_h == 0 && s->pad_w == 0 && s->stride_h == 1 &&
           s->stride_w == 1 && s->h == s->oh && s->w == s->ow;
}

/* Element i of an array. */
static void *at(const void *p, int64_t i, choir_dtype dtype)
{
    return (char *)p + i * (int64_t)choir_dtype_size(dtype);
}

/* The type of sums: of a bias, and of the weights' gradient. */
static choir_dtype wide_type(choir_dtype dtype)
{
    return is_half(dtype) ? CHOIR_F32 : dtype;
}

/* x's windows, of one group. */
static choir__windows windows_of_x(const choir__k_conv *k, int64_t group)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups;
    return (choir__windows){.images = k->x,
        .h = s->h,
        .w = s->w,
        .pixel = s->c,
        .first = group * in,
        .channels = in,
        .rows = s->oh,
        .cols = s->ow,
        .first_h = -s->pad_h,
        .first_w = -s->pad_w,
        .step_h = s->stride_h,
        .step_w = s->stride_w,
        .delta_h = s->dilation_h,
        .delta_w = s->dilation_w,
        .count_h = s->kh,
        .count_w = s->kw,
        .size = choir_dtype_size(k->dtype)};
}

void KERNEL(plain_conv)(const choir__k_conv *k)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, length = s->kh * s->kw * in;
    for (int64_t g = 0; g < s->groups; g++) {
        const choir__windows x = windows_of_x(k, g);
        const choir__operands other = {.windows_a = as_it_lies(s) ? NULL : &x};
        choir__k_matmul product =
            choir__product_of(k->dtype, choir__rows_at(at(k->y, g * out, k->dtype), s->o),
                choir__rows_at(at(k->x, g * in, k->dtype), s->c),
                choir__transposed(choir__rows_at(at(k->w, g * out * length, k->dtype), length)),
                s->n * s->oh * s->ow, out, length);
        product.bias = k->bias ? at(k->bias, g * out, wide_type(k->dtype)) : NULL;
        KERNEL(product)(&product, &other);
    }
}

void KERNEL(plain_conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, length = s->kh * s->kw * in;
    for (int64_t g = 0; g < s->groups; g++) {
        const choir__windows x = windows_of_x(k, g);
        const choir__operands other = {.windows_b = as_it_lies(s) ? NULL : &x};
        choir__k_matmul product = choir__product_of(k->dtype,
            choir__rows_at(at(k->gw, g * out * length, wide_type(k->dtype)), length),
            choir__transposed(choir__rows_at(at(k->gy, g * out, k->dtype), s->o)),
            choir__rows_at(at(k->x, g * in, k->dtype), s->c), out, length,
            s->n * s->oh * s->ow);
        product.wide = true;
        KERNEL(product)(&product, &other);
    }
    if (k->gbias)
        KERNEL(sum)
    (&(choir__k_sum){.x = k->gy,
        .y = k->gbias,
        .rows = s->n * s->oh * s->ow,
        .cols = s->o,
        .scale = 1,
        .over_rows = true,
        .wide = is_half(k->dtype),
        .dtype = k->dtype});
}

/* --- the input's gradient --- */

/* The pixels of x whose (h + pad) % stride is one number, of one dimension, and their places:
 * place first + m each reaches pixel base - m delta + t of gy, from the t-th pixel. */
typedef struct class
{
    int64_t pixel, pixels;      /* the first in x; their number, `stride` apart */
    int64_t first, each, count; /* places */
    int64_t base, delta;
} class;

static class class_of(int64_t remainder, int64_t stride, int64_t pad, int64_t dilation,
    int64_t places, int64_t size)
{
    class c = {.pixel = ((remainder - pad) % stride + stride) % stride, .each = 1};
    c.pixels = c.pixel < size ? (size - c.pixel + stride - 1) / stride : 0;
    while (c.each * dilation % stride)
        c.each++;
    while (c.first < places && (c.first * dilation - remainder) % stride)
        c.first++;
    c.count = c.first < places ? (places - c.first + c.each - 1) / c.each : 0;
    c.base = (c.pixel + pad - c.first * dilation) / stride; /* exact */
    c.delta = c.each * dilation / stride;
    return c;
}

/* to (places, out, in): the group's weights of the classes' places. */
static void turn_weights(char *to, const choir__k_conv_backward_input *k, int64_t group,
    const class *h, const class *w)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups;
    const size_t bytes = (size_t)in * choir_dtype_size(k->dtype);
    for (int64_t i = 0; i < h->count; i++)
        for (int64_t j = 0; j < w->count; j++)
            for (int64_t o = group * out; o < (group + 1) * out; o++, to += bytes)
                memcpy(to,
                    at(k->w,
                        ((o * s->kh + h->first + i * h->each) * s->kw + w->first +
                            j * w->each) *
                            in,
                        k->dtype),
                    bytes);
}

/* Writes the group's channels of a class's pixels, (n, pixels of h, pixels of w, in), to gx, or
 * zeros. */
static void spread(const choir__k_conv_backward_input *k, int64_t group, const class *h,
    const class *w, const char *from)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups;
    const size_t bytes = (size_t)in * choir_dtype_size(k->dtype);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t i = 0; i < h->pixels; i++)
            for (int64_t j = 0; j < w->pixels; j++) {
                const int64_t row = n * s->h + h->pixel + i * s->stride_h;
                void *to = at(k->gx,
                    (row * s->w + w->pixel + j * s->stride_w) * s->c + group * in, k->dtype);
                if (from)
                    memcpy(to, from, bytes), from += bytes;
                else
                    memset(to, 0, bytes);
            }
}

static void input_class(
    const choir__k_conv_backward_input *k, int64_t group, const class *h, const class *w)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups;
    const int64_t pixels = s->n * h->pixels * w->pixels, length = h->count * w->count * out;
    const bool direct = s->stride_h == 1 && s->stride_w == 1;
    if (pixels == 0)
        return;
    if (length == 0) {
        spread(k, group, h, w, NULL);
        return;
    }
    const size_t each = choir_dtype_size(k->dtype);
    const size_t weights = ((size_t)(length * in) * each + 63) & ~(size_t)63;
    char *room = choir__cpu_workspace(
        choir__cpu_context_current(), weights + (direct ? 0 : (size_t)(pixels * in) * each));
    turn_weights(room, k, group, h, w);
    const choir__windows gy = {.images = k->gy,
        .h = s->oh,
        .w = s->ow,
        .pixel = s->o,
        .first = group * out,
        .channels = out,
        .rows = h->pixels,
        .cols = w->pixels,
        .first_h = h->base,
        .first_w = w->base,
        .step_h = 1,
        .step_w = 1,
        .delta_h = -h->delta,
        .delta_w = -w->delta,
        .count_h = h->count,
        .count_w = w->count,
        .size = each};
    const choir__operands other = {.windows_a = as_it_lies(s) ? NULL : &gy};
    choir__matrix to = direct ? choir__rows_at(at(k->gx, group * in, k->dtype), s->c)
                              : choir__rows_at(room + weights, in);
    choir__k_matmul product =
        choir__product_of(k->dtype, to, choir__rows_at(at(k->gy, group * out, k->dtype), s->o),
            choir__rows_at(room, in), pixels, in, length);
    KERNEL(product)(&product, &other);
    if (!direct)
        spread(k, group, h, w, room + weights);
}

void KERNEL(plain_conv_backward_input)(const choir__k_conv_backward_input *k)
{
    const shape *s = &k->s;
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t i = 0; i < s->stride_h; i++)
            for (int64_t j = 0; j < s->stride_w; j++) {
                const class h = class_of(i, s->stride_h, s->pad_h, s->dilation_h, s->kh, s->h),
                            w = class_of(j, s->stride_w, s->pad_w, s->dilation_w, s->kw, s->w);
                input_class(k, g, &h, &w);
            }
}
