/* Inside shards and data_parallel: pieces of a batch, and the module that distributes them. */
#ifndef CHOIR_SHARDS_H
#define CHOIR_SHARDS_H

#include <stdint.h>
#include <choir/data_parallel.h>
#include "nn/module.h"

/* How a batch is cut into pieces, and which device gets each: arithmetic only. */

typedef struct choir__batch_share {
    int64_t start, length; /* samples of the batch */
    int device;
} choir__batch_share;

/* Divides total into counts[n] in proportion to weights (NULL: equally), by the largest
 * remainder: each share is rounded down, and the rest is given one by one to the shares that
 * lost the most, the first one if several are equal. Tests call it, too. */
void choir__split_shares(int64_t total, const double *weights, int n, int64_t *counts);

/* Cuts `batch` samples as torch.chunk does, into pieces of ceil(batch / pieces) samples; there
 * may be fewer pieces than requested. Each device takes a contiguous run of pieces in
 * proportion to its weight (NULL: counts differ by at most one). If pieces is 0, each device
 * gets one piece, in proportion to the weights, if given; empty shares are left out. Returns
 * the number of pieces in part, at most choir__split_most(...). */
int64_t choir__split(int64_t batch, int64_t pieces, int devices, const double *weights,
    choir__batch_share *part);
int64_t choir__split_most(int64_t batch, int64_t pieces, int devices);

/* Replicas of a module: one set of tensors per device, and the binding of a module's fields to
 * one of these sets.
 *
 * There is one module, with its structs and children; only the tensors in its registered fields
 * exist once per device. Replica 0 is the module's own tensors. Values change in replica 0
 * alone, so the others are filled from it before they compute. */

typedef struct choir__replica {
    choir_device *device;
    choir_tensor **tensor; /* (count); NULL until the device is needed */
    uint64_t *fresh;       /* (count) choir__values_of the tensors whose values it has */
    choir__book *book;     /* book of its parameters' gradients, in the order of `tensor` */
    choir__event filled;   /* event: values have been read from replica 0 */
    bool unread;           /* replica 0's device has not waited for `filled` yet */
} choir__replica;

typedef struct choir__field { /* a registered field in the module's tree */
    choir_tensor **field;
    choir__module_entry *entry;
    int tensor; /* index of the tensor that it holds */
} choir__field;

typedef struct choir__replicas {
    choir_scope *run;
    choir_module *module;
    choir__replica *replica; /* (devices), the module's own first */
    int devices;
    int params, count; /* parameters in order of registration, then buffers */
    choir__field *fields;
    int field_count;
} choir__replicas;

/* Lists the tensors and fields of a module, which must have its names. Errors: argument, naming
 * what cannot be replicated; device, naming a tensor that is not on devices[0]. */
choir_status choir__replicas_open(
    choir__replicas *r, choir_module *module, choir_device *const *devices, int count);
void choir__replicas_free(choir__replicas *r); /* the tensors belong to the run */

/* Copies replica 0's values to replica i, after the event `from` of replica 0's device. */
choir_status choir__replicas_fill(choir__replicas *r, int i, choir__event from);
/* Copies the buffers of replica i to replica 0. */
void choir__replicas_take_buffers(choir__replicas *r, int i);
/* Makes replica 0's device wait until the other replicas have read its values, so that it may
 * change them. */
void choir__replicas_were_read(choir__replicas *r);

/* Sets the module's fields to the tensors of replica i. */
void choir__replicas_bind(choir__replicas *r, int i);

typedef struct choir__data_parallel {
    choir_module base;
    choir__strategy strategy;
    choir_module *module;
    choir__replicas replicas;
    choir_device *output;
    int dim;
    int64_t pieces;  /* per batch, as the caller asked; 0: one per device */
    double *weights; /* (devices) or NULL */
    /* the book of the module's own parameters; NULL: another strategy has taken it over */
    choir__book *book;
    bool pending; /* the replicas' books hold sums that have not been added to `book` yet */
    bool in_wave; /* the backward of a batch's pieces is running */
} choir__data_parallel;

typedef struct choir__batch_piece {
    choir__batch_share part;
    choir_scope *scope; /* a micro-batch of the batch's scope, on the piece's device */
    choir_tensor **in;  /* (in_count) leaves of its scope; NULL for an input that is NULL */
    choir_tensor *out;  /* NULL: the module has not run yet */
} choir__batch_piece;

/* The scopes of one batch's pieces, which all shards of the pieces share. */
typedef struct choir__piece_scopes {
    int open;
    choir_scope *scope[];
} choir__piece_scopes;

struct choir_shards {
    choir__data_parallel *dp;
    choir_scope *scope; /* the batch's */
    int64_t batch;
    int count;
    choir__batch_piece *piece; /* (count) */
    choir__piece_scopes *scopes;
    choir_tensor **in; /* (in_count) as given; they belong to the batch's scope or outer ones */
    int in_count;
    choir_tensor *poisoned; /* the poisoned result of a failure; NULL: none */
};

/* Returns NULL, or a poisoned tensor with that error. */
choir_tensor *choir__file_shards_unsound(const choir_shards *s, const char *function);

/* Returns the wrapper; NULL, with an error message set, if module is not a data_parallel. */
choir__data_parallel *choir__data_parallel_of(choir_module *module);

/* Returns shards that represent a failure. */
choir_shards *choir__file_shards_failed(choir_tensor *poisoned);
/* Makes the failure of one piece an error of the batch. `did` names the work at which it
 * failed. */
choir_tensor *choir__piece_failed(
    const choir_shards *s, const choir__batch_piece *p, const char *did, choir_status status);
/* Closes the pieces' scopes early, when no result of them has been handed out. */
void choir__pieces_close(choir_shards *shards);
/* Returns shards of the same pieces, whose results the caller then sets. */
choir_shards *choir__file_shards_copy(const choir_shards *shards);

/* Returns piece p's part of x as a leaf of the piece's scope; all of x if it has no such
 * dimension. */
choir_tensor *choir__piece_of(
    const choir_shards *s, const choir__batch_piece *p, choir_tensor *x);
/* Returns true if x is distributed over the pieces; otherwise each piece gets the whole of
 * it. */
bool choir__is_dealt(const choir_shards *s, const choir_tensor *x);
/* Copies x to y, within a device or between two. */
void choir__move_values(choir_tensor *y, choir_tensor *x);

/* data_parallel/sum.c: the gradients of the pieces. A wave is the backward of one batch. */
choir_status choir__wave_open(const choir_shards *s);
choir_status choir__wave_close(const choir_shards *s, int64_t parts);
void choir__wave_fail(choir__data_parallel *dp);
extern const choir__strategy_ops choir__data_parallel_ops;

#endif
