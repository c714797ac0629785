/* A group: a queue, and the engine its collectives run on.
 *
 * A call is checked, put into a choir__call and queued; the engine runs it on whichever thread
 * serves the queue. So the collectives of a group happen in the order they were issued, among
 * themselves and with the devices' events that strategies make the queue wait for. The number
 * of a call is given when it runs: a recorded step issues the same calls again. */
#include "comm/group.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/far.h"
#include "comm/issue.h"
#include "comm/shared.h"
#include "device/device.h"
#include "device/trace.h"

/* A rank often has one core, which its device is using: reducing in the background of a short
 * backward costs more in switches (3 % of a step of 22 ms) than it hides. Long steps do get it.
 */
enum { PATIENCE_US = 20000 };

/* Memory of a call, until it has run. */
typedef struct choir__group_block {
    struct choir__group_block *before, *next;
    bool for_good; /* a recorded step will run it again */
    alignas(16) char data[];
} choir__group_block;

/* --- opening --- */

choir_group_opts choir_group_defaults(void)
{
    return (choir_group_opts){.rank = -1, .world = -1, .timeout_s = 1800};
}

static choir__capturable capturable;

choir_group *choir__group_new(choir__engine *engine, choir__membership *job, const char *name)
{
    choir_group *group = choir__calloc(1, sizeof *group);
    group->engine = engine;
    group->job = job;
    atomic_fetch_add(&job->groups, 1);
    pthread_mutex_init(&group->kept_lock, NULL);
    snprintf(group->name, sizeof group->name, "%s", name);
    engine->name = group->name;
    group->log = choir__log_open(name, engine->ops->name, engine->rank, engine->world);
    group->queue = choir__queue_new((choir__queue_opts){.name = "group",
        .patience_us = PATIENCE_US,
        .gauges = choir__log_gauges(group->log),
        .timed = group->log != NULL,
        .stream = engine->stream,
        .capturable = engine->stream ? capturable : NULL});
    engine->queue = group->queue;
    return group;
}

choir_status choir_group_init(const char *method, choir_group_opts opts, choir_group **group)
{
    choir__engine *engine = NULL;
    choir__algorithm algorithm;
    if (choir__algorithm_parse(opts.algorithm ? opts.algorithm : "auto", &algorithm) !=
        CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    choir__membership *job = choir__calloc(1, sizeof *job);
    const char *backend = opts.backend ? opts.backend : getenv("CHOIR_BACKEND");
    choir_status status =
        choir__meet(method ? method : getenv("CHOIR_INIT"), &opts, &job->meeting);
    job->meeting.device = opts.device;
    if (status == CHOIR_OK)
        status =
            choir__engine_open(backend && *backend ? backend : NULL, &job->meeting, &engine);
    job->meeting.device = NULL; /* the caller's */
    if (status != CHOIR_OK) {
        choir__meeting_linger(&job->meeting);
        choir__meeting_free(&job->meeting);
        free(job);
        return status;
    }
    const char *name = *job->meeting.job ? job->meeting.job : job->meeting.launched;
    if (*name)
        choir__recorder_job(name, engine->rank, engine->world);
    *group = choir__group_new(engine, job, "world");
    (*group)->algorithm = algorithm;
    return CHOIR_OK;
}

void choir_group_free(choir_group *group)
{
    if (!group)
        return;
    choir__shared_free(group->scratch);
    choir__queue_hold(group->queue); /* who watches over the group may yet break it */
    choir__queue_free(group->queue);
    for (choir__shared *s = group->shareds; s; s = s->other)
        s->group = NULL;
    choir__log_close(group->log);
    if (group->engine->failed != CHOIR_OK)
        atomic_store(&group->job->failed, true);
    group->engine->ops->close(group->engine);
    choir__queue_let_go(group->queue);
    if (atomic_fetch_sub(&group->job->groups, 1) == 1) {
        if (atomic_load(&group->job->failed))
            choir__meeting_linger(&group->job->meeting);
        choir__meeting_free(&group->job->meeting);
        free(group->job);
    }
    while (group->kept) { /* recorded, or of calls that a failure or nobody's batch_end left */
        choir__group_drop(group, group->kept->data);
    }
    pthread_mutex_destroy(&group->kept_lock);
    free(group->batch);
    free(group);
}

/* --- what a group is --- */

int choir_group_rank(const choir_group *group)
{
    return group->engine->rank;
}

int choir_group_world(const choir_group *group)
{
    return group->engine->world;
}

static const choir__member *member(const choir_group *group, int rank)
{
    const choir__engine *e = group->engine;
    return e->members ? &e->members[rank < 0 ? e->rank : rank] : NULL;
}

int choir_group_node(const choir_group *group, int rank)
{
    const choir__member *m = member(group, rank);
    return m ? m->node : 0;
}

int choir_group_nodes(const choir_group *group)
{
    return group->engine->nodes;
}

int choir_group_local_rank(const choir_group *group, int rank)
{
    const choir__member *m = member(group, rank);
    return m ? m->local_rank : rank < 0 ? group->engine->rank : rank;
}

int choir_group_local_world(const choir_group *group)
{
    int count = 0;
    for (int r = 0; r < group->engine->world; r++)
        count += choir_group_node(group, r) == choir_group_node(group, -1);
    return count;
}

const char *choir_group_backend(const choir_group *group)
{
    return group->engine->ops->name;
}

choir__queue *choir__group_queue(choir_group *group)
{
    return group->queue;
}

bool choir__group_shares(const choir_group *group)
{
    return group->engine->ops->share != NULL;
}

uint64_t choir__group_bytes(const choir_group *group)
{
    return atomic_load_explicit(&group->engine->bytes, memory_order_relaxed);
}

choir_status choir_group_algorithm(choir_group *group, const char *name)
{
    return choir__algorithm_parse(name ? name : "auto", &group->algorithm);
}

/* --- events --- */

choir_status choir_work_wait(choir_work work)
{
    return choir__event_wait((choir__event){work.queue, work.place});
}

bool choir_work_done(choir_work work)
{
    return choir__event_done((choir__event){work.queue, work.place});
}

choir_status choir_group_wait_device(choir_group *group, choir_device *device)
{
    return choir__queue_wait_event(group->queue, choir__queue_record(device->queue));
}

choir_status choir_device_wait_work(choir_device *device, choir_work work)
{
    return choir__queue_wait_event(device->queue, (choir__event){work.queue, work.place});
}

/* --- running --- */

typedef struct task {
    choir_group *group;
    choir__call call;
} task;

typedef struct batch_task {
    choir_group *group;
    choir__call *calls; /* kept */
    int count;
} batch_task;

static choir_status run_near(choir__engine *engine, const choir__call *call)
{
    return choir__tree_by_name(call) ? choir__tree_run_by_name(engine, call)
                                     : engine->ops->run(engine, call);
}

static choir_status run_where_it_lies(choir__engine *engine, const choir__call *call)
{
    if (choir__engine_takes(engine, call))
        return engine->ops->run(engine, call);
    if (!choir__call_is_far(call))
        return run_near(engine, call);
    if (engine->ops->settle && engine->ops->settle(engine) != CHOIR_OK)
        return engine->failed;
    return choir__far_run(engine, call, run_near);
}

choir_status choir__group_run(choir_group *group, choir__call *call)
{
    choir__engine *engine = group->engine;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    call->stamp.seq = ++engine->seq;
    choir__log_begin(group->log, &call->stamp);
    choir_status status = run_where_it_lies(engine, call);
    choir__log_end(group->log, &call->stamp, status);
    return status;
}

static void report(choir_group *group, choir_status status)
{
    const char *sentence = group->engine->message;
    if (status != CHOIR_OK && group->on_failure)
        sentence = group->on_failure(group->on_failure_arg, status, sentence);
    if (status != CHOIR_OK)
        choir__queue_fail(status, "%s", sentence);
}

void choir__group_watch(choir_group *group, choir__on_failure *fn, void *arg)
{
    group->on_failure = fn;
    group->on_failure_arg = arg;
}

void choir__group_abort(choir_group *group, choir_status status, const char *sentence)
{
    if (group->engine->ops->abort)
        group->engine->ops->abort(group->engine, status, sentence);
}

/* What the call had kept. */
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
        report(t->group, choir__batch_run(t->group, &call, 1));
    else
        report(t->group, choir__group_run(t->group, &call));
    let_go_of(t->group, &call);
}

static void run_batch(const void *args)
{
    const batch_task *t = args;
    report(t->group, choir__batch_run(t->group, t->calls, t->count));
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
        if (group->batch_count == group->batch_room) {
            group->batch_room = group->batch_room ? 2 * group->batch_room : 16;
            group->batch =
                choir__realloc(group->batch, (size_t)group->batch_room * sizeof *group->batch);
        }
        group->batch[group->batch_count++] = t.call;
        return CHOIR_OK;
    }
    choir__queue_issue(group->queue, run_call, &t, sizeof t);
    return wait_or_hand_out(group, work);
}

void choir_group_batch_begin(choir_group *group)
{
    group->batching = true;
    group->batch_count = 0;
}

choir_status choir_group_batch_end(choir_group *group, choir_work *work)
{
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

/* Whether the task only gives work to the queue's stream. */
static bool capturable(choir__task *fn, const void *args)
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
    choir_status status = engine->ops->settle ? engine->ops->settle(engine) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = t->fn(t->args);
    if (status != CHOIR_OK && engine->failed == CHOIR_OK)
        status = choir__engine_spread(engine, status, "%s", choir_error_message());
    report(t->group, engine->failed != CHOIR_OK ? engine->failed : status);
}

choir_status choir_group_call(
    choir_group *group, choir_group_fn *fn, const void *args, size_t bytes, choir_work *work)
{
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

void *choir__group_keep(choir_group *group, const void *data, size_t bytes)
{
    choir__group_block *block = choir__alloc(sizeof *block + bytes);
    memcpy(block->data, data, bytes);
    block->for_good = choir__recording_active();
    block->before = NULL;
    pthread_mutex_lock(&group->kept_lock);
    block->next = group->kept;
    if (block->next)
        block->next->before = block;
    group->kept = block;
    pthread_mutex_unlock(&group->kept_lock);
    return block->data;
}

static choir__group_block *block_of(const void *kept)
{
    return (choir__group_block *)(uintptr_t)((const char *)kept -
                                             offsetof(choir__group_block, data));
}

void choir__group_let_go(choir_group *group, const void *kept)
{
    if (!block_of(kept)->for_good)
        choir__group_drop(group, kept);
}

void choir__group_drop(choir_group *group, const void *kept)
{
    choir__group_block *block = block_of(kept);
    pthread_mutex_lock(&group->kept_lock);
    if (block->next)
        block->next->before = block->before;
    *(block->before ? &block->before->next : &group->kept) = block->next;
    pthread_mutex_unlock(&group->kept_lock);
    free(block);
}

/* --- shared memory --- */

typedef struct sharing {
    choir_group *group;
    size_t bytes;
    choir__shared **shared;
    choir_status *status;
} sharing;

/* Memory that one rank can't have is an error of this call, and the group lives on. */
static void run_share(const void *args)
{
    const sharing *s = args;
    choir__engine *engine = s->group->engine;
    engine->seq += engine->failed == CHOIR_OK;
    choir__stamp stamp = {.kind = CHOIR__SHARE, .count = s->bytes, .seq = engine->seq};
    choir__log_begin(s->group->log, &stamp);
    *s->status = engine->failed != CHOIR_OK ? engine->failed
                 : engine->ops->share       ? engine->ops->share(engine, s->bytes, s->shared)
                                      : choir__shared_private(engine, s->bytes, s->shared);
    choir__log_end(s->group->log, &stamp, *s->status);
    report(s->group, engine->failed);
}

choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared)
{
    choir_status status = CHOIR_OK;
    sharing s = {group, bytes, shared, &status};
    choir__queue_issue(group->queue, run_share, &s, sizeof s);
    choir_status failed = choir__queue_wait(group->queue);
    if (failed != CHOIR_OK)
        return failed;
    if (status != CHOIR_OK)
        return choir__error(status, "%s", group->engine->message);
    (*shared)->group = group;
    (*shared)->other = group->shareds;
    group->shareds = *shared;
    return CHOIR_OK;
}

/* --- traces --- */

const char *choir__group_task_name(choir__task *fn, const void *args)
{
    if (fn == run_call)
        return choir__kind_name((choir__kind)((const task *)args)->call.stamp.kind);
    return fn == run_batch ? "batch" : fn == run_fn ? "program" : "share";
}

void choir_trace_group(choir_trace *trace, choir_group *group)
{
    choir__trace_queue(trace, "collectives", group->queue, choir__group_task_name);
}
