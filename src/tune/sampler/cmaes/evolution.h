/* Evolution of a normal distribution towards the best points of the unit cube: CMA-ES.
 *
 * A generation is `population` points with their order by value. It moves the mean to the
 * better half, and shapes the covariance after the steps that were good, and against those that
 * were bad.
 *
 * Source: Hansen, "The CMA evolution strategy: a tutorial" (2016), with negative weights;
 * Hansen, "Injecting external solutions into CMA-ES" (2011), for points that another
 * distribution drew. */
#ifndef CHOIR_TUNE_EVOLUTION_H
#define CHOIR_TUNE_EVOLUTION_H

#include "tune/sampler/sampler.h"

typedef struct choir__evolution choir__evolution;

/* Returns a distribution around `mean` (dims) with the standard deviation `sigma`. */
choir__evolution *choir__evolution_new(
    int dims, int64_t population, const double *mean, double sigma);
void choir__evolution_free(choir__evolution *e);

/* Draws x (dims) in the unit cube. */
void choir__evolution_draw(const choir__evolution *e, choir__draws *draws, double *x);
/* Takes a generation: points x (population, dims), the best first. best, worst: their values */
void choir__evolution_step(choir__evolution *e, const double *x, double best, double worst);
/* Returns whether the distribution has shrunk to a point, or its shape or the values have
 * nothing more to tell. */
bool choir__evolution_ended(const choir__evolution *e);

#endif
