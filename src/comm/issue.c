/* Calls, batches and functions of the program: how they get onto a group's queue, and the tasks
 * that run them there. */
#include "comm/dry/dry.h"
#include "comm/issue.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "device/trace.h"

typedef struct task {
    choir_group *group;
    choir__call call;
} task;

typedef struct batch_task {
    choir_group *group;
    choir__call *calls; /* kept */
    int count;
} batch_task;

/* Releases the memory that was kept for the call. */
static void let_go_of(choir_group *group, const choir__call *call)
{
    if (call->in_counts)
        choir__group_let_go(group, call->in_counts);
    if (call->rows)
        choir__group_let_go(group, call->rows);
}

static void run_call(const void *args)
{
    const task *t = args;
    choir__call call = t->call;
    if (call.stamp.kind == CHOIR__SEND || call.stamp.kind == CHOIR__RECEIVE)
        choir__group_report(t->group, choir__read_batch_run(t->group, &call, 1));
    else
        choir__group_report(t->group, choir__group_run(t->group, &call));
    let_go_of(t->group, &call);
}

static void run_batch(const void *args)
{
    const batch_task *t = args;
    choir__group_report(t->group, choir__read_batch_run(t->group, t->calls, t->count));
    for (int i = 0; i < t->count; i++)
        let_go_of(t->group, &t->calls[i]);
    choir__group_let_go(t->group, t->calls);
}

static choir_status wait_or_hand_out(choir_group *group, choir_work *work)
{
    if (!work)
        return choir__queue_wait(group->queue);
    choir__event event = choir__queue_record(group->queue);
    *work = (choir_work){event.queue, event.seq};
    return CHOIR_OK;
}

choir_status choir__group_issue(choir_group *group, const choir__call *call, choir_work *work)
{
    task t = {group, *call};
    if (!t.call.stamp.algorithm)
        t.call.stamp.algorithm = (uint8_t)group->algorithm;
    if (group->batching) {
        if (work)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s in a batch: its work is the batch's, so pass NULL",
                choir__kind_name((choir__kind)call->stamp.kind));
        CHOIR__GROW(group->batch, group->batch_count);
        group->batch[group->batch_count++] = t.call;
        return CHOIR_OK;
    }
    choir__queue_issue(group->queue, run_call, &t, sizeof t);
    return wait_or_hand_out(group, work);
}

void choir_group_batch_begin(choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return;
    group->batching = true;
    group->batch_count = 0;
}

choir_status choir_group_batch_end(choir_group *group, choir_work *work)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!group->batching)
        return choir__error(CHOIR_ERR_STATE, "batch_end without batch_begin");
    group->batching = false;
    size_t bytes = (size_t)group->batch_count * sizeof *group->batch;
    batch_task t = {group, NULL, group->batch_count};
    if (t.count) {
        t.calls = choir__group_keep(group, group->batch, bytes);
        choir__queue_issue(group->queue, run_batch, &t, sizeof t);
    }
    return wait_or_hand_out(group, work);
}

bool choir__group_capturable(choir__queue_task *fn, const void *args)
{
    const task *t = args;
    const batch_task *b = args;
    bool all = fn == run_batch;
    if (fn == run_call)
        return choir__engine_takes(t->group->engine, &t->call);
    for (int i = 0; all && i < b->count; i++)
        all = choir__engine_takes(b->group->engine, &b->calls[i]);
    return all;
}

const choir__call *choir__group_calls_of(
    choir__queue_task *fn, const void *args, choir_group **group, int *count)
{
    const task *t = args;
    const batch_task *b = args;
    if (fn != run_call && fn != run_batch)
        return NULL;
    *group = fn == run_call ? t->group : b->group;
    *count = fn == run_call ? 1 : b->count;
    return fn == run_call ? &t->call : b->calls;
}

/* --- what a program puts between the collectives --- */

typedef struct call_task {
    choir_group *group;
    choir_group_fn *fn;
    alignas(16) char args[CHOIR_GROUP_ARGS];
} call_task;

static void run_fn(const void *args)
{
    const call_task *t = args;
    choir__engine *engine = t->group->engine;
    if (choir__is_dry_engine(engine)) /* dry devices have no values to compute with */
        return;
    choir_status status = engine->ops->settle ? engine->ops->settle(engine) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = t->fn(t->args);
    if (status != CHOIR_OK && engine->failed == CHOIR_OK)
        status = choir__engine_spread(engine, status, "%s", choir__message());
    choir__group_report(t->group, engine->failed != CHOIR_OK ? engine->failed : status);
}

choir_status choir_group_call(
    choir_group *group, choir_group_fn *fn, const void *args, size_t bytes, choir_work *work)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!fn || (!args && bytes))
        return choir__missing(__func__, fn ? "arguments" : "function");
    call_task t = {group, fn, {0}};
    if (bytes > sizeof t.args)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_group_call: %zu bytes of arguments; there is room for %d: pass a pointer",
            bytes, CHOIR_GROUP_ARGS);
    if (group->batching)
        return choir__error(CHOIR_ERR_STATE,
            "choir_group_call in a batch, whose calls have no order; end it first");
    if (bytes)
        memcpy(t.args, args, bytes);
    choir__queue_issue(group->queue, run_fn, &t, offsetof(call_task, args) + bytes);
    return wait_or_hand_out(group, work);
}

/* --- traces --- */

/* Returns the name of the collective that a task runs, for traces. */
static const char *task_name(choir__queue_task *fn, const void *args)
{
    if (fn == run_call)
        return choir__kind_name((choir__kind)((const task *)args)->call.stamp.kind);
    return fn == run_batch ? "batch" : fn == run_fn ? "program" : "share";
}

void choir_trace_group(choir_trace *trace, choir_group *group)
{
    if (choir__lacks(trace, __func__, "trace"))
        return;
    if (choir__lacks(group, __func__, "group"))
        return;
    choir__trace_queue(trace, "collectives", group->queue, task_name);
}
