/* A pipeline: one thread issues a plan's actions.
 *
 * Devices work independently. The order in which each device's work is issued determines the
 * waits between devices, and the plan determines this order. Forward of a stage: the
 * micro-batch's fiber runs until its next op belongs to another stage (op_stage.c). Backward:
 * the micro-batch's walk takes the records of that stage (autograd/walk.c). */
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

/* --- actions --- */

static int last_stage(const choir__pipeline *p)
{
    return p->stages - 1;
}

static void micro_main(void *arg)
{
    choir__micro *m = arg;
    choir__pipeline *p = m->pipeline;
    m->loss = p->fn(m->scope, p->module, p->arg);
    if (!m->loss && choir__scope_status(m->scope) == CHOIR_OK)
        choir__poison(
            m->scope, CHOIR_ERR_ARGUMENT, "micro-batch %lld has no loss", (long long)m->index);
}

static choir_status open_micro(choir__pipeline *p, choir_scope *step, choir__micro *m)
{
    m->scope = choir_micro_open(step, step->micro + m->index);
    m->ops = 0;
    m->loss = NULL;
    m->left = 2 * p->stages;
    choir__pipeline_place_ops(m);
    if (!m->fiber && !(m->fiber = choir__fiber_new()))
        return choir__error(CHOIR_ERR_MEMORY, "no memory for the stack of a micro-batch");
    choir__fiber_start(m->fiber, micro_main, m);
    return CHOIR_OK;
}

static choir_status forward(choir__pipeline *p, choir_scope *step, choir__micro *m, int stage)
{
    choir_module *at = step->run->at;
    choir_status status = stage ? CHOIR_OK : open_micro(p, step, m);
    if (status != CHOIR_OK)
        return status;
    bool more = choir__fiber_resume(m->fiber);
    step->run->at = at;
    status = choir__scope_status(m->scope);
    if (status == CHOIR_OK && more != (stage < last_stage(p)))
        status = choir__error(CHOIR_ERR_STATE,
            "micro-batch %lld ended at op %d, and the first had %d: each must issue the same ops",
            (long long)m->index, m->ops, p->ops);
    m->done[stage] = choir__queue_record(choir__stage_device(p, stage)->queue);
    return status;
}

static choir_status backward(choir__pipeline *p, choir__micro *m, int stage, bool split)
{
    choir_status status = CHOIR_OK;
    if (stage == last_stage(p))
        status = choir__walk_open(&m->walk, m->loss, NULL, 1, p->stages);
    if (status == CHOIR_OK)
        status = choir__walk_stage(&m->walk, stage, split);
    m->walk.done[stage] = choir__queue_record(choir__stage_device(p, stage)->queue);
    m->left += split;
    return status;
}

static choir_status close_micro(choir__pipeline *p, choir__micro *m, choir_tensor **loss)
{
    choir__walk_close(&m->walk);
    choir_status status = CHOIR_OK;
    if (p->remote)
        status = choir__pipeline_put_loss(p, m);
    else
        *loss = choir__pipeline_keep(p, m->index, m->loss);
    choir_scope *scope = m->scope;
    m->scope = NULL;
    choir_status closed = choir__scope_end(scope);
    return status == CHOIR_OK ? closed : status;
}

static choir_status run_action(
    choir__pipeline *p, choir_scope *step, const choir_action *a, choir_tensor **losses)
{
    choir__micro *m = &p->micros[a->micro];
    choir_status status = CHOIR_OK;
    switch (a->kind) {
    case CHOIR_FORWARD: status = forward(p, step, m, a->stage); break;
    case CHOIR_BACKWARD: status = backward(p, m, a->stage, false); break;
    case CHOIR_BACKWARD_INPUT: status = backward(p, m, a->stage, true); break;
    case CHOIR_BACKWARD_WEIGHT: status = choir__walk_weights(&m->walk, a->stage); break;
    }
    if (status == CHOIR_OK && --m->left == 0)
        status = close_micro(p, m, &losses[a->micro]);
    return status;
}

/* --- a step --- */

static void free_micros(choir__pipeline *p)
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

static choir_status make_plan(choir__pipeline *p, int64_t count)
{
    /* The ranks that have a stage allocate its gradients' memory together at the first use. The
     * first step after placement is therefore sequential, since the plans of these ranks may
     * differ. */
    bool in_order = p->fresh && p->data && choir__data_stages(p->data) > 1;
    const char *schedule = in_order ? "sequential" : p->schedule;
    p->fresh = false;
    if (p->plan && p->micro_count == count && !strcmp(schedule, p->planned))
        return CHOIR_OK;
    p->planned = schedule;
    choir_pipeline_plan_free(p->plan);
    p->plan = NULL;
    free_micros(p);
    choir_status status = choir_pipeline_plan_new(
        schedule, p->device_count, p->chunks, count, p->stage_costs, &p->plan);
    if (in_order)
        choir__step_forget(p->base.run); /* the next step has a different plan */
    if (status != CHOIR_OK)
        return status;
    p->micros = choir__calloc((size_t)count, sizeof *p->micros);
    p->before = choir__calloc((size_t)p->device_count, sizeof *p->before);
    p->micro_count = count;
    for (int64_t i = 0; i < count; i++) {
        p->micros[i].pipeline = p;
        p->micros[i].index = i;
        p->micros[i].done = choir__calloc((size_t)p->stages, sizeof(choir__event));
    }
    return CHOIR_OK;
}

/* After a failure, resumes suspended micro-batches, in which every op now fails, so that their
 * functions end and free their memory. Then waits for the other devices. */
static void give_up(choir__pipeline *p, choir_status status, const char *message)
{
    for (int64_t i = 0; i < p->micro_count; i++) {
        choir__micro *m = &p->micros[i];
        if (!m->scope)
            continue;
        choir__set_message(message);
        choir__scope_fail(m->scope, status);
        if (m->suspended)
            choir__fiber_resume(m->fiber);
        choir__walk_abandon(&m->walk);
        choir__scope_end(m->scope);
        m->scope = NULL;
    }
    for (int d = 0; d < p->device_count; d++)
        (void)!choir_device_sync(p->devices[d]);
}

static choir_status fail(choir__pipeline *p, const choir_action *a, choir_status status)
{
    char *why = choir__strdup(choir__message()), *plan = choir__strdup("");
    double limit = p->limits[a->stage % p->device_count];
    if (status == CHOIR_ERR_MEMORY && limit > 0) {
        free(plan);
        plan =
            choir__format("; the plan expects that the stage needs %.1f MiB, and the device's "
                          "limit is %.1f MiB",
                p->bytes[a->stage] / 1048576, limit / 1048576);
    }
    choir__error(status, "pipeline: stage %d on %s, micro-batch %lld: %s%s", a->stage,
        choir_device_name(choir__stage_device(p, a->stage)), (long long)a->micro, why, plan);
    free(why);
    free(plan);
    why = choir__strdup(choir__message());
    give_up(p, status, why);
    choir__set_message(why);
    free(why);
    return status;
}

static void begin_step(choir__pipeline *p)
{
    p->step_begun = choir__storage_now();
    for (int d = 0; d < p->device_count; d++)
        p->before[d] = choir__queue_record(p->devices[d]->queue);
}

static choir_status run_plan(choir__pipeline *p, choir_scope *step, choir_tensor **losses)
{
    int count;
    begin_step(p);
    const choir_action *order = choir_pipeline_plan_order(p->plan, &count);
    for (int i = 0; i < count; i++) {
        choir_status status = run_action(p, step, &order[i], losses);
        if (status != CHOIR_OK)
            return fail(p, &order[i], status);
    }
    return p->remote ? choir__pipeline_bring_losses(p, step, losses, p->micro_count) : CHOIR_OK;
}

/* Drops the gradients of the failed step's micro-batches, so that the next step does not add to
 * them. */
static void forget_gradients(choir__pipeline *p)
{
    int count;
    choir__param **params = choir__module_params(p->module, &count);
    for (int i = 0; i < count; i++) {
        if (params[i]->book)
            choir__book_forget(params[i]->book);
        for (choir__param *q = params[i]->replicas; q; q = q->sibling)
            if (q->book)
                choir__book_forget(q->book);
    }
    free(params);
}

/* Runs a step without cuts. After the last measured step, all ranks and replicas take the same
 * measurements. */
static choir_status measure(
    choir__pipeline *p, choir_scope *step, int64_t count, choir_tensor **losses)
{
    bool last = p->measured == CHOIR__MEASURED_STEPS - 1;
    choir_status status = CHOIR_OK;
    if (p->stages > 1 && !p->spread) /* the stages' weights were gathered */
        status = choir__pipeline_spread(p);
    if (status == CHOIR_OK)
        status = choir__pipeline_measure(p, step, count, losses);
    if (status == CHOIR_OK && p->remote && last)
        status = choir__pipeline_agree(p);
    if (status == CHOIR_OK && p->data && last && p->stages > 1)
        status = choir__data_share(p->data, p->costs, (size_t)p->ops * sizeof *p->costs);
    if (status == CHOIR_OK && p->data && last && p->stages > 1)
        status = choir__data_share(p->data, p->held, (size_t)p->ops * sizeof *p->held);
    return status;
}

static choir_status planned(
    choir__pipeline *p, choir_scope *step, int64_t count, choir_tensor **losses)
{
    int64_t most = p->data ? choir__data_longest(p->data) : count;
    choir_status status = p->placed ? CHOIR_OK : choir__pipeline_place(p, most);
    if (status == CHOIR_OK)
        status = make_plan(p, count);
    if (status != CHOIR_OK)
        return status;
    if (p->remote)
        choir__remote_join(p->remote);
    p->losses = NULL;
    return run_plan(p, step, losses);
}

static choir_status check_pipeline(const choir_module *m);

/* Reports a failure to the other ranks and replicas, which may be waiting for this rank. */
static void tell(choir__pipeline *p, choir_status status)
{
    if (p->remote)
        choir__remote_abort(p->remote, status, choir__message());
    else if (p->data)
        choir__data_abort(p->data, status, choir__message());
}

choir_status choir_pipeline_step(choir_module *pipeline, choir_scope *step, int64_t count,
    choir_micro_fn *fn, void *arg, choir_tensor **losses)
{
    choir_status use_pipeline = choir__use_module(pipeline, __func__);
    if (use_pipeline != CHOIR_OK)
        return use_pipeline;
    choir_status use_step = choir__use_scope(step, __func__);
    if (use_step != CHOIR_OK)
        return use_step;
    choir__pipeline *p = choir__pipeline_of(pipeline);
    choir_status status = check_pipeline(pipeline);
    if (status == CHOIR_OK)
        status = choir__scope_status(step);
    if (status == CHOIR_OK && count < 1)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: expected a step of at least 1 micro-batch, got %lld", (long long)count);
    if (status == CHOIR_OK && p->data)
        status = choir__data_check_count(p->data, count);
    if (status != CHOIR_OK && p)
        tell(p, status);
    if (status != CHOIR_OK)
        return choir__scope_fail(step, status);
    choir__module_ready(p->module);
    p->fn = fn;
    p->arg = arg;
    if (p->data)
        choir__data_sync_buffers(p->data, step);
    if (p->stages == 1 || p->measured < CHOIR__MEASURED_STEPS)
        status = measure(p, step, count, losses);
    else
        status = planned(p, step, count, losses);
    if (status != CHOIR_OK)
        forget_gradients(p);
    if (status != CHOIR_OK)
        tell(p, status);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(step, status);
}

/* --- the module --- */

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

static const choir__strategy_ops pipeline_ops = {
    .name = "pipeline", .place = place, .gather = gather, .replicate = replicate};

choir__pipeline *choir__pipeline_of(const choir_module *m)
{
    choir__strategy *s = choir__strategy_within(m);
    return s && s->ops == &pipeline_ops ? CHOIR__STRATEGY_OF(s, choir__pipeline, strategy)
                                        : NULL;
}

static choir_status check_pipeline(const choir_module *m)
{
    return choir__pipeline_of(m)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "choir_pipeline_step: the module is a %s, not what choir_pipeline made",
                     m->type->name);
}

/* Reports this rank's failure, if it has failed. */
static void tell_ranks(choir__pipeline *p)
{
    choir_status status = choir__scope_status(p->base.run);
    if (status == CHOIR_OK)
        status = choir__run_failure(p->base.run);
    if (status != CHOIR_OK)
        tell(p, status);
}

static void leave_ranks(choir__pipeline *p)
{
    tell_ranks(p);
    choir__run_sync(p->base.run);
    tell_ranks(p);
    choir__data_close(p->data);
    choir__remote_close(p->remote);
}

static void close_pipeline(void *arg)
{
    choir__pipeline *p = arg;
    if (p->remote || p->data)
        leave_ranks(p);
    choir_pipeline_plan_free(p->plan);
    free_micros(p);
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
    }
    if (count < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "pipeline: no devices");
    if (p->devices[0] != run->device)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: expected the first stage on the run's device, got %s and %s",
            choir_device_name(p->devices[0]), choir_device_name(run->device));
    return CHOIR_OK;
}

/* Returns a weight that is distributed over ranks (tensor_parallel), or NULL. Its
 * layer is a collective of ranks that a stage does not know. */
static const choir__param *part_in(const choir_module *m)
{
    const choir__param *found = NULL;
    for (choir__module_entry *e = m->inside->entries; e && !found; e = e->next)
        if (e->kind == CHOIR__CHILD)
            found = part_in(e->child);
        else if (e->kind == CHOIR__PARAM && e->tensor->split)
            found = e->tensor->param;
    return found;
}

static choir_status set_up(choir__pipeline *p, choir_pipeline_opts opts)
{
    choir_scope *run = p->base.run;
    choir__replication how;
    p->gathered = -1;
    p->strategy = (choir__strategy){.ops = &pipeline_ops, .places = true};
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
    const choir__param *part = part_in(p->module);
    if (part)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "pipeline: this rank has a part of parameter '%s' alone: tensor_parallel and a "
            "pipeline do not compose yet",
            part->name);
    p->schedule =
        choir__arena_strdup(&run->arena, opts.schedule ? opts.schedule : "zero-bubble");
    p->chunks = opts.chunks ? opts.chunks : strcmp(p->schedule, "interleaved") ? 1 : 2;
    p->cuts = opts.cuts;
    choir_status status = take_devices(p, opts);
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
    choir_status status = check_pipeline(pipeline);
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
