/* The optimizers of --optimizer. */
#ifndef CHOIR_JOB_MODEL_OPTIMIZERS_H
#define CHOIR_JOB_MODEL_OPTIMIZERS_H

#include "job/job.h"

typedef struct choir__made_optimizer {
    choir_optim *optim;
    float weight_decay;
    bool matrices_decay_alone; /* biases and norms have no weight decay */
} choir__made_optimizer;

/* Makes the optimizer that the job names. run NULL: only checks its options. */
choir_status choir__job_optimizer_make(
    const choir__job *job, choir_scope *run, choir_module *net, choir__made_optimizer *made);

/* Returns the job's optimizer with all of its options, which the caller frees, and stores the
 * weight decay; NULL: unknown optimizer. */
char *choir__job_optimizer_text(const choir__job *job, float *weight_decay);

#endif
