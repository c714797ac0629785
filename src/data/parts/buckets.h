/* Which samples are a batch: arithmetic over (buckets of the samples, B, seed, epoch). */
#ifndef CHOIR_BUCKETS_H
#define CHOIR_BUCKETS_H

#include <pthread.h>

#include "base/base.h"

typedef struct choir__buckets {
    int64_t length, batch; /* N, B */
    int count;             /* buckets */
    int *bucket;           /* (N) bucket of each sample, filled in by the caller */
    uint64_t seed;
    bool shuffle;
    int64_t batches; /* batches of an epoch */
    /* The lock guards the members below. */
    pthread_mutex_t lock;
    int64_t epoch;    /* -1: none */
    int64_t *samples; /* (batches, B) */
    int *of_batch;    /* (batches) bucket of each batch */
} choir__buckets;

/* Errors: argument (fewer samples than a batch), memory. */
choir_status choir__buckets_init(choir__buckets *b, int64_t length, int64_t batch, int count,
    uint64_t seed, bool shuffle, bool drop_last);
void choir__buckets_free(choir__buckets *b);

/* Returns the bucket of global batch k, counted from the start of the job, and stores its
 * samples [first, first + n) in sample, unless that is NULL. */
int choir__buckets_at(choir__buckets *b, int64_t k, int64_t first, int64_t n, int64_t *sample);

#endif
