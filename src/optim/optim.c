/* Optimizers: one kernel call for all parameters.
 *
 * The kernel reads a table of entries (parameter, gradient, state), laid out once and again
 * when gradients move, and a table of the groups' numbers, written in queue order by each step.
 * The part of a step that the host decides (count it, look up the schedule, correct the biases)
 * is a host call, so a recorded step goes through it at each replay. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

choir_status choir_optim_group(
    choir_optim *o, choir_match_fn *match, void *arg, float lr, float weight_decay)
{
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
    o->layout = 0;
    return CHOIR_OK;
}

void choir_optim_set_lr(choir_optim *o, float lr)
{
    o->lr = lr;
}

float choir_optim_lr(const choir_optim *o)
{
    return choir_schedule_at(&o->schedule, o->lr, o->steps);
}

int64_t choir_optim_steps(const choir_optim *o)
{
    return o->steps;
}

void choir_optim_schedule(choir_optim *o, choir_schedule schedule)
{
    choir_status status = choir__schedule_check(&schedule);
    if (status == CHOIR_OK)
        o->schedule = schedule;
    else
        choir__scope_fail(o->run, status);
}

/* --- state and the table of entries --- */

static choir_tensor *state_like(choir_optim *o, const choir_tensor *param)
{
    choir_tensor *t = choir__tensor_like(o->run, param);
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

static void make_state(choir_optim *o, choir__optim_state *s)
{
    choir_tensor **wanted[3] = {&s->m, &s->v, &s->top};
    bool moments = o->kind != CHOIR__SGD,
         wants[3] = {moments || o->momentum != 0, moments, o->amsgrad};
    for (int i = 0; i < 3; i++)
        if (wants[i] && !*wanted[i])
            *wanted[i] = state_like(o, s->param->tensor);
}

static float *data_or_null(const choir_tensor *t)
{
    return t ? choir__data(t) : NULL;
}

/* A number that changes whenever any gradient's place does, or which parameters have one. */
static uint64_t books_layout(const choir_optim *o)
{
    uint64_t key = 1;
    for (int i = 0; i < o->count; i++) {
        choir__param *p = o->states[i].param;
        key = choir__mix(key, p->book ? (uint64_t)p->book->layout * 2 + p->has_grad : 0);
    }
    return key;
}

static choir_status lay_out(choir_optim *o)
{
    uint64_t layout = books_layout(o);
    if (layout == o->layout)
        return CHOIR_OK;
    size_t bytes = (size_t)(o->count + 1) * sizeof *o->table;
    o->table = choir__realloc(o->table, bytes);
    memset(o->table, 0, bytes);
    o->entry_count = 0;
    int64_t rows = 0;
    for (int i = 0; i < o->count; i++) {
        choir__optim_state *s = &o->states[i];
        float *grad = choir__param_grad_data(s->param);
        if (!grad)
            continue;
        make_state(o, s);
        const choir_tensor *t = s->param->tensor;
        int64_t first = t->shape.ndim && t->shape.dim[0] ? t->shape.dim[0] : 1;
        if (choir_scope_status(o->run) != CHOIR_OK)
            return choir_scope_status(o->run);
        o->table[o->entry_count++] = (choir__opt_entry){.param = choir__data(t),
            .grad = grad,
            .m = data_or_null(s->m),
            .v = data_or_null(s->v),
            .top = data_or_null(s->top),
            .n = t->count,
            .row = t->count / first,
            .group = s->group};
        rows += first;
    }
    if (!o->entries)
        o->entries = choir__storage_new(o->run->device, bytes);
    if (!o->hyper)
        o->hyper =
            choir__storage_new(o->run->device, CHOIR__MAX_GROUPS * sizeof(choir__opt_hyper));
    choir__storage_unref(o->rows);
    o->rows = choir__storage_new(o->run->device, (size_t)(2 * rows + 1) * sizeof(double));
    if (!o->entries || !o->hyper || !o->rows)
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the optimizer",
            choir_device_name(o->run->device));
    choir__launch_upload(
        o->run->device, o->entries->data, o->table, (size_t)o->entry_count * sizeof *o->table);
    o->layout = layout;
    return CHOIR_OK;
}

/* --- a step --- */

static choir__opt_hyper hyper_of(const choir_optim *o, int g)
{
    double base = o->base_lr != 0 ? (double)o->base_lr : 1; /* a base of 0 has no proportion */
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
        .first = o->steps == 0,
        .trust = o->trust_always || o->groups[g].weight_decay != 0,
        .take1 = o->grad_averaging ? 1.0f - o->beta1 : 1.0f,
        .inv_bias1 = 1,
        .inv_bias2 = 1,
    };
    if (g == 0)
        h.lr = choir_optim_lr(o); /* not through a ratio */
    double t = (double)o->steps + 1;
    double bias1 = 1 - pow((double)o->beta1, t), bias2 = 1 - pow((double)o->beta2, t);
    if (o->kind == CHOIR__ADAM) {
        h.step_size = (float)((double)h.lr / bias1);
        h.rsqrt_bias2 = (float)(1 / sqrt(bias2));
    }
    if (o->kind == CHOIR__LAMB && o->bias_correction) {
        h.inv_bias1 = (float)(1 / bias1);
        h.inv_bias2 = (float)(1 / bias2);
    }
    return h;
}

/* What the host decides about a step; again at each replay. */
static choir_status decide(void *arg)
{
    choir_optim *o = arg;
    choir__opt_hyper hyper[CHOIR__MAX_GROUPS];
    for (int g = 0; g < o->group_count; g++)
        hyper[g] = hyper_of(o, g);
    choir__launch_upload(
        o->run->device, o->hyper->data, hyper, (size_t)o->group_count * sizeof *hyper);
    o->steps++;
    for (int i = 0; i < o->count; i++)
        o->states[i].param->tensor->storage->version++;
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

static void launch_norm(choir_optim *o)
{
    choir__k_grad_norm args = {.entries = o->entries->data,
        .count = o->entry_count,
        .rows = o->rows->data,
        .norm = choir__data(o->norm),
        .clip = choir__data(o->clip),
        .max_norm = o->max_norm};
    choir__launch(o->run->device, CHOIR_F32, grad_norm, &args);
}

choir_status choir_optim_step(choir_optim *o)
{
    choir_status status = choir_scope_status(o->run);
    if (status == CHOIR_OK)
        status = finish_books(o);
    if (status == CHOIR_OK)
        status = lay_out(o);
    if (status == CHOIR_OK)
        status = choir__host_call(decide, o);
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    if (o->norm)
        launch_norm(o);
    choir__k_optim args = {.entries = o->entries->data,
        .count = o->entry_count,
        .hyper = o->hyper->data,
        .clip = o->norm ? choir__data(o->clip) : NULL,
        .rows = o->rows->data};
    switch (o->kind) {
    case CHOIR__SGD: choir__launch(o->run->device, CHOIR_F32, sgd, &args); break;
    case CHOIR__ADAM: choir__launch(o->run->device, CHOIR_F32, adam, &args); break;
    case CHOIR__LAMB: choir__launch(o->run->device, CHOIR_F32, lamb, &args); break;
    }
    for (int i = 0; i < o->count; i++)
        if (o->states[i].param->book)
            choir__book_consume(o->states[i].param->book);
    return CHOIR_OK;
}

void choir_optim_clip(choir_optim *o, float max_norm)
{
    o->max_norm = max_norm;
    if (!o->norm) {
        o->norm = choir_full(o->run, CHOIR_F32, CHOIR_SCALAR, 0);
        o->clip = choir_full(o->run, CHOIR_F32, CHOIR_SCALAR, 1);
    }
}

choir_tensor *choir_optim_grad_norm(choir_optim *o)
{
    return o->norm;
}

/* --- for checkpoints --- */

static void visit_state(const char *kind_name, const choir__optim_state *s, choir_tensor *t,
    choir_visit_fn *visit, void *arg)
{
    char *name = choir__format("%s.%s", kind_name, s->param->name);
    visit(name, t, arg);
    free(name);
}

void choir_optim_visit(choir_optim *o, choir_visit_fn *visit, void *arg)
{
    for (int i = 0; i < o->count; i++) {
        choir__optim_state *s = &o->states[i];
        make_state(o, s);
        if (s->m)
            visit_state(
                o->kind == CHOIR__SGD ? "momentum_buffer" : "exp_avg", s, s->m, visit, arg);
        if (s->v)
            visit_state("exp_avg_sq", s, s->v, visit, arg);
        if (s->top)
            visit_state("max_exp_avg_sq", s, s->top, visit, arg);
    }
}

void choir_optim_restore(choir_optim *o, int64_t steps)
{
    o->steps = steps;
}
