/* Quasi-random search: the points of a scrambled Sobol sequence (sobol.h), which fill the space
 * more evenly than random ones.
 *
 * Trial n has the n-th of those points that the space's conditions allow. A parameter that a
 * trial lacks has a coordinate, too, which is not used. */
#include <math.h>
#include <stdlib.h>

#include "tune/sampler/qmc/sobol.h"
#include "tune/sampler/sampler.h"

enum { PASSED = 1000 }; /* points that are passed over for one trial, at most */

typedef struct qmc {
    choir__tune_sampler base;
    choir__sobol *points;
    int64_t trials, next; /* trials that have a point, and the point after theirs */
} qmc;

static choir_status open_qmc(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    static const choir__option none[] = {{NULL}};
    choir_status status = choir__options_parse(text, "sampler qmc", none);
    if (status != CHOIR_OK)
        return status;
    qmc *q = choir__calloc(1, sizeof *q);
    q->base.ops = &choir__tune_sampler_qmc;
    q->points = choir__sobol_new(first->space->count, choir__rng_key(seed, "qmc"));
    *sampler = &q->base;
    return CHOIR_OK;
}

static void write(const qmc *q, const choir_space *space, double *params)
{
    for (int i = 0; i < space->count; i++)
        params[i] = choir__space_active(space, i, params)
                        ? choir__from_cube(
                              &space->param[i].dist, choir__sobol_at(q->points, q->next, i))
                        : (double)NAN;
}

/* Writes the next point. */
static bool take(qmc *q, const choir_space *space, double *params)
{
    write(q, space, params);
    q->next++;
    return choir__space_allows(space, params);
}

/* Trials between the last call and this one have their points first, which were not
 * computed yet if their parameters were given by hand or in an earlier process. Called again
 * for the same trial, it continues after the refused point. */
static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    (void)draws;
    qmc *q = (qmc *)(void *)s;
    for (; q->trials < h->count; q->trials++)
        for (int i = 0; i < PASSED && !take(q, h->space, params);)
            i++;
    take(q, h->space, params);
    q->trials = h->count + 1;
    return CHOIR_OK;
}

static void free_qmc(choir__tune_sampler *s)
{
    qmc *q = (qmc *)(void *)s;
    choir__sobol_free(q->points);
    free(q);
}

const choir__tune_sampler_ops choir__tune_sampler_qmc = {
    .name = "qmc", .open = open_qmc, .suggest = suggest, .free = free_qmc};
