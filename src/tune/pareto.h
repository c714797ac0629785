/* Which trials of several objectives are better than which. */
#ifndef CHOIR_TUNE_PARETO_H
#define CHOIR_TUNE_PARETO_H

#include "tune/trial.h"

/* Returns whether complete trial a dominates b: nowhere worse, and somewhere better. sign:
 * (objectives) 1: less is better */
bool choir__dominates(
    const choir_trial *a, const choir_trial *b, const double *sign, int objectives);

#endif
