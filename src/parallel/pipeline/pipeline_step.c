/* A step of a pipeline: one thread issues a plan's actions.
 *
 * Devices work independently. The order in which each device's work is issued determines the
 * waits between devices, and the plan determines this order. Forward of a stage: the
 * micro-batch's fiber runs until its next op belongs to another stage (op_stage.c). Backward:
 * the micro-batch's walk takes the entries of that stage (autograd/walk.c). */
#include <choir/pipeline.h>

#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"
#include "nn/module.h"
#include "tensor/handle.h"

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
    choir__module_enter(step->run, at);
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

static choir_status make_plan(choir__pipeline *p, int64_t count)
{
    /* The replicas of a stage allocate its gradients' memory together at the first use. The
     * first step after placement is therefore sequential, since their plans differ: with
     * another number of micro-batches, a schedule puts the weights' part elsewhere. */
    bool in_order = p->fresh && p->data;
    const char *schedule = in_order ? "sequential" : p->schedule;
    p->fresh = false;
    if (p->plan && p->micro_count == count && !strcmp(schedule, p->planned))
        return CHOIR_OK;
    p->planned = schedule;
    choir_pipeline_plan_free(p->plan);
    p->plan = NULL;
    choir__pipeline_free_micros(p);
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
    choir_status status = choir__pipeline_check(pipeline, __func__);
    if (status == CHOIR_OK)
        status = choir__scope_status(step);
    if (status == CHOIR_OK && count < 1)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: expected a step of at least 1 micro-batch, got %lld", (long long)count);
    if (status == CHOIR_OK && p->data)
        status = choir__data_check_count(p->data, count);
    if (status != CHOIR_OK && p)
        choir__pipeline_tell(p, status);
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
        choir__pipeline_tell(p, status);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(step, status);
}
