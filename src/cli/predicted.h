/* The output of choir predict: a line per input, or per word. */
#ifndef CHOIR_CLI_PREDICTED_H
#define CHOIR_CLI_PREDICTED_H

#include <choir/data.h>

#include "job/model/saved.h"

typedef struct choir__predictions {
    const choir__saved *saved;
    const choir_texts *texts;  /* the inputs; NULL: images, */
    const choir_dataset *data; /* which have names here */
    const char *folder;        /* unless they are images of this folder's IDX files */
    int64_t top;               /* labels of each input; 1: the likeliest, or all that it has */
    bool json;
    int64_t left_out; /* words without a label, so far */
} choir__predictions;

/* Prints the prediction of one sample: a choir_predict_fn, with choir__predictions as arg. */
choir_status choir__predicted_print(void *arg, int64_t sample, int64_t rows,
    const int64_t *targets, const float *probabilities);

#endif
