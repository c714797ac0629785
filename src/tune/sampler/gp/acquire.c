/* The search for the largest expected improvement: see acquire.h.
 *
 * Many random points are compared. From some of them, the likelier the better they are, and
 * from the best trial, a search goes uphill: numbers along the gradient, then each whole number
 * and choice over its values, in turn until nothing changes. */
#include "base/math/functions.h"
#include "tune/sampler/gp/acquire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/gp/minimize.h"
#include "tune/space/normal.h"

enum { ROUNDS = 20, FEW_VALUES = 16, SMOOTH_VALUES = 64 };

/* --- the improvement --- */

/* log(E[max(0, z + n)]) for a standard normal n, and its derivative. Far below 0, density and
 * tail nearly cancel, and their asymptotic expansions serve. */
static double log_improvement(double z, double *slope)
{
    const double log_root_2pi = 0.91893853320467274178;
    if (z > -25) {
        double tail = choir__normal_cdf(z);
        double mean = z * tail + choir__exp(-0.5 * z * z - log_root_2pi);
        *slope = tail / mean;
        return choir__log(mean);
    }
    double w = 1 / (z * z);
    double part =
        w * (1 - w * (3 - w * (15 - 105 * w))); /* part of the density: 1 - |z| Mills */
    *slope = -z * w * (1 - w * (1 - w * (3 - 15 * w))) / part;
    return -0.5 * z * z - log_root_2pi + choir__log(part);
}

double choir__log_improvement(const choir__acquisition *a, const double *x, double *slope)
{
    int dims = a->regression->dims;
    double mean, variance, by_mean[CHOIR_SPACE_MAX], by_variance[CHOIR_SPACE_MAX], rise;
    choir__regression_predict(a->regression, x, a->scratch, &mean, &variance,
        slope ? by_mean : NULL, slope ? by_variance : NULL);
    double sigma = sqrt(variance), z = (mean - a->best) / sigma;
    double value = log_improvement(z, &rise) + choir__log(sigma);
    for (int p = 0; slope && p < dims; p++)
        slope[p] = rise * by_mean[p] / sigma + (1 - z * rise) * by_variance[p] / (2 * variance);
    return value;
}

/* --- points --- */

/* A trial that might be suggested. */
typedef struct point {
    double line[CHOIR_SPACE_MAX]; /* a value for every parameter, also for those that the trial
                                     lacks */
    double params[CHOIR_SPACE_MAX]; /* NaN: lacks it */
    double x[CHOIR_SPACE_MAX];      /* the regression's coordinates */
    double value;                   /* log improvement; -infinity: not allowed */
} point;

void choir__coordinates(const choir_space *space, const double *params, double *x)
{
    for (int i = 0; i < space->count; i++) {
        const choir__dist *d = &space->param[i].dist;
        x[i] = isnan(params[i]) || d->kind == CHOIR__CHOICE ? params[i]
                                                            : choir__to_line(d, params[i]);
    }
}

/* Computes the rest of a point from its lines. */
static void settle(const choir__acquisition *a, point *p)
{
    for (int i = 0; i < a->space->count; i++)
        p->params[i] = choir__space_active(a->space, i, p->params)
                           ? choir__from_line(&a->space->param[i].dist, p->line[i])
                           : (double)NAN;
    p->value = -(double)INFINITY;
    choir__coordinates(a->space, p->params, p->x);
    if (choir__space_allows(a->space, p->params))
        p->value = choir__log_improvement(a, p->x, NULL);
}

/* --- uphill --- */

/* Numbers that the gradient moves; large whole numbers as if they were continuous. */
static bool is_smooth(const choir__dist *d)
{
    int64_t size = choir__dist_size(d);
    return size < 0 || (d->kind == CHOIR__INTEGER && size > SMOOTH_VALUES);
}

/* The improvement as a function of some numbers, in units of their lengths of correlation. */
typedef struct slice {
    const choir__acquisition *a;
    int count, of[CHOIR_SPACE_MAX];
    double unit[CHOIR_SPACE_MAX];
    double x[CHOIR_SPACE_MAX];
} slice;

static double minus_improvement(void *of, const double *z, double *gradient)
{
    slice *s = of;
    double slope[CHOIR_SPACE_MAX];
    for (int k = 0; k < s->count; k++)
        s->x[s->of[k]] = z[k] * s->unit[k];
    double value = choir__log_improvement(s->a, s->x, slope);
    for (int k = 0; k < s->count; k++)
        gradient[k] = -slope[s->of[k]] * s->unit[k];
    return -value;
}

/* Moves the numbers along the gradient; returns whether that improved the point. */
static bool climb(const choir__acquisition *a, point *p)
{
    slice s = {.a = a};
    double z[CHOIR__MINIMIZE_MAX], low[CHOIR__MINIMIZE_MAX], high[CHOIR__MINIMIZE_MAX];
    memcpy(s.x, p->x, sizeof s.x);
    for (int i = 0; i < a->space->count; i++) {
        if (isnan(p->x[i]) || !is_smooth(&a->space->param[i].dist))
            continue;
        int k = s.count++;
        s.of[k] = i;
        s.unit[k] = 1 / sqrt(a->regression->weight[i]);
        z[k] = p->x[i] / s.unit[k];
        low[k] = 0, high[k] = 1 / s.unit[k];
    }
    if (!s.count)
        return false;
    choir__minimize(minus_improvement, &s, s.count, low, high, 1e-2, 200, z);
    point moved = *p;
    for (int k = 0; k < s.count; k++)
        moved.line[s.of[k]] = z[k] * s.unit[k];
    settle(a, &moved);
    if (!(moved.value > p->value))
        return false;
    *p = moved;
    return true;
}

/* Tries a value of parameter i; returns whether it is better. */
static bool try_value(const choir__acquisition *a, point *p, int i, double value)
{
    point moved = *p;
    moved.line[i] = choir__to_line(&a->space->param[i].dist, value);
    settle(a, &moved);
    if (!(moved.value > p->value))
        return false;
    *p = moved;
    return true;
}

/* Moves whole number or choice i to the best of its values or, if there are many, of the values
 * that are a power of two away; returns whether that improved the point. */
static bool change(const choir__acquisition *a, point *p, int i)
{
    const choir__dist *d = &a->space->param[i].dist;
    int64_t size = choir__dist_size(d);
    bool is_choice = d->kind == CHOIR__CHOICE, better = false;
    double now = p->params[i];
    if (size < 2 || isnan(now))
        return false;
    if (is_choice || size <= FEW_VALUES) {
        for (int64_t k = 0; k < size; k++) {
            double value = is_choice ? (double)k : d->low + d->step * (double)k;
            better |= value != now && try_value(a, p, i, value);
        }
        return better;
    }
    for (double by = d->step; by <= d->high - d->low; by *= 2) {
        better |= now + by <= d->high && try_value(a, p, i, now + by);
        better |= now - by >= d->low && try_value(a, p, i, now - by);
    }
    return better;
}

static void go_uphill(const choir__acquisition *a, point *p)
{
    bool better = isfinite(p->value);
    for (int round = 0; round < ROUNDS && better; round++) {
        better = false;
        climb(a, p);
        for (int i = 0; i < a->space->count; i++)
            better |= change(a, p, i);
    }
}

/* --- the search --- */

static int64_t find_greatest(const double *of, int64_t count)
{
    int64_t greatest = 0;
    for (int64_t i = 1; i < count; i++)
        greatest = of[i] > of[greatest] ? i : greatest;
    return greatest;
}

/* Replaces the values of points by ranks, such that the points of the highest ranks are drawn
 * in proportion to their improvement, without replacement (Gumbel's distribution); the best
 * point is always drawn. */
static void draw_ranks(double *value, int64_t count, choir__draws *draws)
{
    int64_t best = find_greatest(value, count);
    for (int64_t i = 0; i < count; i++)
        value[i] -= choir__log(-choir__log(fmax(choir__draw(draws), 1e-300)));
    if (isfinite(value[best]))
        value[best] = (double)INFINITY;
}

static void place(const choir__acquisition *a, point *p, const double *lines)
{
    memcpy(p->line, lines, (size_t)a->space->count * sizeof *lines);
    settle(a, p);
}

/* Goes uphill from p, and takes the result if it is the best so far. */
static void improve(const choir__acquisition *a, point *p, point *best)
{
    go_uphill(a, p);
    if (p->value > best->value)
        *best = *p;
}

bool choir__acquire(const choir__acquisition *a, choir__draws *draws, double *params)
{
    int64_t dims = a->space->count, count = a->candidates;
    double *lines = choir__alloc((size_t)(count * (dims + 1)) * sizeof *lines);
    double *value = lines + count * dims;
    point p, best = {.value = -(double)INFINITY};
    for (int64_t i = 0; i < dims; i++)
        p.line[i] =
            isnan(params[i]) ? 0.5 : choir__to_line(&a->space->param[i].dist, params[i]);
    settle(a, &p);
    improve(a, &p, &best);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < dims; k++)
            lines[i * dims + k] =
                choir__line_of_draw(&a->space->param[k].dist, choir__draw(draws));
        place(a, &p, lines + i * dims);
        value[i] = p.value;
    }
    draw_ranks(value, count, draws);
    for (int64_t i = 0; i < a->starts; i++) {
        int64_t next = find_greatest(value, count);
        if (!(value[next] > -(double)INFINITY))
            break;
        value[next] = -(double)INFINITY;
        place(a, &p, lines + next * dims);
        improve(a, &p, &best);
    }
    free(lines);
    memcpy(params, best.params, (size_t)dims * sizeof *params);
    return isfinite(best.value);
}
