/* Optimizers: one kernel call for all parameters.
 *
 * The kernel reads a table of entries (parameter, gradient, state), laid out once and again
 * when gradients move, and a table of the groups' numbers, written in queue order by each step.
 * The part of a step that the host decides (count it, look up the schedule, correct the biases)
 * is a host call, so a recorded step goes through it at each replay. */
#include <choir/optim.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "nn/module.h"

enum { MAX_GROUPS = 16 };

enum kind { SGD, ADAM };

typedef struct group {
    float lr, weight_decay; /* lr of the group, at a base rate of `lr` below */
} group;

typedef struct state {
    choir__param *param;
    choir_tensor *m, *v; /* momentum or first moment; second moment */
    int group;
} state;

struct choir_optim {
    choir_scope *run;
    enum kind kind;
    choir_module *module;
    state *states;
    int count;
    group groups[MAX_GROUPS];
    int group_count;
    float lr, base_lr; /* now; when the groups were made */
    float beta1, beta2, eps, momentum, dampening;
    bool nesterov, decoupled;
    choir_schedule schedule;
    int64_t steps;
    choir__storage *entries, *hyper;
    choir__opt_entry *table; /* the host's copy of entries */
    int entry_count;
    uint64_t layout; /* of the books, when the table was made */
    float max_norm;
    choir_tensor *norm, *clip; /* () */
    choir__storage *norm_rows;
};

/* --- making one --- */

choir_sgd_opts choir_sgd_defaults(void)
{
    return (choir_sgd_opts){.lr = 1e-3f};
}

choir_adamw_opts choir_adam_defaults(void)
{
    return (choir_adamw_opts){.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

choir_adamw_opts choir_adamw_defaults(void)
{
    choir_adamw_opts opts = choir_adam_defaults();
    opts.weight_decay = 0.01f;
    return opts;
}

static void close_optim(void *arg)
{
    choir_optim *o = arg;
    choir_device_sync(o->run->device);
    choir__storage_unref(o->entries);
    choir__storage_unref(o->hyper);
    choir__storage_unref(o->norm_rows);
    free(o->states);
    free(o->table);
    free(o);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const state *)a)->param->name, ((const state *)b)->param->name);
}

static choir_optim *new_optim(
    choir_scope *run, choir_module *module, enum kind how, float lr, float weight_decay)
{
    choir_optim *o = choir__calloc(1, sizeof *o);
    o->run = run;
    o->kind = how;
    o->module = module;
    o->lr = o->base_lr = lr;
    o->groups[o->group_count++] = (group){lr, weight_decay};
    o->schedule = choir_schedule_constant();
    int count;
    choir__param **params = choir__module_params(module, &count);
    bool bookless = false;
    for (int i = 0; i < count; i++)
        bookless |= !params[i]->book;
    if (bookless)
        choir__book_new(run, params, count);
    o->states = choir__calloc((size_t)count + 1, sizeof *o->states);
    o->count = count;
    for (int i = 0; i < count; i++)
        o->states[i].param = params[i];
    free(params);
    qsort(
        o->states, (size_t)count, sizeof *o->states, by_name); /* norms add up in name order */
    choir__on_close(run, close_optim, o);
    if (!(lr >= 0))
        choir__poison(run, CHOIR_ERR_ARGUMENT, "optimizer: a learning rate of %g", (double)lr);
    return o;
}

choir_optim *choir_sgd(choir_scope *run, choir_module *module, choir_sgd_opts opts)
{
    choir_optim *o = new_optim(run, module, SGD, opts.lr, opts.weight_decay);
    o->momentum = opts.momentum;
    o->dampening = opts.dampening;
    o->nesterov = opts.nesterov;
    if (opts.nesterov && (opts.momentum <= 0 || opts.dampening != 0))
        choir__poison(
            run, CHOIR_ERR_ARGUMENT, "sgd: Nesterov needs a momentum above 0 and no dampening");
    return o;
}

static choir_optim *new_adam(
    choir_scope *run, choir_module *module, choir_adamw_opts opts, bool decoupled)
{
    choir_optim *o = new_optim(run, module, ADAM, opts.lr, opts.weight_decay);
    o->beta1 = opts.beta1;
    o->beta2 = opts.beta2;
    o->eps = opts.eps;
    o->decoupled = decoupled;
    if (!(opts.beta1 >= 0 && opts.beta1 < 1 && opts.beta2 >= 0 && opts.beta2 < 1))
        choir__poison(run, CHOIR_ERR_ARGUMENT, "adam: betas %g and %g are not in [0, 1)",
            (double)opts.beta1, (double)opts.beta2);
    return o;
}

choir_optim *choir_adam(choir_scope *run, choir_module *module, choir_adamw_opts opts)
{
    return new_adam(run, module, opts, false);
}

choir_optim *choir_adamw(choir_scope *run, choir_module *module, choir_adamw_opts opts)
{
    return new_adam(run, module, opts, true);
}

choir_status choir_optim_group(
    choir_optim *o, choir_match_fn *match, void *arg, float lr, float weight_decay)
{
    if (o->group_count == MAX_GROUPS)
        return choir__error(CHOIR_ERR_ARGUMENT, "optimizer: more than %d groups", MAX_GROUPS);
    o->groups[o->group_count] = (group){lr, weight_decay};
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
    o->schedule = schedule;
}

/* --- state and the table of entries --- */

static choir_tensor *state_like(choir_optim *o, const choir_tensor *param)
{
    choir_tensor *t = choir__tensor_like(o->run, param);
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

static void make_state(choir_optim *o, state *s)
{
    bool wants_m = o->kind == ADAM || o->momentum != 0;
    if (wants_m && !s->m)
        s->m = state_like(o, s->param->tensor);
    if (o->kind == ADAM && !s->v)
        s->v = state_like(o, s->param->tensor);
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
        key = choir__mix(key, (uint64_t)p->book->layout * 2 + p->has_grad);
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
        state *s = &o->states[i];
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
            .n = t->count,
            .row = t->count / first,
            .group = s->group};
        rows += first;
    }
    if (!o->entries)
        o->entries = choir__storage_new(o->run->device, bytes);
    if (!o->hyper)
        o->hyper = choir__storage_new(o->run->device, MAX_GROUPS * sizeof(choir__opt_hyper));
    choir__storage_unref(o->norm_rows);
    o->norm_rows = choir__storage_new(o->run->device, (size_t)rows * sizeof(double) + 8);
    if (!o->entries || !o->hyper || !o->norm_rows)
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
        .first = o->steps == 0,
    };
    if (g == 0)
        h.lr = choir_optim_lr(o); /* not through a ratio */
    if (o->kind == ADAM) {
        double t = (double)o->steps + 1;
        h.step_size = (float)((double)h.lr / (1 - pow((double)o->beta1, t)));
        h.rsqrt_bias2 = (float)(1 / sqrt(1 - pow((double)o->beta2, t)));
    }
    return h;
}

/* What the host decides about a step; again at each replay. */
static choir_status decide(void *arg)
{
    choir_optim *o = arg;
    choir__opt_hyper hyper[MAX_GROUPS];
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
        if (i && book == o->states[i - 1].param->book)
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
        .rows = o->norm_rows->data,
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
        .clip = o->norm ? choir__data(o->clip) : NULL};
    if (o->kind == SGD)
        choir__launch(o->run->device, CHOIR_F32, sgd, &args);
    else
        choir__launch(o->run->device, CHOIR_F32, adam, &args);
    for (int i = 0; i < o->count; i++)
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

static void visit_state(
    const char *kind_name, const state *s, choir_tensor *t, choir_visit_fn *visit, void *arg)
{
    char *name = choir__format("%s.%s", kind_name, s->param->name);
    visit(name, t, arg);
    free(name);
}

void choir_optim_visit(choir_optim *o, choir_visit_fn *visit, void *arg)
{
    for (int i = 0; i < o->count; i++) {
        state *s = &o->states[i];
        make_state(o, s);
        if (s->m)
            visit_state(o->kind == ADAM ? "exp_avg" : "momentum_buffer", s, s->m, visit, arg);
        if (s->v)
            visit_state("exp_avg_sq", s, s->v, visit, arg);
    }
}

void choir_optim_restore(choir_optim *o, int64_t steps)
{
    o->steps = steps;
}
