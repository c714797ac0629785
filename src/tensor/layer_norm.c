/* Layer norm and root mean square norm: one op, with or without a mean.
 *
 * Norms often follow residuals: a block computes s = x + r, continues with norm(s), and later
 * adds to s again. One kernel writes both s and its norm, and leaves two records: an addition,
 * and a norm of its result. Backward reaches the norm when all later uses of s have given their
 * gradients, so the norm's kernel adds its own gradient to these in the same pass, whether or
 * not s was made here. */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

static bool fits(const choir_tensor *t, int64_t cols, choir_dtype dtype)
{
    return !t || (t->shape.ndim == 1 && t->shape.dim[0] == cols && t->dtype == dtype);
}

static void *data_or_null(const choir_tensor *t)
{
    return t ? choir__data(t) : NULL;
}

/* saved: x, its mean (NULL: RMS norm), rstd */
static void backward_input(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0], *given, *gx = sink->dest_onto(sink, r, 0, &given);
    if (!gx)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    choir__k_layer_norm_backward args = {.x = choir__data(x),
        .gamma = data_or_null(r->in[1]),
        .mean = data_or_null(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .gy = choir__data(gy),
        .gx_add = data_or_null(given),
        .gx = choir__data(gx),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, layer_norm_backward, &args);
    sink->give(sink, r, 0, gx);
}

static void backward_weight(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    choir_tensor *ggamma = sink->dest(sink, r, 1), *gbeta = sink->dest(sink, r, 2);
    if (!ggamma && !gbeta)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    choir__k_layer_norm_weights args = {.x = choir__data(x),
        .mean = data_or_null(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .gy = choir__data(gy),
        .ggamma = data_or_null(ggamma),
        .gbeta = data_or_null(gbeta),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, layer_norm_weights, &args);
    if (gbeta)
        sink->give(sink, r, 2, gbeta);
    if (ggamma)
        sink->give(sink, r, 1, ggamma);
}

/* Computes the norm again; mean and rstd get their old values. */
static void norm_again(choir__record *r)
{
    choir_tensor *x = r->saved[0];
    choir__k_layer_norm args = {.x = choir__data(x),
        .gamma = data_or_null(r->in[1]),
        .beta = data_or_null(r->in[2]),
        .y = choir__data(r->out),
        .mean = data_or_null(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .eps = *(const float *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, layer_norm, &args);
}

#define NORM(title)                                                                            \
    {                                                                                          \
        .name = title, .cast = CHOIR__CAST_F32, .optional = 14, /* gamma, beta, add */         \
            .backward_input = backward_input, .backward_weight = backward_weight,              \
        .again = norm_again, .cheap = true, .again_saved = 6 /* mean and rstd */,              \
        .reads_in = 7, .weights_in = 6                                                         \
    }
static const choir__op layer_norm_op = NORM("layer_norm"), rms_norm_op = NORM("rms_norm");

/* Computes y = norm(in[0] + add) and stores the sum in *sum; add NULL: y = norm(in[0]). */
static choir_tensor *launch(choir_scope *scope, choir_tensor *const *in, choir_tensor *add,
    float eps, bool rms, choir_tensor **sum)
{
    choir_tensor *x = in[0], *s = x, *mean = NULL;
    choir_device *device = choir__device_of(x);
    choir_shape rows = choir_dims(choir__rows(x));
    choir_tensor *y = choir__tensor_new(scope, device, x->dtype, x->shape);
    choir_tensor *rstd = choir__tensor_new(scope, device, x->dtype, rows);
    if (!rms)
        mean = choir__tensor_new(scope, device, x->dtype, rows);
    if (add)
        *sum = s = choir__tensor_new(scope, device, x->dtype, x->shape);
    if (y->poisoned || rstd->poisoned || s->poisoned || (mean && mean->poisoned))
        return y->poisoned ? y : rstd->poisoned ? rstd : s->poisoned ? s : mean;
    choir__k_layer_norm args = {.x = choir__data(x),
        .add = data_or_null(add),
        .sum = add ? choir__data(s) : NULL,
        .gamma = data_or_null(in[1]),
        .beta = data_or_null(in[2]),
        .y = choir__data(y),
        .mean = data_or_null(mean),
        .rstd = choir__data(rstd),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .eps = eps,
        .dtype = x->dtype};
    choir__launch(device, x->dtype, layer_norm, &args);
    if (add)
        choir__record_op(&choir__add_op, s, (choir_tensor *[]){x, add}, 2);
    choir__record *r = choir__record_op(
        rms ? &rms_norm_op : &layer_norm_op, y, (choir_tensor *[]){s, in[1], in[2]}, 3);
    if (r) {
        choir__record_attrs(r, &eps, sizeof eps);
        r->saved[0] = s;
        r->saved[1] = mean;
        r->saved[2] = rstd;
    }
    return y;
}

static choir_tensor *norm(choir_tensor *x, choir_tensor *add, choir_tensor *gamma,
    choir_tensor *beta, float eps, bool rms, choir_tensor **sum)
{
    const choir__op *op = rms ? &rms_norm_op : &layer_norm_op;
    choir_tensor *poisoned,
        *in[4] = {choir_contiguous(x), gamma, beta, add ? choir_contiguous(add) : NULL};
    choir_scope *scope = choir__begin(op, in, 4, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0];
    if (x->shape.ndim < 1 || !choir__is_float(x->dtype) ||
        !fits(in[1], choir__cols(x), x->dtype) || !fits(in[2], choir__cols(x), x->dtype))
        return choir__shape_error(op->name, scope, in, 4,
            rms ? "expected x (..., C), gamma (C)"
                : "expected x (..., C), gamma (C), beta (C)");
    return choir__as_stored(launch(scope, in, in[3], eps, rms, sum));
}

/* True if autocast makes the sum f32: one of the two is, and the other one is cast to it, by
 * choir_add as well as by the norm. */
static bool becomes_f32(choir_tensor *x, choir_tensor *r)
{
    bool mixed = (x->dtype == CHOIR_F32 && choir__is_half(r->dtype)) ||
                 (r->dtype == CHOIR_F32 && choir__is_half(x->dtype));
    choir_scope *scope = mixed ? choir__join((choir_tensor *[]){x, r}, 2) : NULL;
    return scope && scope->autocast.on && !scope->autocast.all;
}

/* Computes norm(x + r) with the kernel that does both, or with two kernels if that is
 * impossible. */
static choir_tensor *norm_of_sum(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, float eps, bool rms, choir_tensor **sum)
{
    if (!sum)
        return choir__poison_missing(x->scope, "add_norm", "sum");
    bool wide = x->dtype == r->dtype && (x->dtype == CHOIR_F32 || x->dtype == CHOIR_F64);
    bool one = choir__same_shape(x->shape, r->shape) && (wide || becomes_f32(x, r));
    if (!one) { /* broadcasting, or a sum that is rounded before the norm */
        *sum = choir_add(x, r);
        return norm(*sum, NULL, gamma, beta, eps, rms, NULL);
    }
    *sum = NULL;
    choir_tensor *y = norm(x, r, gamma, beta, eps, rms, sum);
    if (!*sum) /* an error before the sum was made */
        *sum = y;
    return y;
}

choir_tensor *choir_layer_norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, float eps)
{
    return norm(x, NULL, gamma, beta, eps, false, NULL);
}

choir_tensor *choir_rms_norm(choir_tensor *x, choir_tensor *gamma, float eps)
{
    return norm(x, NULL, gamma, NULL, eps, true, NULL);
}

choir_tensor *choir_add_layer_norm(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, float eps, choir_tensor **sum)
{
    x = choir__sound(x, __func__);
    r = choir__sound(r, __func__);
    return norm_of_sum(x, r, gamma, beta, eps, false, sum);
}

choir_tensor *choir_add_rms_norm(
    choir_tensor *x, choir_tensor *r, choir_tensor *gamma, float eps, choir_tensor **sum)
{
    x = choir__sound(x, __func__);
    r = choir__sound(r, __func__);
    return norm_of_sum(x, r, gamma, NULL, eps, true, sum);
}
