/* Goodput from the rates of failures: the mean time between them, the best interval of
 * saves, and the probability that enough nodes are there. The interval is found by bisection
 * of the exact condition; Young's and Daly's formulas are reported beside it. */
#include "forecast/fleet.h"

#include <math.h>

#include "base/base.h"
#include "base/math/functions.h"

static const double day_s = 86400;

/* --- checkpoints --- */

/* Returns the useful share of the time, with failures at rate 1 / mttf. */
static double useful_share(double interval, double save, double restart, double mttf)
{
    double span = (interval + save) / mttf;
    if (span > 500)
        return 0; /* an interval that never ends */
    const double grown = span < 1e-7 ? span : choir__exp(span) - 1; /* which cancels there */
    return interval / (mttf * choir__exp(restart / mttf) * grown);
}

/* Returns the interval with the largest share: the zero of a function that falls with it. */
static double best_interval(double save, double mttf)
{
    double low = 0, high = mttf;
    for (int i = 0; i < 200; i++) {
        const double t = (low + high) / 2;
        if (choir__exp((t + save) / mttf) * (1 - t / mttf) > 1)
            low = t;
        else
            high = t;
    }
    return (low + high) / 2;
}

/* Daly's series, for saves shorter than 2 M. */
static double daly_interval(double save, double mttf)
{
    if (save >= 2 * mttf)
        return mttf;
    double part = sqrt(save / (2 * mttf));
    return sqrt(2 * save * mttf) * (1 + part / 3 + part * part / 9) - save;
}

/* --- nodes that are away --- */

/* Returns the probability that at most `most` of Poisson's events happen. Many are distributed
 * normally. */
static double at_most(int64_t most, double mean)
{
    enum { MANY = 10000 };
    double sum = 0, log_term = -mean;
    if (mean > MANY)
        return choir__erfc((mean - 0.5 - (double)most) / sqrt(2 * mean)) / 2;
    for (int64_t k = 0; k <= choir__min(most, 2 * MANY); k++) {
        sum += choir__exp(log_term);
        log_term += choir__log(mean / (double)(k + 1));
    }
    return sum < 1 ? sum : 1;
}

/* Nodes are away for repair_s after each failure: as many at a time as Poisson's distribution
 * with this mean says. */
static void forecast_spares(const choir__failure_rates *f, double per_day, choir__fleet *fleet)
{
    const double away = per_day / day_s * f->repair_s;
    int64_t few = -1, enough = 100000000; /* as many as a cluster may have */
    fleet->available = away > 0 ? at_most(f->spares, away) : 1;
    while (away > 0 && enough - few > 1) {
        const int64_t middle = (few + enough) / 2;
        *(at_most(middle, away) < 0.999 ? &few : &enough) = middle;
    }
    fleet->spares_wanted = away > 0 ? enough : 0;
}

/* --- all together --- */

choir_status choir__fleet_forecast(
    const choir__cluster *c, const choir__fleet_job *job, choir__fleet *fleet)
{
    const choir__failure_rates *f = &c->failures;
    choir_status status = choir__cluster_holds(c, job->ranks);
    *fleet = (choir__fleet){.mttf_s = INFINITY,
        .interval_s = INFINITY,
        .young_s = INFINITY,
        .daly_s = INFINITY,
        .goodput_restart = 1,
        .available = 1};
    if (status)
        return status;
    const int64_t nodes = (job->ranks + c->devices_per_node - 1) / c->devices_per_node;
    const double per_day =
        f->per_device_day * (double)job->ranks + f->per_node_day * (double)nodes;
    fleet->goodput_recovery = f->recovery_s > 0 ? 1 : 0;
    if (!(per_day > 0))
        return CHOIR_OK;
    const double mttf = day_s / per_day;
    fleet->failures_per_day = per_day;
    fleet->mttf_s = mttf;
    forecast_spares(f, per_day, fleet);
    fleet->young_s = sqrt(2 * job->save_s * mttf);
    fleet->daly_s = daly_interval(job->save_s, mttf);
    /* if saving costs nothing, every step saves */
    double least = job->step_s > 0 ? job->step_s : 1;
    fleet->interval_s = best_interval(job->save_s, mttf);
    if (fleet->interval_s < least)
        fleet->interval_s = least;
    const double interval = job->interval_s > 0 ? job->interval_s : fleet->interval_s;
    fleet->goodput_restart =
        fleet->available * useful_share(interval, job->save_s, f->restart_s, mttf);
    if (f->recovery_s > 0)
        fleet->goodput_recovery =
            fleet->available * useful_share(least, 0, f->recovery_s, mttf);
    return CHOIR_OK;
}
