/* Inside shards and data_parallel: who holds what. */
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
    int64_t pieces;    /* asked for; 0: one a device */
    double *weights;   /* (devices) or NULL */
    choir__book *book; /* of the module's own parameters, while nobody took them away */
    bool pending;      /* the replicas' books hold pieces that the book has yet to add */
    bool in_wave;      /* the pieces are being walked */
} choir__data_parallel;

typedef struct choir__piece {
    choir__part part;
    choir_scope *scope; /* a micro-batch of the batch's scope, on its device */
    choir_tensor **in;  /* (in_count) leaves of its scope; NULL where the input is */
    choir_tensor *out;  /* NULL: the module has not run */
} choir__piece;

typedef struct choir__piece_scopes { /* of a batch: shared by all shards of its pieces */
    int open;
    choir_scope *scope[];
} choir__piece_scopes;

struct choir_shards {
    choir__data_parallel *dp;
    choir_scope *scope; /* the batch's */
    int64_t batch;
    int count;
    choir__piece *piece; /* (count) */
    choir__piece_scopes *scopes;
    choir_tensor **in; /* (in_count) as given; of the batch's scope or outer ones */
    int in_count;
    choir_tensor *poisoned; /* what went wrong; NULL: nothing */
};

/* The wrapper, or NULL with an error in its run if module is none. */
choir__data_parallel *choir__data_parallel_of(choir_module *module);

/* Shards that stand for a failure. */
choir_shards *choir__shards_failed(choir_tensor *poisoned);
/* What one piece failed with, as the batch's error; `did` is what was done there. */
choir_tensor *choir__piece_failed(
    const choir_shards *s, const choir__piece *p, const char *did, choir_status status);
/* Closes the pieces' scopes before their time: nobody has seen them. */
void choir__pieces_close(choir_shards *shards);
/* The same pieces, whose results are still to be set. */
choir_shards *choir__shards_copy(const choir_shards *shards);

/* x's part of piece p as a leaf of the piece's scope; x itself where it has no such dimension.
 */
choir_tensor *choir__piece_of(const choir_shards *s, const choir__piece *p, choir_tensor *x);
/* Whether x is dealt among the pieces; else each gets it whole. */
bool choir__is_dealt(const choir_shards *s, const choir_tensor *x);
/* length entries of dimension dim of x, from start on, in scope: nothing recorded. */
choir_tensor *choir__part_of(
    choir_scope *scope, choir_tensor *x, int dim, int64_t start, int64_t length);
/* y = x, wherever they are. */
void choir__move_values(choir_tensor *y, choir_tensor *x);

/* data_parallel_sum.c: the gradients of the pieces. A wave is the backward of one batch. */
choir_status choir__wave_open(const choir_shards *s);
choir_status choir__wave_close(const choir_shards *s, int64_t parts);
void choir__wave_fail(choir__data_parallel *dp);
extern const choir__reducer_ops choir__data_parallel_reducer;
extern const choir__strategy_ops choir__data_parallel_ops;

#endif
