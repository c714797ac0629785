/* The registry of samplers. */
#include "tune/sampler/sampler.h"

#include "base/named.h"

static const choir__tune_sampler_ops *const samplers[] = {
    &choir__tune_sampler_bohb,
    &choir__tune_sampler_cmaes,
    &choir__tune_sampler_gp,
    &choir__tune_sampler_grid,
    &choir__tune_sampler_nsga2,
    &choir__tune_sampler_qmc,
    &choir__tune_sampler_random,
    &choir__tune_sampler_tpe,
};

static const choir__name_table names = CHOIR__NAME_TABLE_OF_POINTERS(samplers);

const char *choir__tune_sampler_name(size_t i)
{
    return i < CHOIR_COUNT(samplers) ? samplers[i]->name : NULL;
}

choir_status choir__tune_sampler_open(
    const char *text, const choir__history *first, uint64_t seed, choir__tune_sampler **sampler)
{
    int at;
    choir_status status = choir__options_find(text, &names, "sampler", &at);
    if (status != CHOIR_OK)
        return status;
    return samplers[at]->open(first, seed, text, sampler);
}
