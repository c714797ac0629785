/* Max and average pooling, by windows or to a given size: logically NCHW, channels-last. */
#include "tensor/autocast.h"
#include "tensor/ops/conv.h"

struct pool {
    choir__conv_shape s; /* without a window: to a given size */
    bool max;
};

static void launch(choir_device *device, const choir__k_pool *args, bool back)
{
    bool adaptive = args->s.kh == 0;
    if (adaptive && back)
        choir__launch(device, args->dtype, adaptive_pool_backward, args);
    else if (adaptive)
        choir__launch(device, args->dtype, adaptive_pool, args);
    else if (back)
        choir__launch(device, args->dtype, pool_backward, args);
    else
        choir__launch(device, args->dtype, pool, args);
}

static void pool_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct pool *p = r->attrs;
    choir_tensor *gx =
        choir__new_image(sink->scope, gy, gy->dtype, p->s.n, p->s.c, p->s.h, p->s.w);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_pool args = {.gy = choir__data(gy),
        .gx = choir__data(gx),
        .index = choir__data_or_null(r->saved[0]),
        .s = p->s,
        .max = p->max,
        .dtype = gy->dtype};
    launch(choir__device_of(gy), &args, true);
    gx->grad_owned = true;
    sink->give(sink, r, 0, gx);
}

/* saved: the places of the maxima; NULL: averages */
static void pool_again(choir__tape_entry *r)
{
    const struct pool *p = r->attrs;
    choir_tensor *x = choir__channels_last(r->scope, r->in[0]);
    if (x->poisoned)
        return;
    choir__k_pool args = {.x = choir__data(x),
        .y = choir__data(r->out),
        .index = choir__data_or_null(r->saved[0]),
        .s = p->s,
        .max = p->max,
        .dtype = x->dtype};
    launch(choir__device_of(x), &args, false);
}

#define POOL(title)                                                                            \
    {                                                                                          \
        .name = title, .half_native = CHOIR__ALL_IN, .backward = pool_backward,                \
        .recompute = pool_again, .recompute_saved = 1                                          \
    }
static const choir__op max_op = POOL("max_pool2d"), avg_op = POOL("avg_pool2d"),
                       adaptive_max_op = POOL("adaptive_max_pool2d"),
                       adaptive_avg_op = POOL("adaptive_avg_pool2d");

/* place: the dtype of a maximum's place */
static choir_tensor *pooled(const choir__op *op, choir_scope *scope, choir_tensor *x,
    const struct pool *p, choir_dtype place)
{
    choir_tensor *y = choir__new_image(scope, x, x->dtype, p->s.n, p->s.c, p->s.oh, p->s.ow);
    choir_tensor *index =
        p->max ? choir__new_image(scope, x, place, p->s.n, p->s.c, p->s.oh, p->s.ow) : NULL;
    return choir__computed(op, y, &x, 1, (choir__keeps){p, sizeof *p, {index}});
}

static choir_tensor *pool2d(choir_tensor *x, bool max, int kernel, int stride, int padding)
{
    const choir__op *op = max ? &max_op : &avg_op;
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape sx = x->shape;
    if (sx.ndim != 4 || !choir__is_float(x->dtype) || kernel < 1 || kernel > 15 || stride < 1 ||
        padding < 0 || padding > kernel / 2)
        return choir__shape_error(op->name, scope, &x, 1,
            "expected a floating x (N, C, H, W), a kernel of 1 to 15, a padding of at most half "
            "of it");
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
    p.s.oh = choir__conv_out(p.s.h, kernel, stride, padding, 1);
    p.s.ow = choir__conv_out(p.s.w, kernel, stride, padding, 1);
    if (p.s.oh < 1 || p.s.ow < 1)
        return choir__shape_error(
            op->name, scope, &x, 1, "expected an image of at least the window's size");
    return pooled(op, scope, x, &p, CHOIR_U8);
}

choir_tensor *choir_max_pool2d(choir_tensor *x, int kernel, int stride, int padding)
{
    return pool2d(x, true, kernel, stride, padding);
}

choir_tensor *choir_avg_pool2d(choir_tensor *x, int kernel, int stride, int padding)
{
    return pool2d(x, false, kernel, stride, padding);
}

/* --- to a given size --- */

static choir_tensor *adaptive_pool2d(choir_tensor *x, bool max, int64_t oh, int64_t ow)
{
    const choir__op *op = max ? &adaptive_max_op : &adaptive_avg_op;
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape sx = x->shape;
    if (oh < 1 || ow < 1 || oh > INT32_MAX || ow > INT32_MAX)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected an image of 1 x 1 or more, got %lld x %lld", op->name, (long long)oh,
            (long long)ow);
    if (sx.ndim != 4 || !choir__is_float(x->dtype) || x->count < 1 ||
        sx.dim[2] * sx.dim[3] > INT32_MAX)
        return choir__shape_error(
            op->name, scope, &x, 1, "expected a floating x (N, C, H, W), not empty");
    struct pool p = {.max = max,
        .s = {.n = sx.dim[0],
            .c = sx.dim[1],
            .o = sx.dim[1],
            .h = sx.dim[2],
            .w = sx.dim[3],
            .oh = oh,
            .ow = ow}};
    return pooled(op, scope, x, &p, CHOIR_I32);
}

choir_tensor *choir_adaptive_avg_pool2d(choir_tensor *x, int64_t height, int64_t width)
{
    return adaptive_pool2d(x, false, height, width);
}

choir_tensor *choir_adaptive_max_pool2d(choir_tensor *x, int64_t height, int64_t width)
{
    return adaptive_pool2d(x, true, height, width);
}
