/* DistributedSampler alone, for user loops: a replica of sampler.h with one sample per
 * batch. */
#include <stdlib.h>

#include <choir/data.h>
#include "base/rng.h"
#include "data/loading/sampler.h"

struct choir_sampler {
    choir__sampler s;
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
    choir_status status = choir__sampler_init(
        &made->s, samples, o.world, o.world, o.seed, o.shuffle, o.drop_last);
    if (status == CHOIR_OK && o.weights)
        status = choir__sampler_weigh(&made->s, o.weights);
    if (status != CHOIR_OK) {
        choir__sampler_free(&made->s);
        free(made);
        return status;
    }
    made->rank = o.rank;
    choir__sampler_set_epoch(&made->s, 0);
    *sampler = made;
    return CHOIR_OK;
}

void choir_sampler_set_epoch(choir_sampler *sampler, int64_t epoch)
{
    if (choir__lacks(sampler, __func__, "sampler"))
        return;
    choir__sampler_set_epoch(&sampler->s, epoch);
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
    return choir__sampler_dealt(&sampler->s, sampler->rank, i);
}

void choir_sampler_free(choir_sampler *sampler)
{
    if (!sampler)
        return;
    choir__sampler_free(&sampler->s);
    free(sampler);
}
