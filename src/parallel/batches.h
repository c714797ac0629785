/* The batches of a dataset, in order, each in a scope without a tape: what evaluation and
 * prediction share. */
#ifndef CHOIR_PARALLEL_BATCHES_H
#define CHOIR_PARALLEL_BATCHES_H

#include <choir/data.h>
#include <choir/scope.h>

/* A run of batches. Position i is batch (first + i) modulo count. */
typedef struct choir__batches {
    choir_dataset *data;
    int64_t batch, samples; /* batch: samples per batch; samples: in all batches */
    int64_t first, count;   /* first: number of the first batch here; count: batches in all */
    /* Called when a batch has been read, with how that went; NULL: errors end the run. An error
     * that it returns does so. */
    choir_status (*read)(void *arg, choir_status status);
    void *arg;
} choir__batches;

/* One of them: x (n, ...) and y (n, ...), whose values are on the host as well. */
typedef struct choir__read_batch {
    choir_tensor *x, *y;
    const void *targets; /* targets of y */
    int64_t n;           /* samples */
    int64_t position;
} choir__read_batch;

typedef choir_status choir__read_batch_fn(
    void *arg, choir_scope *step, const choir__read_batch *batch);

/* Calls fn for positions 0 ... count - 1, in order; `workers` threads read samples ahead.
 * Errors: errors of the dataset and of fn; memory. */
choir_status choir__batches_each(choir_scope *run, choir__batches *batches, int64_t count,
    int workers, choir__read_batch_fn *fn, void *arg);

#endif
