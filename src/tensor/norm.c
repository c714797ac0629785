/* Batch norm. */
#include "tensor/tensor.h"

static bool fits_channels(const choir_tensor *t, int64_t channels, choir_dtype dtype)
{
    return !t || (t->shape.ndim == 1 && t->shape.dim[0] == channels && t->dtype == dtype);
}

static void *data_or_null(const choir_tensor *t)
{
    return t ? choir__data(t) : NULL;
}

/* Rows are N * H * W, columns are channels. */

void choir__set_channels_last(choir_tensor *t)
{
    if (t->shape.ndim < 2)
        return;
    int64_t stride = t->shape.dim[1];
    t->stride[1] = 1;
    for (int i = t->shape.ndim - 1; i >= 2; i--) {
        t->stride[i] = stride;
        stride *= t->shape.dim[i];
    }
    t->stride[0] = stride;
}

choir_tensor *choir__channels_last(choir_scope *scope, choir_tensor *x)
{
    choir_tensor like = *x;
    choir__set_channels_last(&like);
    if (choir__same_layout(&like, x))
        return x;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    choir__set_channels_last(y);
    if (!y->poisoned)
        choir__launch_copy(y, x);
    return y;
}

static void batch_norm_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    choir_tensor *ggamma = sink->dest(sink, r, 1), *gbeta = sink->dest(sink, r, 2);
    choir_tensor *gx = choir__tensor_like(sink->scope, x);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_batch_norm_backward args = {.x = choir__data(x),
        .gamma = data_or_null(r->in[1]),
        .mean = choir__data(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .gy = choir__data(gy),
        .gx = choir__data(gx),
        .ggamma = data_or_null(ggamma),
        .gbeta = data_or_null(gbeta),
        .cols = x->shape.dim[1],
        .rows = x->count / x->shape.dim[1],
        .train = *(const bool *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, batch_norm_backward, &args);
    if (gbeta)
        sink->give(sink, r, 2, gbeta);
    if (ggamma)
        sink->give(sink, r, 1, ggamma);
    if (choir__wanted(r, 0))
        sink->give(sink, r, 0, gx);
}

static const choir__op batch_norm_op = {
    .name = "batch_norm", .backward = batch_norm_backward, .reads_in = 3};

choir_tensor *choir_batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, bool training, float momentum,
    float eps)
{
    choir_tensor *poisoned, *in[3] = {x, gamma, beta};
    choir_scope *scope = choir__begin("batch_norm", in, 3, &poisoned);
    if (!scope)
        return poisoned;
    int64_t c = x->shape.ndim >= 2 ? x->shape.dim[1] : 0;
    if (c < 1 || (x->dtype != CHOIR_F32 && x->dtype != CHOIR_F64) ||
        !fits_channels(gamma, c, x->dtype) || !fits_channels(beta, c, x->dtype) ||
        !fits_channels(running_mean, c, x->dtype) || !fits_channels(running_var, c, x->dtype) ||
        !running_mean || !running_var)
        return choir__shape_error("batch_norm", scope, in, 3,
            "wants x (N, C, ...) and gamma, beta, running mean and variance of (C)");
    choir_device *device = choir__device_of(x);
    choir_tensor *rows = choir__channels_last(scope, x), *y = choir__tensor_like(scope, rows);
    choir_tensor *mean = choir__tensor_new(scope, device, x->dtype, choir_dims(c));
    choir_tensor *rstd = choir__tensor_new(scope, device, x->dtype, choir_dims(c));
    if (rows->poisoned || y->poisoned || mean->poisoned || rstd->poisoned)
        return rows->poisoned ? rows : y->poisoned ? y : mean->poisoned ? mean : rstd;
    choir__k_batch_norm args = {.x = choir__data(rows),
        .gamma = data_or_null(gamma),
        .beta = data_or_null(beta),
        .y = choir__data(y),
        .mean = choir__data(mean),
        .rstd = choir__data(rstd),
        .running_mean = choir__data(running_mean),
        .running_var = choir__data(running_var),
        .rows = x->count / c,
        .cols = c,
        .eps = eps,
        .momentum = momentum,
        .train = training,
        .update = training && scope->micro == 0,
        .dtype = x->dtype};
    choir__launch(device, x->dtype, batch_norm, &args);
    choir__record *r = choir__record_op(&batch_norm_op, y, in, 3);
    if (r) {
        choir__record_attrs(r, &training, sizeof training);
        r->saved[0] = rows;
        r->saved[1] = mean;
        r->saved[2] = rstd;
    }
    return y;
}
