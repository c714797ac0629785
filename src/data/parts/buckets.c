/* An epoch's batches. The samples are distributed to buckets in the order of a permutation, and
 * the rest of a bucket after its whole batches goes to the next bucket. So at most one batch of
 * an epoch is not whole, and the number of batches does not depend on the order. */
#include "data/parts/buckets.h"

#include <choir/data.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

choir_status choir__buckets_init(choir__buckets *b, int64_t length, int64_t batch, int count,
    uint64_t seed, bool shuffle, bool drop_last)
{
    *b = (choir__buckets){.length = length,
        .batch = batch,
        .count = count,
        .seed = seed,
        .shuffle = shuffle,
        .epoch = -1};
    pthread_mutex_init(&b->lock, NULL);
    if (batch < 1 || length < (drop_last ? batch : 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: expected at least a batch of samples, got %lld samples for batches of %lld",
            (long long)length, (long long)batch);
    b->batches = length / batch + (!drop_last && length % batch != 0);
    b->bucket = choir__calloc((size_t)length, sizeof *b->bucket);
    b->samples = choir__calloc((size_t)(b->batches * batch), sizeof *b->samples);
    b->of_batch = choir__calloc((size_t)b->batches, sizeof *b->of_batch);
    return CHOIR_OK;
}

void choir__buckets_free(choir__buckets *b)
{
    if (!b->batch)
        return;
    pthread_mutex_destroy(&b->lock);
    free(b->bucket);
    free(b->samples);
    free(b->of_batch);
}

/* Stores the order of 0 ... n - 1 in this epoch. */
static void order_of(const choir__buckets *b, uint64_t seed, int64_t n, int64_t *order)
{
    if (b->shuffle)
        choir__randperm(seed, n, order);
    for (int64_t i = 0; i < n && !b->shuffle; i++)
        order[i] = i;
}

/* Stores the samples bucket by bucket, each in the permutation's order. */
static void sort_by_bucket(const choir__buckets *b, const int64_t *order, int64_t *sorted)
{
    int64_t *at = choir__calloc((size_t)b->count + 1, sizeof *at);
    for (int64_t i = 0; i < b->length; i++)
        at[b->bucket[i] + 1]++;
    for (int k = 0; k < b->count; k++)
        at[k + 1] += at[k];
    for (int64_t i = 0; i < b->length; i++)
        sorted[at[b->bucket[order[i]]]++] = order[i];
    free(at);
}

/* The rest of a bucket precedes the next bucket's samples, so batches are runs of `sorted`. A
 * batch belongs to the bucket of its last sample. */
static void deal(choir__buckets *b, const int64_t *order, const int64_t *sorted)
{
    int64_t *place = choir__calloc((size_t)b->batches, sizeof *place);
    order_of(b, choir__mix(b->seed, (uint64_t)b->epoch), b->batches, place);
    for (int64_t k = 0; k < b->batches; k++) {
        int64_t *batch = b->samples + place[k] * b->batch, most = 0;
        for (int64_t j = 0; j < b->batch; j++) {
            int64_t i = k * b->batch + j;
            batch[j] = i < b->length ? sorted[i] : order[(i - b->length) % b->length];
            most = choir__max(most, b->bucket[batch[j]]);
        }
        b->of_batch[place[k]] = (int)most;
    }
    free(place);
}

/* Makes the batches of an epoch, unless they are there. */
static void set_epoch(choir__buckets *b, int64_t epoch)
{
    if (b->epoch == epoch)
        return;
    b->epoch = epoch;
    int64_t *order = choir__calloc((size_t)b->length, sizeof *order);
    int64_t *sorted = choir__calloc((size_t)b->length, sizeof *sorted);
    order_of(b, b->seed + (uint64_t)epoch, b->length, order);
    sort_by_bucket(b, order, sorted);
    deal(b, order, sorted);
    free(sorted);
    free(order);
}

int choir__buckets_at(choir__buckets *b, int64_t k, int64_t first, int64_t n, int64_t *sample)
{
    pthread_mutex_lock(&b->lock);
    set_epoch(b, k / b->batches);
    int64_t batch = k % b->batches;
    if (sample)
        memcpy(sample, b->samples + batch * b->batch + first, (size_t)n * sizeof *sample);
    int bucket = b->of_batch[batch];
    pthread_mutex_unlock(&b->lock);
    return bucket;
}
