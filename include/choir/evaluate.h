/* Evaluation: the loss of a model on a dataset, and how many targets it predicts. Prediction:
 * the classes of samples that have none.
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

/* Shares are from 0 to 1. REGRESSION has a loss alone, and all other numbers are NaN; LANGUAGE
 * and IMAGE_TO_TEXT have no top5 and no f1. */
typedef struct choir_score {
    double loss;       /* average over all targets that count */
    double accuracy;   /* share of targets that have the largest score */
    double perplexity; /* exp(loss) */
    /* share of targets that have one of the five largest scores; NaN also under tensor
     * parallelism */
    double top5;
    double f1; /* mean F1 of the classes that some target or prediction names (macro F1) */
    int64_t samples;
    int64_t targets; /* that count; 0: loss and shares are NaN */
} choir_score;

/* The score of one class; a share of nothing is 0. */
typedef struct choir_class_score {
    int64_t samples;     /* targets of this class */
    int64_t predictions; /* rows in which it has the largest score */
    double precision;    /* share of its predictions that are right */
    double recall;       /* share of its targets that are predicted */
    double f1;           /* harmonic mean of precision and recall */
} choir_class_score;

typedef struct choir_eval_opts {
    int64_t batch_size;  /* samples at a time; default 32 */
    int64_t max_batches; /* 0 (the default): all of the dataset */
    int workers;         /* threads that read samples; 1 */
    /* the ranks that share the batches; NULL (the default): only this rank */
    choir_group *group;
    /* CLASSIFICATION: the array of info->classes entries that receives each class's score; NULL
     * (the default): not asked for */
    choir_class_score *per_class;
    /* Called with `arg` when a batch has been read, before it runs, and once after the last
     * batch; as often on every rank of the group. `mine` is the status of this rank's reading.
     * An error that it returns ends the evaluation, so it returns one on all ranks or on none:
     * it is for the caller to agree. NULL (the default): a rank whose reading fails tells the
     * others at the end. */
    choir_status (*between)(void *arg, choir_status mine);
    void *arg;
} choir_eval_opts;

choir_eval_opts choir_eval_defaults(void);

/**
 * Runs the module on every sample of the dataset once, in order, in evaluation mode and without
 * recording for backward, and then sets it back to training mode. The score has the same bits
 * on any number of ranks. Ranks use rank 0's buffers (running statistics), which are broadcast
 * first.
 *
 * Errors: argument (per_class of a model that is no classifier); those of the dataset, of
 * forward, of the group and of opts.between; memory.
 */
CHOIR_CHECKED choir_status choir_evaluate(choir_scope *run, choir_module *module,
    const choir_model_info *info, choir_dataset *data, choir_eval_opts opts,
    choir_score *score);

/** Receives the prediction for one sample: its rows, one for a sequence or an image and one per
 * word, whose targets in the dataset are `targets` (rows), and the classes' probabilities
 * (rows, classes), which exist during the call alone. An error ends the prediction. */
typedef choir_status choir_predict_fn(void *arg, int64_t sample, int64_t rows,
    const int64_t *targets, const float *probabilities);

/**
 * Runs a classifier on every sample of the dataset, in order, in evaluation mode, calls fn with
 * each sample's probabilities (softmax of the scores), and then sets the module back to
 * training mode. Rows whose target is CHOIR_IGNORED are left out. Datasets without classes are
 * those of choir_dataset_texts and choir_dataset_image_files. opts.group, opts.per_class and
 * opts.between are not used: this rank runs all samples.
 *
 * Errors: argument (no classifier); those of the dataset, of forward and of fn; memory.
 */
CHOIR_CHECKED choir_status choir_predict(choir_scope *run, choir_module *module,
    const choir_model_info *info, choir_dataset *data, choir_eval_opts opts,
    choir_predict_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
