/* Layer norm and root mean square norm: one op, with or without a mean.
 *
 * Norms often follow residuals: a block computes s = x + r, continues with norm(s), and later
 * adds to s again. One kernel writes both s and its norm, and leaves two entries: an addition,
 * and a norm of its result. Backward reaches the norm when all later uses of s have given their
 * gradients, so the norm's kernel adds its own gradient to these in the same pass, whether or
 * not s was made here.
 *
 * Under autocast, on a device whose kernels all take 16 bits, the kernels also read and write
 * the 16-bit copies that would otherwise be passes of their own: r, the norm if a product alone
 * reads it, its gradient, and r's gradient (add.c). All values are rounded as by copies. */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/sliced.h"
#include "tensor/sequence.h"
#include "tensor/tokens.h"

/* Returns memory for the 16-bit copy of x's gradient, if x is a sum whose 16-bit operand has
 * that gradient, and no hook can change it in between; else NULL. */
static choir_tensor *twin_for(choir_tensor *x, const choir_tensor *gy, choir__sink *sink)
{
    const choir__tape_entry *sum = x->producer;
    if (sum && choir__is_half(gy->dtype) && gy->dtype != sum->in[sum->count - 1]->dtype)
        return NULL; /* the kernel knows one 16-bit type */
    if (!sum || sum->op != &choir__add_half_op || !choir__wanted(sum, 1) || x->hooks ||
        x->watched || !choir__device_of(x)->half)
        return NULL;
    choir_tensor *twin =
        choir__tensor_new(sink->scope, choir__device_of(x), sum->in[1]->dtype, x->shape);
    twin->grad_owned = true;
    return twin;
}

/* saved: x, its mean (NULL: RMS norm), rstd */
static choir__k_layer_norm_backward arguments(
    const choir__tape_entry *r, const choir_tensor *gy)
{
    const choir_tensor *x = r->saved[0];
    return (choir__k_layer_norm_backward){.x = choir__data(x),
        .gamma = choir__data_or_null(r->in[1]),
        .mean = choir__data_or_null(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .gy = choir__data(gy),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .dtype = x->dtype,
        .half = gy->dtype,
        .half_gy = gy->dtype != x->dtype};
}

static void backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0], *given, *gx = sink->dest_onto(sink, r, 0, &given);
    if (!gx)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    choir_tensor *twin = twin_for(x, gy, sink);
    if (gy->poisoned || (twin && twin->poisoned))
        return;
    choir__k_layer_norm_backward args = arguments(r, gy);
    args.gx_add = choir__data_or_null(given);
    args.gx = choir__data(gx);
    args.gx_half = choir__data_or_null(twin);
    if (twin && !args.half_gy)
        args.half = twin->dtype;
    choir__launch(choir__device_of(x), x->dtype, layer_norm_backward, &args);
    gx->twin = twin;
    sink->give(sink, r, 0, gx);
}

static void backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    choir_tensor *ggamma = sink->dest(sink, r, 1), *gbeta = sink->dest(sink, r, 2);
    if (!ggamma && !gbeta)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    if (!choir__token_sums(r->scope, arguments(r, gy), x, gy, r->saved + 1, ggamma, gbeta))
        return;
    if (gbeta)
        sink->give(sink, r, 2, gbeta);
    if (ggamma)
        sink->give(sink, r, 1, ggamma);
}

/* Computes the norm again; mean and rstd get their old values. */
static void norm_again(choir__tape_entry *r)
{
    choir_tensor *x = r->saved[0];
    choir__k_layer_norm args = {.x = choir__data(x),
        .gamma = choir__data_or_null(r->in[1]),
        .beta = choir__data_or_null(r->in[2]),
        .y = choir__data(r->out),
        .mean = choir__data_or_null(r->saved[1]),
        .rstd = choir__data(r->saved[2]),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .eps = *(const float *)r->attrs,
        .dtype = x->dtype,
        .half = r->out->dtype,
        .half_y = r->out->dtype != x->dtype};
    choir__launch(choir__device_of(x), x->dtype, layer_norm, &args);
}

/* On devices that compute in 16 bits, a 16-bit norm is kept, as autocast's copies are. */
#define NORM(title, again_is_cheap)                                                            \
    {                                                                                          \
        .name = title, .by_token = true, .tokens_in = 9, .cast = CHOIR__CAST_F32,              \
        .optional = 14, /* gamma, beta, add */                                                 \
            .half_beside = 8, .backward_input = backward_input,                                \
        .backward_weight = backward_weight, .recompute = norm_again, .cheap = again_is_cheap,  \
        .recompute_saved = 6 /* mean and rstd */, .reads_in = 7, .weights_in = 6               \
    }
static const choir__op layer_norm_op = NORM("layer_norm", true),
                       rms_norm_op = NORM("rms_norm", true),
                       layer_norm_half_op = NORM("layer_norm", false),
                       rms_norm_half_op = NORM("rms_norm", false);

static const choir__op *op_of(bool rms, bool half)
{
    return rms ? (half ? &rms_norm_half_op : &rms_norm_op)
               : (half ? &layer_norm_half_op : &layer_norm_op);
}

/* Returns the dtype to which products cast a norm of x. */
static choir_dtype lowered(const choir_scope *scope, const choir_tensor *x)
{
    const choir__autocast *a = &scope->autocast;
    bool can = a->on && !a->all && x->dtype == CHOIR_F32 && choir__device_of(x)->half;
    return can ? a->dtype : x->dtype;
}

typedef struct results {
    choir_tensor *y, *rstd;
    choir_tensor *mean, *sum; /* NULL: RMS norm; no sum */
} results;

/* Makes the results of norm(x), or with `sum` of norm(x + add), and y's twin. Returns NULL, or
 * a poisoned tensor. */
static choir_tensor *make_results(
    results *to, choir_scope *scope, choir_tensor *x, bool sum, choir__norm_opts opts)
{
    choir_device *device = choir__device_of(x);
    choir_shape rows = choir_dims(choir__rows(x));
    choir_dtype low = lowered(scope, x);
    bool half_y = opts.readers == CHOIR__FOR_A_PRODUCT;
    bool twin = opts.readers == CHOIR__FOR_PRODUCTS && low != x->dtype;
    *to = (results){.y = choir__tensor_new(scope, device, half_y ? low : x->dtype, x->shape),
        .rstd = choir__tensor_new(scope, device, x->dtype, rows),
        .mean = opts.rms ? NULL : choir__tensor_new(scope, device, x->dtype, rows),
        .sum = sum ? choir__tensor_new(scope, device, x->dtype, x->shape) : NULL};
    if (twin && !to->y->poisoned)
        to->y->twin = choir__tensor_new(scope, device, low, x->shape);
    choir_tensor *all[] = {to->y, to->rstd, to->mean, to->sum, to->y->twin};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        if (all[i] && all[i]->poisoned)
            return all[i];
    return NULL;
}

/* Computes y = norm(in[0] + in[3]) and stores the sum in *sum; without in[3]: y = norm(in[0]).
 */
static choir_tensor *launch(
    choir_scope *scope, choir_tensor *const *in, choir__norm_opts opts, choir_tensor **sum)
{
    choir_tensor *x = in[0], *add = in[3], *poisoned;
    results to;
    if ((poisoned = make_results(&to, scope, x, add, opts)))
        return poisoned;
    bool half_y = to.y->dtype != x->dtype, half_add = add && add->dtype != x->dtype;
    choir__k_layer_norm args = {.x = choir__data(x),
        .add = choir__data_or_null(add),
        .sum = choir__data_or_null(to.sum),
        .gamma = choir__data_or_null(in[1]),
        .beta = choir__data_or_null(in[2]),
        .y = choir__data(to.y),
        .y_half = choir__data_or_null(to.y->twin),
        .mean = choir__data_or_null(to.mean),
        .rstd = choir__data(to.rstd),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .eps = opts.eps,
        .dtype = x->dtype,
        .half = half_add ? add->dtype : lowered(scope, x),
        .half_add = half_add,
        .half_y = half_y};
    choir__launch(choir__device_of(x), x->dtype, layer_norm, &args);
    choir_tensor *s = add ? to.sum : x;
    if (add) {
        choir__tape_entry_new(
            half_add ? &choir__add_half_op : &choir__add_op, s, (choir_tensor *[]){x, add}, 2);
        *sum = s;
    }
    return choir__taped(op_of(opts.rms, half_y), to.y, (choir_tensor *[]){s, in[1], in[2]}, 3,
        (choir__keeps){&opts.eps, sizeof opts.eps, {s, to.mean, to.rstd}});
}

static choir_tensor *norm(choir_tensor *x, choir_tensor *add, choir_tensor *gamma,
    choir_tensor *beta, choir__norm_opts opts, choir_tensor **sum)
{
    const choir__op *op = op_of(opts.rms, false);
    choir_tensor *poisoned,
        *in[4] = {choir_contiguous(x), gamma, beta, add ? choir_contiguous(add) : NULL};
    choir_scope *scope = choir__begin(op, in, 4, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0];
    if (x->shape.ndim < 1 || !choir__is_float(x->dtype) ||
        !choir__is_per_channel(in[1], choir__cols(x), x->dtype) ||
        !choir__is_per_channel(in[2], choir__cols(x), x->dtype))
        return choir__shape_error(op->name, scope, in, 4,
            opts.rms ? "expected a floating x (..., C), gamma (C)"
                     : "expected a floating x (..., C), gamma (C), beta (C)");
    if (!choir__tokens_of(x) && !choir__sequence_fits(scope, x))
        return choir__shape_error(op->name, scope, in, 4, CHOIR__SEQUENCE_ROWS);
    return launch(scope, in, opts, sum);
}

/* Returns whether autocast makes the sum f32: one operand is f32, and both choir_add and the
 * norm cast the other operand to f32. */
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
    choir_tensor *beta, choir__norm_opts opts, choir_tensor **sum)
{
    if (!sum)
        return choir__poison_missing(x->scope, "add_norm", "sum");
    bool wide = x->dtype == r->dtype && (x->dtype == CHOIR_F32 || x->dtype == CHOIR_F64);
    bool one = choir__same_shape(x->shape, r->shape) && (wide || becomes_f32(x, r));
    if (!one) { /* broadcasting, or a sum that is rounded before the norm */
        *sum = choir_add(x, r);
        return norm(*sum, NULL, gamma, beta, opts, NULL);
    }
    bool turn = choir__is_half(x->dtype); /* the 16-bit one is beside the other */
    *sum = NULL;
    choir_tensor *y = norm(turn ? r : x, turn ? x : r, gamma, beta, opts, sum);
    if (!*sum) /* an error before the sum was made */
        *sum = y;
    return y;
}

choir_tensor *choir__norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, choir__norm_opts opts)
{
    return norm(x, NULL, gamma, beta, opts, NULL);
}

choir_tensor *choir__add_norm(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, choir__norm_opts opts, choir_tensor **sum)
{
    x = choir__sound(x, "add_norm");
    r = choir__sound(r, "add_norm");
    return norm_of_sum(x, r, gamma, beta, opts, sum);
}

choir_tensor *choir_layer_norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, float eps)
{
    return choir__norm(x, gamma, beta, (choir__norm_opts){.eps = eps});
}

choir_tensor *choir_rms_norm(choir_tensor *x, choir_tensor *gamma, float eps)
{
    return choir__norm(x, gamma, NULL, (choir__norm_opts){.eps = eps, .rms = true});
}

choir_tensor *choir_add_layer_norm(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, float eps, choir_tensor **sum)
{
    x = choir__sound(x, __func__);
    r = choir__sound(r, __func__);
    return norm_of_sum(x, r, gamma, beta, (choir__norm_opts){.eps = eps}, sum);
}

choir_tensor *choir_add_rms_norm(
    choir_tensor *x, choir_tensor *r, choir_tensor *gamma, float eps, choir_tensor **sum)
{
    x = choir__sound(x, __func__);
    r = choir__sound(r, __func__);
    return norm_of_sum(x, r, gamma, NULL, (choir__norm_opts){.eps = eps, .rms = true}, sum);
}
