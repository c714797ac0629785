/* choir_step: a step as a function, which is run twice, recorded once, and then replayed.
 *
 * During the first two calls, everything that is made lazily is made (optimizer state, layouts
 * of gradients, primitives). The third call runs under a recording, with its own memory pool,
 * so that the addresses in the list stay valid: no other tensor ever gets that memory. Scopes
 * that close while recording keep their arenas, since host calls of the list point into them.
 *
 * A recording begins with gradients that an optimizer has used, and so must each replay: what
 * another backward has left is used by a step by hand, and a new recording follows.
 *
 * With several devices, each has such a pool, and the list ends with all queues waiting for
 * each other, because one device may read late in a replay what another writes early in the
 * next. */
#include <stdlib.h>

#include "base/board/board.h"
#include "base/rng.h"
#include "tensor/handle.h"
#include "tensor/run.h"
#include "tensor/strategy.h"

enum { WARM_UP = 2 };

struct choir__replay {
    choir__run *run;
    choir_step_fn *fn;
    void *arg;
    int64_t calls;
    bool anew; /* the recording is discarded after this step */
    /* the run's, with which the calls so far have worked */
    uint64_t settings;
    choir__autocast autocast;
    bool grad;
    bool left; /* sums of gradients were left when the calls began */
    choir__recording *recording;
    choir__pool **pools; /* pools of the run's devices, in their order */
    int pool_count;
};

static int device_count(const choir__run *run)
{
    int n = 0;
    for (const choir__run_device *p = run->devices; p; p = p->next)
        n++;
    return n;
}

static void forget(choir__run *run)
{
    struct choir__replay *r = run->replay;
    choir__run_sync(&run->base);
    choir__recording_free(r->recording);
    choir__scopes_reuse(run, &run->recorded);
    for (int i = 0; i < r->pool_count; i++)
        choir__pool_retire(r->pools[i], &run->retired);
    free(r->pools);
    r->recording = NULL;
    r->pools = NULL;
    r->pool_count = 0;
    r->calls = 0;
}

void choir__step_forget(choir_scope *scope)
{
    if (scope->run->replay)
        forget(scope->run);
}

void choir__step_anew(choir_scope *scope)
{
    if (scope->run->replay)
        scope->run->replay->anew = true;
}

void choir__step_turned(choir_scope *scope, const void *what)
{
    scope->run->settings ^= choir__mix(0, (uintptr_t)what);
}

static bool sums_are_left(const choir__run *run)
{
    return run->sums && run->sums->left(run);
}

/* Returns whether the next call of the function would do what its last one did. */
static bool same_work(const struct choir__replay *r, choir_step_fn *fn, const void *arg)
{
    const choir_scope *base = &r->run->base;
    const choir__autocast *was = &r->autocast, *is = &base->autocast;
    return r->fn == fn && r->arg == arg && !r->anew && r->settings == r->run->settings &&
           r->grad == base->grad && r->left == sums_are_left(r->run) && was->on == is->on &&
           was->all == is->all && was->norms == is->norms && was->dtype == is->dtype;
}

static void close_replay(void *arg)
{
    choir__run *run = arg;
    forget(run);
    free(run->replay);
}

const choir__recording *choir__step_recording(const choir_scope *scope)
{
    const struct choir__replay *r = scope->run->replay;
    return r ? r->recording : NULL;
}

uint64_t choir__values_of(const choir_tensor *t)
{
    return ((uint64_t)t->scope->run->recordings << 32 | t->storage->version) + 1;
}

static choir_status run_once(struct choir__replay *r, choir_scope *step)
{
    choir_status status = r->fn(step, r->arg);
    if (status != CHOIR_OK)
        step->lacks = true; /* the function gave up, perhaps without an error of the scope */
    choir_status closed = choir__scope_end(step);
    return status != CHOIR_OK ? status : closed;
}

/* Swaps each device's pool with the one in `pools`; NULL stands for a new pool. */
static void swap_pools(struct choir__replay *r)
{
    const choir__run_device *p = r->run->devices;
    for (int i = 0; i < r->pool_count; i++, p = p->next)
        r->pools[i] = choir__pool_swap(p->device, r->pools[i]);
}

static choir_status record(struct choir__replay *r, choir_scope *step)
{
    r->pool_count = device_count(r->run);
    r->pools = choir__calloc((size_t)r->pool_count, sizeof(choir__pool *));
    for (const choir__run_device *p = r->run->devices; p; p = p->next)
        /* the recording has its own pool: cached blocks would be held twice */
        choir__pool_trim(p->device);
    swap_pools(r);
    r->run->recordings++;
    r->recording = choir__recording_open();
    choir_status status = run_once(r, step);
    choir__run_join(&r->run->base);
    choir__recording_close(r->recording);
    swap_pools(r);
    if (status != CHOIR_OK || device_count(r->run) != r->pool_count)
        forget(r->run); /* record again: a device that was new to the step had no pool */
    return status;
}

static struct choir__replay *replay_of(choir__run *run)
{
    if (!run->replay) {
        run->replay = choir__calloc(1, sizeof *run->replay);
        run->replay->run = run;
        choir__on_close(&run->base, close_replay, run);
    }
    return run->replay;
}

choir_status choir_step(choir_scope *scope, choir_step_fn *fn, void *arg)
{
    choir_status use_scope = choir__use_scope(scope, __func__);
    if (use_scope != CHOIR_OK)
        return use_scope;
    if (!fn)
        return choir__missing(__func__, "function");
    choir__run *run = scope->run;
    struct choir__replay *r = replay_of(run);
    if (!same_work(r, fn, arg)) {
        forget(run);
        r->fn = fn;
        r->arg = arg;
        r->anew = false;
        r->settings = run->settings;
        r->autocast = run->base.autocast;
        r->grad = run->base.grad;
        r->left = sums_are_left(run);
    }
    uint64_t number = run->next_step++;
    choir__board_step();
    if (r->recording) {
        choir__step_begins(scope, number);
        choir_status status = choir__recording_replay(r->recording);
        return status != CHOIR_OK ? status : choir__run_failure(scope);
    }
    choir_scope *step = choir_step_open(scope, number);
    return r->calls++ < (run->warm_up > WARM_UP ? run->warm_up : WARM_UP) ? run_once(r, step)
                                                                          : record(r, step);
}

uint64_t choir_run_next(const choir_scope *run)
{
    if (choir__use_scope(run, __func__) != CHOIR_OK)
        return 0;
    return run->run->next_step;
}

void choir_run_seek(choir_scope *run, uint64_t step)
{
    if (choir__use_scope(run, __func__) != CHOIR_OK)
        return;
    run->run->next_step = step;
}

void choir_run_forget(choir_scope *run)
{
    if (choir__use_scope(run, __func__) != CHOIR_OK)
        return;
    choir__step_forget(&run->run->base);
}

/* Tells strategies that the ranks have changed, and drops the recorded step, which has the
 * groups and the memory of the former ranks. */
choir_status choir__strategies_ranks_changed(
    choir_scope *scope, struct choir_group *group, uint64_t undone)
{
    choir_status status = CHOIR_OK;
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (!s->ops->ranks_changed)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s: it cannot continue when ranks leave or join; resume from a checkpoint",
                s->ops->name);
    choir__step_forget(scope);
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        status = s->ops->ranks_changed(s, group, undone);
    return status;
}

choir_status choir__strategies_ranks_turned(
    choir_scope *scope, struct choir_group *group, int by, uint64_t undone)
{
    choir_status status = CHOIR_OK;
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (!s->ops->ranks_turned && !s->ops->ranks_changed)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s: its ranks cannot compute micro-batches for each other", s->ops->name);
    choir__step_forget(scope);
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        status = s->ops->ranks_turned ? s->ops->ranks_turned(s, group, by, undone)
                                      : s->ops->ranks_changed(s, group, undone);
    return status;
}
