/* Random search: every parameter is drawn from its distribution. */
#include <math.h>
#include <stdlib.h>

#include "tune/sampler/sampler.h"

double choir__dist_draw(const choir__dist *dist, choir__draws *draws)
{
    return choir__from_cube(dist, choir__draw(draws));
}

void choir__space_draw(const choir_space *space, choir__draws *draws, double *params)
{
    for (int i = 0; i < space->count; i++)
        params[i] = choir__space_active(space, i, params)
                        ? choir__dist_draw(&space->param[i].dist, draws)
                        : (double)NAN;
}

static choir_status open_random(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)first, (void)seed;
    static const choir__option none[] = {{NULL}};
    *sampler = NULL;
    choir_status status = choir__options_parse(text, "sampler random", none);
    if (status != CHOIR_OK)
        return status;
    *sampler = choir__calloc(1, sizeof **sampler);
    (*sampler)->ops = &choir__tune_sampler_random;
    return CHOIR_OK;
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    (void)s;
    choir__space_draw(h->space, draws, params);
    return CHOIR_OK;
}

static void free_random(choir__tune_sampler *s)
{
    free(s);
}

const choir__tune_sampler_ops choir__tune_sampler_random = {
    .name = "random", .open = open_random, .suggest = suggest, .free = free_random};
