/* Losses: one number, and the gradient of the scores. */
#include "tensor/tensor.h"

choir_cross_entropy_opts choir_cross_entropy_defaults(void)
{
    return (choir_cross_entropy_opts){.ignore_index = -100, .label_smoothing = 0};
}

/* Targets as row-major i64 of as many rows as x has, or NULL with the error noted. */
static choir_tensor *targets_for(const char *op, choir_scope *scope, choir_tensor **in)
{
    choir_shape rows = in[0]->shape;
    rows.ndim--;
    if (in[0]->shape.ndim < 1 || !choir__is_float(in[0]->dtype) || in[1]->dtype != CHOIR_I64 ||
        in[1]->count != choir__rows(in[0]) || choir__cols(in[0]) < 1 ||
        (in[1]->shape.ndim != 1 && !choir__same_shape(in[1]->shape, rows))) {
        choir__shape_error(op, scope, in, 2, "wants scores (..., C) and i64 targets (...)");
        return NULL;
    }
    return choir__dense_rows(scope, in[1]);
}

/* --- cross entropy --- */

static void cross_entropy_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const choir_cross_entropy_opts *o = r->attrs;
    choir_tensor *logits = r->in[0], *g = sink->dest_over(sink, r, 0);
    if (!g)
        return;
    choir__k_cross_entropy_backward args = {.logits = choir__data(logits),
        .lse = choir__data(r->saved[1]),
        .count = choir__data(r->saved[2]),
        .gloss = choir__data(gy),
        .targets = choir__data(r->saved[0]),
        .glogits = choir__data(g),
        .rows = choir__rows(logits),
        .cols = choir__cols(logits),
        .ignore_index = o->ignore_index,
        .smoothing = o->label_smoothing,
        .dtype = logits->dtype};
    choir__launch(choir__device_of(g), g->dtype, cross_entropy_backward, &args);
    sink->give(sink, r, 0, g);
}

static const choir__op cross_entropy_op = {
    .name = "cross_entropy", .backward = cross_entropy_backward, .reads_in = 3};

/* Targets that are distributions: -mean over rows of sum_c y[c] log softmax(x)[c], y smoothed.
 * Composed: it keeps the log-probabilities, which class ids do without. */
static choir_tensor *soft_cross_entropy(
    choir_tensor *logits, choir_tensor *y, choir_cross_entropy_opts o)
{
    if (!choir__same_shape(logits->shape, y->shape) || logits->shape.ndim < 1)
        return choir__shape_error("cross_entropy", logits->scope, (choir_tensor *[]){logits, y},
            2, "probabilities as targets must have the scores' shape");
    double s = (double)o.label_smoothing;
    int64_t rows = choir__max(choir__rows(logits), 1),
            cols = choir__max(choir__cols(logits), 1);
    if (s != 0)
        y = choir_affine(y, 1 - s, s / (double)cols);
    choir_tensor *sum = choir_sum(choir_mul(choir_log_softmax(logits), y));
    return choir_scale(sum, -1 / (double)rows);
}

choir_tensor *choir_cross_entropy_with(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    choir_tensor *poisoned, *in[2] = {choir_contiguous(choir__as_computed(logits)), target};
    choir_scope *scope = choir__begin("cross_entropy", in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "cross_entropy: a label smoothing of %g is not in [0, 1]",
            (double)o.label_smoothing);
    if (choir__is_float(target->dtype))
        return soft_cross_entropy(logits, target, o);
    choir_tensor *x = in[0], *targets = targets_for("cross_entropy", scope, in);
    choir_device *device = choir__device_of(x);
    choir_tensor *loss = choir__tensor_new(scope, device, x->dtype, CHOIR_SCALAR);
    choir_tensor *lse = choir__tensor_new(scope, device, x->dtype, choir_dims(choir__rows(x)));
    choir_tensor *count = choir__tensor_new(scope, device, x->dtype, CHOIR_SCALAR);
    if (!targets || targets->poisoned || lse->poisoned || loss->poisoned || count->poisoned) {
        loss->poisoned = true;
        return loss;
    }
    choir__k_cross_entropy args = {.logits = choir__data(x),
        .targets = choir__data(targets),
        .loss = choir__data(loss),
        .lse = choir__data(lse),
        .count = choir__data(count),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .ignore_index = o.ignore_index,
        .smoothing = o.label_smoothing,
        .dtype = x->dtype};
    choir__launch(device, x->dtype, cross_entropy, &args);
    choir__record *r = choir__record_op(&cross_entropy_op, loss, in, 2);
    if (r) {
        choir__record_attrs(r, &o, sizeof o);
        r->saved[0] = targets;
        r->saved[1] = lse;
        r->saved[2] = count;
    }
    return loss;
}

choir_tensor *choir_cross_entropy(choir_tensor *logits, choir_tensor *target)
{
    return choir_cross_entropy_with(logits, target, choir_cross_entropy_defaults());
}

/* --- negative log likelihood --- */

static void nll_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    choir__k_nll args = {.gloss = choir__data(gy),
        .targets = choir__data(r->saved[0]),
        .count = choir__data(r->saved[1]),
        .gx = choir__data(g),
        .rows = choir__rows(g),
        .cols = choir__cols(g),
        .ignore_index = -100,
        .dtype = g->dtype};
    choir__launch(choir__device_of(g), g->dtype, nll_backward, &args);
    sink->give(sink, r, 0, g);
}

static const choir__op nll_op = {.name = "nll_loss", .backward = nll_backward, .reads_in = 2};

choir_tensor *choir_nll_loss(choir_tensor *x, choir_tensor *target)
{
    choir_tensor *poisoned, *in[2] = {choir_contiguous(choir__as_computed(x)), target};
    choir_scope *scope = choir__begin("nll_loss", in, 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *targets = targets_for("nll_loss", scope, in);
    choir_tensor *loss =
        choir__tensor_new(scope, choir__device_of(x), in[0]->dtype, CHOIR_SCALAR);
    choir_tensor *count =
        choir__tensor_new(scope, choir__device_of(x), in[0]->dtype, CHOIR_SCALAR);
    if (!targets || targets->poisoned || loss->poisoned || count->poisoned) {
        loss->poisoned = true;
        return loss;
    }
    choir__k_nll args = {.x = choir__data(in[0]),
        .targets = choir__data(targets),
        .loss = choir__data(loss),
        .count = choir__data(count),
        .rows = choir__rows(in[0]),
        .cols = choir__cols(in[0]),
        .ignore_index = -100,
        .dtype = loss->dtype};
    choir__launch(choir__device_of(x), loss->dtype, nll, &args);
    choir__record *r = choir__record_op(&nll_op, loss, in, 2);
    if (r) {
        r->saved[0] = targets;
        r->saved[1] = count;
    }
    return loss;
}

choir_tensor *choir_mse_loss(choir_tensor *x, choir_tensor *y)
{
    if (!x->poisoned && !y->poisoned && !choir__same_shape(x->shape, y->shape))
        return choir__shape_error(
            "mse_loss", x->scope, (choir_tensor *[]){x, y}, 2, "the shapes differ");
    return choir_mean(choir_square(choir_sub(x, y)));
}
