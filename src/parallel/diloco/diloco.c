/* Local SGD and DiLoCo: the workers of a rank, and the time of their meetings.
 *
 * A worker's steps are plain ones: its book of gradients does not communicate. The workers of a
 * rank take turns within a step (turns.c). A watcher of the run's steps counts the optimizer's
 * updates in a host call, so that replays of a recorded step count too, and queues a meeting
 * (meet.c) when one is due.
 *
 * A warm-up uses choir_ddp: the module is inside its wrapper, whose book averages gradients,
 * and all workers are one. When the first step after the warm-up begins, plain books replace
 * that book, each worker receives a copy of everything, and steps are recorded again. */
#include "parallel/diloco/diloco.h"

#include <stdlib.h>

#include "base/tree.h"
#include "parallel/ranks.h"

choir_local_sgd_opts choir_local_sgd_defaults(void)
{
    return (choir_local_sgd_opts){.every = 50, .ddp = choir_ddp_defaults()};
}

choir_diloco_opts choir_diloco_defaults(void)
{
    return (choir_diloco_opts){
        .every = 50, .outer_lr = 0.7f, .momentum = 0.9f, .nesterov = true, .wire = CHOIR_F32};
}

/* --- steps --- */

/* Counts a step of all workers of this rank. */
static choir_status count_step(choir__diloco *w)
{
    w->steps++;
    if (w->warm) {
        if (w->steps == w->warmup)
            choir__step_anew(w->base.run); /* the following steps do other work */
        return CHOIR_OK;
    }
    w->apart++;
    if (w->apart == w->every)
        return choir__diloco_meet(w);
    return w->near && w->apart % w->near_every == 0 ? choir__diloco_meet_near(w) : CHOIR_OK;
}

static choir_status count_update(void *arg)
{
    choir__diloco *w = arg;
    bool again = w->updated && w->here > 1 && !w->warm;
    w->updated = true;
    if (again)
        return choir__error(CHOIR_ERR_STATE,
            "%s: this rank has %d workers, and worker %lld has stepped twice: choir_worker_turn "
            "comes before each worker's micro-batches",
            w->name, w->here, (long long)(w->first + w->shown));
    if (!w->warm && w->shown + 1 < w->here)
        return CHOIR_OK; /* the next worker's turn follows */
    choir__diloco_show(w, 0);
    w->updated = false;
    return count_step(w);
}

static void end_turn(choir__diloco *w)
{
    choir_status status = choir__host_call(count_update, w);
    if (status != CHOIR_OK)
        choir__scope_fail(w->base.run, status);
}

/* A scaler still has to judge the worker's gradients. */
static void step_updated(choir__strategy *s)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    if (!w->scaler)
        end_turn(w);
}

static void scale_updated(choir__strategy *s)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    if (w->scaler)
        end_turn(w);
}

/* Ends the warm-up: from now on, gradients are a worker's own. */
static void end_warm_up(choir__diloco *w)
{
    int count;
    choir__param **params = choir__module_params(w->module, &count);
    (void)!choir_device_sync(w->base.run->device);
    for (int i = 0; i < count; i++)
        if (params[i]->book)
            choir__book_free(params[i]->book);
    choir__books_make(w->base.run, params, count);
    free(params);
    w->warm = NULL;
}

static void step_begins(choir__strategy *s)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    if (!w->warm || w->steps < w->warmup)
        return;
    end_warm_up(w);
    choir__diloco_spread(w, 0);
    choir__diloco_spread_state(w);
}

static bool is_apart(const choir__strategy *s)
{
    return CHOIR__STRATEGY_OF(s, const choir__diloco, strategy)->apart > 0;
}

static void went_to(choir__strategy *s, int64_t steps)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    w->steps = steps;
    w->apart = 0;
    if (w->warm && steps >= w->warmup)
        end_warm_up(w); /* the workers have the states that were restored */
    choir__diloco_restart(w);
}

/* --- the module --- */

static const choir__strategy_ops workers_ops = {.name = "diloco",
    .step_begins = step_begins,
    .step_updated = step_updated,
    .scale_updated = scale_updated,
    .visit_state = choir__diloco_visit_state,
    .visit_optim = choir__diloco_visit_optim,
    .apart = is_apart,
    .went_to = went_to};

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__diloco *w = (choir__diloco *)self;
    return choir_forward_n(w->warm ? w->warm : w->module, in, count);
}

static const choir_module_class local_sgd_class = {
    "local_sgd", sizeof(choir__diloco), forward, 0};
static const choir_module_class diloco_class = {"diloco", sizeof(choir__diloco), forward, 0};

/* Stores the workers of a module that can be used. */
static choir_status workers_of(
    const choir_module *module, const char *function, choir__diloco **w)
{
    choir_status status = choir__use_module(module, function);
    *w = NULL;
    if (status != CHOIR_OK)
        return status;
    if (module->type != &local_sgd_class && module->type != &diloco_class)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a module that choir_local_sgd or choir_diloco returned, got one of type "
            "%s",
            function, module->type->name);
    *w = (choir__diloco *)module;
    return CHOIR_OK;
}

choir_status choir_meet(choir_module *module)
{
    choir__diloco *w;
    choir_status status = workers_of(module, __func__, &w);
    if (status == CHOIR_OK)
        status = choir__scope_status(module->run);
    if (status == CHOIR_OK && (w->shown || w->updated))
        status = choir__error(CHOIR_ERR_STATE,
            "%s: expected a meeting after the turns of all %d workers of this rank, got it after "
            "worker %lld's",
            w->name, w->here, (long long)(w->first + w->shown));
    if (status != CHOIR_OK || !w->apart)
        return status;
    status = choir__diloco_meet(w);
    return status == CHOIR_OK ? status : choir__scope_fail(module->run, status);
}

int64_t choir_steps_apart(const choir_module *module)
{
    choir__diloco *w;
    return workers_of(module, __func__, &w) == CHOIR_OK ? w->apart : 0;
}

int64_t choir_meetings(const choir_module *module)
{
    choir__diloco *w;
    return workers_of(module, __func__, &w) == CHOIR_OK ? w->meetings : 0;
}

choir_status choir_diloco_resume(choir_module *module, int64_t steps)
{
    choir__diloco *w;
    choir_status status = workers_of(module, __func__, &w);
    if (status == CHOIR_OK)
        status = choir__diloco_recut(w);
    if (status == CHOIR_OK)
        went_to(&w->strategy, steps);
    return status;
}

int64_t choir_worker_turns(const choir_module *module)
{
    choir__diloco *w;
    if (workers_of(module, __func__, &w) != CHOIR_OK)
        return 0;
    return w->warm && w->steps < w->warmup ? 1 : w->here;
}

choir_status choir_worker_turn(choir_module *module, int64_t turn)
{
    choir__diloco *w;
    choir_status status = workers_of(module, __func__, &w);
    if (status != CHOIR_OK)
        return status;
    status = choir__scope_status(module->run);
    int64_t turns = status == CHOIR_OK ? choir_worker_turns(module) : 1;
    if (status == CHOIR_OK && turns > 1 && !w->optim)
        status = choir__error(CHOIR_ERR_STATE,
            "%s: this rank has %d workers: choir_workers_train names their optimizer first",
            w->name, w->here);
    if (status == CHOIR_OK && turn != (w->updated ? w->shown + 1 : 0))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected turn %d, got %lld; the workers of a rank take turns 0 to %lld in each "
            "step, and each turn ends with choir_optim_step",
            w->name, w->updated ? w->shown + 1 : 0, (long long)turn, (long long)turns - 1);
    if (status == CHOIR_OK && turns > 1)
        status = choir__diloco_take_turn(w, (int)turn);
    return status == CHOIR_OK ? status : choir__scope_fail(module->run, status);
}

choir_status choir_workers_train(choir_module *module, choir_optim *optim, choir_scaler *scaler)
{
    choir__diloco *w;
    choir_status status = workers_of(module, __func__, &w);
    if (status == CHOIR_OK)
        status = choir__use_optim(optim, __func__);
    if (status != CHOIR_OK)
        return status;
    if (w->optim || optim->steps)
        return choir__error(
            CHOIR_ERR_STATE, "%s: expected one optimizer, before its first step", w->name);
    return choir__diloco_have(w, optim, scaler);
}

/* --- construction --- */

static void list_buffer(const char *name, choir_tensor *t, void *arg)
{
    choir__diloco *w = arg;
    (void)name;
    if (t->param)
        return;
    CHOIR__GROW(w->tensors, w->tensor_count);
    w->tensors[w->tensor_count++] = t;
}

static void list_tensors(choir__diloco *w)
{
    int count;
    choir__param **params = choir__module_params(w->module, &count);
    w->pieces = choir__calloc((size_t)count + 1, sizeof *w->pieces);
    for (int i = 0; i < count; i++) {
        if (!params[i]->tensor->requires_grad)
            continue;
        w->pieces[w->piece_count++].param = params[i];
        CHOIR__GROW(w->tensors, w->tensor_count);
        w->tensors[w->tensor_count++] = params[i]->tensor;
    }
    free(params);
    choir_module_visit(w->module, true, list_buffer, w);
}

static void close_workers(void *arg)
{
    choir__diloco *w = arg;
    choir_scope *run = w->base.run;
    (void)!choir_device_sync(run->device);
    choir__diloco_free_sets(w);
    choir__storage_unref(w->entries);
    choir__storage_unref(w->hypers);
    free(w->pieces);
    free(w->tensors);
}

struct taking {
    choir_group *group;
    choir_status status;
};

static void take_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct taking *s = arg;
    (void)name;
    if (s->status == CHOIR_OK)
        s->status = choir_group_broadcast(
            s->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
}

static choir_status join(choir__diloco *w, choir_ddp_opts ddp)
{
    choir_scope *run = w->base.run;
    struct taking taking = {w->group, choir__scope_status(run)};
    if (taking.status == CHOIR_OK)
        taking.status = choir__diloco_compare(w);
    if (taking.status == CHOIR_OK)
        taking.status = choir_device_sync(run->device);
    if (taking.status == CHOIR_OK)
        choir_module_visit(w->module, true, take_tensor, &taking);
    choir_status status = taking.status;
    list_tensors(w);
    if (status == CHOIR_OK)
        status = choir__diloco_make_sets(w);
    if (status == CHOIR_OK)
        status = choir__diloco_lay_out(w);
    if (status == CHOIR_OK && w->warmup) {
        w->warm = choir_ddp(run, w->module, w->group, ddp);
        status = choir__scope_status(run);
    }
    choir__strategy_join(&w->strategy, run);
    choir__on_close(run, close_workers, w);
    return status;
}

static choir__diloco *new_workers(choir_scope *run, const choir_module_class *type,
    choir_module *module, choir_group *group, int64_t every, int64_t workers)
{
    choir__diloco *w = choir_module_new(run, type);
    int world = choir_group_world(group);
    int64_t end;
    w->strategy = (choir__strategy){.ops = &workers_ops, .places = true};
    w->base.inside->strategy = &w->strategy;
    w->name = type->name;
    w->module = module;
    w->group = group;
    w->every = every;
    w->count = workers ? workers : world;
    w->given = workers != 0;
    choir__tree_run(w->count, choir_group_rank(group), world, &w->first, &end);
    w->here = (int)(end - w->first);
    choir__module_ready(module); /* names are the module's own, without a prefix */
    return w;
}

static choir_module *finish(choir__diloco *w, choir_status status, choir_ddp_opts ddp)
{
    if (status == CHOIR_OK)
        status = join(w, ddp);
    choir_module_child(
        &w->base, "", w->warm ? &w->warm : &w->module, w->warm ? w->warm : w->module);
    if (status != CHOIR_OK)
        choir__scope_fail(w->base.run, status);
    return &w->base;
}

choir_module *choir_local_sgd(
    choir_scope *run, choir_module *module, choir_group *group, choir_local_sgd_opts opts)
{
    if (!choir__ranks_begin(&run, &module, group, __func__))
        return module;
    choir__diloco *w =
        new_workers(run, &local_sgd_class, module, group, opts.every, opts.workers);
    w->warmup = opts.warmup;
    w->near = opts.near;
    w->near_every = opts.near_every;
    w->recut = opts.recut;
    return finish(w, choir__diloco_check(w), opts.ddp);
}

choir_module *choir_diloco(
    choir_scope *run, choir_module *module, choir_group *group, choir_diloco_opts opts)
{
    if (!choir__ranks_begin(&run, &module, group, __func__))
        return module;
    choir__diloco *w = new_workers(run, &diloco_class, module, group, opts.every, opts.workers);
    w->diloco = true;
    w->recut = opts.recut;
    w->bf16 = opts.wire == CHOIR_BF16;
    w->hyper = (choir__opt_hyper){
        .lr = opts.outer_lr, .momentum = opts.momentum, .nesterov = opts.nesterov};
    choir_status status = choir__diloco_check(w);
    if (status == CHOIR_OK)
        status = choir__diloco_check_outer(w, opts.wire);
    return finish(w, status, choir_ddp_defaults());
}
