/* The assignment of samples to micro-batches: pure arithmetic over (N, M, B, seed, epoch).
 *
 * Replica m of M receives the list of PyTorch's DistributedSampler(num_replicas = M, rank = m).
 * Its next b = B/M entries are micro-batch m of the next global batch. */
#ifndef CHOIR_SAMPLER_H
#define CHOIR_SAMPLER_H

#include "base/rng.h"

typedef struct choir__sample_order {
    int64_t length, replicas, micro; /* N, M, b */
    uint64_t seed;
    bool shuffle;
    int64_t dealt;           /* samples per replica in an epoch */
    int64_t batches;         /* global batches in an epoch */
    int64_t epoch;           /* the epoch of order; -1: none yet */
    int64_t *order;          /* (N) permutation of the epoch; NULL: natural order */
    choir__shuffle shuffled; /* the part of the permutation computed so far */
    /* (N) running sums of the weights, up to 1; NULL: the order is a permutation */
    double *cumulative;
} choir__sample_order;

/* Errors: argument (batch not a multiple of replicas, fewer samples than a batch), memory. */
choir_status choir__sample_order_init(choir__sample_order *s, int64_t length, int64_t replicas,
    int64_t batch, uint64_t seed, bool shuffle, bool drop_last);
/* Draws samples in proportion to weights (N) from the next epoch on. Errors: argument, memory.
 */
choir_status choir__sample_order_weigh(choir__sample_order *s, const double *weights);
void choir__sample_order_free(choir__sample_order *s);

/* Computes the whole permutation of an epoch, if it differs from the current epoch. Tests call
 * it, too.
 */
void choir__sample_order_set_epoch(choir__sample_order *s, int64_t epoch);

/* Returns entry `entry` of replica m's list in this epoch; the list wraps around at its end.
 * Tests call it, too. */
int64_t choir__sample_order_of_micro(const choir__sample_order *s, int64_t m, int64_t entry);

/* Returns entry j of micro-batch m of global batch k, counted from the start of the job. Sets
 * the epoch, and computes its permutation as far as this entry. */
int64_t choir__sample_order_at(choir__sample_order *s, int64_t k, int64_t m, int64_t j);

#endif
