/* --amp: its levels, and what they ask of a job. */
#ifndef CHOIR_CLI_AMP_H
#define CHOIR_CLI_AMP_H

#include "cli/strategy/strategy.h"

typedef struct choir__amp_level {
    const char *name;
    int apex;          /* O0 to O3; -1: autocast to dtype */
    choir_dtype dtype; /* F32: none */
    bool scaled;       /* with a gradient scaler */
    bool halved;       /* parameters are 16-bit */
} choir__amp_level;

/* NULL: there is none of that name. name NULL: off. */
const choir__amp_level *choir__amp_find(const char *name);

/* The model is built: makes the run's setting; says on standard error, once a job, where that
 * costs time. */
choir_status choir__amp_begin(choir__cli_part *part);
/* The optimizer's step, through the scaler if there is one. */
choir_status choir__amp_step(choir__cli_part *part);

#endif
