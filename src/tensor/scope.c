/* Scopes: opening, closing, and the first error. A step's scope is opened and closed thousands
 * of times per second, so a run keeps closed scopes, with their arenas, for reuse. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/run.h"

static choir_scope *take_scope(choir__run *run)
{
    if (run->spare) {
        choir_scope *s = run->spare;
        run->spare = s->spare;
        choir__arena arena = s->arena;
        memset(s, 0, sizeof *s);
        s->arena = arena;
        return s;
    }
    return choir__calloc(1, sizeof(choir_scope));
}

choir_device *choir_scope_device(const choir_scope *scope)
{
    return scope->run->base.device;
}

uint64_t choir_scope_seed(const choir_scope *scope)
{
    return scope->run->base.seed;
}

choir_scope *choir_scope_open(choir_device *device, uint64_t seed)
{
    choir__run *whole = choir__calloc(1, sizeof *whole);
    choir_scope *run = &whole->base;
    run->kind = CHOIR__RUN;
    run->run = whole;
    run->device = device ? device : choir__device_default();
    run->grad = true;
    run->seed = seed;
    if (!run->device) { /* CHOIR_DEVICE names a missing device; a scope always has one */
        choir__scope_fail(run, CHOIR_ERR_DEVICE);
        run->device = choir_device_find("cpu:0");
    }
    choir__scope_uses(run, run->device);
    choir__step_word(run, run->device); /* before a recording */
    return run;
}

/* --- steps and micro-batches --- */

static choir_scope *open_child(choir_scope *parent, choir__scope_kind kind)
{
    choir_scope *s = take_scope(parent->run);
    s->kind = kind;
    s->parent = parent;
    s->run = parent->run;
    s->depth = parent->depth + 1;
    s->device = parent->device;
    s->grad = parent->grad;
    s->autocast = parent->autocast;
    s->seed = parent->seed;
    s->step = parent->step;
    s->micro = parent->micro;
    s->placement = parent->placement;
    return s;
}

choir_scope *choir_step_open(choir_scope *run, uint64_t step)
{
    choir_scope *s = open_child(run, CHOIR__STEP);
    s->step = step;
    s->micro = run->run->micro_first;
    choir__step_begins(run, step);
    return s;
}

choir_scope *choir_micro_open(choir_scope *step, int64_t index)
{
    choir_scope *s = open_child(step, CHOIR__MICRO);
    s->micro = index;
    return s;
}

void choir__scopes_free(choir_scope **list)
{
    while (*list) {
        choir_scope *s = *list;
        *list = s->spare;
        choir__arena_free(&s->arena);
        free(s);
    }
}

static void call_all(choir__closer **list)
{
    while (*list) {
        choir__closer *c = *list;
        *list = c->next;
        c->fn(c->arg);
    }
}

/* Keeps a closed scope for reuse. The arena of a recorded step stays as it is, since replays
 * read it. */
static void keep_spare(choir_scope *scope, choir__run *run)
{
    choir_scope **list = choir__recording_active() ? &run->recorded : &run->spare;
    if (list == &run->spare)
        choir__arena_reset(&scope->arena);
    scope->spare = *list;
    *list = scope;
}

static void end_run(choir__run *run)
{
    /* failures are reported already; the next run begins without them */
    choir__run_clear(&run->base);
    for (choir__run_device *p = run->devices; p; p = p->next)
        choir__storage_unref(p->step);
    choir__pools_free(&run->retired);
    choir__scopes_free(&run->spare);
    call_all(&run->enders);
    choir__arena_free(&run->base.arena);
    free(run);
}

choir_status choir_scope_close(choir_scope *scope)
{
    if (!scope)
        return CHOIR_OK;
    choir__run *run = scope->run;
    call_all(&scope->closers);
    choir_status status = choir_scope_status(scope);
    if (scope->kind == CHOIR__RUN) {
        choir_status last = choir__run_sync(scope);
        if (status == CHOIR_OK)
            status = last;
    }
    if (status == CHOIR_OK)
        status = choir__run_failure(scope);
    for (choir_tensor *t = scope->tensors; t; t = t->next)
        choir__storage_unref(t->storage);
    free(scope->message);
    if (scope->kind == CHOIR__RUN)
        end_run(run);
    else
        keep_spare(scope, run);
    return status;
}

static void add_closer(
    choir__arena *arena, choir__closer **list, void (*fn)(void *arg), void *arg)
{
    choir__closer *c = choir__arena_get(arena, sizeof *c);
    *c = (choir__closer){.fn = fn, .arg = arg, .next = *list};
    *list = c;
}

void choir__on_close(choir_scope *scope, void (*fn)(void *arg), void *arg)
{
    add_closer(&scope->arena, &scope->closers, fn, arg);
}

void choir__on_end(choir_scope *scope, void (*fn)(void *arg), void *arg)
{
    add_closer(&scope->run->base.arena, &scope->run->enders, fn, arg);
}

choir_status choir_scope_status(const choir_scope *scope)
{
    for (const choir_scope *s = scope; s; s = s->parent)
        if (s->status != CHOIR_OK) {
            choir__set_message(s->message);
            return s->status;
        }
    return CHOIR_OK;
}

void choir_scope_clear(choir_scope *scope)
{
    scope->status = CHOIR_OK;
    scope->blamed = false;
    free(scope->message);
    scope->message = NULL;
    choir__run_clear(scope);
}

choir_scope *choir_no_grad(choir_scope *parent)
{
    choir_scope *s = open_child(parent, CHOIR__MICRO);
    s->grad = false;
    return s;
}

bool choir_set_grad(choir_scope *scope, bool on)
{
    bool was = scope->grad;
    scope->grad = on;
    return was;
}

choir_status choir__scope_fail(choir_scope *scope, choir_status status)
{
    if (scope->status == CHOIR_OK) {
        scope->status = status;
        scope->message = choir__strdup(choir_error_message());
    }
    return status;
}

void choir__scope_blame(choir_scope *scope, const char *path)
{
    if (scope->status == CHOIR_OK || scope->blamed || !scope->message)
        return;
    char *message = choir__format("%s; in module '%s'", scope->message, path);
    free(scope->message);
    scope->message = message;
    scope->blamed = true;
}

static choir_tensor *poison(
    choir_scope *scope, choir_status status, const char *format, va_list args)
{
    choir__verror(status, format, args);
    choir__scope_fail(scope, status);
    choir_tensor *t = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
    t->poisoned = true;
    return t;
}

choir_tensor *choir__poison(choir_scope *scope, choir_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    choir_tensor *t = poison(scope, status, format, args);
    va_end(args);
    return t;
}

choir_tensor *choir_fail(choir_scope *scope, choir_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    choir_tensor *t = poison(scope, status, format, args);
    va_end(args);
    return t;
}

static bool encloses(const choir_scope *outer, const choir_scope *inner)
{
    while (inner && inner->depth > outer->depth)
        inner = inner->parent;
    return inner == outer;
}

choir_scope *choir__join(choir_tensor *const *in, int count)
{
    choir_scope *innermost = in[0]->scope;
    for (int i = 1; i < count; i++)
        if (in[i] && in[i]->scope->depth > innermost->depth)
            innermost = in[i]->scope;
    for (int i = 0; i < count; i++)
        if (in[i] && !encloses(in[i]->scope, innermost)) {
            choir__error(CHOIR_ERR_SCOPE,
                "operands of unrelated scopes; choir_keep moves a tensor out of its own");
            choir__scope_fail(innermost, CHOIR_ERR_SCOPE);
            choir__scope_fail(in[0]->scope, CHOIR_ERR_SCOPE); /* the result belongs to it */
            return NULL;
        }
    return innermost;
}

/* Returns the number of draws so far by this name in this scope, and counts one more. Draws are
 * counted by name, so that other modules (or their absence on another pipeline stage) change
 * nothing. */
static uint64_t count_call(choir_scope *scope, uint64_t name)
{
    choir__calls *c = scope->calls;
    while (c && c->name != name)
        c = c->next;
    if (!c) {
        c = choir__arena_get(&scope->arena, sizeof *c);
        *c = (choir__calls){.name = name, .next = scope->calls};
        scope->calls = c;
    }
    return c->count++;
}

uint64_t choir__scope_key(choir_scope *scope, const char *name)
{
    uint64_t key = choir__rng_key(scope->seed, name);
    uint64_t call = count_call(scope, key);
    return choir__mix(choir__mix(key, (uint64_t)scope->micro), call);
}
