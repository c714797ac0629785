/* Max and average pooling, by windows or to a given size: logically NCHW, channels-last. */
#include "tensor/autocast.h"
#include "tensor/ops/conv.h"

struct pool {
    choir__conv_shape s;
    bool max;
};

static void pool_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct pool *p = r->attrs;
    choir_tensor *gx =
        choir__new_image(sink->scope, gy, gy->dtype, p->s.n, p->s.c, p->s.h, p->s.w);
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
    gx->grad_owned = true;
    sink->give(sink, r, 0, gx);
}

/* x channels-last; index NULL: averages */
static void launch_pool(
    choir_tensor *y, const choir_tensor *x, choir_tensor *index, const struct pool *p)
{
    choir__k_pool args = {.x = choir__data(x),
        .y = choir__data(y),
        .index = index ? choir__data(index) : NULL,
        .s = p->s,
        .max = p->max,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, pool, &args);
}

static void pool_again(choir__record *r)
{
    choir_tensor *image = choir__channels_last(r->scope, r->in[0]);
    if (!image->poisoned)
        launch_pool(r->out, image, r->saved[0], r->attrs);
}

#define POOL(title)                                                                            \
    {                                                                                          \
        .name = title, .half_native = CHOIR__ALL_IN, .backward = pool_backward,                \
        .again = pool_again, .again_saved = 1                                                  \
    }
static const choir__op max_op = POOL("max_pool2d"), avg_op = POOL("avg_pool2d");

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
            "expected x (N, C, H, W), a kernel of 1 to 15, a padding of at most half of it");
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
    choir_tensor *image = choir__channels_last(scope, x);
    choir_tensor *y = choir__new_image(scope, x, x->dtype, p.s.n, p.s.c, p.s.oh, p.s.ow);
    choir_tensor *index =
        max ? choir__new_image(scope, x, CHOIR_U8, p.s.n, p.s.c, p.s.oh, p.s.ow) : NULL;
    if (image->poisoned || y->poisoned || (index && index->poisoned))
        return image->poisoned ? image : y->poisoned ? y : index;
    launch_pool(y, image, index, &p);
    choir__record *r = choir__record_op(op, y, &x, 1);
    if (r) {
        choir__record_attrs(r, &p, sizeof p);
        r->saved[0] = index;
    }
    return choir__as_stored(y);
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

struct adaptive {
    int64_t n, h, w, c, oh, ow;
    bool max;
};

static void adaptive_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct adaptive *p = r->attrs;
    choir_tensor *gx = choir__new_image(sink->scope, gy, gy->dtype, p->n, p->c, p->h, p->w);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_adaptive_pool_backward args = {.gy = choir__data(gy),
        .index = p->max ? choir__data(r->saved[0]) : NULL,
        .gx = choir__data(gx),
        .n = p->n,
        .h = p->h,
        .w = p->w,
        .c = p->c,
        .oh = p->oh,
        .ow = p->ow,
        .max = p->max,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, adaptive_pool_backward, &args);
    gx->grad_owned = true;
    sink->give(sink, r, 0, gx);
}

static void launch_adaptive(
    choir_tensor *y, const choir_tensor *x, choir_tensor *index, const struct adaptive *p)
{
    choir__k_adaptive_pool args = {.x = choir__data(x),
        .y = choir__data(y),
        .index = index ? choir__data(index) : NULL,
        .n = p->n,
        .h = p->h,
        .w = p->w,
        .c = p->c,
        .oh = p->oh,
        .ow = p->ow,
        .max = p->max,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, adaptive_pool, &args);
}

static void adaptive_again(choir__record *r)
{
    choir_tensor *image = choir__channels_last(r->scope, r->in[0]);
    if (!image->poisoned)
        launch_adaptive(r->out, image, r->saved[0], r->attrs);
}

#define ADAPTIVE(title)                                                                        \
    {                                                                                          \
        .name = title, .half_native = CHOIR__ALL_IN, .backward = adaptive_backward,            \
        .again = adaptive_again, .again_saved = 1                                              \
    }
static const choir__op adaptive_max_op = ADAPTIVE("adaptive_max_pool2d"),
                       adaptive_avg_op = ADAPTIVE("adaptive_avg_pool2d");

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
    struct adaptive p = {.n = sx.dim[0],
        .c = sx.dim[1],
        .h = sx.dim[2],
        .w = sx.dim[3],
        .oh = oh,
        .ow = ow,
        .max = max};
    choir_tensor *image = choir__channels_last(scope, x);
    choir_tensor *y = choir__new_image(scope, x, x->dtype, p.n, p.c, oh, ow);
    choir_tensor *index = max ? choir__new_image(scope, x, CHOIR_I32, p.n, p.c, oh, ow) : NULL;
    if (image->poisoned || y->poisoned || (index && index->poisoned))
        return image->poisoned ? image : y->poisoned ? y : index;
    launch_adaptive(y, image, index, &p);
    choir__record *r = choir__record_op(op, y, &x, 1);
    if (r) {
        choir__record_attrs(r, &p, sizeof p);
        r->saved[0] = index;
    }
    return choir__as_stored(y);
}

choir_tensor *choir_adaptive_avg_pool2d(choir_tensor *x, int64_t height, int64_t width)
{
    return adaptive_pool2d(x, false, height, width);
}

choir_tensor *choir_adaptive_max_pool2d(choir_tensor *x, int64_t height, int64_t width)
{
    return adaptive_pool2d(x, true, height, width);
}
