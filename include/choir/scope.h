/* Scopes: the owners of tensors, and the state that one unit of work shares.
 *
 * A run, a step and a micro-batch are scopes. A scope has an arena that frees all its tensors
 * at once, the tape that backward walks, the first error, and a random key. A tensor knows its
 * scope, so ops need no context argument: a result joins the innermost scope of its operands.
 * Operands of unrelated scopes are an error. Scopes nest: run > step > micro-batch.
 *
 * A failed op marks the scope, keeps the first message, and returns a poisoned tensor that
 * later ops pass through; choir_backward, choir_scope_status and choir_scope_close report it.
 *
 * A handle (a scope, tensor, module, optimizer or loader) that is NULL, or whose scope is
 * closed, is an error: argument, or scope with a sentence such as "choir_item: the tensor
 * belongs to step 41, which is closed". A closed step or micro-batch is recognised until 16
 * more scopes of its run have been closed, and a closed run until 8 more runs have been. Later
 * its memory serves new handles, and the use of an old one is not noticed.
 *
 * Threads: one thread issues work into a scope. Different runs may be used from different
 * threads. */
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

/** Opens a run on one device: the outermost scope, which holds the parameters. Everything
 * random follows from seed. If device is NULL, the run uses cpu:0 or the device that
 * CHOIR_DEVICE names (env.h). Never NULL: the scope reports an error if CHOIR_DEVICE names a
 * device that does not exist, or if choir_device_find has just returned NULL and the program
 * has not read its message. */
choir_scope *choir_scope_open(choir_device *device, uint64_t seed);

/** Opens a step of a run. Closing it frees its tensors. */
choir_scope *choir_step_open(choir_scope *run, uint64_t step);

/** Returns the device or the seed of the run that a scope belongs to. */
choir_device *choir_scope_device(const choir_scope *scope);
uint64_t choir_scope_seed(const choir_scope *scope);

/** Opens micro-batch `index` of a step; the index counts over the whole job. A step in which no
 * micro-batch is opened is this rank's first micro-batch. */
choir_scope *choir_micro_open(choir_scope *step, int64_t index);

/** Frees the scope and its tensors, and returns its status or the device's sticky error.
 * Closing a run reports the device's error and clears it, so that the next run on this device
 * begins without an error. Close inner scopes first: if one is still open, it is closed, too,
 * and the call returns an error (scope). scope may be NULL.
 *
 * If the program has read neither the scope's error nor this thread's message by the next step,
 * run or exit, one line on standard error repeats the sentence, once per run. */
CHOIR_CHECKED choir_status choir_scope_close(choir_scope *scope);

/** Returns the first error noted in the scope or in an ancestor; see choir_error_message(). */
CHOIR_CHECKED choir_status choir_scope_status(const choir_scope *scope);

/** Notes an error in the scope, with a sentence formatted as by printf, and returns a poisoned
 * tensor. The scope keeps its first error. User-defined modules and ops report failures with
 * it. */
choir_tensor *choir_fail(choir_scope *scope, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Clears the scope's error, so that the program can continue with the next step. */
void choir_scope_clear(choir_scope *scope);

/** Opens a scope inside `parent` that records nothing for backward, for evaluation. It is
 * closed like any other scope. */
choir_scope *choir_no_grad(choir_scope *parent);

/** Turns recording for backward on or off and returns the previous setting. New scopes inherit
 * it. */
bool choir_set_grad(choir_scope *scope, bool on);

/** Returns a tensor in `scope` (an ancestor or sibling of t's scope) that shares t's memory and
 * has no history: a tape never leaves its scope. */
choir_tensor *choir_keep(choir_scope *scope, choir_tensor *t);

/** Returns t, with its history, in `scope`, a descendant of t's scope. Use it for an op on
 * parameters alone, whose result needs a scope. */
choir_tensor *choir_in(choir_scope *scope, choir_tensor *t);

/** The body of a step. It returns its first failure, or else choir_scope_status. */
typedef choir_status choir_step_fn(choir_scope *step, void *arg);

/**
 * Runs fn(step, arg) as the run's next step and advances the run's step counter.
 *
 * The third call with equal fn and arg is recorded as a list of kernel calls, and later calls
 * replay the list without calling fn. So fn must do the same work in every step and decide
 * nothing on the host. Inputs come from memory that persists (a loader's batch, a tensor of
 * the run). Results leave through choir_keep, and every replay overwrites their memory. While
 * a step is recorded, choir_item, choir_read and random tensors (choir_rand, choir_randn) are
 * errors. Devices other than the run's may take part.
 *
 * What is changed between steps counts from the next step on, which is then recorded again: the
 * mode of modules (choir_module_train), frozen parameters, hooks, replaced modules, and the
 * run's autocast and choir_set_grad. A replay calls no function of the program: it repeats the
 * ops of a hook, and not what the hook prints or counts.
 */
CHOIR_CHECKED choir_status choir_step(choir_scope *run, choir_step_fn *fn, void *arg);

/** choir_run_next returns the number of the step that choir_step runs next. choir_run_seek sets
 * it, to resume a run. */
uint64_t choir_run_next(const choir_scope *run);
void choir_run_seek(choir_scope *run, uint64_t step);

/** Frees the recording of choir_step and its memory, for other work that needs memory. A later
 * choir_step records again. */
void choir_run_forget(choir_scope *run);

#ifdef __cplusplus
}
#endif
#endif
