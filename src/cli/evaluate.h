/* The loss and accuracy of a model over a dataset, shared by train and eval. */
#ifndef CHOIR_EVALUATE_H
#define CHOIR_EVALUATE_H

#include "cli/job.h"

typedef struct choir__score {
    double loss;     /* a row's mean, over all rows */
    double accuracy; /* of the largest score; NaN for regression */
    int64_t samples;
} choir__score;

/* In order, `batch` samples at a time, at most max_batches batches (0: all), read by `workers`
 * threads. The ranks of group (NULL: alone) share the batches; the result is the same bits
 * whatever their number. Collective. */
choir_status choir__evaluate(choir_scope *run, choir_module *net, const choir__model_info *info,
    choir_dataset *data, int64_t batch, int64_t max_batches, int workers, choir_group *group,
    choir__score *score);

#endif
