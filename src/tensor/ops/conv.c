/* Convolution and transposed convolution: logically NCHW, channels-last in memory.
 *
 * The transposed convolution is the gradient of a convolution with respect to its input, used
 * forward; so its own input's gradient is that convolution. Both are described by the
 * convolution's shape. */
#include "tensor/autocast.h"
#include "tensor/ops/conv.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/segment.h"

choir_conv_opts choir_conv_defaults(void)
{
    return (choir_conv_opts){.stride = 1, .padding = 0, .dilation = 1, .groups = 1};
}

int64_t choir__conv_out(
    int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t reach = dilation * (kernel - 1) + 1;
    return in + 2 * pad >= reach ? (in + 2 * pad - reach) / stride + 1 : 0;
}

choir_tensor *choir__new_image(choir_scope *scope, const choir_tensor *like, choir_dtype dtype,
    int64_t n, int64_t c, int64_t h, int64_t w)
{
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(like), dtype, choir_dims(n, c, h, w));
    choir__set_channels_last(y);
    return y;
}

/* Returns width, or height if width is 0. */
static int or_else(int width, int height)
{
    return width ? width : height;
}

/* Like or_else, for paddings: -1 means no padding along the width. */
static int pad_or_else(int width, int height)
{
    return width == -1 ? 0 : or_else(width, height);
}

/* Strides, dilations and groups of 0, as in options that were not begun from the defaults,
 * stand for 1. Returns the strides, paddings, dilations and groups of o; the op adds the sizes.
 */
static choir__conv_shape shape_of(const choir_conv_opts *o)
{
    int stride = or_else(o->stride, 1), dilation = or_else(o->dilation, 1);
    return (choir__conv_shape){.groups = or_else(o->groups, 1),
        .stride_h = stride,
        .stride_w = or_else(o->stride_w, stride),
        .pad_h = o->padding,
        .pad_w = pad_or_else(o->padding_w, o->padding),
        .dilation_h = dilation,
        .dilation_w = or_else(o->dilation_w, dilation)};
}

static bool sensible(const choir__conv_shape *s)
{
    return s->stride_h >= 1 && s->stride_w >= 1 && s->dilation_h >= 1 && s->dilation_w >= 1 &&
           s->groups >= 1 && s->pad_h >= 0 && s->pad_w >= 0;
}

static choir_tensor *senseless(const char *op, choir_scope *scope, const choir__conv_shape *s)
{
    return choir__poison(scope, CHOIR_ERR_ARGUMENT,
        "%s: stride %lld x %lld, padding %lld x %lld, dilation %lld x %lld, groups %lld make "
        "no sense",
        op, (long long)s->stride_h, (long long)s->stride_w, (long long)s->pad_h,
        (long long)s->pad_w, (long long)s->dilation_h, (long long)s->dilation_w,
        (long long)s->groups);
}

/* True if x, weight and bias have the right number of dimensions and one computable dtype. */
static bool fit(const choir_tensor *x, const choir_tensor *weight, const choir_tensor *bias,
    int64_t outputs)
{
    const choir_shape *sw = &weight->shape;
    return x->shape.ndim == 4 && sw->ndim == 4 && sw->dim[0] >= 1 && sw->dim[1] >= 1 &&
           sw->dim[2] >= 1 && sw->dim[3] >= 1 && weight->dtype == x->dtype &&
           choir__is_float(x->dtype) &&
           (!bias || (bias->dtype == (choir__is_half(x->dtype) ? CHOIR_F32 : x->dtype) &&
                         bias->shape.ndim == 1 && bias->shape.dim[0] == outputs));
}

/* --- convolution --- */

/* gx channels-last: the gradient of a convolution's input, or a transposed convolution */
static void launch_backward_input(
    const choir__tape_entry *r, const choir_tensor *gy, choir_tensor *gx)
{
    choir__k_conv args = {.gy = choir__data(gy),
        .w = choir__data(r->saved[1]),
        .gx = choir__data(gx),
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = gx->dtype};
    choir__launch(choir__device_of(gx), gx->dtype, conv_backward_input, &args);
}

static void conv_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    if (!choir__wanted(r, 0))
        return;
    choir_tensor *gx = choir__tensor_like(sink->scope, r->saved[0]);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    launch_backward_input(r, gy, gx);
    gx->grad_owned = true;
    sink->give(sink, r, 0, gx);
}

/* Returns the tensor into which the kernel writes the weights' gradient, laid out like the
 * weights were read, and f32 if these are 16-bit. gw: its destination, or NULL; it is used
 * directly if it fits. */
static choir_tensor *weight_gradient(
    choir_scope *scope, choir_tensor *gw, const choir_tensor *w)
{
    choir_tensor like = *w;
    if (choir__is_half(w->dtype))
        like.dtype = CHOIR_F32;
    return gw && choir__same_layout(gw, w) && gw->dtype == like.dtype
               ? gw
               : choir__tensor_like(scope, &like);
}

static void give_weight(
    choir__sink *sink, choir__tape_entry *r, choir_tensor *gw, choir_tensor *made)
{
    if (gw->dtype != made->dtype) {
        choir__launch_copy(gw, made);
        made = gw;
    }
    sink->give(sink, r, 1, made);
}

static void conv_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    if (!choir__wanted(r, 1) && !choir__wanted(r, 2))
        return;
    choir_tensor *gw = sink->dest(sink, r, 1), *gb = sink->dest(sink, r, 2), *out;
    gy = choir__channels_last(sink->scope, gy);
    out = weight_gradient(sink->scope, gw, r->saved[1]);
    if (gy->poisoned || out->poisoned)
        return;
    choir__k_conv_backward_weight args = {.gy = choir__data(gy),
        .x = choir__data(x),
        .gw = choir__data(out),
        .gbias = choir__data_or_null(gb),
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, conv_backward_weight, &args);
    if (gb)
        sink->give(sink, r, 2, gb);
    if (gw)
        give_weight(sink, r, gw, out);
}

/* saved: x and w channels-last */
static void conv_again(choir__tape_entry *r)
{
    const choir_tensor *x = r->saved[0];
    choir__copy_again(r, 0);
    choir__copy_again(r, 1);
    choir__k_conv args = {.x = choir__data(x),
        .w = choir__data(r->saved[1]),
        .bias = choir__data_or_null(r->in[2]),
        .y = choir__data(r->out),
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, conv, &args);
}

static const choir__op conv_op = {
    .name = "conv2d",
    .optional = 4,
    .cast = CHOIR__CAST_LOWER,
    .half = 3,
    .half_native = 3,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
    .recompute = conv_again,
    .recompute_saved = 3,
    .reads_in = 3,
    .weights_in = 6,
};

choir_tensor *choir_conv2d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts o)
{
    choir_tensor *poisoned, *in[3] = {x, weight, bias};
    choir_scope *scope = choir__begin(&conv_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], weight = in[1], bias = in[2];
    choir_shape sx = x->shape, sw = weight->shape;
    choir__conv_shape s = shape_of(&o);
    o.groups = (int)s.groups;
    if (!sensible(&s))
        return senseless(conv_op.name, scope, &s);
    if (!fit(x, weight, bias, sw.dim[0]))
        return choir__shape_error(conv_op.name, scope, in, 3,
            "expected x (N, C, H, W), weight (O, C/groups, KH, KW), bias (O) of one "
            "floating dtype");
    if (sx.dim[1] != sw.dim[1] * o.groups || sw.dim[0] % o.groups)
        return choir__shape_error(conv_op.name, scope, in, 3,
            o.groups == 1
                ? "expected the image's channels as the weight's dimension 1"
                : "expected the image's channels as groups times the weight's dimension "
                  "1, and groups that divide the weight's outputs");
    s.n = sx.dim[0], s.c = sx.dim[1], s.h = sx.dim[2], s.w = sx.dim[3];
    s.o = sw.dim[0], s.kh = sw.dim[2], s.kw = sw.dim[3];
    s.oh = choir__conv_out(s.h, s.kh, s.stride_h, s.pad_h, s.dilation_h);
    s.ow = choir__conv_out(s.w, s.kw, s.stride_w, s.pad_w, s.dilation_w);
    if (s.oh < 1 || s.ow < 1)
        return choir__shape_error(conv_op.name, scope, in, 3,
            "expected a padded image of at least the kernel's size (larger images, or less "
            "stride and pooling before)");
    choir_tensor *image = choir__channels_last(scope, x),
                 *w = choir__channels_last(scope, weight);
    choir_tensor *y = choir__new_image(scope, x, x->dtype, s.n, s.o, s.oh, s.ow);
    return choir__computed(&conv_op, y, in, 3, (choir__keeps){&s, sizeof s, {image, w}});
}

/* --- transposed convolution: s describes the convolution that takes y to x --- */

/* gx = conv(gy, w) */
static void transpose_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const choir__conv_shape *s = r->attrs;
    if (!choir__wanted(r, 0))
        return;
    choir_tensor *gx = choir__tensor_like(sink->scope, r->saved[0]);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_conv args = {.x = choir__data(gy),
        .w = choir__data(r->saved[1]),
        .y = choir__data(gx),
        .s = *s,
        .dtype = gx->dtype};
    choir__launch(choir__device_of(gx), gx->dtype, conv, &args);
    gx->grad_owned = true;
    sink->give(sink, r, 0, gx);
}

/* Computes the bias' gradient: the sum of gy's rows, one per pixel. */
static void bias_backward(choir__tape_entry *r, const choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gb = sink->dest(sink, r, 2);
    if (!gb)
        return;
    choir__k_sum args = {.x = choir__data(gy),
        .y = choir__data(gb),
        .rows = gy->count / gy->shape.dim[1],
        .cols = gy->shape.dim[1],
        .scale = 1,
        .over_rows = true,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, sum, &args);
    sink->give(sink, r, 2, gb);
}

static void transpose_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    if (!choir__wanted(r, 1) && !choir__wanted(r, 2))
        return;
    gy = choir__channels_last(sink->scope, gy);
    if (gy->poisoned)
        return;
    bias_backward(r, gy, sink);
    choir_tensor *gw = sink->dest(sink, r, 1), *out = gw;
    if (!gw)
        return;
    if (!choir__same_layout(gw, r->saved[1]))
        out = choir__tensor_like(sink->scope, r->saved[1]);
    if (out->poisoned)
        return;
    choir__k_conv_backward_weight args = {.gy = choir__data(x),
        .x = choir__data(gy),
        .gw = choir__data(out),
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, conv_backward_weight, &args);
    sink->give(sink, r, 1, out);
}

/* Returns the size of the result, or 0 if no such image exists. */
static int64_t transposed_size(
    int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t extra)
{
    int64_t size = (in - 1) * stride - 2 * pad + dilation * (kernel - 1) + extra + 1;
    return in >= 1 && size >= 1 && size <= INT32_MAX ? size : 0;
}

static void add_bias(choir_tensor *y, const choir_tensor *bias)
{
    choir_tensor pixels = *y, channels = *bias; /* (N * OH * OW, O) */
    pixels.shape = choir_dims(y->count / bias->count, bias->count);
    choir__set_row_major(&pixels);
    channels.shape = pixels.shape;
    channels.stride[0] = 0, channels.stride[1] = 1;
    choir__launch_add(&pixels, &pixels, &channels);
}

static void transpose_again(choir__tape_entry *r)
{
    choir__copy_again(r, 0);
    choir__copy_again(r, 1);
    launch_backward_input(r, r->saved[0], r->out);
    if (r->in[2])
        add_bias(r->out, r->in[2]);
}

static const choir__op transpose_op = {
    .name = "conv_transpose2d",
    .optional = 4,
    .cast = CHOIR__CAST_LOWER,
    .backward_input = transpose_backward_input,
    .backward_weight = transpose_backward_weight,
    .recompute = transpose_again,
    .recompute_saved = 3,
    .reads_in = 3,
    .weights_in = 6,
};

choir_tensor *choir_conv_transpose2d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts o)
{
    const char *name = transpose_op.name;
    choir_tensor *poisoned, *in[3] = {x, weight, bias};
    choir_scope *scope = choir__begin(&transpose_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], weight = in[1], bias = in[2];
    choir_shape sx = x->shape, sw = weight->shape;
    choir__conv_shape s = shape_of(&o);
    o.groups = (int)s.groups;
    int64_t extra_h = o.output_padding, extra_w = pad_or_else(o.output_padding_w, (int)extra_h);
    if (!sensible(&s))
        return senseless(name, scope, &s);
    if (extra_h < 0 || extra_w < 0 || extra_h >= choir__max(s.stride_h, s.dilation_h) ||
        extra_w >= choir__max(s.stride_w, s.dilation_w))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected an output padding below stride or dilation, got %lld x %lld", name,
            (long long)extra_h, (long long)extra_w);
    if (!fit(x, weight, bias, sw.dim[1] * o.groups))
        return choir__shape_error(name, scope, in, 3,
            "expected x (N, C, H, W), weight (C, O/groups, KH, KW), bias (O) of one "
            "floating dtype");
    if (sx.dim[1] != sw.dim[0] || sx.dim[1] % o.groups)
        return choir__shape_error(name, scope, in, 3,
            "expected the image's channels as the weight's dimension 0, and groups that "
            "divide them");
    s.n = sx.dim[0], s.o = sx.dim[1], s.oh = sx.dim[2], s.ow = sx.dim[3];
    s.c = sw.dim[1] * o.groups, s.kh = sw.dim[2], s.kw = sw.dim[3];
    s.h = transposed_size(s.oh, s.kh, s.stride_h, s.pad_h, s.dilation_h, extra_h);
    s.w = transposed_size(s.ow, s.kw, s.stride_w, s.pad_w, s.dilation_w, extra_w);
    if (s.h < 1 || s.w < 1)
        return choir__shape_error(
            name, scope, in, 3, "expected a padding that leaves 1 pixel or more of the result");
    choir_tensor *image = choir__channels_last(scope, x),
                 *w = choir__channels_last(scope, weight);
    choir_tensor *y = choir__new_image(scope, x, x->dtype, s.n, s.c, s.h, s.w);
    return choir__computed(&transpose_op, y, in, 3, (choir__keeps){&s, sizeof s, {image, w}});
}
