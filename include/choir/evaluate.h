/* Evaluation: the loss and the accuracy of a model on a dataset.
 *
 * Threads: that of the run. Collective: choir_evaluate, over the options' group. */
#ifndef CHOIR_EVALUATE_H
#define CHOIR_EVALUATE_H

#include <choir/data.h>
#include <choir/group.h>
#include <choir/models.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_score {
    double loss;     /* average over all targets that count */
    double accuracy; /* share of targets that have the largest score, 0 to 1; NaN: REGRESSION */
    int64_t samples;
} choir_score;

typedef struct choir_eval_opts {
    int64_t batch_size;  /* samples at a time; default 32 */
    int64_t max_batches; /* 0 (the default): all of the dataset */
    int workers;         /* threads that read samples; 1 */
    /* the ranks that share the batches; NULL (the default): only this rank */
    choir_group *group;
} choir_eval_opts;

choir_eval_opts choir_eval_defaults(void);

/**
 * Runs the module on the dataset in order, in evaluation mode and without recording for
 * backward, and then sets it back to training mode. The score has the same bits on any number
 * of ranks. Ranks use rank 0's buffers (running statistics), which are broadcast first.
 *
 * Errors: those of the dataset, of forward and of the group; memory.
 */
choir_status choir_evaluate(choir_scope *run, choir_module *module,
    const choir_model_info *info, choir_dataset *data, choir_eval_opts opts,
    choir_score *score);

#ifdef __cplusplus
}
#endif
#endif
