/* Losses: a single number, and the gradient of the scores. */
#include "base/floats.h"
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/nodes.h"
#include "tensor/sequence.h"

choir_cross_entropy_opts choir_cross_entropy_defaults(void)
{
    return (choir_cross_entropy_opts){.ignore_index = -100,
        .label_smoothing = 0,
        .weight = NULL,
        .reduction = CHOIR_LOSS_MEAN};
}

/* Returns the targets as row-major i64, one per row of x, or NULL with the error recorded. */
static choir_tensor *targets_for(const char *op, choir_scope *scope, choir_tensor **in)
{
    choir_shape rows = in[0]->shape;
    rows.ndim--;
    if (in[0]->shape.ndim < 1 || !choir__is_float(in[0]->dtype) || in[1]->dtype != CHOIR_I64 ||
        in[1]->count != choir__rows(in[0]) || choir__cols(in[0]) < 1 ||
        (in[1]->shape.ndim != 1 && !choir__same_shape(in[1]->shape, rows))) {
        choir__shape_error(
            op, scope, in, 2, "expected floating scores (..., C) and i64 targets (...)");
        return NULL;
    }
    return choir__dense_rows(scope, in[1]);
}

/* --- cross entropy --- */

choir__row_losses choir__row_losses_of(choir_reduction reduction)
{
    return reduction == CHOIR_LOSS_MEAN  ? CHOIR__ROWS_MEAN
           : reduction == CHOIR_LOSS_SUM ? CHOIR__ROWS_SUM
                                         : CHOIR__ROWS_EACH;
}

/* saved: targets, log sum exp, count */
static choir__k_cross_entropy arguments(const choir__tape_entry *r)
{
    const choir_cross_entropy_opts *o = r->attrs;
    const choir_tensor *x = r->in[0];
    return (choir__k_cross_entropy){.logits = choir__data(x),
        .weight = choir__data_or_null(r->in[2]),
        .targets = choir__data(r->saved[0]),
        .lse = choir__data(r->saved[1]),
        .count = choir__data(r->saved[2]),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .row = choir__row_of(x),
        .ignore_index = o->ignore_index,
        .smoothing = o->label_smoothing,
        .losses = choir__row_losses_of(o->reduction),
        .dtype = x->dtype};
}

void choir__cross_entropy_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = sink->dest_over(sink, r, 0);
    if (!g)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    choir__k_cross_entropy args = arguments(r);
    args.gloss = choir__data(gy);
    args.glogits = choir__data(g);
    choir__launch(choir__device_of(g), g->dtype, cross_entropy_backward, &args);
    sink->give(sink, r, 0, g);
}

static void cross_entropy_again(choir__tape_entry *r)
{
    choir__k_cross_entropy args = arguments(r);
    args.loss = choir__data(r->out);
    args.cut = choir__sequence_cut(r->scope, r->in[0]);
    choir__launch(choir__device_of(r->in[0]), args.dtype, cross_entropy, &args);
}

static const choir__op cross_entropy_op = {.name = "cross_entropy",
    .by_token = true,
    .cast = CHOIR__CAST_F32,
    .loss = true,
    .half_native = 1, /* the scores */
    .backward = choir__cross_entropy_backward,
    .recompute = cross_entropy_again,
    .recompute_saved = 6, /* lse and count */
    .optional = 4,
    .reads_in = 7};

/* Returns NULL, or a poisoned tensor if the options do not fit in: scores, target, weight. */
static choir_tensor *bad_opts(
    choir_scope *scope, choir_tensor *const *in, const choir_cross_entropy_opts *o)
{
    const char *op = cross_entropy_op.name;
    const choir_tensor *x = in[0], *weight = in[2];
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected a label smoothing in [0, 1], got %g", op, (double)o->label_smoothing);
    if (o->reduction != CHOIR_LOSS_MEAN && o->reduction != CHOIR_LOSS_SUM &&
        o->reduction != CHOIR_LOSS_NONE)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: unknown reduction %d: choose one of CHOIR_LOSS_MEAN, SUM, NONE; begin with "
            "choir_cross_entropy_defaults()",
            op, (int)o->reduction);
    if (weight && (x->shape.ndim < 1 || choir__beside(x->dtype) != weight->dtype ||
                      weight->shape.ndim != 1 || weight->count != choir__cols(x)))
        return choir__shape_error(
            op, scope, in, 3, "expected class weights (C) of the type of the scores (..., C)");
    if (weight && weight->requires_grad && scope->grad)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected class weights that require no gradient", op);
    return NULL;
}

/* Joins the scopes of in: scores, target, weight. NULL: *poisoned is the result. */
static choir_scope *join(choir_tensor *const *in, choir_tensor **poisoned)
{
    for (int i = 0; i < 3; i++)
        if (in[i] && in[i]->poisoned) {
            *poisoned = in[i];
            return NULL;
        }
    choir_scope *scope = choir__join(in, 3);
    if (!scope)
        *poisoned = choir__failed_in(in[0]->scope);
    return scope;
}

static choir_tensor *as_f32(choir_tensor *x)
{
    return x && !x->poisoned && choir__is_half(x->dtype) ? choir_cast(x, CHOIR_F32) : x;
}

/* Cross entropy with distributions as targets: -sum_c w[c] y[c] log softmax(x)[c] of each row,
 * with y smoothed, and its mean over all rows. It is composed of other ops and keeps the
 * log-probabilities, which class ids do not need. */
static choir_tensor *soft_cross_entropy(
    choir_tensor *logits, choir_tensor *y, choir_cross_entropy_opts o)
{
    choir_tensor *poisoned, *weight = as_f32(o.weight);
    if (weight)
        logits = as_f32(logits); /* the dtype of the weights */
    choir_tensor *in[3] = {logits, y, weight};
    choir_scope *scope = join(in, &poisoned);
    if (!scope || (poisoned = bad_opts(scope, in, &o)))
        return poisoned;
    if (!choir__same_shape(logits->shape, y->shape) || logits->shape.ndim < 1)
        return choir__shape_error(cross_entropy_op.name, scope, in, 2,
            "expected scores (..., C) and i64 class ids (...), or probabilities (..., C)");
    double s = (double)o.label_smoothing;
    int64_t rows = choir__max(choir__rows(logits), 1),
            cols = choir__max(choir__cols(logits), 1);
    if (s != 0)
        y = choir_affine(y, 1 - s, s / (double)cols);
    if (weight)
        y = choir_mul(as_f32(y), weight);
    choir_tensor *terms = choir_mul(choir_log_softmax(logits), y);
    if (o.reduction == CHOIR_LOSS_NONE)
        return choir_neg(choir_sum_dim(terms, -1));
    choir_tensor *sum = choir_sum(terms);
    return choir_scale(sum, o.reduction == CHOIR_LOSS_SUM ? -1 : -1 / (double)rows);
}

/* Returns the loss's shape for class ids; x is a tensor of scores that targets_for() may still
 * refuse. */
static choir_shape loss_shape(const choir_tensor *x, choir_reduction reduction)
{
    choir_shape rows = x->shape;
    rows.ndim -= rows.ndim > 0;
    return reduction == CHOIR_LOSS_NONE ? rows : CHOIR_SCALAR;
}

/* Cross entropy of class ids here; target is i64. */
static choir_tensor *cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    if (!choir__has_product_rows(logits))
        logits = choir_contiguous(logits);
    choir_tensor *poisoned,
        *in[3] = {logits, target, o.weight ? choir_contiguous(o.weight) : NULL};
    choir_scope *scope = choir__begin(&cross_entropy_op, in, 3, &poisoned);
    if (!scope || (poisoned = bad_opts(scope, in, &o)))
        return poisoned;
    o.weight = in[2];
    choir_tensor *x = in[0], *targets = targets_for(cross_entropy_op.name, scope, in);
    choir_device *device = choir__device_of(x);
    choir_dtype beside = choir__beside(x->dtype);
    choir_tensor *loss = choir__tensor_new(scope, device, beside, loss_shape(x, o.reduction));
    choir_tensor *lse = choir__tensor_new(scope, device, beside, choir_dims(choir__rows(x)));
    choir_tensor *count = choir__tensor_new(scope, device, beside, CHOIR_SCALAR);
    return targets ? choir__computed(&cross_entropy_op, loss, in, 3,
                         (choir__keeps){&o, sizeof o, {targets, lse, count}})
                   : choir__failed_in(scope);
}

/* Returns the divisor of a mean over the tokens of a micro-batch, on whichever ranks they are.
 */
static choir_tensor *counted_targets(
    choir_scope *scope, choir_tensor *target, const choir_cross_entropy_opts *o)
{
    choir_device *device = choir__device_of(target);
    choir_tensor *weight = o->weight ? choir__dense_rows(scope, o->weight) : NULL;
    choir_tensor *targets = choir__dense_rows(scope, target);
    choir_tensor *count = choir__tensor_new(scope, device, CHOIR_F64, choir_dims(1));
    if (targets->poisoned || count->poisoned || (weight && weight->poisoned))
        return choir__failed_in(scope);
    choir__k_count_targets args = {.targets = choir__data(targets),
        .weight = choir__data_or_null(weight),
        .y = choir__data(count),
        .n = targets->count,
        .cols = weight ? weight->count : 0,
        .ignore_index = o->ignore_index,
        .dtype = CHOIR_F32};
    choir__launch(device, CHOIR_F32, count_targets, &args);
    count = choir__sequence_sum(count); /* on another device, if the loss is in a later stage */
    if (count->poisoned)
        return count;
    device = choir__device_of(count);
    choir_tensor *sum = choir__tensor_like(scope, count);
    choir_tensor *y = choir__tensor_new(scope, device, CHOIR_F32, CHOIR_SCALAR);
    if (sum->poisoned || y->poisoned)
        return choir__failed_in(scope);
    choir__k_loss_divisor divide = {
        .counts = choir__data(count), .y = choir__data(y), .sum = choir__data(sum), .n = 1};
    choir__launch(device, CHOIR_F32, loss_divisor, &divide);
    return y;
}

choir_tensor *choir__cross_entropy_here(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    return cross_entropy(logits, target, o);
}

/* True for scores whose classes are in slices, here or on several ranks. */
static bool in_slices(const choir_tensor *logits)
{
    return logits->split && !logits->split->passes && !logits->split->tokens;
}

/* Returns the loss of the rows that are here, whose scores may be in slices. */
static choir_tensor *of_rows(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    return in_slices(logits) && !logits->poisoned && !target->poisoned
               ? logits->split->by->ops->parts->cross_entropy(logits, target, o)
               : cross_entropy(logits, target, o);
}

/* Returns the sum of all ranks' losses of rows. */
static choir_tensor *of_tokens(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    o.reduction = CHOIR_LOSS_NONE;
    if (logits->scope->sequence->joins)
        return choir__sum_of_tokens(of_rows(logits, target, o));
    o.reduction = CHOIR_LOSS_SUM;
    return choir__sequence_sum(of_rows(logits, target, o));
}

/* Cross entropy of a sequence that is cut into chunks: each rank adds up the losses of its own
 * tokens, whose targets it takes, and a mean is the sum of all, divided. */
static choir_tensor *cross_entropy_of_chunks(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    if (logits->poisoned || target->poisoned)
        return logits->poisoned ? logits : target;
    if (target->shape.ndim != 2 || target->shape.dim[1] != logits->scope->sequence->length)
        return choir__shape_error(cross_entropy_op.name, logits->scope,
            (choir_tensor *[]){logits, target}, 2,
            "expected i64 targets (B, L) of whole sequences, in the order of the tokens");
    target = choir__sequence_own(logits->scope, target, 1);
    if (o.reduction == CHOIR_LOSS_NONE)
        return of_rows(logits, target, o);
    choir_tensor *sum = of_tokens(logits, target, o);
    if (o.reduction != CHOIR_LOSS_MEAN || sum->poisoned)
        return sum;
    return choir_div(sum, counted_targets(logits->scope, target, &o));
}

choir_tensor *choir_cross_entropy_with(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    CHOIR__DEFAULT_FLOATS;
    logits = choir__sound(logits, cross_entropy_op.name);
    target = choir__sound(target, cross_entropy_op.name);
    if (choir__is_float(target->dtype) && !in_slices(logits))
        return soft_cross_entropy(logits, target, o);
    return logits->scope->sequence ? cross_entropy_of_chunks(logits, target, o)
                                   : of_rows(logits, target, o);
}

choir_tensor *choir_cross_entropy(choir_tensor *logits, choir_tensor *target)
{
    return choir_cross_entropy_with(logits, target, choir_cross_entropy_defaults());
}

/* --- negative log likelihood --- */

/* x: the log-probabilities, or their gradient; saved: targets, count */
static choir__k_nll nll_arguments(const choir__tape_entry *r, const choir_tensor *x)
{
    return (choir__k_nll){.targets = choir__data(r->saved[0]),
        .count = choir__data(r->saved[1]),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .ignore_index = -100,
        .dtype = x->dtype};
}

static void nll_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    choir__k_nll args = nll_arguments(r, g);
    args.gloss = choir__data(gy);
    args.gx = choir__data(g);
    choir__launch(choir__device_of(g), g->dtype, nll_backward, &args);
    sink->give(sink, r, 0, g);
}

static void nll_again(choir__tape_entry *r)
{
    choir__k_nll args = nll_arguments(r, r->in[0]);
    args.x = choir__data(r->in[0]);
    args.loss = choir__data(r->out);
    choir__launch(choir__device_of(r->out), args.dtype, nll, &args);
}

static const choir__op nll_op = {.name = "nll_loss",
    .cast = CHOIR__CAST_F32,
    .loss = true,
    .backward = nll_backward,
    .recompute = nll_again,
    .recompute_saved = 2, /* count */
    .reads_in = 2};

choir_tensor *choir_nll_loss(choir_tensor *x, choir_tensor *target)
{
    CHOIR__DEFAULT_FLOATS;
    choir_tensor *poisoned, *in[2] = {choir_contiguous(x), target};
    choir_scope *scope = choir__begin(&nll_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *targets = targets_for(nll_op.name, scope, in);
    choir_tensor *loss =
        choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, CHOIR_SCALAR);
    choir_tensor *count =
        choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, CHOIR_SCALAR);
    return targets ? choir__computed(
                         &nll_op, loss, in, 2, (choir__keeps){.saved = {targets, count}})
                   : choir__failed_in(scope);
}

choir_tensor *choir_mse_loss(choir_tensor *x, choir_tensor *y)
{
    x = choir__sound(x, __func__);
    y = choir__sound(y, __func__);
    if (!x->poisoned && !y->poisoned && !choir__same_shape(x->shape, y->shape))
        return choir__shape_error("mse_loss", x->scope, (choir_tensor *[]){x, y}, 2,
            "expected two tensors of one shape");
    if (x->scope->autocast.on || y->scope->autocast.on)
        x = as_f32(x), y = as_f32(y); /* cast before the subtraction */
    return choir_mean(choir_square(choir_sub(x, y)));
}
