/* Micro-batches that advance together, norm by norm.
 *
 * A norm needs the sums of all micro-batches of its group. If a rank has several of them, each
 * runs as a fiber, which is suspended at every norm, forward and backward, until the others
 * have come there, too:
 *
 *     micro-batch 0   conv | sums .       . rest  conv | sums .       . rest ...
 *     micro-batch 1        .  conv | sums . rest       .  conv | sums . rest ...
 *     all ranks            .              ^ the tree over the group    ^
 *
 * A rank works on the groups that it has micro-batches of in rising order. So ranks that share
 * some groups and not others do not wait for each other in a circle.
 *
 * Kernels are queued in the order in which the fibers run, so nothing else knows of them.
 *
 * Gradients of parameters are leaves of the tree over micro-batches, one after another, and not
 * interleaved. So the walks back are split (autograd/walk.h): the fibers compute the gradients
 * of inputs alone, and each micro-batch adds its leaf later, in the order of the micro-batches.
 */
#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <choir/autograd.h>

#include <stdlib.h>

#include "autograd/walk.h"
#include "base/fiber.h"
#include "base/tree.h"
#include "device/dry/dry.h"
#include "nn/module.h"
#include "parallel/ranks.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

typedef struct member {
    choir__lockstep *step;
    int64_t index; /* number among this rank's micro-batches */
    choir_scope *scope;
    choir__fiber *fiber;
    choir_module *at; /* module whose forward function is suspended */
    choir_tensor *loss;
    choir__walk walk;
    double *sums; /* sums of the norm at which it waits; NULL: it does not */
    int64_t count;
    bool ran; /* gradients of inputs are complete */
    choir_status status;
} member;

struct choir__lockstep {
    choir__synced *synced;
    choir_scope *scope; /* the step's */
    choir_module *net;
    choir_micro_loss_fn *fn;
    void *arg;
    member *members;     /* (count) */
    int64_t count, next; /* next: the micro-batch whose leaf is next */
    member **round;      /* (here) those that run together now, of group `group` */
    int64_t group, here;
    member *running;
    choir_status status;
};

/* --- sums --- */

typedef struct addition {
    double *y;
    const double *x;
    int64_t n;
} addition;

static void add_task(const void *args)
{
    const addition *a = args;
    for (int64_t i = 0; i < a->n; i++)
        a->y[i] += a->x[i];
}

/* y += x. On memory of the host this needs no kernel, which processors have in f32 alone. */
static void add(choir_device *device, double *y, const double *x, int64_t n)
{
    choir__k_binary args = {.y = {.p = y, .stride = {1}},
        .a = {.p = y, .stride = {1}},
        .b = {.p = (double *)(uintptr_t)x, .stride = {1}},
        .shape = {n},
        .ndim = 1,
        .op = CHOIR__ADD,
        .dtype = CHOIR_F64};
    if (device->far || choir_device_is_dry(device))
        choir__launch(device, CHOIR_F64, binary, &args);
    else
        choir__queue_issue(device->queue, add_task, &(addition){y, x, n}, sizeof(addition));
}

/* Adds the rows (rows, n) in the fixed tree, into row 0. */
static void add_rows(choir_device *device, double *at, int64_t rows, int64_t n)
{
    choir__node stack[CHOIR__MAX_NODES];
    int top = 0;
    for (int64_t r = 0; r < rows; r++) {
        stack[top++] = (choir__node){r, 1};
        while (top > 1 &&
               (choir__tree_siblings(stack[top - 2], stack[top - 1]) || r + 1 == rows)) {
            add(device, at + stack[top - 2].start * n, at + stack[top - 1].start * n, n);
            stack[top - 2].leaves += stack[top - 1].leaves;
            top--;
        }
    }
}

/* The ranks that share the round's group, and their micro-batches of it. */
typedef struct sharing {
    choir_group *ranks;
    int64_t each, most; /* as in choir__synced_share */
} sharing;

static sharing sharing_of(const choir__lockstep *l)
{
    const choir__synced *s = l->synced;
    if (!s->shares)
        return (sharing){s->group, l->here * choir_group_world(s->group), l->here};
    const choir__synced_share *share = &s->shares[l->group];
    return (sharing){share->ranks, share->each, share->most};
}

/* Moves the rows of ranks with fewer than most, which lie `most` rows apart, together. */
static void close_gaps(const choir__lockstep *l, const sharing *of, double *rows, int64_t n)
{
    const choir__synced *s = l->synced;
    const int world = s->shares ? choir_group_world(s->world) : 0;
    int64_t to = 0, from = 0;
    for (int r = 0; r < world; r++) {
        const int64_t count = choir__synced_count(s, l->group, r);
        for (int64_t i = 0; i < count && to < from; i++)
            choir__launch_bytes(s->run->device, rows + (to + i) * n, rows + (from + i) * n,
                (size_t)n * sizeof *rows);
        to += count;
        from += count ? of->most : 0;
    }
}

/* Gives all members of the round the sums over their group, also over its part on other ranks.
 */
static choir_status share(choir__lockstep *l)
{
    const sharing of = sharing_of(l);
    choir_device *device = l->synced->run->device;
    int64_t n = l->round[0]->count, world = choir_group_world(of.ranks);
    choir_tensor *all = choir__tensor_new(
        l->scope, device, CHOIR_F64, choir_dims(of.most * world + of.most, n));
    choir_status status = choir__scope_status(l->scope);
    if (status != CHOIR_OK)
        return status;
    double *rows = choir__data(all), *mine = rows + of.most * world * n;
    size_t bytes = (size_t)n * sizeof *rows;
    for (int64_t i = 0; i < l->here; i++)
        choir__launch_bytes(
            device, (world > 1 ? mine : rows) + i * n, l->round[i]->sums, bytes);
    if (world > 1) {
        choir_work work;
        status = choir_group_wait_device(of.ranks, device);
        if (status == CHOIR_OK)
            status =
                choir_group_all_gather(of.ranks, mine, rows, of.most * n, CHOIR_F64, &work);
        if (status == CHOIR_OK)
            status = choir_device_wait_work(device, work);
    }
    if (status != CHOIR_OK)
        return status;
    close_gaps(l, &of, rows, n);
    add_rows(device, rows, of.each, n);
    for (int64_t i = 0; i < l->here; i++)
        choir__launch_bytes(device, l->round[i]->sums, rows, bytes);
    choir__tensor_release(all);
    return CHOIR_OK;
}

static choir_status wait_at_norm(choir__synced *s, double *sums, int64_t count)
{
    const choir__lockstep *l = s->now;
    member *m = l->running;
    if (l->status != CHOIR_OK)
        return l->status;
    m->sums = sums;
    m->count = count;
    choir__fiber_yield(m->fiber);
    m->sums = NULL;
    return l->status;
}

/* --- one micro-batch --- */

static void run_member(void *arg)
{
    member *m = arg;
    const choir__lockstep *l = m->step;
    m->loss = l->fn(m->scope, m->index, l->net, l->arg);
    m->status = choir__scope_status(m->scope);
    if (m->status == CHOIR_OK)
        m->status = choir__use_tensor(m->loss, "choir_sync_batch_norm_step");
    if (m->status == CHOIR_OK)
        m->status = choir__walk_open(&m->walk, m->loss, NULL, m->loss->count, 0);
    if (m->status == CHOIR_OK)
        m->status = choir__walk_stage(&m->walk, 0, true);
    m->ran = m->status == CHOIR_OK;
}

/* Adds the micro-batch's leaf and closes its scope. */
static choir_status finish_member(member *m, choir_tensor **loss)
{
    choir_status status = m->ran ? choir__walk_weights(&m->walk, 0) : m->status;
    if (m->ran && status == CHOIR_OK) {
        choir__walk_close(&m->walk);
        *loss = choir_keep(&m->scope->run->base, m->loss);
    } else if (m->ran) {
        choir__walk_abandon(&m->walk);
    }
    choir_status closed = choir_scope_close(m->scope);
    m->scope = NULL;
    return status == CHOIR_OK ? closed : status;
}

/* Runs the micro-batch to its next norm or to its end. Returns whether it waits at a norm. */
static bool resume(choir__lockstep *l, member *m)
{
    choir__run *run = choir__run_of(l->scope);
    choir_module *at = choir__module_enter(run, m->at);
    l->running = m;
    bool waits = choir__fiber_resume(m->fiber);
    m->at = choir__module_enter(run, at);
    l->running = NULL;
    return waits;
}

/* --- a round: the micro-batches of one group --- */

static choir_status start_member(choir__lockstep *l, member *m, int64_t index)
{
    *m = (member){.step = l, .index = index};
    m->at = choir__run_of(l->scope)->at;
    m->scope = choir_micro_open(l->scope, l->scope->micro + index);
    m->fiber = choir__fiber_new();
    if (!m->fiber)
        return choir__error(CHOIR_ERR_MEMORY, "no memory for the stack of a micro-batch");
    choir__fiber_start(m->fiber, run_member, m);
    return CHOIR_OK;
}

/* Advances all members of the round to their next norm, or to their ends. */
static bool advance(choir__lockstep *l)
{
    int waiting = 0, each = (int)l->here;
    for (int i = 0; i < each; i++) {
        member *m = l->round[i];
        waiting += m->fiber && !m->ran && m->status == CHOIR_OK && resume(l, m);
        if (l->status == CHOIR_OK)
            l->status = m->status;
    }
    if (waiting && waiting < each && l->status == CHOIR_OK)
        l->status = choir__error(CHOIR_ERR_STATE,
            "sync_batch_norm: %d of %d micro-batches have come to a norm, and the others to "
            "their ends: each must run the same norms",
            waiting, each);
    return waiting;
}

/* Returns this rank's first micro-batch of a group. */
static int64_t first_of(const choir__lockstep *l, int64_t group)
{
    const int64_t groups = l->synced->groups, begin = (int64_t)l->scope->micro % groups;
    return (group - begin + groups) % groups;
}

/* After an error norms do not wait any more, so all members come to their ends. */
static choir_status run_round(choir__lockstep *l)
{
    const int64_t groups = l->synced->groups, first = first_of(l, l->group);
    l->here = 0;
    for (int64_t m = first; m < l->count && l->status == CHOIR_OK; m += groups) {
        member *of = l->round[l->here++] = &l->members[m];
        l->status = start_member(l, of, m);
    }
    if (l->status != CHOIR_OK)
        return l->status;
    while (advance(l))
        if (l->status == CHOIR_OK)
            l->status = share(l);
    for (int64_t i = 0; i < l->here; i++) {
        choir__fiber_free(l->round[i]->fiber);
        l->round[i]->fiber = NULL;
    }
    return l->status;
}

/* --- a step --- */

/* Adds the leaves of the micro-batches that have run, up to one that has not. */
static choir_status finish_members(choir__lockstep *l, choir_tensor **losses)
{
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && l->next < l->count && l->members[l->next].ran) {
        status = finish_member(&l->members[l->next], &losses[l->next]);
        l->next++;
    }
    return status;
}

/* The first leaf of a rank may wait for all other ranks (parallel/ddp). Where ranks have
 * unequal shares, that must not be between two norms for which others wait. */
static choir_status run_lockstep(choir__lockstep *l, choir_tensor **losses)
{
    choir_status status = CHOIR_OK;
    for (l->group = 0; l->group < l->synced->groups && status == CHOIR_OK; l->group++) {
        status = run_round(l);
        if (status == CHOIR_OK && !l->synced->shares)
            status = finish_members(l, losses);
    }
    if (status == CHOIR_OK)
        status = finish_members(l, losses);
    for (; l->next < l->count; l->next++) { /* after an error */
        member *m = &l->members[l->next];
        m->status = status;
        if (m->scope)
            (void)!finish_member(m, &losses[l->next]);
        choir__fiber_free(m->fiber);
    }
    return status;
}

static choir_status run_apart(choir_scope *step, choir_module *net, int64_t count,
    choir_micro_loss_fn *fn, void *arg, choir_tensor **losses)
{
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, step->micro + m);
        choir_tensor *loss = fn(micro, m, net, arg);
        status = choir_backward(loss);
        losses[m] = choir_keep(&step->run->base, loss);
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    return status;
}

/* Returns the number of this rank's micro-batches. */
static int64_t count_here(const choir__synced *s)
{
    int64_t first = 0, end = s->groups * s->together;
    if (s->shares)
        choir__tree_run(
            s->total, choir_group_rank(s->world), choir_group_world(s->world), &first, &end);
    return end - first;
}

choir_status choir_sync_batch_norm_step(choir_scope *step, choir_module *net, int64_t count,
    choir_micro_loss_fn *fn, void *arg, choir_tensor **losses)
{
    choir_status use = choir__use_scope(step, __func__);
    if (use == CHOIR_OK)
        use = choir__use_module(net, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!fn || !losses)
        return choir__missing(__func__, fn ? "array of losses" : "function");
    choir__synced *s = choir__synced_of(step);
    if (!s || (s->together == 1 && !s->shares))
        return run_apart(step, net, count, fn, arg, losses);
    const int64_t expected = count_here(s);
    if (count != expected)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected this rank's %lld micro-batches, got %lld", __func__,
            (long long)expected, (long long)count);
    choir__lockstep l = {.synced = s,
        .scope = step,
        .net = net,
        .fn = fn,
        .arg = arg,
        .members = choir__calloc((size_t)count, sizeof *l.members),
        .count = count,
        .round = choir__calloc((size_t)s->together, sizeof *l.round)};
    s->now = &l;
    s->wait = wait_at_norm;
    choir_status status = run_lockstep(&l, losses);
    s->now = NULL;
    s->wait = NULL;
    free(l.members);
    free(l.round);
    return status;
}

int choir_sync_batch_norm_together(const choir_scope *run)
{
    if (choir__use_scope(run, __func__) != CHOIR_OK)
        return 1;
    const choir__synced *s = choir__synced_of(run);
    return !s ? 1 : s->shares ? choir__max(2, s->together) : s->together;
}
