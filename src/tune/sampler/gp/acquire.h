/* The point whose value is expected to improve the most on the best one so far.
 *
 *     improvement(x) = E[max(0, y(x) - best)],  y(x) normal with the regression's mean,
 * variance
 *
 * Its logarithm is maximised, which has a slope also where the improvement rounds to 0 (Ament
 * et al., "Unexpected improvements to expected improvement for Bayesian optimization", 2023).
 */
#ifndef CHOIR_TUNE_ACQUIRE_H
#define CHOIR_TUNE_ACQUIRE_H

#include "tune/sampler/gp/regression.h"
#include "tune/sampler/sampler.h"

typedef struct choir__acquisition {
    const choir_space *space;
    const choir__regression *regression;
    double best;
    int64_t candidates; /* random points; some of them are improved */
    int64_t starts;     /* number of points that are improved */
    double *scratch;    /* (regression->count * (2 + space->count)) */
} choir__acquisition;

/* Returns the logarithm of the expected improvement at x (space->count); slope: its
 * derivatives, or NULL. Tests call it, too. */
double choir__log_improvement(const choir__acquisition *a, const double *x, double *slope);

/* Writes the regression's coordinates of a trial's parameters. */
void choir__coordinates(const choir_space *space, const double *params, double *x);

/* Stores in params, which hold the best trial's, those with the largest improvement that was
 * found among what the space allows; returns false if nothing is. */
bool choir__acquire(const choir__acquisition *a, choir__draws *draws, double *params);

#endif
