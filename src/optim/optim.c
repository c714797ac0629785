/* Optimizers: one kernel call for all parameters of a device.
 *
 * The kernel reads a table of entries (parameter, gradient, state), which is rebuilt only when
 * parameters or gradients move (layout.c), and a table of the groups' numbers, which each step
 * writes in queue order. The part of a step that the host decides (counting it, the schedule,
 * the bias correction) is a host call, so a recorded step runs it at each replay.
 *
 * Devices step in parallel. They meet only to clip: the sums of the rows go to the run's
 * device, which adds them and sends the factor back. */
#include "optim/optim.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    return CHOIR_OK;
}

void choir_optim_set_lr(choir_optim *o, float lr)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
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
    switch (o->kind) {
    case CHOIR__ADAM:
    case CHOIR__MUON: return CHOIR__BIAS_ADAM;
    case CHOIR__ADAFACTOR: return CHOIR__BIAS_ADAFACTOR;
    case CHOIR__LAMB: return o->bias_correction ? CHOIR__BIAS_LAMB : CHOIR__BIAS_NONE;
    default: return CHOIR__BIAS_NONE;
    }
}

static choir__opt_hyper hyper_of(const choir_optim *o, int g)
{
    double base = o->base_lr != 0 ? (double)o->base_lr : 1; /* a base of 0 has no ratio */
    double scale = o->base_lr != 0 || o->lr != 0 ? (double)choir_optim_lr(o) / base : 1;
    choir__opt_hyper h = {
        .lr = (float)((double)o->groups[g].lr * scale),
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .weight_decay = o->groups[g].weight_decay,
        .momentum = o->momentum,
        .dampening = o->dampening,
        .nesterov = o->nesterov,
        .decoupled = o->decoupled,
        .maximize = o->maximize,
        .trust = o->trust_always || o->groups[g].weight_decay != 0,
        .take1 = o->grad_averaging ? 1.0f - o->beta1 : 1.0f,
        .inv_bias1 = 1,
        .inv_bias2 = 1,
        .take = choir__optim_take(o, o->steps),
    };
    if (g == 0)
        h.lr = choir_optim_lr(o); /* not through a ratio */
    choir__opt_correct(&h, bias_of(o), o->steps);
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
        if (!book || (i && book == o->states[i - 1].param->book))
            continue;
        any |= book->leaves > 0 && !book->consumed;
        status = choir__book_finish(book);
    }
    if (status == CHOIR_OK && !any)
        return choir__error(CHOIR_ERR_STATE, "optimizer: no backward since the last step");
    return status;
}

/* Returns a part's rows of all kinds, at an address that the run's device can read. */
static const double *bring_rows(const choir_optim *o, const choir__optim_part *part, int kinds)
{
    int64_t count = kinds * part->row_count;
    choir_tensor from = {.storage = part->rows,
        .dtype = CHOIR_F64,
        .shape = {1, {count}},
        .stride = {1},
        .count = count};
    choir_tensor to = from;
    if (part->near) {
        to.storage = part->near;
        choir__copy_across(&to, &from);
    } else {
        choir__queue_wait_event(
            o->run->device->queue, choir__queue_record(part->device->queue));
    }
    return choir__data(&to);
}

/* Gathers the rows of all parts in name order on the run's device. If ranks have parts of
 * parameters, each adds its own rows to zeros. kinds: number of sums per row, stored one array
 * after the other. */
static choir_status gather_rows(const choir_optim *o, int kinds)
{
    const double **rows = choir__calloc((size_t)o->part_count, sizeof *rows);
    choir__k_fill zero = {.y = o->rows->data, .n = kinds * o->row_count, .dtype = CHOIR_F64};
    if (choir__strategies_share(o->run) && zero.n)
        choir__launch(o->run->device, CHOIR_F64, fill, &zero);
    for (int i = 0; i < o->part_count; i++)
        rows[i] = bring_rows(o, &o->parts[i], kinds);
    for (int i = 0; i < kinds * o->span_count; i++) {
        const choir__optim_span *s = &o->spans[i % o->span_count];
        int64_t kind = i / o->span_count;
        choir__launch_bytes(o->run->device,
            (double *)o->rows->data + kind * o->row_count + s->to,
            rows[s->part] + kind * o->parts[s->part].row_count + s->from,
            (size_t)s->count * sizeof(double));
    }
    free(rows);
    return choir__strategies_sum(o->run, o->run->device, o->rows->data, kinds * o->row_count);
}

/* Copies o->clip between a GPU and a processor, which cannot read each other's memory. */
static void copy_clip(const choir_optim *o, const choir__optim_part *part)
{
    choir_tensor to = *o->clip;
    to.storage = part->clip;
    to.offset = 0;
    choir__copy_across(&to, o->clip);
}

static void send_clip(const choir_optim *o)
{
    choir__event done = choir__queue_record(o->run->device->queue);
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        if (!part->clip)
            continue;
        if (part->device->far != o->run->device->far) {
            copy_clip(o, part);
            continue;
        }
        choir__queue_wait_event(part->device->queue, done);
        choir__launch_bytes(part->device, part->clip->data, choir__data(o->clip),
            CHOIR__CLIP_COUNT * sizeof(float));
    }
}

static choir_status launch_norm(const choir_optim *o, const float *inverse)
{
    choir__k_grad_norm whole = {.norm = choir__data(o->norm),
        .clip = choir__data(o->clip),
        .inverse = inverse,
        .max_norm = o->max_norm};
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        choir__k_grad_norm args = o->rows ? (choir__k_grad_norm){0} : whole;
        args.entries = part->entries->data;
        args.count = part->entry_count;
        args.rows = part->rows->data;
        choir__storage_claim(part->rows);
        choir__launch(part->device, CHOIR_F32, grad_norm, &args);
    }
    if (!o->rows) /* a single part, on the run's device */
        return CHOIR_OK;
    choir_status status = gather_rows(o, 1);
    whole.given = o->row_count;
    whole.rows = o->rows->data;
    choir__launch(o->run->device, CHOIR_F32, grad_norm, &whole);
    send_clip(o);
    return status;
}

static choir__k_optim part_args(
    const choir_optim *o, const choir__optim_part *part, bool scaled)
{
    choir__k_optim args = {.entries = part->entries->data,
        .count = part->entry_count,
        .hyper = part->hyper->data,
        .rows = part->rows->data,
        .coded = o->coded};
    if (o->norm)
        args.clip = choir__optim_clip_of(o, part) + CHOIR__CLIP_FACTOR;
    if (scaled)
        args.found = choir__optim_clip_of(o, part) + CHOIR__CLIP_FOUND;
    return args;
}

static void launch_kernel(
    const choir_optim *o, const choir__optim_part *part, const choir__k_optim *args)
{
    switch (o->kind) {
    case CHOIR__SGD: choir__launch(part->device, CHOIR_F32, sgd, args); break;
    case CHOIR__ADAM: choir__launch(part->device, CHOIR_F32, adam, args); break;
    case CHOIR__LAMB: choir__launch(part->device, CHOIR_F32, lamb, args); break;
    case CHOIR__LION: choir__launch(part->device, CHOIR_F32, lion, args); break;
    case CHOIR__RMSPROP: choir__launch(part->device, CHOIR_F32, rmsprop, args); break;
    case CHOIR__ADAFACTOR: break; /* matrices.c */
    case CHOIR__MUON: choir__launch(part->device, CHOIR_F32, adam, args); break;
    }
}

/* Launches the update of a part. With state in a file it goes run by run, except for LAMB,
 * whose norms cover all entries. */
static void launch_part(const choir_optim *o, const choir__optim_part *part, bool scaled)
{
    choir__k_optim args = part_args(o, part, scaled);
    choir__storage_claim(part->rows); /* the norm's rows, which other devices may still read */
    if (!choir__offload_runs(o) || o->kind == CHOIR__LAMB) {
        launch_kernel(o, part, &args);
        return;
    }
    const choir__opt_entry *entries = args.entries;
    for (int first = 0, n; first < part->entry_count; first += n) {
        n = choir__offload_run(part, first);
        args.entries = entries + first;
        args.count = n;
        launch_kernel(o, part, &args);
        choir__offload_let_go(o, part, first, n);
    }
}

/* LAMB if ranks have parts of parameters: |p| and |u| are norms of whole parameters. */
static choir_status launch_lamb(const choir_optim *o, bool scaled)
{
    for (int i = 0; i < o->part_count; i++) {
        choir__k_lamb measure = part_args(o, &o->parts[i], scaled);
        choir__storage_claim(o->parts[i].rows);
        measure.part = CHOIR__LAMB_MEASURE;
        choir__launch(o->parts[i].device, CHOIR_F32, lamb, &measure);
    }
    choir_status status = gather_rows(o, 2);
    for (int i = 0; i < o->part_count; i++) {
        choir__k_lamb step = part_args(o, &o->parts[i], scaled);
        step.part = CHOIR__LAMB_STEP;
        step.rows = o->rows->data;
        step.whole_rows = o->row_count;
        choir__queue_wait_event(
            o->parts[i].device->queue, choir__queue_record(o->run->device->queue));
        choir__launch(o->parts[i].device, CHOIR_F32, lamb, &step);
    }
    return status;
}

/* Completes the gradients and brings the tables up to date. */
static choir_status get_ready(choir_optim *o)
{
    choir_status status = choir__scope_status(o->run);
    if (status == CHOIR_OK && o->swapped)
        status = choir__error(CHOIR_ERR_STATE,
            "optimizer: the parameters are averages now: exchange them back by choir_optim_swap");
    if (status == CHOIR_OK && o->idle)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "sgd: all options are 0, which trains nothing; begin with choir_sgd_defaults(), or "
            "set the rate by choir_optim_set_lr");
    if (status == CHOIR_OK)
        status = finish_books(o);
    return status == CHOIR_OK ? choir__optim_lay_out(o) : status;
}

/* Queues the update of all parts. */
static choir_status update(choir_optim *o, bool scaled)
{
    if (o->kind == CHOIR__LAMB && choir__strategies_share(o->run))
        return launch_lamb(o, scaled);
    for (int i = 0; i < o->part_count; i++)
        launch_part(o, &o->parts[i], scaled);
    return o->kind == CHOIR__ADAFACTOR || o->kind == CHOIR__MUON
               ? choir__optim_step_matrices(o, scaled)
               : CHOIR_OK;
}

/* Steps; inverse NULL: the gradients need no unscaling. */
static choir_status step(choir_optim *o, const float *inverse)
{
    choir_status status = get_ready(o);
    if (status == CHOIR_OK)
        status = choir__host_call(decide, o);
    if (status == CHOIR_OK && o->norm)
        status = launch_norm(o, inverse);
    if (status == CHOIR_OK && inverse)
        status = choir__host_call(correct_for_skipped, o);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    for (int i = 0; i < o->count; i++)
        choir__storage_claim(o->states[i].param->local->storage);
    status = update(o, inverse != NULL);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    choir__optim_launch_average(o);
    for (int i = 0; i < o->part_count && choir__offload_runs(o) && o->kind == CHOIR__LAMB; i++)
        choir__offload_let_go(o, &o->parts[i], 0, o->parts[i].entry_count);
    for (int i = 0; i < o->count; i++)
        if (o->states[i].param->book)
            choir__book_consume(o->states[i].param->book);
    choir__strategies_updated(o->run);
    return CHOIR_OK;
}

choir_status choir_optim_step(choir_optim *o)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    return step(o, NULL);
}

choir_status choir__optim_step_scaled(choir_optim *o, const float *inverse)
{
    if (!o->norm)
        choir_optim_clip(o, 0); /* the norm shows infinities */
    return step(o, inverse);
}

choir_status choir__optim_unscale(choir_optim *o, const float *inverse)
{
    if (!o->norm)
        choir_optim_clip(o, 0);
    choir_status status = get_ready(o);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    float *clip = choir__data(o->clip);
    choir__launch_bytes(o->run->device, clip + CHOIR__CLIP_INVERSE, inverse, sizeof(float));
    send_clip(o);
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        choir__k_unscale args = {.entries = part->entries->data,
            .count = part->entry_count,
            .inverse = choir__optim_clip_of(o, part) + CHOIR__CLIP_INVERSE};
        choir__launch(part->device, CHOIR_F32, unscale, &args);
    }
    return CHOIR_OK;
}

void choir_optim_clip(choir_optim *o, float max_norm)
{
    if (choir__use_optim(o, __func__) != CHOIR_OK)
        return;
    o->max_norm = max_norm;
    if (!o->norm) {
        o->norm = choir_full(o->run, CHOIR_F32, CHOIR_SCALAR, 0);
        o->clip = choir_full(o->run, CHOIR_F32, choir_dims(CHOIR__CLIP_COUNT), 0);
    }
}

choir_tensor *choir_optim_grad_norm(choir_optim *o)
{
    return choir__use_optim(o, __func__) == CHOIR_OK ? o->norm : NULL;
}

/* --- for checkpoints --- */

void choir__optim_visit_params(choir_optim *o, choir__state_visit_fn *visit, void *arg)
{
    for (int i = 0; i < o->count; i++)
        choir__optim_visit_state(o, &o->states[i], visit, arg);
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
    (void)param;
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
