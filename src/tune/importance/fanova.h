/* The analysis of a tree's variance: see fanova.c. */
#ifndef CHOIR_TUNE_FANOVA_H
#define CHOIR_TUNE_FANOVA_H

#include "tune/importance/forest.h"

/* Returns the variance of what a tree says over the space low ... high (columns). Tests call
 * it, too. */
double choir__fanova_variance(
    const choir__leaves *leaves, const double *low, const double *high);
/* Returns the variance of its mean over all columns but first ... first + count - 1, as a
 * function of these. Several columns belong to a choice, and each is split in the middle if at
 * all. Tests call it, too. */
double choir__fanova_marginal(
    const choir__leaves *leaves, const double *low, const double *high, int first, int count);

#endif
