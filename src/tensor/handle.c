/* Handles that cannot be used: the sentences about them, and the lost run. handle.h explains
 * how they are recognised. */
#include "tensor/handle.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/unread.h"

/* --- words --- */

/* Reports a handle of a closed scope: "choir_relu: the tensor belongs to step 41, which is
 * closed". Returns CHOIR_ERR_SCOPE. */
static choir_status refuse_closed(
    const choir_scope *scope, const char *function, const char *thing)
{
    return choir__error(CHOIR_ERR_SCOPE, "%s: %s %s, which is closed", function, thing,
        choir__scope_words(scope));
}

static choir_status check_tensor(const choir_tensor *t, const char *function)
{
    if (!t)
        return choir__missing(function, "tensor");
    return t->scope->closed ? refuse_closed(t->scope, function, "the tensor belongs to")
                            : CHOIR_OK;
}

static choir_status check_scope(const choir_scope *scope, const char *function)
{
    if (!scope)
        return choir__missing(function, "scope");
    return scope->closed ? refuse_closed(scope, function, "expected an open scope, got")
                         : CHOIR_OK;
}

/* --- the lost run --- */

/* Whether or not the caller looks at the status, the lost run has the error: unread.h. */
static choir_status noted(choir_status status)
{
    if (status != CHOIR_OK)
        choir__lost_run(status);
    return status;
}

choir_status choir__refuse_tensor(const choir_tensor *t, const char *function)
{
    return noted(check_tensor(t, function));
}

choir_status choir__refuse_scope(const choir_scope *scope, const char *function)
{
    return noted(check_scope(scope, function));
}

choir_status choir__refuse_part(const choir_scope *run, const char *function, const char *thing)
{
    char words[40];
    snprintf(words, sizeof words, "the %s belongs to", thing);
    return noted(run ? refuse_closed(run, function, words) : choir__missing(function, thing));
}

static pthread_key_t lost_key;
static pthread_once_t lost_once = PTHREAD_ONCE_INIT;

static void close_lost(void *run)
{
    choir__scope_forget(run);
    choir__run_clear(run);
    choir__scope_end(run);
}

static void make_key(void)
{
    pthread_key_create(&lost_key, close_lost);
}

choir_scope *choir__lost_run(choir_status status)
{
    pthread_once(&lost_once, make_key);
    choir_scope *run = pthread_getspecific(lost_key);
    char *message = choir__strdup(choir__message());
    if (!run) {
        run = choir_scope_open(choir_device_find("cpu:0"), 0);
        run->run->lost = choir__tensor_bare(run, CHOIR_F32, CHOIR_SCALAR);
        run->run->lost->poisoned = true;
        pthread_setspecific(lost_key, run);
    }
    choir__set_message(message);
    free(message);
    choir__scope_forget(run); /* the newest misuse counts: no scope's end reports the first */
    choir__scope_fail(run, status);
    choir__unread(run);
    return run;
}

bool choir__is_lost(const choir_tensor *t)
{
    return t->scope->run->lost;
}

choir_scope *choir__lost_scope(const choir_scope *scope, const char *function)
{
    return choir__lost_run(check_scope(scope, function));
}

/* A tensor of a closed scope poisons the scope in which its run works now. */
choir_tensor *choir__unsound(choir_tensor *t, const char *function)
{
    choir_status status = check_tensor(t, function);
    choir_scope *run = t ? &t->scope->run->base : NULL;
    if (!run || run->closed)
        return choir__lost_run(status)->run->lost;
    choir_scope *now = run;
    while (now->children)
        now = now->children;
    return choir__poison(now, status, "%s", choir__message());
}

choir_tensor *choir__poison_missing(choir_scope *scope, const char *function, const char *thing)
{
    choir_status status = choir__missing(function, thing);
    return choir__poison(choir__open_scope(scope, function), status, "%s", choir__message());
}
