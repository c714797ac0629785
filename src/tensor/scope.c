/* Scopes: opening, closing, and the first error. A step's scope is opened and closed thousands
 * of times per second, so a run keeps closed scopes, with their arenas, for reuse. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/handle.h"
#include "tensor/unread.h"

enum { REMEMBERED_RUNS = 8 };

/* Returns a zeroed scope: a new one as long as the run has few closed ones, which must be
 * remembered; else the one that was closed first. */
static choir_scope *take_scope(choir__run *run)
{
    choir_scope *s = run->spare;
    if (run->spares < run->remembered) {
        s = choir__calloc(1, sizeof *s);
    } else {
        run->spare = s->spare;
        run->spares--;
        choir__arena handles = s->handles;
        choir__arena_reset(&handles);
        memset(s, 0, sizeof *s);
        s->handles = handles;
    }
    if (run->arena_count)
        s->arena = run->arenas[--run->arena_count];
    return s;
}

/* Makes a closed scope the last to be reused. Its entries end here. */
static void keep_spare(choir__run *run, choir_scope *s)
{
    if (run->arena_count < (int)CHOIR_COUNT(run->arenas)) {
        choir__arena_reset(&s->arena);
        run->arenas[run->arena_count++] = s->arena;
    } else {
        choir__arena_free(&s->arena);
    }
    s->arena = (choir__arena){0};
    s->spare = NULL;
    if (run->spares++)
        run->spare_last->spare = s;
    else
        run->spare = s;
    run->spare_last = s;
}

choir_scope *choir_scope_open(choir_device *device, uint64_t seed)
{
    choir__unread_tell();
    choir__run *whole = choir__calloc(1, sizeof *whole);
    choir_scope *run = &whole->base;
    run->kind = CHOIR__RUN;
    run->run = whole;
    whole->remembered = CHOIR__REMEMBERED;
    bool missed = !device && choir__device_missed();
    if (missed)
        choir__scope_fail(run, CHOIR_ERR_DEVICE);
    run->device = missed ? choir__device_always() : device ? device : choir__device_default();
    run->grad = true;
    run->seed = seed;
    if (!run->device) { /* the environment names a device or kernels that are missing */
        choir__scope_fail(run, CHOIR_ERR_DEVICE);
        run->device = choir__device_always();
    }
    choir__scope_uses(run, run->device);
    choir__step_word(run, run->device); /* before a recording */
    return run;
}

/* --- steps and micro-batches --- */

choir_scope *choir__scope_child(choir_scope *parent, choir__scope_kind kind)
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
    s->sequence = parent->sequence;
    s->cache = parent->cache;
    s->older = parent->children;
    if (s->older)
        s->older->younger = s;
    parent->children = s;
    return s;
}

void choir__run_remember(choir_scope *scope, int count)
{
    choir__run_of(scope)->remembered = count;
}

static void leave_parent(choir_scope *s)
{
    if (s->younger)
        s->younger->older = s->older;
    else
        s->parent->children = s->older;
    if (s->older)
        s->older->younger = s->younger;
}

void choir__scopes_reuse(choir__run *run, choir_scope **list)
{
    while (*list) {
        choir_scope *s = *list;
        *list = s->spare;
        keep_spare(run, s);
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

static void free_run(choir__run *run)
{
    for (choir_scope *s = run->spare, *next; s; s = next) {
        next = s->spare;
        choir__arena_free(&s->handles);
        free(s);
    }
    while (run->arena_count)
        choir__arena_free(&run->arenas[--run->arena_count]);
    choir__arena_free(&run->base.handles);
    choir__arena_free(&run->base.arena);
    free(run);
}

static pthread_mutex_t buried_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__run *buried[REMEMBERED_RUNS];
static unsigned burials;

/* Keeps a closed run, so that its handles are recognised, and frees the oldest such run. */
static void bury(choir__run *run)
{
    pthread_mutex_lock(&buried_lock);
    choir__run **place = &buried[burials++ % REMEMBERED_RUNS], *oldest = *place;
    *place = run;
    pthread_mutex_unlock(&buried_lock);
    if (oldest)
        free_run(oldest);
}

static void end_run(choir__run *run)
{
    /* failures are reported already; the next run begins without them */
    choir__run_clear(&run->base);
    for (choir__run_device *p = run->devices; p; p = p->next)
        choir__storage_unref(p->step);
    choir__pools_free(&run->retired);
    call_all(&run->enders);
    /* No thread of Choir outlives the last run: tools that look for leaks report it. */
    for (choir__run_device *p = run->devices; p; p = p->next)
        if (atomic_fetch_sub(&p->device->runs, 1) == 1)
            choir__queue_rest(p->device->queue);
    bury(run);
}

/* Closes the scopes inside, and returns whether there were any. */
static bool close_children(choir_scope *scope)
{
    bool any = scope->children;
    while (scope->children)
        choir__scope_end(scope->children);
    return any;
}

/* Returns the status with which the scope closes, and its message. */
static choir_status last_status(choir_scope *scope, bool too_early)
{
    choir_status status = choir__scope_status(scope);
    if (scope->kind == CHOIR__RUN) {
        choir_status last = choir__run_sync(scope);
        if (status == CHOIR_OK)
            status = last;
    }
    if (status == CHOIR_OK)
        status = choir__run_failure(scope);
    if (status == CHOIR_OK && too_early)
        status = choir__error(CHOIR_ERR_SCOPE,
            "choir_scope_close: %s closed before a scope inside it, which is closed now, too",
            choir__scope_words(scope));
    return status;
}

choir_status choir__scope_end(choir_scope *scope)
{
    choir__run *run = scope->run;
    if (scope->kind == CHOIR__RUN)
        choir__run_sync(scope); /* closers free what tasks read */
    call_all(&scope->closers);
    bool too_early = close_children(scope);
    choir_status status = last_status(scope, too_early);
    bool own = scope->status != CHOIR_OK || scope->kind == CHOIR__RUN || too_early;
    if (status != CHOIR_OK && scope->kind == CHOIR__MICRO)
        scope->parent->lacks = true;
    if ((status != CHOIR_OK || scope->lacks) && scope->kind == CHOIR__STEP && run->sums)
        run->sums->drop(run);
    if (status != CHOIR_OK && own && scope->noted == choir__message_reads())
        choir__unread(scope);
    for (choir_tensor *t = scope->tensors; t; t = t->next)
        choir__storage_unref(t->storage);
    free(scope->message);
    scope->message = NULL;
    scope->closed = true;
    if (scope->kind == CHOIR__RUN) {
        end_run(run);
        return status;
    }
    leave_parent(scope);
    if (choir__recording_active()) { /* replays read its arena */
        scope->spare = run->recorded;
        run->recorded = scope;
    } else {
        keep_spare(run, scope);
    }
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

choir_status choir__scope_status(const choir_scope *scope)
{
    for (const choir_scope *s = scope; s; s = s->parent)
        if (s->status != CHOIR_OK) {
            choir__set_message(s->message);
            return s->status;
        }
    return CHOIR_OK;
}

void choir__scope_forget(choir_scope *scope)
{
    scope->status = CHOIR_OK;
    scope->blamed = false;
    free(scope->message);
    scope->message = NULL;
}

choir_status choir__scope_fail(choir_scope *scope, choir_status status)
{
    if (scope->status == CHOIR_OK) {
        scope->status = status;
        scope->message = choir__strdup(choir__message());
        scope->noted = choir__message_reads();
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

choir_tensor *choir__vpoison(
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
    choir_tensor *t = choir__vpoison(scope, status, format, args);
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
