/* Convolutions by products of our own, whose operands are windows of images (windows.h).
 *
 *     y (pixels, O) = windows (pixels, places C) w^T                        for each group
 *     gw (O, places C) = gy^T (O, pixels) windows (pixels, places C)
 *     gx (pixels, C) = windows of gy (pixels, places O) w (places O, C)
 *
 * The rule of the chain holds with k running over (kh, kw, C), over (n, oh, ow), and over (kh,
 * kw, O). An input's gradient takes only places that reach a pixel of gy: with a stride, pixels
 * of x form classes by (h + pad) % stride, and each class has its own places. A 1x1 window
 * with stride 1 is a plain product. conv_algorithm.h names the convolutions that are computed
 * otherwise. */
#include "base/half.h"
#include "device/cpu/context.h"
#include "device/cpu/product/conv_algorithm.h"
#include "device/cpu/product/depthwise.h"
#include "device/cpu/product/product.h"
#include "device/cpu/product/winograd.h"

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

/* Places first, first + each, ... of one dimension of a window. */
typedef struct steps {
    int64_t first, each, count;
} steps;

/* Returns the weights of some places of a depthwise window as (places, channels) f32, in the
 * workspace. */
static const float *weights_by_place(const choir__k_conv *k, steps h, steps w)
{
    const int64_t channels = k->s.c;
    float *y = choir__cpu_workspace(
        choir__cpu_context_current(), (size_t)(h.count * w.count * channels + 1) * sizeof *y);
    for (int64_t i = 0; i < h.count; i++)
        for (int64_t j = 0; j < w.count; j++)
            for (int64_t c = 0; c < channels; c++) {
                const void *from = at(k->w,
                    (c * k->s.kh + h.first + i * h.each) * k->s.kw + w.first + j * w.each,
                    k->dtype);
                const uint16_t *half = from;
                y[(i * w.count + j) * channels + c] =
                    k->dtype == CHOIR_BF16  ? choir__f32_from_bf16(*half)
                    : k->dtype == CHOIR_F16 ? choir__f32_from_f16(*half)
                                            : *(const float *)from;
            }
    return y;
}

/* x's windows, of `in` channels of one group. */
static choir__windows windows_of_x(const choir__k_conv *k, int64_t group, int64_t in)
{
    const shape *s = &k->s;
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

static void conv_by_channels(const choir__k_conv *k)
{
    const shape *s = &k->s;
    const int64_t pixel = s->o * (int64_t)choir_dtype_size(k->dtype);
    KERNEL(depthwise)
    (&(choir__depthwise){.windows = windows_of_x(k, 0, s->c),
        .images = s->n,
        .w = weights_by_place(k, (steps){0, 1, s->kh}, (steps){0, 1, s->kw}),
        .bias = k->bias,
        .y = k->y,
        .image = s->oh * s->ow * pixel,
        .row = s->ow * pixel,
        .pixel = pixel,
        .dtype = k->dtype});
}

static void conv_by_windows(const choir__k_conv *k)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, length = s->kh * s->kw * in;
    for (int64_t g = 0; g < s->groups; g++) {
        const choir__windows x = windows_of_x(k, g, in);
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

static choir__quads quads_of_x(const choir__k_conv *k)
{
    const shape *s = &k->s;
    return (choir__quads){.x = k->x,
        .images = s->n,
        .h = s->h,
        .w = s->w,
        .in = s->c,
        .pad_h = s->pad_h,
        .pad_w = s->pad_w,
        .rows = s->oh,
        .cols = s->ow,
        .out = s->o,
        .dtype = k->dtype};
}

static void conv_by_quads(const choir__k_conv *k)
{
    const choir__quads q = quads_of_x(k);
    KERNEL(quads)(&q, k->w, k->bias, k->y, false);
}

void KERNEL(plain_conv)(const choir__k_conv *k)
{
    static void (*const by[])(const choir__k_conv *) = {[CHOIR__BY_WINDOWS] = conv_by_windows,
        [CHOIR__BY_CHANNELS] = conv_by_channels,
        [CHOIR__BY_QUADS] = conv_by_quads};
    by[choir__conv_algorithm_of(k)](k);
}

static void weight_by_channels(const choir__k_conv_backward_weight *k)
{
    const choir__depthwise d = {
        .windows = windows_of_x(k, 0, k->s.c), .images = k->s.n, .dtype = k->dtype};
    KERNEL(depthwise_weight)(&d, k->gy, k->gw);
}

static void weight_by_windows(const choir__k_conv_backward_weight *k)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, length = s->kh * s->kw * in;
    for (int64_t g = 0; g < s->groups; g++) {
        const choir__windows x = windows_of_x(k, g, in);
        const choir__operands other = {.windows_b = as_it_lies(s) ? NULL : &x};
        choir__k_matmul product = choir__product_of(k->dtype,
            choir__rows_at(at(k->gw, g * out * length, wide_type(k->dtype)), length),
            choir__transposed(choir__rows_at(at(k->gy, g * out, k->dtype), s->o)),
            choir__rows_at(at(k->x, g * in, k->dtype), s->c), out, length,
            s->n * s->oh * s->ow);
        product.wide = true;
        KERNEL(product)(&product, &other);
    }
}

static void weight_by_quads(const choir__k_conv_backward_weight *k)
{
    const choir__quads q = quads_of_x(k);
    KERNEL(quads_weight)(&q, k->gy, k->gw);
}

void KERNEL(plain_conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    static void (*const by[])(const choir__k_conv_backward_weight *) = {
        [CHOIR__BY_WINDOWS] = weight_by_windows,
        [CHOIR__BY_CHANNELS] = weight_by_channels,
        [CHOIR__BY_QUADS] = weight_by_quads};
    const shape *s = &k->s;
    by[choir__conv_algorithm_of(k)](k);
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
    int64_t pixel, pixels; /* the first in x; their number, `stride` apart */
    steps places;
    int64_t base, delta;
} class;

static class class_of(int64_t remainder, int64_t stride, int64_t pad, int64_t dilation,
    int64_t places, int64_t size)
{
    class c = {.pixel = ((remainder - pad) % stride + stride) % stride, .places = {.each = 1}};
    steps *p = &c.places;
    c.pixels = c.pixel < size ? (size - c.pixel + stride - 1) / stride : 0;
    while (p->each * dilation % stride)
        p->each++;
    while (p->first < places && (p->first * dilation - remainder) % stride)
        p->first++;
    p->count = p->first < places ? (places - p->first + p->each - 1) / p->each : 0;
    c.base = (c.pixel + pad - p->first * dilation) / stride; /* exact */
    c.delta = p->each * dilation / stride;
    return c;
}

/* to (places, out, in): the group's weights of the classes' places. */
static void turn_weights(char *to, const choir__k_conv_backward_input *k, int64_t group,
    const class *h, const class *w)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups;
    const size_t bytes = (size_t)in * choir_dtype_size(k->dtype);
    for (int64_t i = 0; i < h->places.count; i++)
        for (int64_t j = 0; j < w->places.count; j++)
            for (int64_t o = group * out; o < (group + 1) * out; o++, to += bytes)
                memcpy(to,
                    at(k->w,
                        ((o * s->kh + h->places.first + i * h->places.each) * s->kw +
                            w->places.first + j * w->places.each) *
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

/* gy's windows for the pixels of a class, of channels [first, first + out). */
static choir__windows windows_of_gy(const choir__k_conv_backward_input *k, int64_t first,
    int64_t out, const class *h, const class *w)
{
    const shape *s = &k->s;
    return (choir__windows){.images = k->gy,
        .h = s->oh,
        .w = s->ow,
        .pixel = s->o,
        .first = first,
        .channels = out,
        .rows = h->pixels,
        .cols = w->pixels,
        .first_h = h->base,
        .first_w = w->base,
        .step_h = 1,
        .step_w = 1,
        .delta_h = -h->delta,
        .delta_w = -w->delta,
        .count_h = h->places.count,
        .count_w = w->places.count,
        .size = choir_dtype_size(k->dtype)};
}

static void class_by_channels(
    const choir__k_conv_backward_input *k, const class *h, const class *w)
{
    const shape *s = &k->s;
    const int64_t pixel = s->c * (int64_t)choir_dtype_size(k->dtype);
    if (h->pixels * w->pixels > 0)
        KERNEL(depthwise)
    (&(choir__depthwise){.windows = windows_of_gy(k, 0, s->o, h, w),
        .images = s->n,
        .w = weights_by_place(k, h->places, w->places),
        .y = (char *)k->gx + (h->pixel * s->w + w->pixel) * pixel,
        .image = s->h * s->w * pixel,
        .row = s->stride_h * s->w * pixel,
        .pixel = s->stride_w * pixel,
        .dtype = k->dtype});
}

static void input_class(
    const choir__k_conv_backward_input *k, int64_t group, const class *h, const class *w)
{
    const shape *s = &k->s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups;
    const int64_t pixels = s->n * h->pixels * w->pixels,
                  length = h->places.count * w->places.count * out;
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
    const choir__windows gy = windows_of_gy(k, group * out, out, h, w);
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

static void class_by_windows(
    const choir__k_conv_backward_input *k, const class *h, const class *w)
{
    for (int64_t g = 0; g < k->s.groups; g++)
        input_class(k, g, h, w);
}

/* Calls `run` for each class of pixels. */
static void each_class(const choir__k_conv_backward_input *k,
    void (*run)(const choir__k_conv_backward_input *k, const class *h, const class *w))
{
    const shape *s = &k->s;
    for (int64_t i = 0; i < s->stride_h; i++)
        for (int64_t j = 0; j < s->stride_w; j++) {
            const class h = class_of(i, s->stride_h, s->pad_h, s->dilation_h, s->kh, s->h),
                        w = class_of(j, s->stride_w, s->pad_w, s->dilation_w, s->kw, s->w);
            run(k, &h, &w);
        }
}

static void input_by_windows(const choir__k_conv_backward_input *k)
{
    each_class(k, class_by_windows);
}

static void input_by_channels(const choir__k_conv_backward_input *k)
{
    each_class(k, class_by_channels);
}

/* gx is y of gy with turned windows: pixel p is in windows p + pad - 2 to p + pad. */
static void input_by_quads(const choir__k_conv_backward_input *k)
{
    const shape *s = &k->s;
    const choir__quads q = {.x = k->gy,
        .images = s->n,
        .h = s->oh,
        .w = s->ow,
        .in = s->o,
        .pad_h = 2 - s->pad_h,
        .pad_w = 2 - s->pad_w,
        .rows = s->h,
        .cols = s->w,
        .out = s->c,
        .dtype = k->dtype};
    KERNEL(quads)(&q, k->w, NULL, k->gx, true);
}

void KERNEL(plain_conv_backward_input)(const choir__k_conv_backward_input *k)
{
    static void (*const by[])(const choir__k_conv_backward_input *) = {
        [CHOIR__BY_WINDOWS] = input_by_windows,
        [CHOIR__BY_CHANNELS] = input_by_channels,
        [CHOIR__BY_QUADS] = input_by_quads};
    by[choir__conv_algorithm_of(k)](k);
}
