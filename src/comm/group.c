/* A group: a queue, and the engine its collectives run on.
 *
 * Every call here only checks its arguments and enqueues; the engine runs on whichever thread
 * serves the queue. So the collectives of a group happen in the order they were issued, among
 * themselves and with the devices' events that strategies make the queue wait for. */
#include <choir/group.h>

#include <errno.h>
#include <stdlib.h>

#include "comm/group.h"
#include "comm/shm/reduce.h"
#include "comm/shm/shm.h"
#include "device/trace.h"

/* A rank often has one core, which its device is using: reducing in the background of a short
 * backward costs more in switches (3 % of a step of 22 ms) than it hides. Long steps do get it.
 */
enum { PATIENCE_US = 20000 };

struct choir_group {
    choir__shm *shm;
    choir__queue *queue;
};

/* --- opening --- */

choir_group_opts choir_group_defaults(void)
{
    return (choir_group_opts){.rank = -1, .world = -1, .timeout_s = 1800};
}

/* An integer of the environment; `otherwise` if it is not set. */
static choir_status from_environment(const char *name, int otherwise, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) {
        *value = otherwise;
        return CHOIR_OK;
    }
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || n < 0 || n > INT32_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is '%s': want a whole number", name, text);
    *value = (int)n;
    return CHOIR_OK;
}

static choir_status complete(choir_group_opts *o)
{
    bool ask = o->rank < 0;
    int local = 0;
    if (ask != (o->world < 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "rank %d of %d: give both, or neither (-1)", o->rank, o->world);
    if (ask && (from_environment("RANK", 0, &o->rank) ||
                   from_environment("WORLD_SIZE", 1, &o->world) ||
                   from_environment("LOCAL_WORLD_SIZE", o->world, &local)))
        return CHOIR_ERR_ARGUMENT;
    if (ask && local != o->world)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%d of %d ranks are on this machine: groups across machines are not built in",
            local, o->world);
    if (o->world < 1 || o->world > CHOIR__MAX_WORLD)
        return choir__error(CHOIR_ERR_ARGUMENT, "a group of %d ranks: want 1 to %d", o->world,
            CHOIR__MAX_WORLD);
    if (o->rank >= o->world)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "rank %d of %d: ranks count from 0", o->rank, o->world);
    if (!(o->timeout_s > 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "timeout_s is %g: want seconds above 0", o->timeout_s);
    if (!o->job)
        o->job = getenv("CHOIR_JOB");
    if (o->world > 1 && (!o->job || !*o->job))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%d ranks need a job's name to meet under: set CHOIR_JOB to the same secret on all",
            o->world);
    if (ask && o->world > 1)
        choir__set_rank_label(o->rank);
    return CHOIR_OK;
}

choir_status choir_group_open(choir_group_opts opts, choir_group **group)
{
    choir__shm *shm;
    choir_status status = complete(&opts);
    if (!status)
        status = choir__shm_open(opts.rank, opts.world, opts.job, opts.timeout_s, &shm);
    if (status)
        return status;
    *group = choir__calloc(1, sizeof **group);
    (*group)->shm = shm;
    (*group)->queue =
        choir__queue_new((choir__queue_opts){.name = "group", .patience_us = PATIENCE_US});
    return CHOIR_OK;
}

void choir_group_free(choir_group *group)
{
    if (!group)
        return;
    choir__queue_free(group->queue);
    choir__shm_close(group->shm);
    free(group);
}

int choir_group_rank(const choir_group *group)
{
    return group->shm->rank;
}

int choir_group_world(const choir_group *group)
{
    return group->shm->world;
}

choir__queue *choir__group_queue(choir_group *group)
{
    return group->queue;
}

uint64_t choir__group_bytes(const choir_group *group)
{
    return atomic_load_explicit(&group->shm->bytes, memory_order_relaxed);
}

/* --- tasks --- */

typedef struct task {
    choir__shm *shm;
    void *data;
    const void *mine;
    size_t bytes;
    int64_t count;
    choir_dtype dtype;
    choir_reduce_op op;
    int root;
} task;

static void report(choir__shm *shm, choir_status status)
{
    if (status)
        choir__queue_fail(status, "%s", shm->message);
}

static void run_barrier(const void *args)
{
    const task *t = args;
    report(t->shm, choir__shm_enter(t->shm, (choir__call){.kind = CHOIR__CALL_BARRIER}));
}

static void run_broadcast(const void *args)
{
    const task *t = args;
    report(t->shm, choir__shm_broadcast(t->shm, t->data, t->bytes, t->root));
}

static void run_all_gather(const void *args)
{
    const task *t = args;
    report(t->shm, choir__shm_all_gather(t->shm, t->mine, t->data, t->bytes));
}

static void run_all_reduce(const void *args)
{
    const task *t = args;
    report(t->shm, choir__shm_all_reduce(t->shm, t->data, t->count, t->dtype, t->op));
}

static void issue(choir_group *group, choir__task *fn, task t)
{
    t.shm = group->shm;
    choir__queue_issue(group->queue, fn, &t, sizeof t);
}

static choir_status run(choir_group *group, choir__task *fn, task t)
{
    issue(group, fn, t);
    return choir__queue_wait(group->queue);
}

choir_status choir_group_barrier(choir_group *group)
{
    return run(group, run_barrier, (task){0});
}

void choir__group_barrier_issue(choir_group *group)
{
    issue(group, run_barrier, (task){0});
}

void choir__group_broadcast_issue(choir_group *group, void *data, size_t bytes, int root)
{
    issue(group, run_broadcast, (task){.data = data, .bytes = bytes, .root = root});
}

void choir__group_all_gather_issue(
    choir_group *group, const void *mine, void *all, size_t bytes)
{
    issue(group, run_all_gather, (task){.data = all, .mine = mine, .bytes = bytes});
}

choir_status choir_group_broadcast(choir_group *group, void *data, size_t bytes, int root)
{
    if (root < 0 || root >= group->shm->world)
        return choir__error(CHOIR_ERR_ARGUMENT, "broadcast from rank %d in a group of %d", root,
            group->shm->world);
    return run(group, run_broadcast, (task){.data = data, .bytes = bytes, .root = root});
}

choir_status choir_group_all_reduce(
    choir_group *group, void *data, int64_t count, choir_dtype dtype, choir_reduce_op op)
{
    if (count < 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "all_reduce of %lld elements", (long long)count);
    if (op > CHOIR_MAX)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "all_reduce: there is no operation %d", (int)op);
    if (!choir__arith_find(dtype, op))
        return choir__error(CHOIR_ERR_DTYPE, "all_reduce of %s: want f32, f64, i64 or i32",
            choir_dtype_name(dtype));
    return run(
        group, run_all_reduce, (task){.data = data, .count = count, .dtype = dtype, .op = op});
}

choir_status choir_group_all_gather(
    choir_group *group, const void *mine, void *all, size_t bytes)
{
    return run(group, run_all_gather, (task){.data = all, .mine = mine, .bytes = bytes});
}

/* --- shared memory and the gradients' tree --- */

typedef struct tree_task {
    choir__shm *shm;
    choir__tree_reduce args;
} tree_task;

static void run_tree_reduce(const void *args)
{
    const tree_task *t = args;
    report(t->shm, choir__shm_tree_reduce(t->shm, &t->args));
}

void choir__group_tree_reduce(choir_group *group, const choir__tree_reduce *args)
{
    tree_task t = {group->shm, *args};
    choir__queue_issue(group->queue, run_tree_reduce, &t, sizeof t);
}

typedef struct sharing {
    choir__shm *shm;
    choir__queue *queue;
    size_t bytes;
    choir__shared **shared;
    choir_status *status;
} sharing;

/* Memory that one rank can't have is an error of this call, and the group lives on. */
static void run_share(const void *args)
{
    const sharing *s = args;
    *s->status = choir__shm_share(s->shm, s->queue, s->bytes, s->shared);
    report(s->shm, s->shm->failed);
}

choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared)
{
    choir_status status = CHOIR_OK;
    sharing s = {group->shm, group->queue, bytes, shared, &status};
    choir__queue_issue(group->queue, run_share, &s, sizeof s);
    choir_status failed = choir__queue_wait(group->queue);
    return failed   ? failed
           : status ? choir__error(status, "%s", group->shm->message)
                    : CHOIR_OK;
}

/* --- traces --- */

static const char *name_of(choir__task *fn)
{
    return fn == run_barrier       ? "barrier"
           : fn == run_broadcast   ? "broadcast"
           : fn == run_all_gather  ? "all_gather"
           : fn == run_all_reduce  ? "all_reduce"
           : fn == run_tree_reduce ? "tree_reduce"
                                   : "share";
}

void choir_trace_group(choir_trace *trace, choir_group *group)
{
    choir__trace_queue(trace, "collectives", group->queue, name_of);
}
