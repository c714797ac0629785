/* Handles that are no longer valid, or never were.
 *
 * The memory of a closed scope's handles outlives the scope: a run remembers its last
 * CHOIR__REMEMBERED closed scopes (a rehearsed one fewer: choir__run_remember), with all their
 * tensors, before it uses one again, and the process remembers its last few closed runs, with
 * their modules. So a handle of a closed scope still knows its scope, and the scope knows that
 * it is closed.
 *
 * Public functions check handles as they enter; inside the library handles are valid. A
 * function that returns a tensor, module or scope continues with a replacement, which carries
 * the error: a poisoned tensor, or the *lost run*, a run of this thread that holds the objects
 * that belong nowhere. Other functions return the error. */
#ifndef CHOIR_HANDLE_H
#define CHOIR_HANDLE_H

#include "tensor/run.h"

/* Closed scopes that a run remembers before their memory is used again: a prime, so that a
 * program that uses a stale handle in each 10th, 16th or 100th step does not meet the same
 * memory, open again for another step. */
enum { CHOIR__REMEMBERED = 37 };

/* Report handles that cannot be used, for the functions below. */
choir_status choir__refuse_tensor(const choir_tensor *t, const char *function);
choir_status choir__refuse_scope(const choir_scope *scope, const char *function);
choir_status choir__refuse_part(
    const choir_scope *run, const char *function, const char *thing);
choir_tensor *choir__unsound(choir_tensor *t, const char *function);
choir_scope *choir__lost_scope(const choir_scope *scope, const char *function);

static inline bool choir__is_sound(const choir_tensor *t)
{
    return t && !t->scope->closed;
}

/* Returns an error if the handle is NULL or belongs to a closed scope; `function` is for the
 * message. */
static inline choir_status choir__use_tensor(const choir_tensor *t, const char *function)
{
    return choir__is_sound(t) ? CHOIR_OK : choir__refuse_tensor(t, function);
}

static inline choir_status choir__use_scope(const choir_scope *scope, const char *function)
{
    return scope && !scope->closed ? CHOIR_OK : choir__refuse_scope(scope, function);
}

/* Returns an error if the scope of an object (`thing`) is closed; owner NULL: there is no
 * object. */
static inline choir_status choir__use_part(
    const choir_scope *owner, const char *function, const char *thing)
{
    return owner && !owner->closed ? CHOIR_OK : choir__refuse_part(owner, function, thing);
}

/* Returns t, or, if t cannot be used, a poisoned tensor that carries the error. */
static inline choir_tensor *choir__sound(choir_tensor *t, const char *function)
{
    return choir__is_sound(t) ? t : choir__unsound(t, function);
}

/* Returns the scope, or, if it cannot be used, the lost run, which carries the error. */
static inline choir_scope *choir__open_scope(choir_scope *scope, const char *function)
{
    return scope && !scope->closed ? scope : choir__lost_scope(scope, function);
}

/* Returns the lost run with this thread's message as its error. */
choir_scope *choir__lost_run(choir_status status);
/* Reports that `function` lacks a `thing` as the scope's error, and returns a poisoned
 * tensor. */
choir_tensor *choir__poison_missing(
    choir_scope *scope, const char *function, const char *thing);
/* True if the tensor belongs to this thread's lost run. */
bool choir__is_lost(const choir_tensor *t);

#endif
