/* --amp: its levels, and their effect on a job. */
#ifndef CHOIR_JOB_MODEL_AMP_H
#define CHOIR_JOB_MODEL_AMP_H

#include "job/strategy/strategy.h"

typedef struct choir__amp_level {
    const char *name;
    int apex;          /* Apex's level, 0 to 3; -1: autocast to dtype */
    choir_dtype dtype; /* F32: no mixed precision */
    bool scaled;       /* a gradient scaler is used */
    bool halved;       /* parameters have 16 bits */
} choir__amp_level;

/* Returns the level with this name, or NULL if no level has it. A name of NULL gives the level
 * without mixed precision. */
const choir__amp_level *choir__amp_find(const char *name);

/* Applies a level to a run after its model has been built. */
choir_status choir__amp_apply(
    choir_scope *run, choir_module *net, const choir__amp_level *level);
/* Applies the job's level to the run after the model has been built. Rank 0 prints a note if
 * the processor does not multiply this dtype faster than f32. */
choir_status choir__amp_begin(choir__job_rank *part);
/* Runs the optimizer's step, through the scaler if the job has one. */
choir_status choir__amp_step(choir__job_rank *part);

#endif
