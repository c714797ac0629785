/* The members of the registry of samplers. */
#ifndef CHOIR_TUNE_SAMPLERS_H
#define CHOIR_TUNE_SAMPLERS_H

#include "base/options.h"
#include "tune/sampler/sampler.h"

extern const choir__sampler_ops choir__sampler_bohb, choir__sampler_cmaes, choir__sampler_gp,
    choir__sampler_grid, choir__sampler_nsga2, choir__sampler_qmc, choir__sampler_random,
    choir__sampler_tpe;

#endif
