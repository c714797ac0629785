/* Scopes: where tensors live, and what one unit of work has in common.
 *
 * A run, a step, a micro-batch is a scope: an arena that frees all its tensors at once, the
 * tape that backward walks, the first error, and a random key. A tensor knows its scope, so ops
 * need no context argument: a result joins the innermost scope of its operands. Operands of
 * unrelated scopes are an error. Scopes nest: run > step > micro-batch.
 *
 * A failed op marks the scope, keeps the first message, and returns a poisoned tensor that
 * later ops pass through; choir_backward, choir_scope_status and choir_scope_close report it.
 *
 * Threads: one thread issues into a scope. Different runs may be used from different threads.
 */
#ifndef CHOIR_SCOPE_H
#define CHOIR_SCOPE_H

#include <stdbool.h>
#include <stdint.h>
#include <choir/device.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_scope choir_scope;
typedef struct choir_tensor choir_tensor;

/** A run on one device: the outermost scope, where parameters live. device NULL: cpu:0, or as
 * CHOIR_DEVICE says (env.h); so check what choir_device_find gave. Everything random follows
 * from seed. Never NULL: where CHOIR_DEVICE names a device that is not there, the scope says
 * so. */
choir_scope *choir_scope_open(choir_device *device, uint64_t seed);

/** A step of a run. Its tensors are gone when it closes. */
choir_scope *choir_step_open(choir_scope *run, uint64_t step);

/** Micro-batch `index` of a step, counted over the whole job. A step used without any is the
 * first micro-batch of this rank. */
choir_scope *choir_micro_open(choir_scope *step, int64_t index);

/** Frees the scope's tensors and the scope; returns its status, or the device's sticky error.
 * A run that closes reports that error and takes it from the device: the next run there begins
 * without. Children must be closed first. NULL is fine. */
choir_status choir_scope_close(choir_scope *scope);

/** The first error noted in the scope or in an ancestor; see choir_error_message(). */
choir_status choir_scope_status(const choir_scope *scope);

/** For a user's own modules and ops: notes an error in the scope (the first stays), with a
 * sentence formatted as by printf, and returns a poisoned tensor. */
choir_tensor *choir_fail(choir_scope *scope, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Forgets the error: the program goes on with the next step. */
void choir_scope_clear(choir_scope *scope);

/** A scope inside `parent` in which nothing is recorded for backward: for evaluation. Closed
 * like any. */
choir_scope *choir_no_grad(choir_scope *parent);

/** Turns recording for backward on or off; returns what it was. New scopes inherit it. */
bool choir_set_grad(choir_scope *scope, bool on);

/** A copy of t without history in `scope`, an ancestor or sibling of its own: no tape leaves
 * its scope. Shares t's memory. */
choir_tensor *choir_keep(choir_scope *scope, choir_tensor *t);

/** t, brought into `scope`, a descendant of its own, with its history: lifts a parameter, so
 * that an op on parameters alone has a scope to live in. */
choir_tensor *choir_in(choir_scope *scope, choir_tensor *t);

/** What a step does; it returns choir_scope_status or its first failure. */
typedef choir_status choir_step_fn(choir_scope *step, void *arg);

/**
 * Runs fn(step, arg) as step `run`'s counter, and advances it. The third call with the same fn
 * and arg is recorded as a list of kernel calls, and later calls replay the list without
 * calling fn: fn must do the same work every step and decide nothing on the host. Inputs come
 * from memory that stays (a loader's batch, a tensor of the run); results leave through
 * choir_keep, whose memory each replay writes anew. Inside, choir_item and choir_read are
 * errors once it is recorded, as are random tensors. Other devices than the run's may take
 * part.
 */
choir_status choir_step(choir_scope *run, choir_step_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
