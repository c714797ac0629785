/* DistributedSampler's arithmetic: see sampler.h.
 *
 *     order    the epoch's permutation of N samples, or 0 ... N-1
 *     padded   order, repeated from the front up to a multiple of M   (or cut to one)
 *     list     replica m takes padded[m], padded[m + M], padded[m + 2M], ...
 *     cut      its entries k b ... k b + b - 1 are micro-batch m of batch k
 *
 * `padded` is never stored: its entry i is order[i % N]. */
#include "base/floats.h"
#include "base/rng.h"
#include "data/loading/sampler.h"

#include <choir/data.h>
#include <math.h>
#include <stdlib.h>

static choir_status check(int64_t length, int64_t replicas, int64_t batch)
{
    if (length < 1 || length > INT64_MAX / 16)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a dataset of %lld samples cannot be trained on", (long long)length);
    if (replicas < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a global batch: expected 1 micro-batch or more, got %lld", (long long)replicas);
    if (batch < 1 || batch > INT64_MAX / 16)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected a batch size of 1 or more, got %lld",
            (long long)batch);
    if (batch % replicas)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld does not divide into %lld micro-batches: take a multiple of %lld",
            (long long)batch, (long long)replicas, (long long)replicas);
    return CHOIR_OK;
}

choir_status choir__sample_order_init(choir__sample_order *s, int64_t length, int64_t replicas,
    int64_t batch, uint64_t seed, bool shuffle, bool drop_last)
{
    choir_status status = check(length, replicas, batch);
    if (status != CHOIR_OK)
        return status;
    *s = (choir__sample_order){.length = length,
        .replicas = replicas,
        .micro = batch / replicas,
        .seed = seed,
        .shuffle = shuffle,
        .epoch = -1};
    bool uneven = length % replicas != 0;
    s->dealt =
        length / replicas + (uneven && !drop_last); /* then ceil((N - M)/M) is floor(N/M) */
    s->batches = s->dealt / s->micro + (s->dealt % s->micro && !drop_last);
    if (s->batches < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld samples are fewer than a batch of %lld: choose a smaller batch",
            (long long)length, (long long)batch);
    if (shuffle && !(s->order = malloc((size_t)length * sizeof *s->order)))
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for the order of %lld samples",
            (long long)length);
    return CHOIR_OK;
}

choir_status choir__sample_order_weigh(choir__sample_order *s, const double *weights)
{
    CHOIR__DEFAULT_FLOATS;
    double sum = 0;
    size_t bytes = (size_t)s->length * sizeof(double);
    s->cumulative = malloc(bytes);
    s->order = s->order ? s->order : malloc(bytes);
    if (!s->cumulative || !s->order)
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for the weights of %lld samples",
            (long long)s->length);
    for (int64_t i = 0; i < s->length; i++) {
        if (!(weights[i] >= 0 && isfinite(weights[i])))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "sample %lld: expected a weight of 0 or more, got %g", (long long)i,
                weights[i]);
        s->cumulative[i] = sum += weights[i];
    }
    if (!(sum > 0 && isfinite(sum)))
        return choir__error(CHOIR_ERR_ARGUMENT, "the weights of the samples add up to %g", sum);
    for (int64_t i = 0; i < s->length; i++)
        s->cumulative[i] /= sum;
    s->cumulative[s->length - 1] = 1;
    return CHOIR_OK;
}

/* torch.multinomial with replacement, on a CPU: the first entry that is not below a number of
 * 53 bits. */
static void draw_weighted(choir__sample_order *s, int64_t count)
{
    for (int64_t *done = &s->shuffled.done; *done < count && *done < s->length; (*done)++) {
        uint64_t bits = (uint64_t)choir__mt_next(&s->shuffled.mt) << 32;
        bits |= choir__mt_next(&s->shuffled.mt);
        double at = (double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
        int64_t low = 0, high = s->length;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (s->cumulative[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        s->order[*done] = low;
    }
}

/* Makes the first `count` entries of the epoch's order final. */
static void reach(choir__sample_order *s, int64_t count)
{
    if (s->cumulative)
        draw_weighted(s, count);
    else if (s->shuffle)
        choir__shuffle_reach(&s->shuffled, count);
}

void choir__sample_order_free(choir__sample_order *s)
{
    choir__shuffle_end(&s->shuffled);
    free(s->cumulative);
    s->cumulative = NULL;
    free(s->order);
    s->order = NULL;
}

static void begin_epoch(choir__sample_order *s, int64_t epoch)
{
    if (s->epoch == epoch)
        return;
    s->epoch = epoch;
    uint64_t seed = s->seed + (uint64_t)epoch;
    if (s->cumulative) {
        choir__mt_seed(&s->shuffled.mt, (uint32_t)seed);
        s->shuffled.done = 0;
    } else if (s->shuffle)
        choir__shuffle_begin(&s->shuffled, seed, s->length, s->order);
}

void choir__sample_order_set_epoch(choir__sample_order *s, int64_t epoch)
{
    begin_epoch(s, epoch);
    reach(s, s->length);
}

/* Returns the place in the epoch's order of an entry of replica m's list. */
static int64_t place_of(const choir__sample_order *s, int64_t m, int64_t entry)
{
    return (m + entry % s->dealt * s->replicas) % s->length;
}

int64_t choir__sample_order_of_micro(const choir__sample_order *s, int64_t m, int64_t entry)
{
    int64_t i = place_of(s, m, entry);
    return s->order ? s->order[i] : i;
}

int64_t choir__sample_order_at(choir__sample_order *s, int64_t k, int64_t m, int64_t j)
{
    int64_t entry = k % s->batches * s->micro + j;
    begin_epoch(s, k / s->batches);
    reach(s, place_of(s, m, entry) + 1);
    return choir__sample_order_of_micro(s, m, entry);
}

/* --- for user loops ---
 *
 * DistributedSampler alone, for user loops: a replica of sampler.h with one sample per
 * batch. */

struct choir_sampler {
    choir__sample_order s;
    int64_t rank;
};

void choir_randperm(uint64_t seed, int64_t n, int64_t *out)
{
    if (choir__lacks(out, __func__, "out"))
        return;
    choir__randperm(seed, n, out);
}

choir_sampler_opts choir_sampler_defaults(void)
{
    return (choir_sampler_opts){.world = 1, .shuffle = true};
}

choir_status choir_distributed_sampler(
    int64_t samples, choir_sampler_opts o, choir_sampler **sampler)
{
    if (!sampler)
        return choir__missing(__func__, "sampler");
    if (o.rank < 0 || o.rank >= o.world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a sampler for rank %lld of %lld; begin with choir_sampler_defaults()",
            (long long)o.rank, (long long)o.world);
    choir_sampler *made = choir__calloc(1, sizeof *made);
    choir_status status = choir__sample_order_init(
        &made->s, samples, o.world, o.world, o.seed, o.shuffle, o.drop_last);
    if (status == CHOIR_OK && o.weights)
        status = choir__sample_order_weigh(&made->s, o.weights);
    if (status != CHOIR_OK) {
        choir__sample_order_free(&made->s);
        free(made);
        return status;
    }
    made->rank = o.rank;
    choir__sample_order_set_epoch(&made->s, 0);
    *sampler = made;
    return CHOIR_OK;
}

void choir_sampler_set_epoch(choir_sampler *sampler, int64_t epoch)
{
    if (choir__lacks(sampler, __func__, "sampler"))
        return;
    choir__sample_order_set_epoch(&sampler->s, epoch);
}

int64_t choir_sampler_length(const choir_sampler *sampler)
{
    if (choir__lacks(sampler, __func__, "sampler"))
        return 0;
    return sampler->s.dealt;
}

int64_t choir_sampler_at(const choir_sampler *sampler, int64_t i)
{
    if (choir__lacks(sampler, __func__, "sampler"))
        return 0;
    if (i < 0 || i >= sampler->s.dealt)
        return -1;
    return choir__sample_order_of_micro(&sampler->s, sampler->rank, i);
}

void choir_sampler_free(choir_sampler *sampler)
{
    if (!sampler)
        return;
    choir__sample_order_free(&sampler->s);
    free(sampler);
}
