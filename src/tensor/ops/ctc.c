/* The loss of connectionist temporal classification: one kernel for the sequences' losses,
 * which leaves what backward needs of its forward pass; the reduction is made of other ops. */
#include <choir/ctc.h>
#include <choir/select.h>

#include <math.h>

#include "tensor/launch.h"
#include "tensor/op.h"

enum {
    X,
    TARGETS,
    STEPS,
    LENGTHS,
    OPERANDS
}; /* the op's; saved tensors begin with them, too */

choir_ctc_loss_opts choir_ctc_loss_defaults(void)
{
    return (choir_ctc_loss_opts){.blank = 0, .reduction = CHOIR_LOSS_MEAN};
}

/* in: x, and row-major targets and lengths. */
static choir__k_ctc arguments(
    choir_tensor *const *in, choir_tensor *alpha, const choir_ctc_loss_opts *o)
{
    return (choir__k_ctc){.x = choir__data(in[X]),
        .targets = choir__data(in[TARGETS]),
        .input_lengths = choir__data(in[STEPS]),
        .target_lengths = choir__data(in[LENGTHS]),
        .alpha = choir__data(alpha),
        .steps = in[X]->shape.dim[0],
        .batch = in[X]->shape.dim[1],
        .classes = in[X]->shape.dim[2],
        .most = in[TARGETS]->shape.dim[1],
        .blank = o->blank,
        .zero_infinity = o->zero_infinity,
        .dtype = in[X]->dtype};
}

static void ctc_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, X);
    if (!g)
        return;
    choir_tensor *gloss = choir__dense_rows(sink->scope, gy);
    if (gloss->poisoned)
        return;
    choir__k_ctc args = arguments(r->saved, r->saved[OPERANDS], r->attrs);
    args.gloss = choir__data(gloss);
    args.gx = choir__data(g);
    choir__launch(choir__device_of(g), g->dtype, ctc_backward, &args);
    sink->give(sink, r, X, g);
}

static void ctc_again(choir__tape_entry *r)
{
    choir__k_ctc args = arguments(r->saved, r->saved[OPERANDS], r->attrs);
    args.loss = choir__data(r->out);
    choir__launch(choir__device_of(r->out), args.dtype, ctc, &args);
}

static const choir__op ctc_op = {.name = "ctc_loss",
    .cast = CHOIR__CAST_F32,
    .loss = true,
    .backward = ctc_backward,
    .recompute = ctc_again,
    .recompute_saved = 1 << OPERANDS, /* alpha */
    .reads_in = (1 << OPERANDS) - 1};

/* Returns NULL, or a poisoned tensor if the operands or the options do not fit. */
static choir_tensor *check(
    choir_scope *scope, choir_tensor *const *in, const choir_ctc_loss_opts *o)
{
    const choir_shape *x = &in[X]->shape, *targets = &in[TARGETS]->shape;
    bool fits = x->ndim == 3 && choir__is_float(in[X]->dtype) && targets->ndim == 2 &&
                targets->dim[0] == x->dim[1];
    for (int i = TARGETS; i < OPERANDS && fits; i++)
        fits = in[i]->dtype == CHOIR_I64 &&
               (i == TARGETS || (in[i]->shape.ndim == 1 && in[i]->count == x->dim[1]));
    if (!fits)
        return choir__shape_error(ctc_op.name, scope, in, OPERANDS,
            "expected floating log-probabilities (T, B, C), and i64 targets (B, S), input "
            "lengths (B) and target lengths (B)");
    if (o->blank < 0 || o->blank >= x->dim[2])
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected a blank from 0 to %lld, got %lld", ctc_op.name,
            (long long)x->dim[2] - 1, (long long)o->blank);
    if (o->reduction != CHOIR_LOSS_MEAN && o->reduction != CHOIR_LOSS_SUM &&
        o->reduction != CHOIR_LOSS_NONE)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: unknown reduction %d: choose one of CHOIR_LOSS_MEAN, SUM, NONE; begin with "
            "choir_ctc_loss_defaults()",
            ctc_op.name, (int)o->reduction);
    return NULL;
}

/* Returns the sequences' losses (B). */
static choir_tensor *losses_of(choir_tensor *in[OPERANDS], const choir_ctc_loss_opts *o)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&ctc_op, in, OPERANDS, &poisoned);
    if (!scope || (poisoned = check(scope, in, o)))
        return poisoned;
    choir_shape x = in[X]->shape;
    choir_device *device = choir__device_of(in[X]);
    choir_dtype dtype = in[X]->dtype;
    choir_tensor *loss = choir__tensor_new(scope, device, dtype, choir_dims(x.dim[1]));
    choir_tensor *alpha = choir__tensor_new(scope, device, dtype,
        choir_dims(x.dim[1], x.dim[0], 2 * in[TARGETS]->shape.dim[1] + 1));
    choir__keeps keeps = {o, sizeof *o, {[X] = in[X], [OPERANDS] = alpha}};
    for (int i = TARGETS; i < OPERANDS; i++)
        keeps.saved[i] = choir__dense_rows(scope, in[i]);
    return choir__computed(&ctc_op, loss, in, OPERANDS, keeps);
}

choir_tensor *choir_ctc_loss_with(choir_tensor *log_probs, choir_tensor *targets,
    choir_tensor *input_lengths, choir_tensor *target_lengths, choir_ctc_loss_opts opts)
{
    choir_tensor *in[OPERANDS] = {
        choir_contiguous(log_probs), targets, input_lengths, target_lengths};
    choir_tensor *losses = losses_of(in, &opts);
    if (losses->poisoned || opts.reduction == CHOIR_LOSS_NONE)
        return losses;
    if (opts.reduction == CHOIR_LOSS_SUM)
        return choir_sum(losses);
    choir_tensor *lengths = choir_cast(target_lengths, losses->dtype);
    return choir_mean(choir_div(losses, choir_clamp(lengths, 1, INFINITY)));
}

choir_tensor *choir_ctc_loss(choir_tensor *log_probs, choir_tensor *targets,
    choir_tensor *input_lengths, choir_tensor *target_lengths)
{
    return choir_ctc_loss_with(
        log_probs, targets, input_lengths, target_lengths, choir_ctc_loss_defaults());
}
