/* Optimizers: one kernel call for all parameters of a device.
 *
 * The kernel reads a table of entries (parameter, gradient, state), which is rebuilt only when
 * parameters or gradients move (layout.c), and a table of the groups' numbers, which each step
 * writes in queue order. The part of a step that the host decides (counting it, the schedule,
 * the bias correction) is a host call, so a recorded step runs it at each replay.
 *
 * Devices step in parallel (update.c). They meet only to clip: the sums of the rows go to the
 * run's device, which adds them and sends the factor back. */
#include "base/floats.h"
#include "device/kernels/arithmetic.h"
#include "optim/optim.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

#include <math.h>

choir_status choir_optim_group(
    choir_optim *o, choir_match_fn *match, void *arg, float lr, float weight_decay)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!match)
        return choir__missing(__func__, "function");
    if (o->group_count == CHOIR__MAX_GROUPS)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "optimizer: more than %d groups", CHOIR__MAX_GROUPS);
    if (!(lr >= 0 && isfinite(lr) && weight_decay >= 0 && isfinite(weight_decay)))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "optimizer: a group of learning rate %g and weight decay %g; neither may be negative",
            (double)lr, (double)weight_decay);
    o->groups[o->group_count] = (choir__optim_group){lr, weight_decay};
    for (int i = 0; i < o->count; i++)
        if (match(o->states[i].param->name, o->states[i].param->tensor, arg))
            o->states[i].group = o->group_count;
    o->group_count++;
    o->idle = false;
    o->layout = 0;
    choir__step_anew(o->run); /* a recorded step has the groups before */
    return CHOIR_OK;
}

void choir_optim_set_lr(choir_optim *o, float lr)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
    if (!(lr >= 0 && isfinite(lr))) {
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "choir_optim_set_lr: expected a learning rate that is finite and at least 0, got %g",
            (double)lr);
        return;
    }
    o->lr = lr;
    o->idle = false;
}

float choir_optim_lr(const choir_optim *o)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return 0;
    return choir_schedule_at(&o->schedule, o->lr, o->steps);
}

int64_t choir_optim_steps(const choir_optim *o)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return 0;
    return o->steps;
}

void choir_optim_schedule(choir_optim *o, choir_schedule schedule)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
    choir_status status = choir_schedule_check(&schedule);
    if (status == CHOIR_OK)
        o->schedule = schedule;
    else
        choir__scope_fail(o->run, status);
}

/* --- a step --- */

static choir__opt_bias bias_of(const choir_optim *o)
{
    switch (o->rule.kind) {
    case CHOIR__ADAM:
    case CHOIR__MUON: return CHOIR__BIAS_ADAM;
    case CHOIR__ADAFACTOR: return CHOIR__BIAS_ADAFACTOR;
    case CHOIR__LAMB: return o->rule.bias_correction ? CHOIR__BIAS_LAMB : CHOIR__BIAS_NONE;
    default: return CHOIR__BIAS_NONE;
    }
}

/* Adds what Adam's factors of step t lack as f32 numbers, for f64 parameters. */
static void add_rest(choir__opt_hyper *h, double t)
{
    double step_size = (double)h->lr / (1 - choir__pow((double)h->beta1, t));
    double rsqrt_bias2 = 1 / sqrt(1 - choir__pow((double)h->beta2, t));
    h->inv_bias1 = (float)(step_size - (double)h->step_size);
    h->inv_bias2 = (float)(rsqrt_bias2 - (double)h->rsqrt_bias2);
}

static choir__opt_hyper hyper_of(const choir_optim *o, int g)
{
    double base = o->base_lr != 0 ? (double)o->base_lr : 1; /* a base of 0 has no ratio */
    double scale = o->base_lr != 0 || o->lr != 0 ? (double)choir_optim_lr(o) / base : 1;
    choir__opt_hyper h = {
        .lr = (float)((double)o->groups[g].lr * scale),
        .beta1 = o->rule.beta1,
        .beta2 = o->rule.beta2,
        .eps = o->rule.eps,
        .weight_decay = o->groups[g].weight_decay,
        .momentum = o->rule.momentum,
        .dampening = o->rule.dampening,
        .nesterov = o->rule.nesterov,
        .decoupled = o->rule.decoupled,
        .maximize = o->rule.maximize,
        .trust = o->rule.trust_always || o->groups[g].weight_decay != 0,
        .take1 = o->rule.grad_averaging ? 1.0f - o->rule.beta1 : 1.0f,
        .inv_bias1 = 1,
        .inv_bias2 = 1,
        .take = choir__optim_take(o, o->steps),
        .hash = o->hashes,
    };
    if (g == 0)
        h.lr = choir_optim_lr(o); /* not through a ratio */
    choir__opt_correct(&h, bias_of(o), o->steps);
    if (o->rule.kind == CHOIR__ADAM)
        add_rest(&h, (double)o->steps + 1);
    return h;
}

/* Does the host's part of a step; runs again at each replay. */
static choir_status decide(void *arg)
{
    choir_optim *o = arg;
    choir__opt_hyper hyper[CHOIR__MAX_GROUPS];
    for (int g = 0; g < o->group_count; g++)
        hyper[g] = hyper_of(o, g);
    for (int i = 0; i < o->part_count; i++)
        choir__launch_upload(o->parts[i].device, o->parts[i].hyper->data, hyper,
            (size_t)o->group_count * sizeof *hyper);
    o->steps++;
    for (int i = 0; i < o->count; i++) {
        const choir__param *p = o->states[i].param;
        if (p->tensor->storage)
            p->tensor->storage->version++;
        if (p->local->storage != p->tensor->storage)
            p->local->storage->version++;
    }
    return CHOIR_OK;
}

/* Corrects the biases for skipped steps, which only the devices count. */
static choir_status correct_for_skipped(void *arg)
{
    const choir_optim *o = arg;
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        choir__k_optim_skipped args = {.hyper = part->hyper->data,
            .skipped = choir__optim_clip_of(o, part) + CHOIR__CLIP_SKIPPED,
            .steps = o->steps - 1, /* `decide` has counted this one */
            .groups = o->group_count,
            .bias = bias_of(o)};
        choir__launch(part->device, CHOIR_F32, optim_skipped, &args);
    }
    return CHOIR_OK;
}

static choir_status finish_books(choir_optim *o)
{
    choir_status status = CHOIR_OK;
    bool any = false;
    for (int i = 0; i < o->count && status == CHOIR_OK; i++) {
        choir__book *book = o->states[i].param->book;
        any |= book && book->leaves > 0 && !o->states[i].param->taken;
        if (book && (!i || book != o->states[i - 1].param->book))
            status = choir__book_finish(book);
    }
    if (status == CHOIR_OK && !any)
        return choir__error(CHOIR_ERR_STATE, "optimizer: no backward since the last step");
    return status;
}

/* Completes the gradients and brings the tables up to date. */
static choir_status get_ready(choir_optim *o)
{
    choir_status status = choir__scope_status(o->run);
    if (status == CHOIR_OK && o->average.swapped)
        status = choir__error(CHOIR_ERR_STATE,
            "optimizer: the parameters are averages now: exchange them back by choir_optim_swap");
    if (status == CHOIR_OK && o->idle)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "sgd: all options are 0, which trains nothing; begin with choir_sgd_defaults(), or "
            "set the rate by choir_optim_set_lr");
    if (status == CHOIR_OK)
        status = choir__optim_check_sums(o);
    if (status == CHOIR_OK)
        status = finish_books(o);
    return status == CHOIR_OK ? choir__optim_lay_out(o) : status;
}

/* Steps; inverse NULL: the gradients need no unscaling. */
static choir_status step(choir_optim *o, const float *inverse)
{
    choir_status status = get_ready(o);
    if (status == CHOIR_OK)
        status = choir__host_call(decide, o);
    if (status == CHOIR_OK && o->norm.value)
        status = choir__optim_take_norm(o, inverse);
    if (status == CHOIR_OK && inverse)
        status = choir__host_call(correct_for_skipped, o);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    for (int i = 0; i < o->count; i++)
        choir__storage_claim(o->states[i].param->local->storage);
    status = choir__optim_update(o, inverse != NULL);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    choir__optim_launch_average(o);
    for (int i = 0; i < o->part_count && choir__offload_runs(o) && o->rule.kind == CHOIR__LAMB;
         i++)
        choir__offload_let_go(o, &o->parts[i], 0, o->parts[i].entry_count);
    choir__optim_take_sums(o);
    choir__strategies_updated(o->run);
    return CHOIR_OK;
}

choir_status choir_optim_step(choir_optim *o)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    return step(o, NULL);
}

choir_status choir__optim_step_scaled(choir_optim *o, const float *inverse)
{
    if (!o->norm.value)
        choir_optim_clip(o, 0); /* the norm shows infinities */
    return step(o, inverse);
}

choir_status choir__optim_unscale(choir_optim *o, const float *inverse)
{
    if (!o->norm.value)
        choir_optim_clip(o, 0);
    choir_status status = get_ready(o);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    float *clip = choir__data(o->norm.clip);
    choir__launch_bytes(o->run->device, clip + CHOIR__CLIP_INVERSE, inverse, sizeof(float));
    choir__optim_send_clip(o);
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        choir__k_unscale args = {.entries = part->entries->data,
            .count = part->entry_count,
            .inverse = choir__optim_clip_of(o, part) + CHOIR__CLIP_INVERSE};
        choir__launch(part->device, CHOIR_F32, unscale, &args);
    }
    o->unscaled = true;
    return CHOIR_OK;
}

void choir_optim_clip(choir_optim *o, float max_norm)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
    if (!(max_norm >= 0)) {
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "choir_optim_clip: expected a norm of at least 0, got %g", (double)max_norm);
        return;
    }
    if (!o->norm.value || max_norm != o->norm.most)
        choir__step_anew(o->run); /* a recorded step has the norm before */
    o->norm.most = max_norm;
    if (!o->norm.value) {
        o->norm.value = choir_full(o->run, CHOIR_F32, CHOIR_SCALAR, 0);
        o->norm.clip = choir_full(o->run, CHOIR_F32, choir_dims(CHOIR__CLIP_COUNT), 0);
    }
}

choir_tensor *choir_optim_grad_norm(choir_optim *o)
{
    return choir__use_optim(o, __func__) == CHOIR_OK ? o->norm.value : NULL;
}

/* --- for checkpoints --- */

void choir__optim_visit_own(choir_optim *o, choir__state_visit_fn *visit, void *arg)
{
    for (int i = 0; i < o->count; i++)
        choir__optim_visit_state(o, &o->states[i], visit, arg);
}

void choir__optim_visit_params(choir_optim *o, choir__state_visit_fn *visit, void *arg)
{
    if (!choir__strategies_visit_optim(o->run, o, visit, arg))
        choir__optim_visit_own(o, visit, arg);
    choir__strategies_visit_state(o->run, visit, arg);
}

struct plain_visit {
    choir_visit_fn *visit;
    void *arg;
};

static void visit_plainly(
    const char *name, choir_tensor *state, const choir__param *param, void *arg)
{
    struct plain_visit *v = arg;
    if (!choir__is_elsewhere(param))
        v->visit(name, state, v->arg);
}

void choir_optim_visit(choir_optim *o, choir_visit_fn *visit, void *arg)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK || choir__lacks(visit, __func__, "visit"))
        return;
    struct plain_visit v = {visit, arg};
    choir__optim_visit_params(o, visit_plainly, &v);
}

void choir_optim_restore(choir_optim *o, int64_t steps)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
    o->steps = steps;
}
