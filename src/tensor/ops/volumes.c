/* Convolutions of signals and volumes, as convolutions of images. A signal is an image of
 * height 1. A slice of a volume's result reads KD slices; they become channels of one image,
 * and so the sum over depth is a part of the sum over channels.
 *
 * All tensors are channels-last in memory; the reshapes here see them so and copy nothing,
 * except where slices are put beside each other. */
#include <choir/select.h>
#include <choir/volumes.h>

#include "tensor/ops/conv.h"
#include "tensor/op.h"

static const choir__op conv1d_op = {
    .name = "conv1d", .any_dtype = true, .composed = true, .optional = 4};
static const choir__op conv3d_op = {
    .name = "conv3d", .any_dtype = true, .composed = true, .optional = 4};

/* Returns a view of (N, C, ...) as (N, ..., C), or back. */
static choir_tensor *channels_to(choir_tensor *x, bool last)
{
    choir_shape order = {.ndim = x->shape.ndim};
    if (x->poisoned)
        return x;
    for (int d = 1; d < order.ndim; d++)
        order.dim[d] = last ? d % (order.ndim - 1) + 1 : d == 1 ? order.ndim - 1 : d - 1;
    return choir_permute(x, order);
}

/* Returns (N, C, ...) with other dimensions: `shape` is (N, ..., C). */
static choir_tensor *reshaped(choir_tensor *x, choir_shape shape)
{
    return channels_to(choir_reshape(channels_to(x, true), shape), false);
}

/* Strides, dilations and groups of 0 stand for 1, as in choir_conv2d. */
static int or_one(int number)
{
    return number ? number : 1;
}

/* True if x, weight and bias have n dimensions, and their channels go together. */
static bool fit(choir_tensor *const *in, int n, int groups)
{
    choir_shape x = in[0]->shape, w = in[1]->shape;
    return x.ndim == n && w.ndim == n && groups >= 1 && x.dim[1] == w.dim[1] * groups &&
           w.dim[0] % groups == 0 && w.dim[0] >= 1 && w.dim[1] >= 1 && w.dim[2] >= 1 &&
           (!in[2] || (in[2]->shape.ndim == 1 && in[2]->shape.dim[0] == w.dim[0]));
}

choir_tensor *choir_conv1d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts opts)
{
    choir_tensor *in[3] = {x, weight, bias}, *poisoned;
    choir_scope *scope = choir__begin(&conv1d_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    opts.stride = or_one(opts.stride);
    opts.dilation = or_one(opts.dilation);
    opts.groups = or_one(opts.groups);
    if (!fit(in, 3, opts.groups))
        return choir__shape_error(conv1d_op.name, scope, in, 3,
            "expected x (N, C, L), weight (O, C/groups, K), bias (O), and groups that divide O");
    choir_shape sx = in[0]->shape, sw = in[1]->shape;
    choir_conv_opts flat = choir_conv_defaults();
    flat.stride_w = opts.stride;
    flat.padding_w = opts.padding ? opts.padding : -1;
    flat.dilation_w = opts.dilation;
    flat.groups = opts.groups;
    if (opts.stride < 1 || opts.dilation < 1 || opts.padding < 0 ||
        choir__conv_out(sx.dim[2], sw.dim[2], opts.stride, opts.padding, opts.dilation) < 1)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "conv1d: a signal of %lld has no place for a kernel of %lld with stride %d, padding "
            "%d, dilation %d",
            (long long)sx.dim[2], (long long)sw.dim[2], opts.stride, opts.padding,
            opts.dilation);
    choir_tensor *image = reshaped(in[0], choir_dims(sx.dim[0], 1, sx.dim[2], sx.dim[1]));
    choir_tensor *w = reshaped(in[1], choir_dims(sw.dim[0], 1, sw.dim[2], sw.dim[1]));
    choir_tensor *y = choir_conv2d(image, w, in[2], flat); /* (N, O, 1, OL) */
    if (y->poisoned)
        return y;
    return reshaped(y, choir_dims(y->shape.dim[0], y->shape.dim[3], y->shape.dim[1]));
}

/* --- volumes --- */

choir_conv3d_opts choir_conv3d_defaults(void)
{
    return (choir_conv3d_opts){
        .stride = {1, 1, 1}, .padding = {0, 0, 0}, .dilation = {1, 1, 1}, .groups = 1};
}

/* Pads or cuts the depth of x (N, D, H, W, C). */
static choir_tensor *padded(choir_tensor *x, int64_t before, int64_t after)
{
    int64_t widths[8] = {0, 0, 0, 0, 0, 0, before, after};
    return before || after ? choir_pad(x, widths, 8, 0) : x;
}

/* Puts the KD slices that each slice of the result reads beside each other: x (N, C, D, H, W)
 * -> images (N OD, C KD, H, W), whose channels are (groups, KD, C/groups). Slice od reads the
 * slices od stride + kd dilation; with the depth as (D/stride, stride), they are views. */
static choir_tensor *unfolded(
    choir_scope *scope, choir_tensor *x, int64_t od, int64_t kd, const choir_conv3d_opts *o)
{
    choir_shape s = x->shape;
    int64_t stride = o->stride[0], step = o->dilation[0], pad = o->padding[0];
    int64_t n = s.dim[0], c = s.dim[1], pixels = s.dim[3] * s.dim[4];
    int64_t rows = (kd - 1) * step / stride + od; /* rows of `stride` slices */
    x = padded(channels_to(x, true), pad, rows * stride - s.dim[2] - pad);
    choir_shape split = {6, {n, rows, stride, pixels, o->groups, c / o->groups}};
    choir_tensor *whole = choir_reshape(x, split), *y;
    choir_tensor **slice = choir__arena_get(&scope->arena, (size_t)kd * sizeof(choir_tensor *));
    for (int64_t k = 0; k < kd; k++)
        slice[k] = choir_narrow(
            choir_narrow(whole, 2, k * step % stride, 1), 1, k * step / stride, od);
    y = choir_cat(slice, (int)kd, 5);
    y = choir_reshape(y, choir_dims(n * od, s.dim[3], s.dim[4], c * kd));
    return channels_to(y, false);
}

/* Returns the weight (O, C/groups, KD, KH, KW) as (O, KD C/groups, KH, KW). */
static choir_tensor *unfolded_weight(choir_tensor *w)
{
    choir_shape s = w->shape;
    w = choir_permute(w, (choir_shape){5, {0, 3, 4, 2, 1}});
    w = choir_reshape(w, choir_dims(s.dim[0], s.dim[3], s.dim[4], s.dim[2] * s.dim[1]));
    return channels_to(w, false);
}

choir_tensor *choir_conv3d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv3d_opts o)
{
    choir_tensor *in[3] = {x, weight, bias}, *poisoned;
    choir_scope *scope = choir__begin(&conv3d_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    for (int d = 0; d < 3; d++) {
        o.stride[d] = or_one(o.stride[d]);
        o.dilation[d] = or_one(o.dilation[d]);
    }
    o.groups = or_one(o.groups);
    if (!fit(in, 5, o.groups))
        return choir__shape_error(conv3d_op.name, scope, in, 3,
            "expected x (N, C, D, H, W), weight (O, C/groups, KD, KH, KW), bias (O), and groups "
            "that divide O");
    choir_shape sx = in[0]->shape, sw = in[1]->shape;
    bool sensible = true;
    for (int d = 0; d < 3; d++)
        sensible = sensible && o.stride[d] >= 1 && o.padding[d] >= 0 && o.dilation[d] >= 1 &&
                   choir__conv_out(sx.dim[d + 2], sw.dim[d + 2], o.stride[d], o.padding[d],
                       o.dilation[d]) >= 1;
    if (!sensible)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "conv3d: a volume %s has no place for a kernel %s with stride %d x %d x %d, padding "
            "%d x %d x %d, dilation %d x %d x %d",
            choir__shape_text(sx), choir__shape_text(sw), o.stride[0], o.stride[1], o.stride[2],
            o.padding[0], o.padding[1], o.padding[2], o.dilation[0], o.dilation[1],
            o.dilation[2]);
    int64_t od =
        choir__conv_out(sx.dim[2], sw.dim[2], o.stride[0], o.padding[0], o.dilation[0]);
    choir_conv_opts flat = {.stride = o.stride[1],
        .stride_w = o.stride[2],
        .padding = o.padding[1],
        .padding_w = o.padding[2] ? o.padding[2] : -1,
        .dilation = o.dilation[1],
        .dilation_w = o.dilation[2],
        .groups = o.groups};
    choir_tensor *images = unfolded(scope, in[0], od, sw.dim[2], &o),
                 *w = unfolded_weight(in[1]);
    choir_tensor *y = choir_conv2d(images, w, in[2], flat); /* (N OD, O, OH, OW) */
    if (y->poisoned)
        return y;
    choir_shape s = y->shape;
    return reshaped(y, choir_dims(sx.dim[0], od, s.dim[2], s.dim[3], s.dim[1]));
}
