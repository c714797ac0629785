/* Local SGD and DiLoCo: the worker, and the time of its meetings.
 *
 * A worker's steps are plain ones: its book of gradients does not communicate. A watcher of the
 * run's steps counts the optimizer's updates in a host call, so that replays of a recorded step
 * count too, and queues a meeting (meet.c) when one is due.
 *
 * A warm-up uses choir_ddp: the module is inside its wrapper, whose book averages gradients.
 * When the first step after the warm-up begins, plain books replace that book, and steps are
 * recorded again. */
#include "parallel/diloco/diloco.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "nn/module.h"
#include "optim/optim.h"
#include "tensor/handle.h"

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

static choir_status count_update(void *arg)
{
    choir__worker *w = arg;
    w->steps++;
    if (w->warm) {
        if (w->steps == w->warmup)
            choir__step_anew(w->base.run); /* the following steps do other work */
        return CHOIR_OK;
    }
    w->apart++;
    if (w->apart == w->every)
        return choir__worker_meet(w);
    return w->near && w->apart % w->near_every == 0 ? choir__worker_meet_near(w) : CHOIR_OK;
}

static void step_updated(choir__strategy *s)
{
    choir__worker *w = CHOIR__STRATEGY_OF(s, choir__worker, strategy);
    choir_status status = choir__host_call(count_update, w);
    if (status != CHOIR_OK)
        choir__scope_fail(w->base.run, status);
}

/* From now on, gradients are this rank's own. */
static void end_warm_up(choir__worker *w)
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
    choir__worker *w = CHOIR__STRATEGY_OF(s, choir__worker, strategy);
    if (w->warm && w->steps >= w->warmup)
        end_warm_up(w);
}

static void visit_state(choir__strategy *s, choir__state_visit_fn *visit, void *to)
{
    const choir__worker *w = CHOIR__STRATEGY_OF(s, choir__worker, strategy);
    for (int i = 0; i < w->count; i++) {
        const choir__worker_piece *p = &w->pieces[i];
        if (!p->momentum)
            continue;
        char *name = choir__format(CHOIR__OUTER_MOMENTUM "%s", p->param->name);
        visit(name, p->momentum, NULL, to);
        free(name);
    }
}

static bool is_apart(const choir__strategy *s)
{
    return CHOIR__STRATEGY_OF(s, const choir__worker, strategy)->apart > 0;
}

static void went_to(choir__strategy *s, int64_t steps)
{
    choir__worker *w = CHOIR__STRATEGY_OF(s, choir__worker, strategy);
    w->steps = steps;
    w->apart = 0;
    choir__worker_restart(w);
}

/* --- the module --- */

static const choir__strategy_ops worker_ops = {.name = "diloco",
    .step_begins = step_begins,
    .step_updated = step_updated,
    .visit_state = visit_state,
    .apart = is_apart,
    .went_to = went_to};

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__worker *w = (choir__worker *)self;
    return choir_forward_n(w->warm ? w->warm : w->module, in, count);
}

static const choir_module_class local_sgd_class = {
    "local_sgd", sizeof(choir__worker), forward, 0};
static const choir_module_class diloco_class = {"diloco", sizeof(choir__worker), forward, 0};

static choir_status worker_of(const choir_module *module, choir__worker **w)
{
    *w = NULL;
    if (module->type != &local_sgd_class && module->type != &diloco_class)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_meet: expected a module that choir_local_sgd or choir_diloco returned, "
            "got one of type %s",
            module->type->name);
    *w = (choir__worker *)module;
    return CHOIR_OK;
}

choir_status choir_meet(choir_module *module)
{
    choir_status use = choir__use_module(module, __func__);
    if (use != CHOIR_OK)
        return use;
    choir__worker *w;
    choir_status status = choir__scope_status(module->run);
    if (status == CHOIR_OK)
        status = worker_of(module, &w);
    if (status != CHOIR_OK || !w->apart)
        return status;
    status = choir__worker_meet(w);
    return status == CHOIR_OK ? status : choir__scope_fail(module->run, status);
}

int64_t choir_steps_apart(const choir_module *module)
{
    if (choir__use_module(module, __func__) != CHOIR_OK)
        return 0;
    choir__worker *w;
    return worker_of(module, &w) == CHOIR_OK ? w->apart : 0;
}

int64_t choir_meetings(const choir_module *module)
{
    if (choir__use_module(module, __func__) != CHOIR_OK)
        return 0;
    choir__worker *w;
    return worker_of(module, &w) == CHOIR_OK ? w->meetings : 0;
}

choir_status choir_diloco_resume(choir_module *module, int64_t steps)
{
    choir_status use = choir__use_module(module, __func__);
    if (use != CHOIR_OK)
        return use;
    choir__worker *w;
    choir_status status = worker_of(module, &w);
    if (status != CHOIR_OK)
        return status;
    went_to(&w->strategy, steps);
    return CHOIR_OK;
}

/* --- checks that ranks fit together --- */

struct survey {
    choir__worker *worker;
    uint64_t model; /* hash of names and shapes */
    choir_status status;
};

static void survey_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct survey *s = arg;
    const choir__worker *w = s->worker;
    const choir_device *home = w->base.run->device;
    char *text = choir__format("%s %s", name, choir__shape_text(t->shape));
    s->model = choir__hash_text(s->model, text);
    free(text);
    if (s->status != CHOIR_OK || t->poisoned)
        return;
    if (choir__device_of(t) != home)
        s->status = choir__error(CHOIR_ERR_DEVICE,
            "%s: '%s' is on %s, its run on %s; a worker has one device", w->name, name,
            choir_device_name(choir__device_of(t)), choir_device_name(home));
    else if (t->param && (t->dtype != CHOIR_F32 || t->param->local != t))
        s->status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: parameter '%s' is %s; workers hold whole parameters of f32", w->name, name,
            t->dtype == CHOIR_F32 ? "sharded" : choir_dtype_name(t->dtype));
}

/* The data that ranks compare. */
typedef struct report {
    uint64_t model;
    int64_t every, near_every, warmup;
    float lr, momentum;
    int32_t nesterov, bf16;
} report;

static choir_status compare_options(
    const choir__worker *w, int rank, const report *theirs, const report *mine)
{
    if (theirs->every != mine->every)
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d is to meet every %lld steps, this one every %lld", w->name, rank,
            (long long)theirs->every, (long long)mine->every);
    if (theirs->warmup != mine->warmup || theirs->near_every != mine->near_every)
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d has a warm-up of %lld steps and meets near ones every %lld, this one "
            "%lld and %lld",
            w->name, rank, (long long)theirs->warmup, (long long)theirs->near_every,
            (long long)mine->warmup, (long long)mine->near_every);
    if (memcmp(theirs, mine, sizeof *mine))
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d has outer_lr %g, momentum %g%s and sends %s, this one %g, %g%s and %s",
            w->name, rank, (double)theirs->lr, (double)theirs->momentum,
            theirs->nesterov ? " (Nesterov's)" : "", theirs->bf16 ? "bf16" : "f32",
            (double)mine->lr, (double)mine->momentum, mine->nesterov ? " (Nesterov's)" : "",
            mine->bf16 ? "bf16" : "f32");
    return CHOIR_OK;
}

static choir_status compare_ranks(const choir__worker *w, uint64_t model)
{
    int world = choir_group_world(w->group);
    report *all = choir__calloc((size_t)world, sizeof *all), mine;
    memset(&mine, 0, sizeof mine);
    mine.model = model;
    mine.every = w->every;
    mine.near_every = w->near_every;
    mine.warmup = w->warmup;
    mine.lr = w->hyper.lr;
    mine.momentum = w->hyper.momentum;
    mine.nesterov = w->hyper.nesterov;
    mine.bf16 = w->bf16;
    choir_status status =
        choir_group_all_gather(w->group, &mine, all, sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        status = all[r].model == model
                     ? compare_options(w, r, &all[r], &mine)
                     : choir__error(CHOIR_ERR_MISMATCH,
                           "%s: the model of rank %d has other parameters than this one",
                           w->name, r);
    free(all);
    return status;
}

static void take_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct survey *s = arg;
    (void)name;
    if (s->status == CHOIR_OK)
        s->status = choir_group_broadcast(
            s->worker->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
}

/* --- construction --- */

static choir_status check_steps(const choir__worker *w)
{
    if (w->every < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected every of 1 step or more, got %lld; begin with choir_%s_defaults()",
            w->name, (long long)w->every, w->diloco ? "diloco" : "local_sgd");
    if (w->warmup < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a warm-up of 0 steps or more, got %lld", w->name,
            (long long)w->warmup);
    if (w->near_every >= w->every)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: near_every = %lld; ranks near each other meet more often than all do, every "
            "%lld steps",
            w->name, (long long)w->near_every, (long long)w->every);
    if (!w->near == !w->near_every && w->near_every >= 0)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected both near_every and near, or neither, got near_every = %lld with%s "
        "ranks near",
        w->name, (long long)w->near_every, w->near ? "" : "out");
}

static choir_status check_outer(const choir__worker *w, choir_dtype wire)
{
    float lr = w->hyper.lr, momentum = w->hyper.momentum;
    if (!(lr > 0 && isfinite(lr)))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "diloco: expected an outer_lr above 0, got %g", (double)lr);
    if (!(momentum >= 0 && momentum < 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "diloco: expected a momentum from 0 to below 1, got %g", (double)momentum);
    if (wire != CHOIR_F32 && wire != CHOIR_BF16)
        return choir__error(CHOIR_ERR_ARGUMENT, "diloco: expected wire f32 or bf16, got %s",
            choir_dtype_name(wire));
    return CHOIR_OK;
}

static void list_pieces(choir__worker *w)
{
    int count;
    choir__param **params = choir__module_params(w->module, &count);
    w->pieces = choir__calloc((size_t)count + 1, sizeof *w->pieces);
    for (int i = 0; i < count; i++)
        if (params[i]->tensor->requires_grad)
            w->pieces[w->count++].param = params[i];
    free(params);
}

static void close_worker(void *arg)
{
    choir__worker *w = arg;
    choir_scope *run = w->base.run;
    (void)!choir_device_sync(run->device);
    choir__storage_unref(w->entries);
    choir__storage_unref(w->hypers);
    free(w->pieces);
}

/* All checks give the same result on all ranks, so the ranks fail together or not at all. */
static choir_status join(choir__worker *w, choir_ddp_opts ddp)
{
    choir_scope *run = w->base.run;
    struct survey s = {w, CHOIR__HASH_SEED, choir__scope_status(run)};
    if (s.status == CHOIR_OK)
        choir_module_visit(w->module, true, survey_tensor, &s);
    if (s.status == CHOIR_OK)
        s.status = compare_ranks(w, s.model);
    if (s.status == CHOIR_OK && w->warmup && w->module->inside->strategy)
        s.status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: a warm-up is choir_ddp's, and the module is in a strategy of its own",
            w->name);
    if (s.status == CHOIR_OK)
        s.status = choir_device_sync(run->device);
    if (s.status == CHOIR_OK)
        choir_module_visit(w->module, true, take_tensor, &s);
    list_pieces(w);
    if (s.status == CHOIR_OK)
        s.status = choir__worker_lay_out(w);
    if (s.status == CHOIR_OK && w->warmup) {
        w->warm = choir_ddp(run, w->module, w->group, ddp);
        s.status = choir__scope_status(run);
    }
    choir__strategy_join(&w->strategy, run);
    choir__on_close(run, close_worker, w);
    return s.status;
}

static choir__worker *new_worker(choir_scope *run, const choir_module_class *type,
    choir_module *module, choir_group *group, int64_t every)
{
    choir__worker *w = choir_module_new(run, type);
    w->strategy = (choir__strategy){.ops = &worker_ops, .places = true};
    w->base.inside->strategy = &w->strategy;
    w->name = type->name;
    w->group = group;
    w->every = every;
    choir__module_ready(module); /* names are the module's own, without a prefix */
    return w;
}

static choir_module *finish(
    choir__worker *w, choir_module *module, choir_status status, choir_ddp_opts ddp)
{
    w->module = module;
    if (status == CHOIR_OK)
        status = join(w, ddp);
    choir_module_child(
        &w->base, "", w->warm ? &w->warm : &w->module, w->warm ? w->warm : module);
    if (status != CHOIR_OK)
        choir__scope_fail(w->base.run, status);
    return &w->base;
}

choir_module *choir_local_sgd(
    choir_scope *run, choir_module *module, choir_group *group, choir_local_sgd_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    choir__worker *w = new_worker(run, &local_sgd_class, module, group, opts.every);
    w->warmup = opts.warmup;
    w->near = opts.near;
    w->near_every = opts.near_every;
    return finish(w, module, check_steps(w), opts.ddp);
}

choir_module *choir_diloco(
    choir_scope *run, choir_module *module, choir_group *group, choir_diloco_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    choir__worker *w = new_worker(run, &diloco_class, module, group, opts.every);
    w->diloco = true;
    w->bf16 = opts.wire == CHOIR_BF16;
    w->hyper = (choir__opt_hyper){
        .lr = opts.outer_lr, .momentum = opts.momentum, .nesterov = opts.nesterov};
    choir_status status = check_steps(w);
    if (status == CHOIR_OK)
        status = check_outer(w, opts.wire);
    return finish(w, module, status, choir_ddp_defaults());
}
