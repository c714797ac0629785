/* Regression by a Gaussian process: from the values at some points, the mean and variance of
 * the value at any other.
 *
 *     k(x, z) = scale * matern52(sqrt(sum over p of weight[p] * distance(x[p], z[p])^2))
 *
 * Each parameter has a weight of its own ("automatic relevance determination"); weights, scale
 * and noise maximise the posterior density, with the priors of Optuna's GPSampler.
 *
 * A point has one coordinate per parameter, in [0, 1] for numbers; NaN if the trial lacks it.
 * The distance between two choices is 1. A missing number is 1 away from both ends of the range
 * and sqrt(3/4) from its middle, which is where a point beside the line would be, so that k
 * stays positive definite.
 *
 * Source: Rasmussen and Williams, "Gaussian processes for machine learning" (2006), chapters 2,
 * 4 and 5. */
#ifndef CHOIR_TUNE_REGRESSION_H
#define CHOIR_TUNE_REGRESSION_H

#include "base/base.h"

typedef struct choir__regression {
    int64_t count;
    int dims;
    const bool *is_choice; /* (dims) */
    double *x;             /* (count, dims) */
    double *y;             /* (count) */
    double *weight;        /* (dims) */
    double scale, noise;
    double *factor; /* (count, count) lower: the covariance of y is factor factor' */
    double *alpha;  /* (count) the inverse of that covariance, times y */
} choir__regression;

/* Returns a regression with room for `count` points; the caller fills in x and y. */
choir__regression *choir__regression_new(int64_t count, int dims, const bool *is_choice);
void choir__regression_free(choir__regression *r);

/* Finds weight, scale and noise for the first `count` points. y has about mean 0 and
 * variance 1. */
void choir__regression_fit(choir__regression *r, int64_t count);
/* Computes factor and alpha for the first `count` points. */
void choir__regression_solve(choir__regression *r, int64_t count);

/* Stores the mean and variance at x. slope_mean, slope_variance: (dims) their derivatives by
 * each number, or both NULL. scratch: (count * (2 + dims)) */
void choir__regression_predict(const choir__regression *r, const double *x, double *scratch,
    double *mean, double *variance, double *slope_mean, double *slope_variance);

#endif
