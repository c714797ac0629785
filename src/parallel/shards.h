/* Inside shards and data_parallel: pieces of a batch, and the module that distributes them. */
#ifndef CHOIR_SHARDS_H
#define CHOIR_SHARDS_H

#include <choir/data_parallel.h>
#include "parallel/replicas.h"
#include "parallel/split.h"

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
    choir__part part;
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
choir_tensor *choir__shards_unsound(const choir_shards *s, const char *function);

/* Returns the wrapper; NULL, with an error message set, if module is not a data_parallel. */
choir__data_parallel *choir__data_parallel_of(choir_module *module);

/* Returns shards that represent a failure. */
choir_shards *choir__shards_failed(choir_tensor *poisoned);
/* Makes the failure of one piece an error of the batch. `did` names the work at which it
 * failed. */
choir_tensor *choir__piece_failed(
    const choir_shards *s, const choir__batch_piece *p, const char *did, choir_status status);
/* Closes the pieces' scopes early, when no result of them has been handed out. */
void choir__pieces_close(choir_shards *shards);
/* Returns shards of the same pieces, whose results the caller then sets. */
choir_shards *choir__shards_copy(const choir_shards *shards);

/* Returns piece p's part of x as a leaf of the piece's scope; all of x if it has no such
 * dimension. */
choir_tensor *choir__piece_of(
    const choir_shards *s, const choir__batch_piece *p, choir_tensor *x);
/* Returns true if x is distributed over the pieces; otherwise each piece gets the whole of
 * it. */
bool choir__is_dealt(const choir_shards *s, const choir_tensor *x);
/* Returns `length` entries of x along dimension dim, from `start` on: a view in scope, without
 * a record. */
choir_tensor *choir__part_of(
    choir_scope *scope, choir_tensor *x, int dim, int64_t start, int64_t length);
/* Copies x to y, within a device or between two. */
void choir__move_values(choir_tensor *y, choir_tensor *x);

/* data_parallel/sum.c: the gradients of the pieces. A wave is the backward of one batch. */
choir_status choir__wave_open(const choir_shards *s);
choir_status choir__wave_close(const choir_shards *s, int64_t parts);
void choir__wave_fail(choir__data_parallel *dp);
extern const choir__strategy_ops choir__data_parallel_ops;

#endif
