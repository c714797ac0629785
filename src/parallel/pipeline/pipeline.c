/* A pipeline as a module: it is made around the model, places ops outside of a step, and is
 * closed with its run. pipeline_step.c runs steps. */
#include <choir/pipeline.h>

#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"
#include "nn/module.h"
#include "tensor/handle.h"

choir_pipeline_opts choir_pipeline_defaults(void)
{
    return (choir_pipeline_opts){0};
}

static choir_tensor *pipeline_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__pipeline *p = (choir__pipeline *)self;
    choir_scope *scope = choir_tensor_scope(in[0]);
    if (!p->placed && !p->spread && p->gathered < 0)
        return choir_forward_n(p->module, in, count);
    choir__placement *outer = scope->placement;
    choir__micro m = {.pipeline = p, .scope = scope};
    choir__pipeline_follow(&m);
    choir_tensor *y = choir_forward_n(p->module, in, count);
    scope->placement = outer;
    return choir_to(y, scope->device);
}

static const choir_module_class pipeline_class = {
    "pipeline", sizeof(choir__pipeline), pipeline_forward, 0};

static bool place(choir__placement *placement, choir_scope *scope, const char *op,
    choir_tensor **in, int count)
{
    choir__micro *m = (choir__micro *)placement;
    return m->place(m, scope, op, in, count);
}

static choir_status replicate(choir__strategy *s, const choir__replication *how)
{
    return choir__pipeline_replicate(CHOIR__STRATEGY_OF(s, choir__pipeline, strategy), how);
}

static choir_tensor *gather(choir__strategy *s, choir_tensor *numbers)
{
    const choir__pipeline *p = CHOIR__STRATEGY_OF(s, choir__pipeline, strategy);
    return p->data ? choir__data_gather(p->data, numbers) : numbers;
}

/* Weights move to their stages' devices before the first measured step, and again once the
 * measured steps have cut the model. */
static bool moves(const choir__strategy *s)
{
    const choir__pipeline *p = CHOIR__STRATEGY_OF(s, choir__pipeline, strategy);
    return p->stages > 1 && !(p->measured < CHOIR__MEASURED_STEPS ? p->spread : p->placed);
}

static const choir__strategy_ops pipeline_ops = {.name = "pipeline",
    .moves = moves,
    .place = place,
    .gather = gather,
    .replicate = replicate};

choir__pipeline *choir__pipeline_of(const choir_module *m)
{
    choir__strategy *s = choir__strategy_within(m);
    return s && s->ops == &pipeline_ops ? CHOIR__STRATEGY_OF(s, choir__pipeline, strategy)
                                        : NULL;
}

choir_status choir__pipeline_check(const choir_module *m, const char *function)
{
    return choir__pipeline_of(m) ? CHOIR_OK
                                 : choir__error(CHOIR_ERR_ARGUMENT,
                                       "%s: the module is a %s, not what choir_pipeline made",
                                       function, m->type->name);
}

/* --- the end --- */

void choir__pipeline_tell(choir__pipeline *p, choir_status status)
{
    if (p->remote)
        choir__remote_abort(p->remote, status, choir__message());
    else if (p->data)
        choir__data_abort(p->data, status, choir__message());
}

/* Reports this rank's failure, if it has failed. */
static void tell_ranks(choir__pipeline *p)
{
    choir_status status = choir__scope_status(p->base.run);
    if (status == CHOIR_OK)
        status = choir__run_failure(p->base.run);
    if (status != CHOIR_OK)
        choir__pipeline_tell(p, status);
}

static void leave_ranks(choir__pipeline *p)
{
    tell_ranks(p);
    choir__run_sync(p->base.run);
    tell_ranks(p);
    choir__data_close(p->data);
    choir__remote_close(p->remote);
}

void choir__pipeline_free_micros(choir__pipeline *p)
{
    for (int64_t i = 0; i < p->micro_count; i++) {
        choir__fiber_free(p->micros[i].fiber);
        free(p->micros[i].done);
    }
    free(p->micros);
    free(p->before);
    p->micros = NULL;
    p->before = NULL;
    p->micro_count = 0;
}

static void close_pipeline(void *arg)
{
    choir__pipeline *p = arg;
    if (p->remote || p->data)
        leave_ranks(p);
    choir_pipeline_plan_free(p->plan);
    choir__pipeline_free_micros(p);
    free(p->costs);
    free(p->now);
    free(p->kept);
    free(p->held);
    free(p->made);
    free(p->ran_on);
    free(p->crossing);
    free(p->paths);
    free(p->uses);
}

/* --- the beginning --- */

/* Splits "a,b,c" into the names of stages 1, 2, 3. */
static choir_status split_cuts(choir__pipeline *p, const char *cuts)
{
    choir__arena *arena = &p->base.run->arena;
    p->cut_names = choir__arena_get(arena, (size_t)p->stages * sizeof(char *));
    char *text = choir__arena_strdup(arena, cuts);
    int count = 0;
    for (char *next; text; text = next, count++) {
        next = strchr(text, ',');
        if (next)
            *next++ = '\0';
        if (count < p->stages - 1)
            p->cut_names[count] = text;
    }
    if (count != p->stages - 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: expected %d cuts for %d stages, got %d, '%s'", p->stages - 1, p->stages,
            count, cuts);
    return choir__pipeline_check_cuts(p);
}

static choir_status take_devices(choir__pipeline *p, choir_pipeline_opts opts)
{
    if (opts.group)
        return choir__pipeline_over_ranks(p, opts);
    choir_scope *run = p->base.run;
    int count = opts.devices ? opts.device_count : choir_device_count(run->device->kind);
    p->device_count = count;
    p->devices = choir__arena_get(&run->arena, (size_t)(count + 1) * sizeof(choir_device *));
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:%d", run->device->kind, i);
        p->devices[i] = opts.devices ? opts.devices[i] : choir_device_find(name);
        if (!p->devices[i])
            return choir__error(CHOIR_ERR_DEVICE, "pipeline: %s", choir__missing_device());
        for (int j = 0; j < i; j++)
            if (p->devices[j] == p->devices[i])
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "pipeline: device %s is named twice: give it several stages by 'chunks'",
                    choir_device_name(p->devices[i]));
        if (count > 1)
            choir__queue_beside_others(p->devices[i]->queue);
    }
    if (count < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "pipeline: no devices");
    if (p->devices[0] != run->device)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: expected the first stage on the run's device, got %s and %s",
            choir_device_name(p->devices[0]), choir_device_name(run->device));
    return CHOIR_OK;
}

static choir_status set_up(choir__pipeline *p, choir_pipeline_opts opts)
{
    choir_scope *run = p->base.run;
    choir__replication how;
    p->gathered = -1;
    p->strategy =
        (choir__strategy){.ops = &pipeline_ops, .places = true, .waits = opts.group != NULL};
    p->base.inside->strategy = &p->strategy;
    choir__strategy_join(&p->strategy, p->base.run);
    choir__strategy *inner = p->module->inside->strategy;
    bool lent = inner && inner->ops->lend;
    if (lent)
        inner->ops->lend(inner, &how);
    const choir_module *other =
        choir__strategy_module(lent ? p->module->inside->entries->child : p->module);
    if (other)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: the module contains a %s, which places its work itself; wrap what is "
            "inside of it",
            other->type->name);
    p->schedule =
        choir__arena_strdup(&run->arena, opts.schedule ? opts.schedule : "zero-bubble");
    p->chunks = opts.chunks ? opts.chunks : strcmp(p->schedule, "interleaved") ? 1 : 2;
    p->cuts = opts.cuts;
    p->clocked = opts.clocked;
    choir_status status = choir__module_refuse_f64(p->module, "pipeline");
    if (status == CHOIR_OK)
        status = take_devices(p, opts);
    if (status != CHOIR_OK)
        return status;
    choir_pipeline_plan *plan = NULL; /* reports a wrong schedule at once */
    status = choir_pipeline_plan_new(p->schedule, p->device_count, p->chunks, 1, NULL, &plan);
    choir_pipeline_plan_free(plan);
    if (status != CHOIR_OK)
        return status;
    p->stages = p->device_count * p->chunks;
    p->first = choir__arena_get(&run->arena, (size_t)(p->stages + 1) * sizeof(int));
    p->stage_costs = choir__arena_get(&run->arena, (size_t)p->stages * sizeof *p->stage_costs);
    p->bytes = choir__arena_get(&run->arena, (size_t)p->stages * sizeof *p->bytes);
    p->limits = choir__arena_get(&run->arena, (size_t)p->device_count * sizeof *p->limits);
    if (opts.cuts)
        status = split_cuts(p, opts.cuts);
    if (status != CHOIR_OK)
        return status;
    return lent ? choir__pipeline_replicate(p, &how) : choir__pipeline_spread(p);
}

choir_module *choir_pipeline(choir_scope *run, choir_module *module, choir_pipeline_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    choir__pipeline *p = choir_module_new(run, &pipeline_class);
    choir__module_name(module); /* names are the module's own, without a prefix */
    choir_module_child(&p->base, "", &p->module, module);
    choir__on_close(run, close_pipeline, p);
    choir_status status = set_up(p, opts);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &p->base;
}

choir_status choir_pipeline_gather(choir_module *pipeline, int rank)
{
    choir_status use = choir__use_module(pipeline, __func__);
    if (use != CHOIR_OK)
        return use;
    choir__pipeline *p = choir__pipeline_of(pipeline);
    choir_status status = choir__pipeline_check(pipeline, __func__);
    if (status == CHOIR_OK)
        status = choir__scope_status(pipeline->run);
    if (status == CHOIR_OK && rank >= (p->remote ? p->device_count : 1))
        status = choir__error(CHOIR_ERR_ARGUMENT, "choir_pipeline_gather: no rank %d of %d",
            rank, p->remote ? p->device_count : 1);
    if (status == CHOIR_OK && p->data && choir__data_sharded(p->data))
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "choir_pipeline_gather: each rank has rows of the parameters; choir_save writes them");
    if (status == CHOIR_OK && (p->placed || p->spread || p->gathered >= 0))
        status = choir__pipeline_unplace(p, p->remote ? rank : -1);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(pipeline->run, status);
}
