/* The standard normal distribution. */
#ifndef CHOIR_TUNE_NORMAL_H
#define CHOIR_TUNE_NORMAL_H

#include "base/math/functions.h"

static inline double choir__normal_cdf(double z)
{
    return 0.5 * choir__erfc(-z * 0.70710678118654752440);
}

/* Returns log(cdf(b) - cdf(a)) for a < b, also far out in a tail. */
double choir__normal_log_mass(double a, double b);

/* The inverse of the cdf, for p in (0, 1): Wichura, "Algorithm AS 241", Applied Statistics 37
 * (1988), with a relative error of about 1e-16. */
double choir__normal_quantile(double p);

#endif
