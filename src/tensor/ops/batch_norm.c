/* Batch norm, with the ops that often follow it in the same pass over memory: adding a
 * residual, and ReLU. Its result can be computed again from the operands and the saved
 * statistics; the running statistics then stay unchanged. Without a residual this is cheap: the
 * result's memory may be released as soon as the next layer has read it (choir__done_with). If
 * statistics are shared with other ranks, forward and backward are two launches each, with the
 * sum over the ranks between them; computing a result again needs no communication. */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"

enum { X, GAMMA, BETA, RESIDUAL, OPERANDS };
enum { SAVED_X, SAVED_MEAN, SAVED_RSTD, SAVED_Y };

struct attrs {
    bool train, relu;
    choir__strategy *shared; /* NULL: statistics are over x alone */
};

typedef void kernel_fn(const choir__k_batch_norm *args);

/* Launches a kernel twice, with the sum over all sharing ranks in between. */
static void launch_shared(choir_scope *scope, const choir_tensor *x, choir__strategy *shared,
    kernel_fn *kernel, choir__k_batch_norm *args)
{
    choir_device *device = choir__device_of(x);
    int64_t count = 2 * x->shape.dim[1] + 1;
    choir_tensor *memory = choir__tensor_new(scope, device, CHOIR_F64, choir_dims(count));
    if (memory->poisoned)
        return;
    args->sums = choir__data(memory);
    args->part = CHOIR__NORM_SUMS;
    choir__queue_issue(device->queue, (choir__queue_task *)kernel, args, sizeof *args);
    choir_status status = shared->ops->sum(shared, device, args->sums, count);
    if (status != CHOIR_OK)
        choir__scope_fail(scope, status);
    args->part = CHOIR__NORM_REST;
    choir__queue_issue(device->queue, (choir__queue_task *)kernel, args, sizeof *args);
    choir__tensor_release(memory);
}

static choir__k_batch_norm arguments(const choir__tape_entry *r)
{
    const choir_tensor *x = r->saved[SAVED_X];
    const struct attrs *a = r->attrs;
    return (choir__k_batch_norm){.x = choir__data(x),
        .gamma = choir__data_or_null(r->in[GAMMA]),
        .beta = choir__data_or_null(r->in[BETA]),
        .mean = choir__data(r->saved[SAVED_MEAN]),
        .rstd = choir__data(r->saved[SAVED_RSTD]),
        .cols = x->shape.dim[1],
        .rows = x->count / x->shape.dim[1],
        .train = a->train,
        .relu = a->relu,
        .dtype = x->dtype};
}

/* --- backward --- */

/* True if g has no other owner, so that the gradient after ReLU may overwrite it. */
static bool ours(const choir_tensor *g)
{
    return g->grad_owned && !g->kept && choir__storage_is_ours(g->storage);
}

/* Returns the tensor for the residual's gradient if ReLU makes it differ from gy: in gy's
 * memory if that is ours. Returns NULL if it is not needed or equals gy. */
static choir_tensor *residual_dest(
    choir__tape_entry *r, choir_tensor *gy, choir_tensor *rows, choir_scope *scope)
{
    const struct attrs *a = r->attrs;
    if (!a->relu || !choir__wanted(r, RESIDUAL))
        return NULL;
    choir_tensor *g = rows != gy || ours(gy) ? choir__tensor_alias(scope, rows)
                                             : choir__tensor_like(scope, rows);
    g->grad_owned = true;
    return g;
}

static void batch_norm_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct attrs *a = r->attrs;
    choir_tensor *x = r->saved[SAVED_X];
    choir_tensor *ggamma = sink->dest(sink, r, GAMMA), *gbeta = sink->dest(sink, r, BETA);
    choir_tensor *gx = choir__tensor_like(sink->scope, x);
    choir_tensor *rows = choir__channels_last(sink->scope, gy);
    if (gx->poisoned || rows->poisoned)
        return;
    choir_tensor *gresidual = residual_dest(r, gy, rows, sink->scope);
    if (gresidual && gresidual->poisoned)
        return;
    choir__k_batch_norm args = arguments(r);
    args.y = choir__data_or_null(r->saved[SAVED_Y]);
    args.gy = choir__data(rows);
    args.gx = choir__data(gx);
    args.ggamma = choir__data_or_null(ggamma);
    args.gbeta = choir__data_or_null(gbeta);
    args.gresidual = choir__data_or_null(gresidual);
    if (a->shared)
        launch_shared(sink->scope, x, a->shared,
            choir__device_kernels(choir__device_of(x), x->dtype)->batch_norm_backward, &args);
    else
        choir__launch(choir__device_of(x), x->dtype, batch_norm_backward, &args);
    gx->grad_owned = true;
    if (gbeta)
        sink->give(sink, r, BETA, gbeta);
    if (ggamma)
        sink->give(sink, r, GAMMA, ggamma);
    if (choir__wanted(r, X))
        sink->give(sink, r, X, gx);
    if (choir__wanted(r, RESIDUAL))
        sink->give(sink, r, RESIDUAL, gresidual ? gresidual : gy);
}

/* --- forward --- */

static void again(choir__tape_entry *r)
{
    choir_tensor *x = r->saved[SAVED_X], *residual = r->in[RESIDUAL];
    choir__copy_again(r, X); /* SAVED_X is X */
    if (residual && (residual = choir__channels_last(r->scope, residual))->poisoned)
        return;
    choir__k_batch_norm args = arguments(r);
    args.residual = choir__data_or_null(residual);
    args.y = choir__data(r->out);
    args.again = true;
    choir__launch(choir__device_of(x), x->dtype, batch_norm, &args);
}

#define BATCH_NORM(...)                                                                        \
    {                                                                                          \
        .name = "batch_norm", .optional = 1 << GAMMA | 1 << BETA | 1 << RESIDUAL,              \
        .half_native = 1 << X | 1 << RESIDUAL, .half_here = true,                              \
        .o2_keeps = 1 << X | 1 << GAMMA | 1 << BETA, .backward = batch_norm_backward,          \
        .recompute = again, .recompute_saved = 1 << SAVED_X,                                   \
        .reads_in = 1 << X | 1 << GAMMA | 1 << BETA, __VA_ARGS__                               \
    }
static const choir__op batch_norm_op = BATCH_NORM(.cheap = true);
static const choir__op batch_norm_residual_op = BATCH_NORM(.cheap = false);
/* For 16-bit operands with a residual: the f32 copies of both are made again, and then y. */
static const choir__op batch_norm_residual_again_op = BATCH_NORM(.cheap = true);

choir_batch_norm_opts choir_batch_norm_defaults(void)
{
    return (choir_batch_norm_opts){.training = true, .momentum = 0.1f, .eps = 1e-5f};
}

static bool fits_residual(const choir_tensor *residual, const choir_tensor *x)
{
    return !residual ||
           (choir__same_shape(residual->shape, x->shape) && residual->dtype == x->dtype);
}

/* Returns the reason to refuse the operands, or NULL. */
static const char *refusal(choir_tensor *const *in, const choir_tensor *mean,
    const choir_tensor *var, const choir_batch_norm_opts *o, bool shared)
{
    const choir_tensor *x = in[X];
    int64_t c = x->shape.ndim >= 2 ? x->shape.dim[1] : 0;
    choir_dtype beside = choir__beside(x->dtype);
    if (c < 1 || !choir__is_float(x->dtype) || !mean || !var ||
        !choir__is_per_channel(in[GAMMA], c, beside) ||
        !choir__is_per_channel(in[BETA], c, beside) ||
        !choir__is_per_channel(mean, c, beside) || !choir__is_per_channel(var, c, beside))
        return "expected a floating x (N, C, ...) and gamma, beta, running mean and variance of "
               "(C)";
    if (!fits_residual(in[RESIDUAL], x))
        return "expected a residual of x's shape and dtype";
    if (o->training && x->count == c && !shared)
        return "expected more than one value per channel (a larger batch) to train with";
    if (o->batches && (o->batches->dtype != CHOIR_I64 || o->batches->count != 1))
        return "expected one i64 that counts batches";
    return NULL;
}

/* Returns a buffer that resides on another device than x, or NULL. Buffers are updated in place
 * and do not follow x. */
static const choir_tensor *elsewhere(const choir_tensor *x, const choir_tensor *mean,
    const choir_tensor *var, const choir_batch_norm_opts *o)
{
    const choir_tensor *buffers[] = {mean, var, o->batches};
    for (size_t i = 0; i < CHOIR_COUNT(buffers); i++)
        if (buffers[i] && choir__device_of(buffers[i]) != choir__device_of(x))
            return buffers[i];
    return NULL;
}

/* Waits for other devices that may still copy the statistics, which are about to change. */
static void claim_statistics(choir_tensor *mean, choir_tensor *var, choir_tensor *batches)
{
    choir__storage_claim(mean->storage);
    choir__storage_claim(var->storage);
    if (batches)
        choir__storage_claim(batches->storage);
}

choir_tensor *choir__batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts o,
    choir__strategy *shared)
{
    choir_tensor *poisoned, *in[OPERANDS] = {x, gamma, beta, o.residual};
    choir_scope *scope = choir__begin(&batch_norm_op, in, OPERANDS, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *statistics[] = {running_mean, running_var, o.batches};
    for (size_t i = 0; i < CHOIR_COUNT(statistics); i++)
        if (statistics[i] && !choir__is_sound(statistics[i]))
            return choir__unsound(statistics[i], batch_norm_op.name);
    if (o.momentum == 0 && o.eps == 0)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "batch_norm: momentum and eps are 0; begin with choir_batch_norm_defaults()");
    shared = o.training ? shared : NULL;
    const char *why = refusal(in, running_mean, running_var, &o, shared);
    if (why)
        return choir__shape_error(batch_norm_op.name, scope, in, OPERANDS, why);
    x = in[X], gamma = in[GAMMA], beta = in[BETA];
    const choir_tensor *far = elsewhere(x, running_mean, running_var, &o);
    if (far)
        return choir__poison(scope, CHOIR_ERR_DEVICE,
            "batch_norm: x is on %s, a running statistic on %s; a module's parameters and "
            "buffers are on one device",
            choir_device_name(choir__device_of(x)), choir_device_name(choir__device_of(far)));
    int64_t c = x->shape.dim[1];
    choir_device *device = choir__device_of(x);
    choir_tensor *rows = choir__channels_last(scope, x), *y = choir__tensor_like(scope, rows);
    choir_tensor *residual = in[RESIDUAL] ? choir__channels_last(scope, in[RESIDUAL]) : NULL;
    choir_dtype beside = choir__beside(x->dtype);
    choir_tensor *mean = choir__tensor_new(scope, device, beside, choir_dims(c));
    choir_tensor *rstd = choir__tensor_new(scope, device, beside, choir_dims(c));
    choir_tensor *made[] = {rows, y, residual, mean, rstd};
    for (size_t i = 0; i < CHOIR_COUNT(made); i++)
        if (made[i] && made[i]->poisoned)
            return made[i];
    choir__k_batch_norm args = {.x = choir__data(rows),
        .gamma = choir__data_or_null(gamma),
        .beta = choir__data_or_null(beta),
        .residual = choir__data_or_null(residual),
        .y = choir__data(y),
        .mean = choir__data(mean),
        .rstd = choir__data(rstd),
        .running_mean = choir__data(running_mean),
        .running_var = choir__data(running_var),
        .batches = choir__data_or_null(o.batches),
        .rows = x->count / c,
        .cols = c,
        .eps = o.eps,
        .momentum = o.momentum,
        .train = o.training,
        .update = o.training && scope->micro == 0,
        .relu = o.relu,
        .dtype = x->dtype};
    if (args.update)
        claim_statistics(running_mean, running_var, o.batches);
    if (shared)
        launch_shared(
            scope, x, shared, choir__device_kernels(device, x->dtype)->batch_norm, &args);
    else
        choir__launch(device, x->dtype, batch_norm, &args);
    const choir__op *with_residual = choir__to_be_rounded(y) && !shared
                                         ? &batch_norm_residual_again_op
                                         : &batch_norm_residual_op;
    struct attrs attrs = {o.training, o.relu, shared};
    return choir__taped(residual ? with_residual : &batch_norm_op, y, in, OPERANDS,
        (choir__keeps){
            &attrs, sizeof attrs, {rows, mean, rstd, residual && o.relu ? y : NULL}});
}

choir_tensor *choir_batch_norm_with(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts o)
{
    return choir__batch_norm(x, gamma, beta, running_mean, running_var, o, NULL);
}

choir_tensor *choir_batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, bool training, float momentum,
    float eps)
{
    choir_batch_norm_opts o = {.training = training, .momentum = momentum, .eps = eps};
    return choir_batch_norm_with(x, gamma, beta, running_mean, running_var, o);
}
