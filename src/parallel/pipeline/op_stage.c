/* Placing ops: choir__begin passes each op's operands here before it reads them.
 *
 * The number of an op determines its stage. If that is the next stage, the micro-batch is
 * suspended until the plan arrives there. Operands on other devices are copied, on the queue of
 * the receiving device, which waits only for the stage that made them. If several later stages
 * use a tensor, each copy is made from the previous one, so its gradients add up in the order
 * in which one device adds them. */
#include "parallel/pipeline/pipeline.h"
#include "tensor/launch.h"
#include "tensor/segment.h"

static choir_tensor *bring_param(choir__micro *m, choir_tensor *x, int stage)
{
    choir__param *p = x->param, *replica = choir__pipeline_replica(p, stage);
    choir_device *device = choir__stage_device(m->pipeline, stage);
    if (replica && p->stage != stage) {
        choir__param_refresh(replica, p);
        return replica->tensor;
    }
    if (choir__device_of(x) == device)
        return x;
    choir_tensor *y = choir__copied_to(m->scope, x, device);
    choir__tape_entry_new(&choir__to_op, y, &x, 1);
    return y;
}

/* Returns a tensor whose memory on `device` already has x's values, from the chain of copies
 * that begins at x; NULL: none. */
static choir_tensor *there_already(choir_tensor *x, choir_device *device)
{
    for (choir_tensor *t = x; t; t = t->route ? t->route->copy : NULL)
        if (t->storage && choir__device_of(t) == device)
            return t;
    return NULL;
}

/* Returns the event after which x has its values. The end of its device's queue would be later:
 * that device may be several micro-batches ahead. Without a queue: the event is not known. */
static choir__event ready_at(const choir__micro *m, const choir_tensor *x, int stage)
{
    const choir__pipeline *p = m->pipeline;
    bool of_this = m->scope->depth <= x->scope->depth; /* made by this micro-batch */
    int by = choir__stage_of(x);
    if (!m->done)
        return (choir__event){0};
    /* a tensor without operands is made on the scope's device, whichever stage makes it */
    if (of_this && by < stage && choir__stage_device(p, by) == choir__device_of(x))
        return m->done[by];
    if (of_this)
        return (choir__event){0};
    for (int d = 0; d < p->device_count && x->storage->begun < p->step_begun; d++)
        if (p->devices[d] == choir__device_of(x))
            return p->before[d];
    return (choir__event){0};
}

static choir_tensor *copy_to(choir__micro *m, choir_tensor *x, int stage)
{
    bool there = x->storage; /* otherwise it is computed now, after the event in `done` */
    if (choir__bring_back(x) != CHOIR_OK)
        return x;
    choir__event was = x->storage->ready, ready = {0};
    if (there && !x->storage->holder)
        ready = ready_at(m, x, stage);
    if (ready.queue)
        x->storage->ready = ready;
    choir_tensor *y = choir__copied_to(m->scope, x, choir__stage_device(m->pipeline, stage));
    x->storage->ready = was; /* others may read it when it has new values */
    return y;
}

/* Returns x on the device of a stage: x itself, or a copy whose gradient is sent back. */
static choir_tensor *bring(choir__micro *m, choir_tensor *x, int stage)
{
    choir_device *device = choir__stage_device(m->pipeline, stage);
    if (x->param)
        return bring_param(m, x, stage);
    choir_tensor *last = x;
    while (last->route && last->route->copy)
        last = last->route->copy;
    if (choir__device_of(last) == device)
        return last;
    choir_tensor *near = there_already(x, device), *y;
    y = near ? choir__tensor_alias(m->scope, near) : copy_to(m, last, stage);
    if (y->poisoned)
        return y;
    y->for_products = x->for_products;
    choir__route_of(y)->stage = stage;
    choir__tape_entry *r = choir__tape_entry_new(&choir__to_op, y, &last, 1);
    if (r)
        r->owner = choir__stage_of(last);
    if (x->scope->depth >= m->scope->depth) /* micro-batches that share x would outlive y */
        choir__route_of(last)->copy = y;
    return y;
}

/* Suspends the micro-batch until the plan reaches its next stage. */
static void suspend(choir__micro *m, choir_scope *scope)
{
    m->at = scope->run->at;
    m->suspended = true;
    choir__fiber_yield(m->fiber);
    m->suspended = false;
    choir__module_enter(scope->run, m->at);
}

static bool bring_all(choir__micro *m, choir_tensor **in, int count)
{
    for (int i = 0; i < count; i++) {
        if (!in[i])
            continue;
        in[i] = bring(m, in[i], m->placement.stage);
        if (in[i]->poisoned)
            return false;
    }
    return true;
}

static bool place_op(
    choir__micro *m, choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    choir__pipeline *p = m->pipeline;
    (void)op;
    while (m->placement.stage + 1 < p->stages && m->ops >= p->first[m->placement.stage + 1] &&
           choir__scope_status(scope) == CHOIR_OK) {
        suspend(m, scope);
        m->placement.stage++;
    }
    if (choir__scope_status(scope) != CHOIR_OK) /* resumed only to end */
        return false;
    m->placement.op = m->ops++;
    return bring_all(m, in, count);
}

void choir__pipeline_place_by(choir__micro *m, choir__place_fn *place)
{
    m->place = place;
    m->placement = (choir__placement){.by = &m->pipeline->strategy, .epilogues = true};
    for (int d = 0; d < m->pipeline->device_count; d++)
        m->placement.epilogues &= m->pipeline->devices[d]->epilogues;
    m->scope->placement = &m->placement;
}

void choir__pipeline_place_ops(choir__micro *m)
{
    choir__pipeline_place_by(m, place_op);
}

/* --- without cuts: evaluation, which may run other ops --- */

/* Returns the stage on whose device the module has a buffer, which its kernels update; -1: it
 * has none. */
static int stage_of_buffers(const choir__pipeline *p, const choir_module *m)
{
    for (const choir__module_entry *e = m ? m->inside->entries : NULL; e; e = e->next)
        for (int s = 0; e->kind == CHOIR__BUFFER && s < p->stages; s++)
            if (choir__device_of(e->tensor) == choir__stage_device(p, s))
                return s;
    return -1;
}

/* Returns the stage of the op's first parameter, or of its module's buffers, otherwise the
 * latest of its operands. */
static int stage_to_follow(
    const choir__pipeline *p, const choir_module *at, choir_tensor *const *in, int count)
{
    int latest = 0, buffers = stage_of_buffers(p, at);
    for (int i = 0; i < count; i++) {
        if (in[i] && in[i]->param)
            return in[i]->param->stage;
        if (in[i] && choir__stage_of(in[i]) > latest)
            latest = choir__stage_of(in[i]);
    }
    return buffers < 0 ? latest : buffers;
}

bool choir__pipeline_follow_op(
    choir__micro *m, choir_scope *scope, choir_tensor **in, int count)
{
    m->placement.stage = stage_to_follow(m->pipeline, scope->run->at, in, count);
    return bring_all(m, in, count);
}

static bool follow_op(
    choir__micro *m, choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    (void)op;
    m->scope = scope;
    return choir__pipeline_follow_op(m, scope, in, count);
}

void choir__pipeline_follow(choir__micro *m)
{
    choir__pipeline_place_by(m, follow_op);
}
