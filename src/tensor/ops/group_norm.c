/* Group norm: the channels of an image in groups, each normalised over its pixels. */
#include "tensor/autocast.h"
#include "tensor/segment.h"

/* saved: x channels-last, mean, rstd (N, groups) */
static choir__k_group_norm arguments(const choir__tape_entry *r)
{
    const choir_tensor *x = r->saved[0], *mean = r->saved[1];
    int64_t n = x->shape.dim[0], c = x->shape.dim[1];
    return (choir__k_group_norm){.x = choir__data(x),
        .gamma = choir__data_or_null(r->in[1]),
        .beta = choir__data_or_null(r->in[2]),
        .mean = choir__data(mean),
        .rstd = choir__data(r->saved[2]),
        .n = n,
        .pixels = x->count / (n * c),
        .cols = c,
        .groups = mean->shape.dim[1],
        .eps = *(const float *)r->attrs,
        .dtype = x->dtype};
}

static void group_norm_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    choir_tensor *ggamma = sink->dest(sink, r, 1), *gbeta = sink->dest(sink, r, 2);
    choir_tensor *gx = choir__tensor_like(sink->scope, x);
    gy = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    choir__k_group_norm args = arguments(r);
    args.gy = choir__data(gy);
    args.gx = choir__data(gx);
    args.ggamma = choir__data_or_null(ggamma);
    args.gbeta = choir__data_or_null(gbeta);
    choir__launch(choir__device_of(x), x->dtype, group_norm_backward, &args);
    gx->grad_owned = true;
    if (gbeta)
        sink->give(sink, r, 2, gbeta);
    if (ggamma)
        sink->give(sink, r, 1, ggamma);
    if (choir__wanted(r, 0))
        sink->give(sink, r, 0, gx);
}

static void group_norm_again(choir__tape_entry *r)
{
    choir__copy_again(r, 0);
    choir__k_group_norm args = arguments(r);
    args.y = choir__data(r->out);
    choir__launch(choir__device_of(r->out), args.dtype, group_norm, &args);
}

static const choir__op group_norm_op = {.name = "group_norm",
    .optional = 6,
    .cast = CHOIR__CAST_F32,
    .backward = group_norm_backward,
    .recompute = group_norm_again,
    .recompute_saved = 7,
    .reads_in = 7};

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
    if (x->count < 1 || c < 1 || !choir__is_float(x->dtype) ||
        !choir__is_per_channel(gamma, c, x->dtype) || !choir__is_per_channel(beta, c, x->dtype))
        return choir__shape_error(group_norm_op.name, scope, in, 3,
            "expected a floating x (N, C, ...) and gamma, beta of (C)");
    choir_device *device = choir__device_of(x);
    choir_tensor *rows = choir__channels_last(scope, x), *y = choir__tensor_like(scope, rows);
    choir_tensor *mean = choir__tensor_new(scope, device, x->dtype, choir_dims(n, groups));
    choir_tensor *rstd = choir__tensor_new(scope, device, x->dtype, choir_dims(n, groups));
    return choir__computed(
        &group_norm_op, y, in, 3, (choir__keeps){&eps, sizeof eps, {rows, mean, rstd}});
}
