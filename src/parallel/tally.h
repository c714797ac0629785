/* The counts of an evaluation.
 *
 * A batch's loss is summed over its rows, and its targets are counted; for classifiers each
 * class is counted, too. Counts are integers, so their sum over ranks has no order; the losses
 * of the batches are added in the order of the batches. */
#ifndef CHOIR_PARALLEL_TALLY_H
#define CHOIR_PARALLEL_TALLY_H

#include <choir/evaluate.h>

/* The sums of one batch. */
typedef struct choir__batch_sums {
    double loss;        /* mean times rows */
    int64_t rows;       /* targets that count */
    int64_t best, top5; /* targets with the largest score, with one of the five largest */
} choir__batch_sums;

/* Counts of each class over all batches of a rank. counts: (classes, 3), see tally.c. NULL: the
 * model is not a classifier. */
typedef struct choir__tally {
    int64_t classes;
    int64_t *counts;
    bool ranked; /* top5 was counted, since the scores cover all classes */
} choir__tally;

void choir__tally_init(choir__tally *tally, const choir_model_info *info);
void choir__tally_free(choir__tally *tally);

/* Adds the rows of a batch to its sums, and, unless `again`, to the counts of the classes. A
 * rank sets `again` for a batch that another rank counts. scores: the model's outputs; y:
 * targets, whose values `ignored` do not count. */
choir_status choir__tally_add(choir__tally *tally, choir_tensor *scores, choir_tensor *y,
    int64_t ignored, bool again, choir__batch_sums *sums);

/* Adds the counts of all ranks. Collective. */
choir_status choir__tally_gather(choir__tally *tally, choir_group *group);

/* Computes the score, and the classes' own scores unless per_class is NULL. */
void choir__tally_score(const choir__tally *tally, const choir_model_info *info,
    const choir__batch_sums *sums, int64_t count, choir_score *score,
    choir_class_score *per_class);

#endif
