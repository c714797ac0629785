/* Gradient scaling.
 *
 * The scale multiplies gradients at the start of backward, not the loss: choir_scaler_scale is
 * the identity, and its backward multiplies. So a printed loss is the true loss and need not be
 * divided.
 *
 * The optimizer unscales gradients as it reads them: 1 / scale is part of the factor that
 * clips. The norm of the gradients shows whether one of them is infinite or NaN: it is a sum of
 * squares in f64, which is finite exactly if all of them are. The norm is already reduced over
 * devices and ranks, so all reach the same verdict. Its consequences (skip, count, lower the
 * scale) are computed in device memory. */
#include <choir/amp.h>

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/floats.h"
#include "optim/optim.h"
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

struct choir_scaler {
    choir_scope *run;
    choir_scaler_opts opts;
    choir__storage *numbers; /* choir__scaler_numbers */
    choir_tensor *scale;     /* () f32: the first of the numbers */
    choir_optim *optims[CHOIR__MAX_SCALED];
    bool stepped[CHOIR__MAX_SCALED]; /* since the last update */
    int count;
};

choir_scaler_opts choir_scaler_defaults(void)
{
    return (choir_scaler_opts){
        .scale = 65536, .growth = 2, .backoff = 0.5f, .interval = 2000, .patience = 40};
}

static choir_status use_scaler(const choir_scaler *s, const char *function)
{
    return choir__use_part(s ? s->run : NULL, function, "scaler");
}

static void free_scaler(void *arg)
{
    choir_scaler *s = arg;
    choir__run_sync(s->run);
    choir__storage_unref(s->numbers);
}

static const char *lacks(const choir_scaler_opts *o)
{
    return !(o->scale > 0 && isfinite(o->scale))      ? "a positive scale"
           : !(o->growth > 1 && isfinite(o->growth))  ? "a growth above 1"
           : !(o->backoff > 0 && o->backoff < 1)      ? "a backoff between 0 and 1"
           : o->interval < 1 || o->interval > 1 << 24 ? "an interval of 1 to 2^24"
           : o->patience < 1 || o->patience > 1 << 24 ? "a patience of 1 to 2^24"
                                                      : NULL;
}

static void store(choir_scaler *s, float scale, float clean, float in_a_row)
{
    choir__scaler_numbers n = {.scale = scale,
        .inverse = (float)(1 / (double)scale),
        .clean = clean,
        .in_a_row = in_a_row,
        .one = 1};
    choir__launch_upload(s->run->device, s->numbers->data, &n, sizeof n);
}

choir_scaler *choir_scaler_new(choir_scope *run, choir_scaler_opts opts)
{
    run = choir__open_scope(run, __func__);
    choir_scaler *s = choir__arena_get(&run->arena, sizeof *s); /* see tensor/handle.h */
    s->run = run;
    s->opts = opts;
    if (lacks(&opts)) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "scaler: expected %s, got scale %g, growth %g, backoff %g, interval %lld, "
            "patience %lld; begin with choir_scaler_defaults()",
            lacks(&opts), (double)opts.scale, (double)opts.growth, (double)opts.backoff,
            (long long)opts.interval, (long long)opts.patience);
        s->opts = choir_scaler_defaults();
    }
    s->numbers = choir__storage_new(run->device, sizeof(choir__scaler_numbers));
    choir__on_close(run, free_scaler, s);
    s->scale = choir__tensor_bare(run, CHOIR_F32, CHOIR_SCALAR);
    if (!s->numbers) {
        choir__poison(run, CHOIR_ERR_MEMORY, "out of memory on %s for a gradient scaler",
            choir_device_name(run->device));
        s->scale->poisoned = true;
        return s;
    }
    s->scale->storage = choir__storage_ref(s->numbers);
    store(s, s->opts.scale, 0, 0);
    return s;
}

/* --- backward --- */

static void scale_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gx = sink->dest(sink, r, 0);
    if (!gx)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    choir__k_binary args = {.y = {choir__data(gx), {1}},
        .a = {choir__data(gy), {1}},
        .b = {choir__data(r->in[1]), {0}},
        .shape = {gx->count},
        .ndim = 1,
        .op = CHOIR__MUL,
        .dtype = CHOIR_F32};
    choir__launch(choir__device_of(gx), CHOIR_F32, binary, &args);
    sink->give(sink, r, 0, gx);
}

static const choir__op scale_op = {.name = "scale_gradient",
    .by_token = true,
    .any_dtype = true,
    .backward = scale_backward,
    .view = true,
    .reads_in = 2};

choir_tensor *choir_scaler_scale(choir_scaler *s, choir_tensor *loss)
{
    loss = choir__sound(loss, __func__);
    if (use_scaler(s, __func__) != CHOIR_OK)
        return choir__poison(loss->scope, CHOIR_ERR_ARGUMENT, "%s", choir__message());
    choir_tensor *poisoned, *in[2] = {loss, s->scale};
    if (!loss->poisoned && choir__is_half(loss->dtype))
        in[0] = choir_cast(loss, CHOIR_F32);
    choir_scope *scope = choir__begin(&scale_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (in[0]->dtype != CHOIR_F32)
        return choir__poison(scope, CHOIR_ERR_DTYPE, "scaler: expected an f32 loss, got %s",
            choir_dtype_name(in[0]->dtype));
    choir_tensor *y = choir__tensor_alias(scope, in[0]);
    choir__tape_entry_new(&scale_op, y, in, 2);
    return y;
}

/* --- a step --- */

static const float *number(const choir_scaler *s, size_t at)
{
    return (const float *)((const char *)s->numbers->data + at);
}

/* Returns the index of o among the scaler's optimizers; negative: an error. */
static int place_of(choir_scaler *s, choir_optim *o)
{
    for (int i = 0; i < s->count; i++)
        if (s->optims[i] == o)
            return i;
    if (s->count == CHOIR__MAX_SCALED)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "scaler: more than %d optimizers", (int)CHOIR__MAX_SCALED);
    s->optims[s->count] = o;
    s->stepped[s->count] = false;
    return s->count++;
}

/* Refuses 16-bit parameters, like PyTorch: a 16-bit gradient has already lost the precision
 * that scaling preserves. f64 ones need no scaler. */
static choir_status check_dtypes(const choir_optim *o)
{
    for (int i = 0; i < o->count; i++) {
        const choir_tensor *t = o->states[i].param->tensor;
        if (t->dtype != CHOIR_F32 && !t->held) /* a held weight is frozen */
            return choir__error(CHOIR_ERR_DTYPE,
                "scaler: expected f32 weights, whose gradients are f32, too, got %s as %s",
                o->states[i].param->name, choir_dtype_name(t->dtype));
    }
    return CHOIR_OK;
}

static choir_status fail(choir_scaler *s, choir_status status)
{
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(s->run, status);
}

/* *at: out: the index of o among the scaler's optimizers. */
static choir_status use_both(choir_scaler *s, choir_optim *o, const char *name, int *at)
{
    choir_status use = use_scaler(s, name);
    if (use == CHOIR_OK)
        use = choir__use_optim(o, name);
    if (use != CHOIR_OK)
        return use;
    *at = place_of(s, o);
    return *at < 0 ? fail(s, (choir_status)*at) : CHOIR_OK;
}

choir_status choir_scaler_unscale(choir_scaler *s, choir_optim *o)
{
    CHOIR__DEFAULT_FLOATS;
    int at;
    choir_status use = use_both(s, o, __func__, &at);
    if (use != CHOIR_OK)
        return use;
    if (o->unscaled || s->stepped[at])
        return choir__error(CHOIR_ERR_STATE,
            o->unscaled
                ? "scaler: this optimizer's gradients were unscaled since the last update"
                : "scaler: unscaled after the step; unscale, then step, then update");
    choir_status status = check_dtypes(o);
    if (status == CHOIR_OK)
        status = choir__optim_unscale(o, number(s, offsetof(choir__scaler_numbers, inverse)));
    return fail(s, status);
}

choir_status choir_scaler_step(choir_scaler *s, choir_optim *o)
{
    CHOIR__DEFAULT_FLOATS;
    int at;
    choir_status use = use_both(s, o, __func__, &at);
    if (use != CHOIR_OK)
        return use;
    if (s->stepped[at])
        return choir__error(CHOIR_ERR_STATE,
            "scaler: this optimizer has stepped since the last update, which comes first");
    choir_status status = check_dtypes(o);
    size_t factor = o->unscaled ? offsetof(choir__scaler_numbers, one)
                                : offsetof(choir__scaler_numbers, inverse);
    if (status == CHOIR_OK)
        status = choir__optim_step_scaled(o, number(s, factor));
    if (status == CHOIR_OK)
        s->stepped[at] = true;
    return fail(s, status);
}

choir_status choir_scaler_update(choir_scaler *s)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_scaler(s, __func__);
    if (use != CHOIR_OK)
        return use;
    choir__k_scaler_update args = {.numbers = s->numbers ? s->numbers->data : NULL,
        .growth = s->opts.growth,
        .backoff = s->opts.backoff,
        .interval = s->opts.interval,
        .patience = s->opts.patience};
    choir_status status = choir__scope_status(s->run);
    for (int i = 0; i < s->count && status == CHOIR_OK; i++) {
        if (s->stepped[i])
            args.found[args.count++] =
                (float *)choir__data(s->optims[i]->norm.clip) + CHOIR__CLIP_FOUND;
        s->stepped[i] = s->optims[i]->unscaled = false;
    }
    if (status == CHOIR_OK && !args.count)
        return choir__error(CHOIR_ERR_STATE,
            "scaler: no step since the last update: there is nothing to judge");
    if (status != CHOIR_OK)
        return fail(s, status);
    choir__launch(s->run->device, CHOIR_F32, scaler_update, &args);
    choir__strategies_scaled(s->run);
    return choir__scope_status(s->run);
}

void choir__scaler_undo(choir_scaler *s)
{
    for (int i = 0; i < s->count; i++)
        s->stepped[i] = s->optims[i]->unscaled = false;
}

/* --- its state --- */

void choir__scaler_keep(const choir_scaler *s, const choir_optim *o, choir_tensor *kept)
{
    float *to = choir__data(kept);
    choir__launch_bytes(s->run->device, to, s->numbers->data, sizeof(choir__scaler_numbers));
    choir__launch_bytes(s->run->device, to + CHOIR__SCALER_KEPT - 1,
        (const float *)choir__data(o->norm.clip) + CHOIR__CLIP_SKIPPED, sizeof *to);
}

void choir__scaler_bring(choir_scaler *s, choir_optim *o, const choir_tensor *kept)
{
    const float *from = choir__data(kept);
    choir__launch_bytes(s->run->device, s->numbers->data, from, sizeof(choir__scaler_numbers));
    choir__launch_bytes(s->run->device,
        (float *)choir__data(o->norm.clip) + CHOIR__CLIP_SKIPPED, from + CHOIR__SCALER_KEPT - 1,
        sizeof *from);
}

static choir_status read_numbers(const choir_scaler *s, choir__scaler_numbers *n)
{
    choir_tensor all = {.scope = s->run,
        .storage = s->numbers,
        .dtype = CHOIR_F32,
        .shape = {1, {sizeof *n / sizeof(float)}},
        .stride = {1},
        .count = sizeof *n / sizeof(float)};
    return choir_read(&all, n, sizeof *n);
}

choir_status choir_scaler_get(const choir_scaler *s, choir_scaler_state *state)
{
    choir_status use = use_scaler(s, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!state)
        return choir__missing(__func__, "scaler state");
    choir__scaler_numbers n;
    choir_status status = s->numbers ? read_numbers(s, &n) : choir__scope_status(s->run);
    if (status != CHOIR_OK)
        return status;
    *state = (choir_scaler_state){
        .scale = n.scale, .clean = (int64_t)n.clean, .in_a_row = (int64_t)n.in_a_row};
    for (int i = 0; i < s->count && status == CHOIR_OK; i++) {
        float clip[CHOIR__CLIP_COUNT];
        if (!s->optims[i]->norm.clip)
            continue;
        status = choir_read(s->optims[i]->norm.clip, clip, sizeof clip);
        state->skipped[i] = (int64_t)clip[CHOIR__CLIP_SKIPPED];
    }
    return status;
}

choir_status choir_scaler_set(choir_scaler *s, choir_optim *o, choir_scaler_state state)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_scaler(s, __func__);
    if (use == CHOIR_OK)
        use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!(state.scale > 0 && isfinite(state.scale)) || state.clean < 0 || state.in_a_row < 0 ||
        state.skipped[0] < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "scaler: a scale of %g after %lld clean steps, %lld skipped", (double)state.scale,
            (long long)state.clean, (long long)state.skipped[0]);
    int at = place_of(s, o);
    if (at < 0)
        return (choir_status)at;
    if (!o->norm.value)
        choir_optim_clip(o, 0);
    float skipped = (float)state.skipped[at];
    if (choir__scope_status(s->run) != CHOIR_OK)
        return choir__scope_status(s->run);
    choir__launch_upload(s->run->device,
        (float *)choir__data(o->norm.clip) + CHOIR__CLIP_SKIPPED, &skipped, sizeof skipped);
    store(s, state.scale, (float)state.clean, (float)state.in_a_row);
    return CHOIR_OK;
}
