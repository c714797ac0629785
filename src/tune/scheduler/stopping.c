/* Schedulers that stop trials which fall behind: median, percentile, patience.
 *
 * - median, percentile: the trial's best value so far is worse than that percentile of the
 *   values that complete trials had at the same step. Asked after `startup` complete trials,
 *   from the step `warmup` on, once in each `interval` steps, where at least `least` trials
 *   have a value.
 * - patience: for `reports` reports the value has not been better, by `delta`, than the best
 *   one before.
 *
 * Source: Optuna's PercentilePruner, MedianPruner, and PatientPruner without a pruner of its
 * own, whose decisions these are. */
#include <math.h>
#include <stdlib.h>

#include "base/number.h"
#include "tune/scheduler/rules.h"

typedef struct stopping {
    choir__scheduler base;
    double percent;
    int64_t startup, warmup, interval, least;
    int64_t reports;
    double delta;
} stopping;

static choir_status open_with(const choir__scheduler_ops *ops, const char *text,
    const stopping *defaults, choir__scheduler **scheduler)
{
    stopping *s = choir__calloc(1, sizeof *s);
    *s = *defaults;
    s->base.ops = ops;
    char *what = choir__format("scheduler %s", ops->name);
    const choir__option median[] = {
        {"startup", CHOIR__INT, &s->startup, 0, 1e9},
        {"warmup", CHOIR__INT, &s->warmup, 0, 1e15},
        {"interval", CHOIR__INT, &s->interval, 1, 1e15},
        {"least", CHOIR__INT, &s->least, 1, 1e9},
        {ops == &choir__scheduler_percentile ? "percent" : NULL, CHOIR__FLOAT, &s->percent, 0,
            100},
        {NULL},
    };
    const choir__option patience[] = {
        {"reports", CHOIR__INT, &s->reports, 0, 1e9},
        {"delta", CHOIR__FLOAT, &s->delta, 0, 1e300},
        {NULL},
    };
    choir_status status =
        choir__options_parse(text, what, ops == &choir__scheduler_patience ? patience : median);
    free(what);
    if (status == CHOIR_OK)
        *scheduler = &s->base;
    else
        free(s);
    return status;
}

static choir_status open_median(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    const stopping defaults = {.percent = 50, .startup = 5, .interval = 1, .least = 1};
    return open_with(&choir__scheduler_median, opts->scheduler, &defaults, scheduler);
}

static choir_status open_percentile(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    const stopping defaults = {.percent = 25, .startup = 5, .interval = 1, .least = 1};
    return open_with(&choir__scheduler_percentile, opts->scheduler, &defaults, scheduler);
}

static choir_status open_patience(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    const stopping defaults = {.reports = 10};
    return open_with(&choir__scheduler_patience, opts->scheduler, &defaults, scheduler);
}

/* Returns the least loss of some reports; NaN if none is a number. */
static double least_loss(const choir__report *reports, int64_t count, double sign)
{
    double least = (double)NAN;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(reports[i].value) && !(reports[i].value * sign >= least))
            least = reports[i].value * sign;
    return least;
}

/* --- percentiles --- */

/* Returns whether the last report is the first one in its interval. */
static bool is_due(const stopping *s, const choir_trial *t)
{
    int64_t step = t->reports[t->report_count - 1].step;
    int64_t before = t->report_count > 1 ? t->reports[t->report_count - 2].step : -1;
    return step >= s->warmup &&
           before < (step - s->warmup) / s->interval * s->interval + s->warmup;
}

/* Returns the percentile with linear interpolation. */
static double percentile(double *values, int64_t count, double percent)
{
    qsort(values, (size_t)count, sizeof *values, choir__by_number);
    double place = percent / 100 * (double)(count - 1);
    int64_t low = (int64_t)place;
    if (low + 1 >= count)
        return values[count - 1];
    return values[low] + (place - (double)low) * (values[low + 1] - values[low]);
}

static bool is_behind(
    const choir__scheduler *base, const choir__history *h, const choir_trial *t, int64_t since)
{
    const stopping *s = (const stopping *)(const void *)base;
    if (!is_due(s, t))
        return false;
    int64_t complete = 0, have = 0, count = 0, step = t->reports[t->report_count - 1].step;
    double *losses = choir__alloc((size_t)h->count * sizeof *losses);
    for (int64_t i = 0; i < h->count; i++) {
        const choir_trial *o = h->trial[i];
        if (o->known != CHOIR_TRIAL_COMPLETE || o->known_since > since)
            continue;
        complete++;
        const choir__report *r = choir__report_from(o, step);
        bool has = r && r->step == step;
        have += has;
        if (has && !isnan(r->value))
            losses[count++] = r->value * h->sign[0];
    }
    bool behind = false;
    if (complete > 0 && complete >= s->startup) {
        double best = least_loss(t->reports, t->report_count, h->sign[0]);
        behind =
            isnan(best) || /* no value has been a number */
            (have >= s->least && count > 0 && best > percentile(losses, count, s->percent));
    }
    free(losses);
    return behind;
}

/* --- patience --- */

static bool is_stuck(
    const choir__scheduler *base, const choir__history *h, const choir_trial *t, int64_t since)
{
    (void)since;
    const stopping *s = (const stopping *)(const void *)base;
    int64_t early = t->report_count - s->reports - 1;
    if (early < 1)
        return false;
    return least_loss(t->reports, early, h->sign[0]) + s->delta <
           least_loss(t->reports + early, s->reports + 1, h->sign[0]);
}

const choir__scheduler_ops choir__scheduler_median = {.name = "median",
    .open = open_median,
    .next = choir__next_is_new,
    .stops = is_behind,
    .free = choir__free_scheduler};

const choir__scheduler_ops choir__scheduler_percentile = {.name = "percentile",
    .open = open_percentile,
    .next = choir__next_is_new,
    .stops = is_behind,
    .free = choir__free_scheduler};

const choir__scheduler_ops choir__scheduler_patience = {.name = "patience",
    .open = open_patience,
    .next = choir__next_is_new,
    .stops = is_stuck,
    .free = choir__free_scheduler};
