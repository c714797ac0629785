/* Second derivatives of convolutions. The gradient of the image is the transposed convolution
 * of gy. The gradient of the weight is a convolution of the image by gy, with samples as
 * channels, and with stride and dilation exchanged. */
#include "device/kernels.h"
#include "tensor/ops/derive/derive.h"

/* A padding along the width, where 0 would mean the height's. */
static int width_of(int64_t pad)
{
    return pad ? (int)pad : -1;
}

static choir_conv_opts opts_of(const choir__conv_shape *s)
{
    return (choir_conv_opts){.stride = (int)s->stride_h,
        .stride_w = (int)s->stride_w,
        .padding = (int)s->pad_h,
        .padding_w = width_of(s->pad_w),
        .dilation = (int)s->dilation_h,
        .dilation_w = (int)s->dilation_w,
        .groups = (int)s->groups};
}

/* Rows or columns of an image that no window reached. */
static int64_t left_over(
    int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    return in - ((out - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1);
}

/* The gradient of the weight (O, C/groups, KH, KW) of a convolution of x (N, C, H, W) whose
 * result has the gradient gy (N, O, OH, OW), for the channels of one group. */
static choir_tensor *weight_of_group(
    choir_tensor *x, choir_tensor *gy, const choir__conv_shape *s)
{
    choir_conv_opts o = opts_of(s);
    o.stride = (int)s->dilation_h, o.stride_w = (int)s->dilation_w;
    o.dilation = (int)s->stride_h, o.dilation_w = (int)s->stride_w;
    o.groups = 1;
    choir_tensor *w =
        choir_conv2d(choir_transpose(x, 0, 1), choir_transpose(gy, 0, 1), NULL, o);
    w = choir_narrow(choir_narrow(w, 2, 0, s->kh), 3, 0, s->kw);
    return choir_transpose(w, 0, 1);
}

static choir_tensor *weight_gradient(
    choir_tensor *x, choir_tensor *gy, const choir__conv_shape *s)
{
    if (s->groups == 1)
        return weight_of_group(x, gy, s);
    int64_t c = s->c / s->groups, o = s->o / s->groups;
    choir_tensor **parts =
        choir__arena_get(&gy->scope->arena, (size_t)s->groups * sizeof *parts);
    for (int64_t g = 0; g < s->groups; g++)
        parts[g] =
            weight_of_group(choir_narrow(x, 1, g * c, c), choir_narrow(gy, 1, g * o, o), s);
    return choir_cat(parts, (int)s->groups, 0);
}

/* (N, O, OH, OW) -> (O) */
static choir_tensor *per_channel(choir_tensor *gy)
{
    return choir_sum_dim(choir_sum_dim(choir_sum_dim(gy, 3), 2), 0);
}

void choir__derive_conv(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const choir__conv_shape *s = r->attrs;
    choir_conv_opts o = opts_of(s);
    o.output_padding = (int)left_over(s->h, s->oh, s->kh, s->stride_h, s->pad_h, s->dilation_h);
    o.output_padding_w =
        width_of(left_over(s->w, s->ow, s->kw, s->stride_w, s->pad_w, s->dilation_w));
    if (choir__wanted(r, 0))
        gx[0] = choir_conv_transpose2d(gy, r->in[1], NULL, o);
    if (choir__wanted(r, 1))
        gx[1] = weight_gradient(choir__derive_in(r, 0, gy), gy, s);
    if (choir__wanted(r, 2))
        gx[2] = per_channel(gy);
}

/* s describes the convolution that takes the result to x. */
void choir__derive_conv_transpose(
    const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const choir__conv_shape *s = r->attrs;
    if (choir__wanted(r, 0))
        gx[0] = choir_conv2d(gy, r->in[1], NULL, opts_of(s));
    if (choir__wanted(r, 1))
        gx[1] = weight_gradient(gy, choir__derive_in(r, 0, gy), s);
    if (choir__wanted(r, 2))
        gx[2] = per_channel(gy);
}
