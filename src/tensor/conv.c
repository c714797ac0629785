/* Convolution and pooling: logically NCHW, channels-last in memory. */
#include <string.h>

#include "tensor/tensor.h"

choir_conv_opts choir_conv_defaults(void)
{
    return (choir_conv_opts){.stride = 1, .padding = 0, .dilation = 1, .groups = 1};
}

static int64_t out_size(
    int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t reach = dilation * (kernel - 1) + 1;
    return in + 2 * pad >= reach ? (in + 2 * pad - reach) / stride + 1 : 0;
}

static choir_tensor *new_image(choir_scope *scope, const choir_tensor *x, choir_dtype dtype,
    int64_t c, int64_t h, int64_t w)
{
    choir_tensor *y = choir__tensor_new(
        scope, choir__device_of(x), dtype, choir_dims(x->shape.dim[0], c, h, w));
    choir__set_channels_last(y);
    return y;
}

/* --- convolution --- */

static void conv_backward_input(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    if (!choir__wanted(r, 0))
        return;
    choir_tensor *w = r->saved[1], *gx = choir__tensor_like(sink->scope, r->saved[0]);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_conv_backward_input args = {.gy = choir__data(gy),
        .w = choir__data(w),
        .gx = choir__data(gx),
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = gx->dtype};
    choir__launch(choir__device_of(gx), gx->dtype, conv_backward_input, &args);
    sink->give(sink, r, 0, gx);
}

static void conv_backward_weight(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    if (!choir__wanted(r, 1) && !choir__wanted(r, 2))
        return;
    choir_tensor *gw = sink->dest(sink, r, 1), *gb = sink->dest(sink, r, 2);
    choir_tensor *out = gw;
    gy = choir__channels_last(sink->scope, gy);
    if (!gw || !choir__same_layout(gw, r->saved[1]))
        out = choir__tensor_like(sink->scope, r->saved[1]);
    if (gy->poisoned || out->poisoned)
        return;
    choir__k_conv_backward_weight args = {.gy = choir__data(gy),
        .x = choir__data(x),
        .gw = choir__data(out),
        .gbias = gb ? choir__data(gb) : NULL,
        .s = *(const choir__conv_shape *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, conv_backward_weight, &args);
    if (gb)
        sink->give(sink, r, 2, gb);
    if (gw)
        sink->give(sink, r, 1, out);
}

static const choir__op conv_op = {
    .name = "conv2d",
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
    .reads_in = 3,
};

choir_tensor *choir_conv2d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts o)
{
    choir_tensor *poisoned, *in[3] = {x, weight, bias};
    choir_scope *scope = choir__begin("conv2d", in, 3, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape sx = x->shape, sw = weight->shape;
    if (o.stride < 1 || o.dilation < 1 || o.groups < 1 || o.padding < 0)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "conv2d: stride %d, padding %d, dilation %d, groups %d make no sense", o.stride,
            o.padding, o.dilation, o.groups);
    if (sx.ndim != 4 || sw.ndim != 4 || sx.dim[1] != sw.dim[1] * o.groups ||
        sw.dim[0] % o.groups || weight->dtype != x->dtype || sw.dim[2] < 1 || sw.dim[3] < 1 ||
        (x->dtype != CHOIR_F32 && x->dtype != CHOIR_F64) || (bias && bias->dtype != x->dtype) ||
        (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != sw.dim[0])))
        return choir__shape_error("conv2d", scope, in, 3,
            "wants x (N, C, H, W), weight (O, C/groups, KH, KW), bias (O) of one dtype");
    choir__conv_shape s = {.n = sx.dim[0],
        .c = sx.dim[1],
        .h = sx.dim[2],
        .w = sx.dim[3],
        .o = sw.dim[0],
        .kh = sw.dim[2],
        .kw = sw.dim[3],
        .groups = o.groups,
        .stride_h = o.stride,
        .stride_w = o.stride,
        .pad_h = o.padding,
        .pad_w = o.padding,
        .dilation_h = o.dilation,
        .dilation_w = o.dilation};
    s.oh = out_size(s.h, s.kh, o.stride, o.padding, o.dilation);
    s.ow = out_size(s.w, s.kw, o.stride, o.padding, o.dilation);
    if (s.oh < 1 || s.ow < 1)
        return choir__shape_error(
            "conv2d", scope, in, 3, "the kernel is larger than the image");
    choir_tensor *image = choir__channels_last(scope, x),
                 *w = choir__channels_last(scope, weight);
    choir_tensor *y = new_image(scope, x, x->dtype, s.o, s.oh, s.ow);
    if (image->poisoned || w->poisoned || y->poisoned)
        return image->poisoned ? image : w->poisoned ? w : y;
    choir__k_conv args = {.x = choir__data(image),
        .w = choir__data(w),
        .bias = bias ? choir__data(bias) : NULL,
        .y = choir__data(y),
        .s = s,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, conv, &args);
    choir__record *r = choir__record_op(&conv_op, y, in, 3);
    if (r) {
        choir__record_attrs(r, &s, sizeof s);
        r->saved[0] = image;
        r->saved[1] = w;
    }
    return y;
}

/* --- pooling --- */

struct pool {
    choir__conv_shape s;
    bool max;
};

static void pool_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct pool *p = r->attrs;
    choir_tensor *gx = new_image(sink->scope, r->in[0], gy->dtype, p->s.c, p->s.h, p->s.w);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_pool_backward args = {.gy = choir__data(gy),
        .gx = choir__data(gx),
        .index = p->max ? choir__data(r->saved[0]) : NULL,
        .s = p->s,
        .max = p->max,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, pool_backward, &args);
    sink->give(sink, r, 0, gx);
}

static const choir__op pool_op = {.name = "pool2d", .backward = pool_backward};

static choir_tensor *pool2d(
    const char *name, choir_tensor *x, bool max, int kernel, int stride, int padding)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(name, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape sx = x->shape;
    if (sx.ndim != 4 || (x->dtype != CHOIR_F32 && x->dtype != CHOIR_F64) || kernel < 1 ||
        kernel > 15 || stride < 1 || padding < 0 || padding > kernel / 2)
        return choir__shape_error(name, scope, &x, 1,
            "wants x (N, C, H, W), a kernel of 1 to 15, a padding of at most half of it");
    struct pool p = {.max = max,
        .s = {.n = sx.dim[0],
            .c = sx.dim[1],
            .o = sx.dim[1],
            .h = sx.dim[2],
            .w = sx.dim[3],
            .kh = kernel,
            .kw = kernel,
            .groups = 1,
            .stride_h = stride,
            .stride_w = stride,
            .pad_h = padding,
            .pad_w = padding,
            .dilation_h = 1,
            .dilation_w = 1}};
    p.s.oh = out_size(p.s.h, kernel, stride, padding, 1);
    p.s.ow = out_size(p.s.w, kernel, stride, padding, 1);
    if (p.s.oh < 1 || p.s.ow < 1)
        return choir__shape_error(name, scope, &x, 1, "the window is larger than the image");
    choir_tensor *image = choir__channels_last(scope, x);
    choir_tensor *y = new_image(scope, x, x->dtype, p.s.c, p.s.oh, p.s.ow);
    choir_tensor *index = max ? new_image(scope, x, CHOIR_U8, p.s.c, p.s.oh, p.s.ow) : NULL;
    if (image->poisoned || y->poisoned || (index && index->poisoned))
        return image->poisoned ? image : y->poisoned ? y : index;
    choir__k_pool args = {.x = choir__data(image),
        .y = choir__data(y),
        .index = max ? choir__data(index) : NULL,
        .s = p.s,
        .max = max,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, pool, &args);
    choir__record *r = choir__record_op(&pool_op, y, &x, 1);
    if (r) {
        choir__record_attrs(r, &p, sizeof p);
        r->saved[0] = index;
    }
    return y;
}

choir_tensor *choir_max_pool2d(choir_tensor *x, int kernel, int stride, int padding)
{
    return pool2d("max_pool2d", x, true, kernel, stride, padding);
}

choir_tensor *choir_avg_pool2d(choir_tensor *x, int kernel, int stride, int padding)
{
    return pool2d("avg_pool2d", x, false, kernel, stride, padding);
}
