/* The members of the registry of schedulers. */
#ifndef CHOIR_TUNE_SCHEDULERS_H
#define CHOIR_TUNE_SCHEDULERS_H

#include "base/options.h"
#include "tune/scheduler/scheduler.h"

extern const choir__scheduler_ops choir__scheduler_none, choir__scheduler_asha,
    choir__scheduler_hyperband, choir__scheduler_median, choir__scheduler_percentile,
    choir__scheduler_patience, choir__scheduler_pbt;

#endif
