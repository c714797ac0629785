/* Losses of pairs: x and y of one shape. One kernel computes the losses of all elements, and
 * then their mean or sum is taken. */
#include <math.h>

#include "base/floats.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/op.h"

typedef struct how {
    choir__pair_kind kind;
    float a, b;
} how;

/* saved: x, y, weight or NULL */
static choir__k_pair_loss arguments(const choir__tape_entry *r)
{
    const how *h = r->attrs;
    const choir_tensor *x = r->saved[0], *weight = r->saved[2];
    return (choir__k_pair_loss){.x = choir__data(x),
        .y = choir__data(r->saved[1]),
        .weight = choir__data_or_null(weight),
        .n = x->count,
        .period = weight ? weight->count : 1,
        .kind = h->kind,
        .a = h->a,
        .b = h->b,
        .dtype = x->dtype};
}

static void pair_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gx = sink->dest(sink, r, 0), *gt = sink->dest(sink, r, 1);
    if (!gx && !gt)
        return;
    choir_tensor *gloss = choir__dense_rows(sink->scope, gy);
    if (gloss->poisoned)
        return;
    choir__k_pair_loss args = arguments(r);
    args.gloss = choir__data(gloss);
    args.gx = choir__data_or_null(gx);
    args.gy = choir__data_or_null(gt);
    choir__launch(choir__device_of(gloss), args.dtype, pair_loss_backward, &args);
    if (gx)
        sink->give(sink, r, 0, gx);
    if (gt)
        sink->give(sink, r, 1, gt);
}

static void pair_again(choir__tape_entry *r)
{
    choir__k_pair_loss args = arguments(r);
    args.loss = choir__data(r->out);
    choir__launch(choir__device_of(r->out), args.dtype, pair_loss, &args);
}

#define LOSS(title)                                                                            \
    {                                                                                          \
        .name = title, .cast = CHOIR__CAST_F32, .loss = true, .backward = pair_backward,       \
        .recompute = pair_again, .reads_in = 7                                                 \
    }
static const choir__op l1_op = LOSS("l1_loss"), smooth_l1_op = LOSS("smooth_l1_loss"),
                       huber_op = LOSS("huber_loss"), bce_op = LOSS("bce_loss"),
                       bce_with_logits_op = LOSS("bce_with_logits_loss"),
                       kl_div_op = LOSS("kl_div_loss");

/* True if weight broadcasts over the last dimensions of x. */
static bool fits(const choir_tensor *weight, const choir_tensor *x)
{
    int offset = x->shape.ndim - weight->shape.ndim;
    bool fit = offset >= 0 && weight->count > 0;
    for (int d = 0; fit && d < weight->shape.ndim; d++)
        fit = weight->shape.dim[d] == x->shape.dim[offset + d];
    return fit;
}

/* Computes the losses of all elements, in x's shape. */
static choir_tensor *pairs(
    const choir__op *op, choir_tensor *x, choir_tensor *y, choir_tensor *weight, how h)
{
    choir_tensor *poisoned, *in[3] = {choir_contiguous(x), choir_contiguous(y),
                                weight ? choir_contiguous(weight) : NULL};
    int count = weight ? 3 : 2;
    choir_scope *scope = choir__begin(op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], y = in[1], weight = in[2];
    if (!choir__same_shape(x->shape, y->shape))
        return choir__shape_error(op->name, scope, in, 2, "expected two tensors of one shape");
    if (!choir__is_float(x->dtype) || x->dtype != y->dtype ||
        (weight && x->dtype != weight->dtype))
        return choir__shape_error(op->name, scope, in, count, "expected floats of one type");
    if (weight && !fits(weight, x))
        return choir__shape_error(
            op->name, scope, in, count, "expected weights of the scores' last dimensions");
    choir_tensor *loss = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    return choir__computed(op, loss, in, 2, (choir__keeps){&h, sizeof h, {x, y, weight}});
}

static choir_tensor *reduce(
    const choir__op *op, choir_tensor *losses, choir_reduction reduction)
{
    CHOIR__DEFAULT_FLOATS;
    int64_t rows = losses->shape.ndim ? losses->shape.dim[0] : 1;
    switch (reduction) {
    case CHOIR_LOSS_MEAN: return choir_mean(losses);
    case CHOIR_LOSS_SUM: return choir_sum(losses);
    case CHOIR_LOSS_NONE: return losses;
    case CHOIR_LOSS_BATCH_MEAN:
        return choir_scale(choir_sum(losses), 1 / (double)choir__max(rows, 1));
    }
    return choir__poison(losses->scope, CHOIR_ERR_ARGUMENT,
        "%s: unknown reduction %d: choose one of CHOIR_LOSS_MEAN, SUM, NONE, BATCH_MEAN",
        op->name, (int)reduction);
}

choir_tensor *choir_l1_loss(choir_tensor *x, choir_tensor *y, choir_reduction reduction)
{
    return reduce(&l1_op, pairs(&l1_op, x, y, NULL, (how){CHOIR__HUBER, 0, 1}), reduction);
}

choir_tensor *choir_smooth_l1_loss(
    choir_tensor *x, choir_tensor *y, float beta, choir_reduction reduction)
{
    if (!(beta >= 0 && isfinite(beta)))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "smooth_l1_loss: expected a beta of at least 0, got %g", (double)beta);
    choir_tensor *losses = pairs(&smooth_l1_op, x, y, NULL, (how){CHOIR__HUBER, beta, 1});
    return reduce(&smooth_l1_op, losses, reduction);
}

choir_tensor *choir_huber_loss(
    choir_tensor *x, choir_tensor *y, float delta, choir_reduction reduction)
{
    x = choir__sound(x, __func__);
    if (!(delta > 0 && isfinite(delta)))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "huber_loss: expected a delta above 0, got %g", (double)delta);
    choir_tensor *losses = pairs(&huber_op, x, y, NULL, (how){CHOIR__HUBER, delta, delta});
    return reduce(&huber_op, losses, reduction);
}

choir_tensor *choir_bce_loss(choir_tensor *x, choir_tensor *y, choir_reduction reduction)
{
    choir_tensor *losses = pairs(&bce_op, x, y, NULL, (how){.kind = CHOIR__BCE});
    return reduce(&bce_op, losses, reduction);
}

choir_tensor *choir_bce_with_logits_loss(
    choir_tensor *x, choir_tensor *y, choir_tensor *pos_weight, choir_reduction reduction)
{
    const choir__op *op = &bce_with_logits_op;
    choir_tensor *losses = pairs(op, x, y, pos_weight, (how){.kind = CHOIR__BCE_LOGITS});
    return reduce(op, losses, reduction);
}

choir_tensor *choir_kl_div_loss(
    choir_tensor *x, choir_tensor *y, bool log_target, choir_reduction reduction)
{
    how h = {.kind = log_target ? CHOIR__KL_LOG : CHOIR__KL};
    return reduce(&kl_div_op, pairs(&kl_div_op, x, y, NULL, h), reduction);
}
