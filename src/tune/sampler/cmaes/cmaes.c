/* CMA-ES: numbers that every trial has are drawn from a normal distribution that evolves
 * (evolution.h); choices and conditional parameters are suggested by TPE.
 *
 * The complete trials, by number, are cut into generations. Trial n is drawn from the
 * distribution after the generations that are whole among the trials whose results it may know.
 * If trials run at once, the first ones of a generation are from an earlier distribution, and
 * trials may be given by hand: points that are far off count with a shortened step.
 *
 * Where a distribution has nothing more to tell, another one begins at a random place, with a
 * population twice as large (Auger and Hansen, "A restart CMA evolution strategy with
 * increasing population size", 2005). */
#include <math.h>
#include <stdlib.h>

#include "base/math/functions.h"
#include "tune/sampler/cmaes/evolution.h"
#include "tune/sampler/sampler.h"

typedef struct cmaes {
    choir__tune_sampler base;
    choir__tune_sampler *rest; /* suggests the other parameters; NULL: no others */
    int dims, of[CHOIR_SPACE_MAX];
    double sigma;
    int64_t population, increase;
    int64_t seen;           /* trials that were looked at */
    choir__ranked *members; /* complete trials of the generation that is being collected */
    int64_t member_count;
    choir__evolution *evolution;
    choir__draws places; /* draws of the points where distributions begin */
} cmaes;

/* --- opening --- */

static void free_cmaes(choir__tune_sampler *s)
{
    cmaes *c = (cmaes *)(void *)s;
    if (c->rest)
        c->rest->ops->free(c->rest);
    choir__evolution_free(c->evolution);
    free(c->members);
    free(c);
}

static void divide_parameters(cmaes *c, const choir_space *space)
{
    for (int i = 0; i < space->count; i++) {
        const choir__hyper *p = &space->param[i];
        if (!p->only_if && p->dist.kind != CHOIR__CHOICE && choir__dist_size(&p->dist) != 1)
            c->of[c->dims++] = i;
    }
}

static choir_status check(const cmaes *c, const choir__history *first)
{
    if (first->objectives > 1)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "sampler cmaes: expected one direction, got %d; nsga2 takes several",
            first->objectives);
    if (!c->dims)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "sampler cmaes: expected a parameter that is a number and that every trial has");
    return CHOIR_OK;
}

static choir_status open_cmaes(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    cmaes *c = choir__calloc(1, sizeof *c);
    c->base.ops = &choir__tune_sampler_cmaes;
    divide_parameters(c, first->space);
    c->sigma = 1.0 / 6;
    c->increase = 2;
    c->population = c->dims ? 4 + (int64_t)(3 * choir__log(c->dims)) : 4;
    c->places.key = choir__rng_key(seed, "cmaes");
    const choir__option known[] = {
        {"sigma", CHOIR__FLOAT, &c->sigma, 1e-6, 1},
        {"population", CHOIR__INT, &c->population, 4, 1e6},
        {"increase", CHOIR__INT, &c->increase, 1, 10},
        {NULL},
    };
    choir_status status = choir__options_parse(text, "sampler cmaes", known);
    if (status == CHOIR_OK)
        status = check(c, first);
    if (status == CHOIR_OK && c->dims < first->space->count)
        status = choir__tune_sampler_tpe.open(first, seed, "tpe", &c->rest);
    if (status != CHOIR_OK) {
        free_cmaes(&c->base);
        return status;
    }
    double middle[CHOIR_SPACE_MAX];
    for (int i = 0; i < c->dims; i++)
        middle[i] = 0.5;
    c->evolution = choir__evolution_new(c->dims, c->population, middle, c->sigma);
    c->members = choir__alloc((size_t)c->population * sizeof *c->members);
    *sampler = &c->base;
    return CHOIR_OK;
}

/* --- generations --- */

static void begin_again(cmaes *c)
{
    double mean[CHOIR_SPACE_MAX];
    for (int i = 0; i < c->dims; i++)
        mean[i] = choir__draw(&c->places);
    choir__evolution_free(c->evolution);
    c->population = choir__min(c->population * c->increase, 1000000);
    c->evolution = choir__evolution_new(c->dims, c->population, mean, c->sigma);
    c->members = choir__realloc(c->members, (size_t)c->population * sizeof *c->members);
}

/* Hands the members to the distribution. */
static void end_generation(cmaes *c, const choir__history *h)
{
    int64_t n = c->member_count;
    double *x = choir__alloc((size_t)(n * c->dims) * sizeof *x);
    qsort(c->members, (size_t)n, sizeof *c->members, choir__by_value);
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < c->dims; i++)
            x[k * c->dims + i] = choir__to_cube(&h->space->param[c->of[i]].dist,
                h->trial[c->members[k].number]->params[c->of[i]]);
    choir__evolution_step(c->evolution, x, c->members[0].value, c->members[n - 1].value);
    free(x);
    c->member_count = 0;
    if (choir__evolution_ended(c->evolution))
        begin_again(c);
}

static void learn(cmaes *c, const choir__history *h)
{
    for (; c->seen < h->news_count; c->seen++) {
        const choir_trial *t = h->trial[h->news[c->seen]];
        if (t->known != CHOIR_TRIAL_COMPLETE || t->known_news != c->seen)
            continue;
        c->members[c->member_count++] = (choir__ranked){t->number, h->sign[0] * t->values[0]};
        if (c->member_count == c->population)
            end_generation(c, h);
    }
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    cmaes *c = (cmaes *)(void *)s;
    learn(c, h);
    choir_status status = CHOIR_OK;
    if (c->rest)
        status = c->rest->ops->suggest(c->rest, h, draws, params);
    if (status != CHOIR_OK)
        return status;
    double x[CHOIR_SPACE_MAX];
    choir__evolution_draw(c->evolution, draws, x);
    for (int i = 0; i < c->dims; i++)
        params[c->of[i]] = choir__from_cube(&h->space->param[c->of[i]].dist, x[i]);
    for (int i = 0; i < h->space->count; i++) { /* conditions may depend on the numbers */
        if (!choir__space_active(h->space, i, params))
            params[i] = (double)NAN;
        else if (isnan(params[i]))
            params[i] = choir__dist_draw(&h->space->param[i].dist, draws);
    }
    return CHOIR_OK;
}

const choir__tune_sampler_ops choir__tune_sampler_cmaes = {
    .name = "cmaes", .open = open_cmaes, .suggest = suggest, .free = free_cmaes};
