/* Evaluation: the loss and accuracy of a model on a dataset. Prediction: classes for samples
 * without labels.
 *
 * Threads: the run's thread. Collective: choir_evaluate, over the options' group. */
#ifndef CHOIR_EVALUATE_H
#define CHOIR_EVALUATE_H

#include <choir/data.h>
#include <choir/group.h>
#include <choir/models.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Shares are from 0 to 1. For REGRESSION only the loss is set, and all other numbers are NaN;
 * for LANGUAGE and IMAGE_TO_TEXT top5 and f1 are NaN; for MULTI_LABEL top5 and the perplexity
 * are, and a class is predicted where its score is above 0. */
typedef struct choir_score {
    double loss; /* average over all targets that count */
    /* share of targets whose score is the largest; MULTI_LABEL: share of samples all of whose
     * classes are predicted right */
    double accuracy;
    double perplexity; /* exp(loss) */
    /* share of targets whose score is among the five largest; NaN under tensor parallelism, too
     */
    double top5;
    double f1; /* macro F1: mean F1 over the classes that occur in targets or predictions */
    int64_t samples;
    int64_t targets; /* targets that count; 0: loss and shares are NaN */
} choir_score;

/* The score of one class; a share is 0 if its whole is 0. */
typedef struct choir_class_score {
    int64_t samples;     /* targets of this class */
    int64_t predictions; /* rows in which this class is predicted */
    double precision;    /* share of predictions that are right */
    double recall;       /* share of targets that are predicted */
    double f1;           /* harmonic mean of precision and recall */
} choir_class_score;

typedef struct choir_eval_opts {
    int64_t batch_size;  /* samples at a time; default 32 */
    int64_t max_batches; /* 0 (the default): the whole dataset */
    int workers;         /* threads that read samples; default 1 */
    /* ranks that share the batches; NULL (the default): this rank alone */
    choir_group *group;
    /* true: choir_context_parallel cuts sequences as in training. Ranks that share sequences
     * evaluate the same batches then, so `group` has ranks that have the same tokens. false
     * (the default): each rank evaluates whole sequences */
    bool chunks;
    /* CLASSIFICATION and MULTI_LABEL: array of info->classes entries that receives each class's
     * score; NULL (the default): not needed */
    choir_class_score *per_class;
    /* Called with `arg` when a batch has been read, before it runs, and once after the last
     * batch; equally often on every rank of the group. `mine` is the status of this rank's
     * reading. If it returns an error, the evaluation ends, so the caller must make sure that
     * it returns an error on all ranks or on no rank. NULL (the default): a rank whose reading
     * fails informs the others at the end. */
    choir_status (*between)(void *arg, choir_status mine);
    void *arg;
    /* Called with `scored_arg` behind each batch that this rank counts: samples [first, first +
     * n), the model's outputs for them, and their targets. An error ends the evaluation. Each
     * rank gets the outputs for all tokens, also where `chunks` distributes them. NULL (the
     * default): not needed. */
    choir_status (*scored)(
        void *arg, int64_t first, int64_t n, choir_tensor *outputs, choir_tensor *targets);
    void *scored_arg; /* passed to scored */
} choir_eval_opts;

choir_eval_opts choir_eval_defaults(void);

/**
 * Runs the module on every sample of the dataset once, in order, in evaluation mode and without
 * recording for backward, and then sets it back to training mode. The score has the same bits
 * on any number of ranks. Ranks use rank 0's buffers (running statistics), which are broadcast
 * first.
 *
 * Errors: argument (per_class for a model that is not a classifier); errors of the dataset, of
 * forward, of the group and of opts.between; memory.
 */
CHOIR_CHECKED choir_status choir_evaluate(choir_scope *run, choir_module *module,
    const choir_model_info *info, choir_dataset *data, choir_eval_opts opts,
    choir_score *score);

/** Receives the prediction for one sample. rows is 1 for a sequence or an image, else one per
 * word. targets (rows) are the dataset's targets, and probabilities (rows, classes) are valid
 * during the call only; for REGRESSION these are the model's numbers. An error ends the
 * prediction. */
typedef choir_status choir_predict_fn(void *arg, int64_t sample, int64_t rows,
    const int64_t *targets, const float *probabilities);

/**
 * Runs a classifier, or a model of texts with REGRESSION, on every sample of the dataset, in
 * order, in evaluation mode, calls fn with each sample's probabilities (softmax of the scores;
 * for MULTI_LABEL the sigmoid of each; for REGRESSION the numbers themselves), and then sets
 * the module back to training mode. Rows whose target is CHOIR_IGNORED are left out.
 * choir_dataset_texts and choir_dataset_image_files make datasets without classes. opts.group,
 * opts.per_class and opts.between are not used: this rank runs all samples.
 *
 * Errors: argument (the model is not a classifier); errors of the dataset, of forward and of
 * fn; memory.
 */
CHOIR_CHECKED choir_status choir_predict(choir_scope *run, choir_module *module,
    const choir_model_info *info, choir_dataset *data, choir_eval_opts opts,
    choir_predict_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
