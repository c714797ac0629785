/* Inside runs: the outermost scope, and the objects that live as long as it does.
 *
 * A run has the devices that it uses, the parameters and their gradient books, the strategies
 * that take part in its steps, and the recording of a step that is replayed. */
#ifndef CHOIR_RUN_INTERNAL_H
#define CHOIR_RUN_INTERNAL_H

#include "tensor/scope.h"

/* A device that a run uses. */
typedef struct choir__run_device {
    choir_device *device;
    /* the step's number in the device's memory; NULL: no kernel needs it */
    choir__storage *step;
    uint64_t cast_scopes; /* number of scopes whose first cast of a parameter was there */
    struct choir__run_device *next;
} choir__run_device;

/* The sums of gradients that no optimizer has used yet. */
typedef struct choir__sums_ops {
    /* Returns whether a parameter of the run has such a sum. */
    bool (*left)(const struct choir__run *run);
    /* Drops them, after a step that failed. */
    void (*drop)(struct choir__run *run);
} choir__sums_ops;

struct choir__run {
    choir_scope base;           /* first member: a run is a scope */
    choir__run_device *devices; /* the run's own device first */
    int64_t micro_first;        /* this rank's first micro-batch of each step */
    int64_t micro_total;        /* micro-batches of the job, if a launcher gave them; else 0 */
    uint64_t next_step;         /* choir_step's counter */
    /* closed scopes in the order of closing, the last to be reused: handle.h */
    choir_scope *spare, *spare_last;
    int spares;
    int remembered;         /* closed scopes that are remembered: handle.h */
    choir__arena arenas[4]; /* arenas of closed scopes, for the next ones */
    int arena_count;
    choir_tensor *lost;               /* the lost run's poisoned tensor (handle.h); else NULL */
    struct choir_module *lost_module; /* stands for modules that cannot be used, or NULL */
    bool told;                        /* an error of the run has been read or told: unread.h */
    choir__closer *enders;            /* called after the tensors are released, newest first */

    /* recorded steps: step.c */
    int64_t warm_up; /* calls before recording, if more than step.c's own number */
    struct choir__replay *replay;
    uint32_t recordings;   /* number begun so far */
    uint64_t settings;     /* hash of settings of modules: choir__step_turned */
    choir__pool *retired;  /* pools of recordings, in which kept tensors may still reside */
    choir_scope *recorded; /* scopes closed while recording: replays call into their arenas */

    /* the model: nn/ and autograd/book.h */
    struct choir__param *params; /* newest first */
    struct choir__book *books;   /* gradients of this run's parameters */
    const choir__sums_ops *sums; /* the books' functions; NULL: no book yet */
    unsigned layouts;            /* number of layouts of books so far */
    uint64_t updates;            /* number of optimizers' steps so far, without replays */
    struct choir_module *at;     /* the module whose forward function runs; NULL: none */
    const char *path;            /* path of the module whose tensors are made, or NULL */

    struct choir__strategy *strategies; /* newest first */
    struct choir__op_watch *watch;      /* sees what ops compute (watch.h); NULL: no one does */
};

/* Returns the run to which `scope` belongs. */
static inline choir__run *choir__run_of(const choir_scope *scope)
{
    return scope->run;
}

/* In the functions below, `scope` is the run or any scope in it. */

/* --- devices --- */

/* Returns the first failure of a kernel, on any of the run's devices. */
choir_status choir__run_failure(const choir_scope *scope);
/* Waits for all devices of the run. */
choir_status choir__run_sync(const choir_scope *scope);
/* Waits for all devices of the run and forgets their failures. */
void choir__run_clear(const choir_scope *scope);
/* Queues a barrier: no device of the run continues before all of them have reached it. */
void choir__run_join(const choir_scope *scope);

/* Calls fn(arg) after the run has closed and its tensors are released; use it to free memory
 * that backed them. The function that was registered last is called first. */
void choir__on_end(choir_scope *scope, void (*fn)(void *arg), void *arg);

/* --- steps --- */

/* Begins a step of the run: stores its number on the devices and calls its strategies. */
void choir__step_begins(choir_scope *scope, uint64_t step);
/* Returns the address at which kernels on device read scope's step. If it cannot be allocated,
 * records the error and returns NULL. */
const uint64_t *choir__step_word(choir_scope *scope, choir_device *device);
/* Releases the memory of choir_step's recording; the next step makes a new recording. */
void choir__step_forget(choir_scope *scope);
/* Returns the recording of the run's step; NULL: none was recorded. */
const choir__recording *choir__step_recording(const choir_scope *scope);
/* Like choir__step_forget, but may be called within a step and takes effect at its end. */
void choir__step_anew(choir_scope *scope);
/* Notes that a setting on which steps depend has been turned, such as a module's mode, which
 * the address `what` identifies. A step that was recorded with it otherwise is recorded again.
 * Turned twice, the setting is as before, so a validation between two steps costs no new
 * recording. */
void choir__step_turned(choir_scope *scope, const void *what);
/* Lets the run remember no more than `count` closed scopes, at least one: all tensors of these
 * stay in memory, which counts where one process has the runs of many ranks. */
void choir__run_remember(choir_scope *scope, int count);
/* Makes the closed scopes of a recording, linked by `spare`, ready for reuse. */
void choir__scopes_reuse(choir__run *run, choir_scope **list);

/* Returns a number that stands for t's present values and is never 0: a copy made at an equal
 * number is up to date. A recorded step counts as a change, since each replay computes other
 * values. */
uint64_t choir__values_of(const choir_tensor *t);

#endif
