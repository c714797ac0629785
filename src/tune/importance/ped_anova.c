/* PED-ANOVA, with the numbers of Optuna 5.
 *
 * Where do the best tenth of the trials lie, compared to all? Each parameter's values are put
 * on a grid, the values of the best trials and of all trials become a density each, and the
 * parameter is as important as the two differ:
 *
 *     sum over the grid of  all(x) (best(x) / all(x) - 1)^2
 *
 * A parameter that not every trial has counts by the shares of the best trials and of all that
 * have it. A density is a mixture of one kernel per point of the grid where trials lie,
 * weighted by their number, and a wide one, the prior; widths follow Scott's rule.
 *
 * Source: Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter
 * Importance in Arbitrary Subspaces" (2023); Optuna's PedAnovaImportanceEvaluator. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/number.h"
#include "tune/importance/evaluators.h"
#include "tune/space/normal.h"
#include "tune/study.h"
#include "tune/trial.h"

enum { STEPS = 50, LEAST_TRIALS = 2 };

static const double best_share = 0.1, prior = 1, least_density = 1e-12;

/* The complete trials with finite values, the best of them marked. */
typedef struct ranked {
    const choir_trial *const *trial; /* (count) */
    bool *best;                      /* (count) */
    const double *loss;              /* (count) less is better */
    int64_t count, best_count;
} ranked;

/* The points on which a parameter's values are put. */
typedef struct grid {
    double low, high; /* range of numbers; logarithms where `log` */
    bool log, choice;
    int points;
} grid;

/* --- trials --- */

/* Equal trials at the boundary are all among the best. */
static void mark_best(ranked *r)
{
    double *sorted = choir__alloc((size_t)r->count * sizeof(double));
    memcpy(sorted, r->loss, (size_t)r->count * sizeof(double));
    qsort(sorted, (size_t)r->count, sizeof(double), choir__by_number);
    double worst = sorted[(int64_t)ceil(best_share * (double)r->count) - 1];
    for (int64_t i = 0; i < r->count; i++)
        r->best_count += r->best[i] = r->loss[i] <= worst;
    free(sorted);
}

/* --- the grid --- */

static grid grid_of(const choir__dist *d)
{
    grid g = {.log = d->kind == CHOIR__LOG || d->log, .choice = d->kind == CHOIR__CHOICE};
    g.low = d->low, g.high = d->high, g.points = STEPS;
    if (g.choice)
        g.points = d->choice_count;
    else if (d->kind == CHOIR__NORMAL) /* as the storages write it */
        g.low = d->low - 9 * d->high, g.high = d->low + 9 * d->high;
    else if (d->kind == CHOIR__INTEGER && d->log)
        g.points = (int)fmin(STEPS, ceil(choir__log(d->high - d->low + 1) / choir__log(2)) + 1);
    else if (d->kind == CHOIR__INTEGER)
        g.points = (int)fmin(STEPS, (d->high - d->low) / d->step + 1);
    else if (d->step > 0) /* the range holds a whole number of steps, but for rounding */
        g.points = (int)fmin(STEPS, round((d->high - d->low) / d->step) + 1);
    if (g.log)
        g.low = choir__log(g.low), g.high = choir__log(g.high);
    return g;
}

static int point_of(const grid *g, double value)
{
    if (g->choice)
        return (int)value;
    double x = g->log ? choir__log(value) : value, step = (g->high - g->low) / (g->points - 1);
    double at = ceil((x - g->low) / step - 0.5); /* in the middle: the lower point */
    return (int)fmin(fmax(at, 0), g->points - 1);
}

/* --- densities --- */

/* The points of a grid where trials lie. */
typedef struct points {
    int *at;        /* (count) */
    double *trials; /* (count) */
    int count;
    double sum; /* sum over trials */
} points;

static points gather(const int64_t *count, int n)
{
    points p = {
        choir__alloc((size_t)n * sizeof(int)), choir__alloc((size_t)n * sizeof(double)), 0, 0};
    for (int i = 0; i < n; i++) {
        if (!count[i])
            continue;
        p.at[p.count] = i;
        p.trials[p.count++] = (double)count[i];
        p.sum += (double)count[i];
    }
    return p;
}

/* Returns the first point with more than `most` trials up to it, or with `most` if
 * `or_so_many`. */
static int quantile(const points *p, double most, bool or_so_many)
{
    double sum = 0;
    for (int i = 0; i < p->count; i++) {
        sum += p->trials[i];
        if (sum > most || (or_so_many && sum == most))
            return p->at[i];
    }
    return p->at[p->count - 1];
}

/* Scott's rule, with the distance between the quartiles where it is less. */
static double width_of(const points *p)
{
    double mean = 0, square = 0;
    for (int i = 0; i < p->count; i++)
        mean += p->at[i] * p->trials[i];
    mean /= p->sum;
    for (int i = 0; i < p->count; i++)
        square += (p->at[i] - mean) * (p->at[i] - mean) * p->trials[i];
    double deviation = sqrt(square / fmax(1, p->sum - 1));
    double between =
        quantile(p, floor(p->sum * 3 / 4), false) - quantile(p, floor(p->sum / 4), true);
    double width = 1.059 * fmin(between / 1.34, deviation) * choir__pow(p->sum, -0.2);
    return fmax(width, 0.5 / 1.64); /* nine tenths of a kernel within its point */
}

static void add_kernel(double mean, double width, double weight, double *density, int n)
{
    double all = choir__normal_log_mass((-0.5 - mean) / width, (n - 0.5 - mean) / width);
    for (int x = 0; x < n; x++)
        density[x] += weight * choir__exp(choir__normal_log_mass((x - 0.5 - mean) / width,
                                              (x + 0.5 - mean) / width) -
                                          all);
}

/* A choice's kernel: the prior's share for each, and 1 for its own. */
static void add_choice(int at, double share, double weight, double *density, int n)
{
    double sum = 1 + share * n;
    for (int x = 0; x < n; x++)
        density[x] += weight * (share + (x == at)) / sum;
}

/* Writes the density (g->points) of trials whose numbers at the points are `count`. */
static void estimate(const grid *g, const int64_t *count, double *density)
{
    int n = g->points;
    points p = gather(count, n);
    double sum = p.sum + prior, width = g->choice ? 0 : width_of(&p);
    for (int x = 0; x < n; x++)
        density[x] = least_density + (g->choice ? prior / sum / n : 0);
    for (int i = 0; i < p.count; i++)
        if (g->choice)
            add_choice(p.at[i], prior / (p.count + 1), p.trials[i] / sum, density, n);
        else
            add_kernel(p.at[i], width, p.trials[i] / sum, density, n);
    if (!g->choice)
        add_kernel((n - 1) / 2.0, n, prior / sum, density, n);
    free(p.at);
    free(p.trials);
}

static double divergence(const grid *g, const int64_t *best, const int64_t *all)
{
    double *density = choir__alloc(2 * (size_t)g->points * sizeof(double)), sum = 0;
    double *of_best = density, *of_all = density + g->points;
    estimate(g, best, of_best);
    estimate(g, all, of_all);
    for (int x = 0; x < g->points; x++)
        sum += of_all[x] * (of_best[x] / of_all[x] - 1) * (of_best[x] / of_all[x] - 1);
    free(density);
    return sum;
}

/* --- importance --- */

static double importance(const choir_study *s, const ranked *r, int param)
{
    const choir__dist *d = &s->space->param[param].dist;
    if (choir__dist_size(d) == 1)
        return 0;
    grid g = grid_of(d);
    int64_t *all = choir__calloc(2 * (size_t)g.points, sizeof *all), *best = all + g.points;
    double have = 0, best_have = 0, result = 0;
    for (int64_t i = 0; i < r->count; i++) {
        double value = r->trial[i]->params[param];
        if (isnan(value))
            continue;
        int at = point_of(&g, value);
        all[at]++, have++;
        if (r->best[i])
            best[at]++, best_have++;
    }
    if (have >= LEAST_TRIALS && best_have > 0) {
        double of_best = best_have / (double)r->best_count, of_all = have / (double)r->count;
        result = of_best * of_best / of_all * divergence(&g, best, all);
    }
    free(all);
    return result;
}

static void evaluate(const choir_study *s, const choir__valued *v, double *result)
{
    ranked r = {v->trial, choir__calloc((size_t)v->count, sizeof(bool)), v->loss, v->count, 0};
    mark_best(&r);
    for (int i = 0; i < s->space->count; i++)
        result[i] = importance(s, &r, i);
    free(r.best);
}

const choir__importance_ops choir__importance_ped_anova = {
    .name = "ped-anova",
    .evaluate = evaluate,
};
