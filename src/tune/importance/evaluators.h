/* The members of the registry of evaluators. */
#ifndef CHOIR_TUNE_EVALUATORS_H
#define CHOIR_TUNE_EVALUATORS_H

#include "tune/importance/importance.h"

extern const choir__importance_ops choir__importance_ped_anova, choir__importance_fanova;

#endif
