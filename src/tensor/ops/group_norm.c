/* Group norm: the channels of an image in groups, each normalised over its pixels. */
#include "tensor/autocast.h"
#include "tensor/segment.h"

static void *data_or_null(const choir_tensor *t)
{
    return t ? choir__data(t) : NULL;
}

static bool fits(const choir_tensor *t, int64_t channels, choir_dtype dtype)
{
    return !t || (t->shape.ndim == 1 && t->shape.dim[0] == channels && t->dtype == dtype);
}

static void group_norm_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0], *mean = r->saved[1];
    choir_tensor *ggamma = sink->dest(sink, r, 1), *gbeta = sink->dest(sink, r, 2);
    choir_tensor *gx = choir__tensor_like(sink->scope, x);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    int64_t n = x->shape.dim[0], c = x->shape.dim[1];
    choir__k_group_norm_backward args = {.x = choir__data(x),
        .gamma = data_or_null(r->in[1]),
        .mean = choir__data(mean),
        .rstd = choir__data(r->saved[2]),
        .gy = choir__data(gy),
        .gx = choir__data(gx),
        .ggamma = data_or_null(ggamma),
        .gbeta = data_or_null(gbeta),
        .n = n,
        .pixels = x->count / (n * c),
        .cols = c,
        .groups = mean->shape.dim[1],
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, group_norm_backward, &args);
    gx->grad_owned = true;
    if (gbeta)
        sink->give(sink, r, 2, gbeta);
    if (ggamma)
        sink->give(sink, r, 1, ggamma);
    if (choir__wanted(r, 0))
        sink->give(sink, r, 0, gx);
}

/* x channels-last; mean and rstd (N, groups) */
static void launch(choir_tensor *y, choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *mean, choir_tensor *rstd, float eps)
{
    int64_t n = x->shape.dim[0], c = x->shape.dim[1];
    choir__k_group_norm args = {.x = choir__data(x),
        .gamma = data_or_null(gamma),
        .beta = data_or_null(beta),
        .y = choir__data(y),
        .mean = choir__data(mean),
        .rstd = choir__data(rstd),
        .n = n,
        .pixels = x->count / (n * c),
        .cols = c,
        .groups = mean->shape.dim[1],
        .eps = eps,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, group_norm, &args);
}

static void group_norm_again(choir__record *r)
{
    choir__copy_again(r->saved[0], r->in[0]);
    launch(r->out, r->saved[0], r->in[1], r->in[2], r->saved[1], r->saved[2],
        *(const float *)r->attrs);
}

static const choir__op group_norm_op = {.name = "group_norm",
    .optional = 6,
    .cast = CHOIR__CAST_F32,
    .backward = group_norm_backward,
    .again = group_norm_again,
    .again_saved = 7,
    .reads_in = 3};

choir_tensor *choir_group_norm(
    choir_tensor *x, int64_t groups, choir_tensor *gamma, choir_tensor *beta, float eps)
{
    choir_tensor *poisoned, *in[3] = {x, gamma, beta};
    choir_scope *scope = choir__begin(&group_norm_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], gamma = in[1], beta = in[2];
    int64_t c = x->shape.ndim >= 2 ? x->shape.dim[1] : 0, n = c ? x->shape.dim[0] : 0;
    if (groups < 1 || (c && c % groups))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "group_norm: %lld groups do not divide the %lld channels of %s", (long long)groups,
            (long long)c, choir__shape_text(x->shape));
    if (x->count < 1 || c < 1 || !choir__is_float(x->dtype) || !fits(gamma, c, x->dtype) ||
        !fits(beta, c, x->dtype))
        return choir__shape_error(
            group_norm_op.name, scope, in, 3, "expected x (N, C, ...) and gamma, beta of (C)");
    choir_device *device = choir__device_of(x);
    choir_tensor *rows = choir__channels_last(scope, x), *y = choir__tensor_like(scope, rows);
    choir_tensor *mean = choir__tensor_new(scope, device, x->dtype, choir_dims(n, groups));
    choir_tensor *rstd = choir__tensor_new(scope, device, x->dtype, choir_dims(n, groups));
    if (rows->poisoned || y->poisoned || mean->poisoned || rstd->poisoned)
        return rows->poisoned ? rows : y->poisoned ? y : mean->poisoned ? mean : rstd;
    launch(y, rows, gamma, beta, mean, rstd, eps);
    choir__record *r = choir__record_op(&group_norm_op, y, in, 3);
    if (r) {
        choir__record_attrs(r, &eps, sizeof eps);
        r->saved[0] = rows;
        r->saved[1] = mean;
        r->saved[2] = rstd;
    }
    return choir__as_stored(y);
}
