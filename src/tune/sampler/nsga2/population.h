/* The selection of NSGA-II: of some trials those that survive.
 *
 * A trial's rank is the number of fronts before its own: front 0 is dominated by none, front 1
 * only by front 0, and so on. Within a front, the more room a trial has around it, the better.
 *
 * Source: Deb, Pratap, Agarwal, Meyarivan, "A fast and elitist multiobjective genetic
 * algorithm: NSGA-II" (2002). */
#ifndef CHOIR_TUNE_POPULATION_H
#define CHOIR_TUNE_POPULATION_H

#include "tune/sampler/sampler.h"

/* A complete trial. */
typedef struct choir__individual {
    const choir_trial *trial;
    int64_t rank;
    double room; /* sum over the objectives of the distance between its neighbours */
} choir__individual;

/* Fills in rank and room of `all` (count), and orders them, the better the earlier. */
void choir__population_rank(
    choir__individual *all, int64_t count, const double *sign, int objectives);

/* Returns whether a survives rather than b. */
bool choir__individual_better(const choir__individual *a, const choir__individual *b);

#endif
