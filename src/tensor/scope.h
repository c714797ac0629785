/* Inside scopes: a unit of work, and the tensors that are freed at its end.
 *
 * A run has steps, and a step has micro-batches. Each of these is a scope with an arena, a list
 * of tensors, a tape of entries, the first error, and the numbers that key its random draws.
 * run.h has the properties of the outermost scope, the run. */
#ifndef CHOIR_SCOPE_INTERNAL_H
#define CHOIR_SCOPE_INTERNAL_H

#include <stdarg.h>

#include <choir/scope.h>
#include "base/arena.h"
#include "tensor/tensor.h"

typedef enum choir__scope_kind { CHOIR__RUN, CHOIR__STEP, CHOIR__MICRO } choir__scope_kind;

typedef struct choir__run choir__run;

/* Counts the random draws of a scope by name. */
typedef struct choir__calls {
    uint64_t name, count;
    struct choir__calls *next;
} choir__calls;

/* A function that is called when a scope closes. */
typedef struct choir__closer {
    void (*fn)(void *arg);
    void *arg;
    struct choir__closer *next;
} choir__closer;

/* The dtype in which the ops of a scope compute: autocast.h. */
typedef struct choir__autocast {
    bool on;
    bool all;   /* every op except losses and batch norm (Apex's O2); else by PyTorch's lists */
    bool norms; /* with `all`: also batch norm (O3) */
    choir_dtype dtype; /* bf16 or f16 */
} choir__autocast;

/* Dtypes that the end of an op needs. An op that calls another one keeps them meanwhile. */
typedef struct choir__op_dtypes {
    choir_dtype stored;        /* dtype of the result */
    choir_tensor *widened[16]; /* operands as f32, released at the op's end */
    int widened_count;
} choir__op_dtypes;

struct choir_scope {
    choir__scope_kind kind;
    int depth;
    choir_scope *parent;
    choir__run *run;
    choir_device *device;
    choir__arena arena;    /* tape entries and all else that ends with the scope */
    choir__arena handles;  /* tensors: handle.h says how long they are remembered */
    choir_tensor *tensors; /* all tensors made in the scope, for closing */
    choir__tape_entry *tape, *tape_tail; /* in order of creation; doubly linked */
    choir__closer *closers;              /* newest first */
    choir_scope *children;               /* the open scopes inside it, newest first */
    choir_scope *younger, *older;        /* the neighbours in the parent's list */
    choir_status status;
    char *message;
    uint64_t noted; /* number of messages that the thread had read by then: unread.h */
    bool closed;
    bool blamed; /* message already names the module */
    bool lacks;  /* a micro-batch in this step has failed */
    bool grad;   /* ops leave entries for backward */
    bool piece;  /* part of a DataParallel batch: only the op that joins the parts walks it */
    uint64_t seed, step;
    int64_t micro;
    choir__calls *calls;                /* numbers the random draws of this scope, by name */
    choir_scope *spare;                 /* the next of the run's closed scopes, older first */
    struct choir__placement *placement; /* NULL: ops run where their operands are */
    const struct choir__sequence
        *sequence;                  /* how sequences are cut: sequence.h; NULL: they are not */
    struct choir__cache *cache;     /* what a language model has read: cache.h; NULL: none */
    struct choir__segment *segment; /* the innermost open segment: segment.h; NULL: none */
    choir__autocast autocast;
    choir_tensor *casts; /* casts of parameters for this scope's ops, newest first */
    choir__op_dtypes op; /* the current op's */
};

/* Records the error in the scope (the first one stays) and returns a poisoned tensor of it. */
choir_tensor *choir__poison(choir_scope *scope, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
choir_tensor *choir__vpoison(
    choir_scope *scope, choir_status status, const char *format, va_list args);
/* Records this thread's message as the scope's error and returns status. */
choir_status choir__scope_fail(choir_scope *scope, choir_status status);
/* Opens a scope inside another. */
choir_scope *choir__scope_child(choir_scope *parent, choir__scope_kind kind);
/* Closes an open scope, and returns as choir_scope_close. */
choir_status choir__scope_end(choir_scope *scope);
/* Forgets the scope's error, but not the devices'. */
void choir__scope_forget(choir_scope *scope);
/* Like choir_scope_status, but the error still counts as unread. */
choir_status choir__scope_status(const choir_scope *scope);
/* Adds the module's path to the scope's message, unless it already has an inner module's
 * path. */
void choir__scope_blame(choir_scope *scope, const char *path);

/* Calls fn(arg) when the scope closes, before its tensors are released; the function that was
 * registered last is called first. */
void choir__on_close(choir_scope *scope, void (*fn)(void *arg), void *arg);

/* Returns the innermost scope of the operands. If their scopes are unrelated, records the error
 * and returns NULL. */
choir_scope *choir__join(choir_tensor *const *in, int count);

/* Returns a random key for the next draw by this name in this scope. */
uint64_t choir__scope_key(choir_scope *scope, const char *name);

/* Notes that tensors of the scope's run reside on device: the device's errors become errors of
 * the run, and the end of the run waits for the device. */
void choir__scope_uses(choir_scope *scope, choir_device *device);

#endif
