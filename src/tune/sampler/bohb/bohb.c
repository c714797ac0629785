/* BOHB's suggestions: the trials are divided into the best few and the others, at the largest
 * budget at which enough have a value; of some draws near the best, the next trial takes the
 * one whose density among the best exceeds that among the others by the largest factor.
 *
 * Budgets are steps: a trial has a value at each step that it reported (choir_trial_report), so
 * those that a scheduler stops early count at the budgets that they reached. A complete trial
 * has its final value at a budget above all steps. `random` of the trials are drawn at random.
 *
 *     best: the first max(points, top * n) of n trials;  enough: 2 * points trials
 *     points: one more than there are parameters
 *
 * Source: Falkner, Klein, Hutter, "BOHB: robust and efficient hyperparameter optimization at
 * scale" (2018), and HpBandSter, whose defaults these are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/bohb/density.h"
#include "tune/sampler/sampler.h"

enum { COMPLETE = -1 }; /* the budget of complete trials */

/* A step that trials reported. */
typedef struct budget {
    int64_t step, trials;
} budget;

typedef struct bohb {
    choir__tune_sampler base;
    double random, top, wider;
    int64_t samples, points;
    int dims, of[CHOIR_SPACE_MAX], places[CHOIR_SPACE_MAX];
    int64_t seen, complete; /* news that was looked at; complete trials in it */
    int64_t *counted;       /* (trials) reports of each that are in the budgets */
    int64_t trials, room;
    budget *budgets; /* (budget_count) by step */
    int64_t budget_count;
} bohb;

static void free_bohb(choir__tune_sampler *s)
{
    bohb *b = (bohb *)(void *)s;
    free(b->budgets);
    free(b->counted);
    free(b);
}

static choir_status open_bohb(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)seed;
    bohb *b = choir__calloc(1, sizeof *b);
    *b = (bohb){.base.ops = &choir__tune_sampler_bohb,
        .random = 1.0 / 3,
        .top = 0.15,
        .wider = 3,
        .samples = 64};
    for (int i = 0; i < first->space->count; i++) {
        const choir__dist *d = &first->space->param[i].dist;
        if (choir__dist_size(d) == 1)
            continue;
        b->places[b->dims] = d->kind == CHOIR__CHOICE ? d->choice_count : 0;
        b->of[b->dims++] = i;
    }
    b->points = b->dims + 1;
    const choir__option known[] = {
        {"random", CHOIR__FLOAT, &b->random, 0, 1},
        {"top", CHOIR__FLOAT, &b->top, 0, 1},
        {"wider", CHOIR__FLOAT, &b->wider, 0.01, 100},
        {"samples", CHOIR__INT, &b->samples, 1, 1e6},
        {"points", CHOIR__INT, &b->points, b->dims + 1, 1e9},
        {NULL},
    };
    choir_status status = choir__options_parse(text, "sampler bohb", known);
    if (status == CHOIR_OK && first->objectives > 1)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "sampler bohb: expected one direction, got %d; nsga2 takes several",
            first->objectives);
    if (status == CHOIR_OK)
        *sampler = &b->base;
    else
        free_bohb(&b->base);
    return status;
}

/* --- budgets --- */

static void count_report(bohb *b, int64_t step)
{
    int64_t low = 0, high = b->budget_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (b->budgets[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == b->budget_count || b->budgets[low].step != step) {
        size_t n = (size_t)b->budget_count++, at = (size_t)low;
        CHOIR__GROW(b->budgets, n);
        memmove(b->budgets + at + 1, b->budgets + at, (n - at) * sizeof *b->budgets);
        b->budgets[at] = (budget){.step = step};
    }
    b->budgets[low].trials++;
}

static void learn(bohb *b, const choir__history *h)
{
    if (h->count > b->room) {
        b->room = choir__max(64, 2 * h->count);
        b->counted = choir__realloc(b->counted, (size_t)b->room * sizeof *b->counted);
    }
    for (; b->trials < h->count; b->trials++)
        b->counted[b->trials] = 0;
    for (; b->seen < h->news_count; b->seen++) {
        const choir_trial *t = h->trial[h->news[b->seen]];
        if (!choir__trial_counts(t) || t->known_news != b->seen)
            continue;
        b->complete += t->known == CHOIR_TRIAL_COMPLETE;
        int64_t i = b->counted[t->number];
        for (; i < t->known_reports; i++)
            if (!isnan(t->reports[i].value))
                count_report(b, t->reports[i].step);
        b->counted[t->number] = i;
    }
}

/* Finds the largest budget with enough trials; returns false if no budget has enough. */
static bool find_budget(const bohb *b, int64_t *step)
{
    *step = COMPLETE;
    if (b->complete >= 2 * b->points)
        return true;
    for (int64_t i = b->budget_count - 1; i >= 0; i--)
        if (b->budgets[i].trials >= 2 * b->points) {
            *step = b->budgets[i].step;
            return true;
        }
    return false;
}

/* The trial's value at a budget; NaN if it has none. */
static double value_at(const choir_trial *t, int64_t step)
{
    if (!choir__trial_counts(t))
        return (double)NAN;
    if (step == COMPLETE)
        return t->known == CHOIR_TRIAL_COMPLETE ? t->values[0] : (double)NAN;
    const choir__report *r = choir__report_from(t, step);
    return r && r->step == step ? r->value : (double)NAN;
}

/* --- estimates --- */

/* Gives points that lack a parameter the value of another point, or a random one. */
static void fill_gaps(const bohb *b, choir__density *d, choir__draws *draws)
{
    for (int p = 0; p < d->dims; p++) {
        int64_t having = 0;
        double *have = choir__alloc((size_t)d->count * sizeof *have);
        for (int64_t i = 0; i < d->count; i++)
            if (!isnan(d->x[i * d->dims + p]))
                have[having++] = d->x[i * d->dims + p];
        for (int64_t i = 0; i < d->count; i++) {
            double *x = &d->x[i * d->dims + p];
            if (!isnan(*x))
                continue;
            double u = choir__draw(draws);
            if (having)
                *x = have[(int64_t)(u * (double)having)];
            else
                *x = b->places[p] ? floor(u * b->places[p]) : u;
        }
        free(have);
    }
}

static choir__density *estimate(const bohb *b, const choir__history *h,
    const choir__ranked *trials, int64_t count, choir__draws *draws)
{
    choir__density *d = choir__density_new(count, b->dims, b->places);
    for (int64_t i = 0; i < count; i++)
        for (int p = 0; p < b->dims; p++) {
            double value = h->trial[trials[i].number]->params[b->of[p]];
            d->x[i * b->dims + p] =
                isnan(value) || b->places[p]
                    ? value
                    : choir__to_cube(&h->space->param[b->of[p]].dist, value);
        }
    fill_gaps(b, d, draws);
    choir__density_fit(d);
    return d;
}

/* Writes a drawn point as a trial's parameters; returns whether the space allows them. */
static bool write(const bohb *b, const choir_space *space, const double *x, double *params)
{
    double all[CHOIR_SPACE_MAX];
    for (int i = 0; i < space->count; i++)
        all[i] = choir__from_cube(&space->param[i].dist, 0.5);
    for (int p = 0; p < b->dims; p++)
        all[b->of[p]] =
            b->places[p] ? x[p] : choir__from_cube(&space->param[b->of[p]].dist, x[p]);
    for (int i = 0; i < space->count; i++)
        params[i] = choir__space_active(space, i, params) ? all[i] : (double)NAN;
    return choir__space_allows(space, params);
}

static void suggest_likely(const bohb *b, const choir__history *h, const choir__density *best,
    const choir__density *others, choir__draws *draws, double *params)
{
    double x[CHOIR_SPACE_MAX], tried[CHOIR_SPACE_MAX], most = 0;
    for (int64_t i = 0; i < b->samples; i++) {
        choir__density_draw(best, b->wider, draws, x);
        double gain =
            fmax(choir__density_at(best, x), 1e-32) / fmax(choir__density_at(others, x), 1e-32);
        if (gain > most && write(b, h->space, x, tried)) {
            most = gain;
            memcpy(params, tried, (size_t)h->space->count * sizeof *params);
        }
    }
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    bohb *b = (bohb *)(void *)s;
    int64_t step, n = 0;
    learn(b, h);
    choir__space_draw(h->space, draws, params);
    if (!b->dims || choir__draw(draws) < b->random || !find_budget(b, &step))
        return CHOIR_OK;
    choir__ranked *trials = choir__alloc((size_t)(h->count + 1) * sizeof *trials);
    for (int64_t i = 0; i < h->count; i++) {
        double value = value_at(h->trial[i], step);
        if (!isnan(value))
            trials[n++] = (choir__ranked){i, h->sign[0] * value};
    }
    qsort(trials, (size_t)n, sizeof *trials, choir__by_value);
    int64_t good = choir__max(b->points, (int64_t)(b->top * (double)n));
    good = choir__min(good, n - b->points);
    int64_t bad =
        choir__min(n - good, choir__max(b->points, (int64_t)((1 - b->top) * (double)n)));
    choir__density *best = estimate(b, h, trials, good, draws);
    choir__density *others = estimate(b, h, trials + good, bad, draws);
    suggest_likely(b, h, best, others, draws, params);
    choir__density_free(best);
    choir__density_free(others);
    free(trials);
    return CHOIR_OK;
}

const choir__tune_sampler_ops choir__tune_sampler_bohb = {
    .name = "bohb", .open = open_bohb, .suggest = suggest, .free = free_bohb};
