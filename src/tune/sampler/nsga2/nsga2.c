/* NSGA-II, a genetic algorithm for several objectives: good trials (population.h) have
 * children, which mix the parameters of two of them and change a few.
 *
 * The complete trials, by number, are cut into generations of `population`. Trial n is a child
 * of those that survive of all generations that are whole among the trials whose results it may
 * know; before the first generation is whole, it is random. A child that the space does not
 * allow is made again.
 *
 * Mixing is simulated binary crossover for numbers, and a choice of either parent's for
 * choices. A change of a number is polynomial mutation, and of a choice a random one. The
 * exponent of both is 20; for one objective 2 and 20.
 *
 * Sources: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II" (2002);
 * Deb and Agrawal, "Simulated binary crossover for continuous search space" (1995); the numbers
 * equal Optuna's NSGAIISampler's. */
#include <math.h>
#include <stdlib.h>

#include "base/math/functions.h"
#include "tune/sampler/nsga2/population.h"
#include "tune/sampler/sampler.h"

typedef struct nsga2 {
    choir__tune_sampler base;
    int64_t population;
    double crossover, mutation; /* probabilities; mutation -1: 1 / parameters */
    int64_t seen;               /* trials that were looked at */
    choir__individual *all;     /* (2 * population) survivors, then the next generation */
    int64_t survivors, count;
} nsga2;

static void free_nsga2(choir__tune_sampler *s)
{
    nsga2 *g = (nsga2 *)(void *)s;
    free(g->all);
    free(g);
}

static choir_status open_nsga2(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)first, (void)seed;
    nsga2 *g = choir__calloc(1, sizeof *g);
    *g = (nsga2){.base.ops = &choir__tune_sampler_nsga2,
        .population = 50,
        .crossover = 0.9,
        .mutation = -1};
    const choir__option known[] = {
        {"population", CHOIR__INT, &g->population, 2, 1e5},
        {"crossover", CHOIR__FLOAT, &g->crossover, 0, 1},
        {"mutation", CHOIR__FLOAT, &g->mutation, 0, 1},
        {NULL},
    };
    choir_status status = choir__options_parse(text, "sampler nsga2", known);
    if (status != CHOIR_OK) {
        free_nsga2(&g->base);
        return status;
    }
    g->all = choir__alloc(2 * (size_t)g->population * sizeof *g->all);
    *sampler = &g->base;
    return CHOIR_OK;
}

/* --- generations --- */

static void learn(nsga2 *g, const choir__history *h)
{
    for (; g->seen < h->news_count; g->seen++) {
        const choir_trial *t = h->trial[h->news[g->seen]];
        if (t->known != CHOIR_TRIAL_COMPLETE || t->known_news != g->seen)
            continue;
        g->all[g->count++] = (choir__individual){.trial = t};
        if (g->count < g->survivors + g->population)
            continue;
        choir__population_rank(g->all, g->count, h->sign, h->objectives);
        g->survivors = g->count = choir__min(g->count, g->population);
    }
}

/* Returns the better of two survivors, except `not`. */
static const choir__individual *choose_parent(
    const nsga2 *g, const choir__individual * not, choir__draws *draws)
{
    const choir__individual *two[2];
    for (int i = 0; i < 2; i++)
        do
            two[i] = &g->all[(int64_t)(choir__draw(draws) * (double)g->survivors)];
        while (two[i] == not );
    return choir__individual_better(two[1], two[0]) ? two[1] : two[0];
}

/* --- one parameter --- */

/* A factor of the distance between parents, whose density falls with its distance from 1 by the
 * exponent; `most` of it stays inside the range. */
static double spread(double most, double exponent, double u)
{
    double alpha = 2 - choir__pow(most, -(exponent + 1));
    double x = u * alpha <= 1 ? u * alpha : 1 / (2 - u * alpha);
    return choir__pow(x, 1 / (exponent + 1));
}

/* Mixes two numbers in [0, 1]. */
static double cross(double a, double b, double exponent, choir__draws *draws)
{
    double low = fmin(a, b), high = fmax(a, b), apart = fmax(high - low, 1e-10);
    double u = choir__draw(draws);
    bool mixed = choir__draw(draws) < 0.5, first = choir__draw(draws) < 0.5;
    if (!mixed)
        return first ? a : b;
    if (first)
        return 0.5 * (low + high - apart * spread(1 + 2 * low / apart, exponent, u));
    return 0.5 * (low + high + apart * spread(1 + 2 * (1 - high) / apart, exponent, u));
}

/* Moves a number in [0, 1]. */
static double mutate(double x, double exponent, choir__draws *draws)
{
    double u = choir__draw(draws), e = exponent + 1;
    if (u < 0.5)
        return x + choir__pow(2 * u + (1 - 2 * u) * choir__pow(1 - x, e), 1 / e) - 1;
    return x + 1 - choir__pow(2 * (1 - u) + (2 * u - 1) * choir__pow(x, e), 1 / e);
}

/* Returns a child's value from its parents' values; one or both may be NaN. */
static double inherit(const choir__dist *d, double a, double b, double exponent,
    double mutation, choir__draws *draws)
{
    bool mutates = choir__draw(draws) < mutation;
    if (isnan(a) && isnan(b))
        return choir__dist_draw(d, draws);
    if (d->kind == CHOIR__CHOICE) {
        bool first = choir__draw(draws) < 0.5;
        if (mutates)
            return choir__dist_draw(d, draws);
        return isnan(b) || (first && !isnan(a)) ? a : b;
    }
    double x = choir__to_cube(d, isnan(a) ? b : a), y = choir__to_cube(d, isnan(b) ? a : b);
    double child = x == y ? x : cross(x, y, exponent, draws);
    if (mutates)
        child = mutate(child, 20, draws);
    return choir__from_cube(d, child);
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    nsga2 *g = (nsga2 *)(void *)s;
    learn(g, h);
    if (!g->survivors) {
        choir__space_draw(h->space, draws, params);
        return CHOIR_OK;
    }
    const choir__individual *a = choose_parent(g, NULL, draws), *b = a;
    if (choir__draw(draws) < g->crossover)
        b = choose_parent(g, a, draws);
    double exponent = h->objectives > 1 ? 20 : 2;
    double mutation = g->mutation < 0 ? 1.0 / h->space->count : g->mutation;
    for (int i = 0; i < h->space->count; i++)
        params[i] = choir__space_active(h->space, i, params)
                        ? inherit(&h->space->param[i].dist, a->trial->params[i],
                              b->trial->params[i], exponent, mutation, draws)
                        : (double)NAN;
    return CHOIR_OK;
}

const choir__tune_sampler_ops choir__tune_sampler_nsga2 = {
    .name = "nsga2", .open = open_nsga2, .suggest = suggest, .free = free_nsga2};
