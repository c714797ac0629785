/* Targets of texts that are not one class: numbers, or any of several classes.
 *
 * Of each sample the numbers are kept, or a list of its labels, which have classes once the
 * training split has been read (labels.h). */
#ifndef CHOIR_DATA_TARGETS_H
#define CHOIR_DATA_TARGETS_H

#include "data/labels.h"

typedef struct choir__targets {
    int64_t outputs; /* numbers of a sample, or classes of the model */
    bool several;    /* classes */
    float *number;   /* (used) numbers of all samples */
    int64_t *label;  /* (used) labels of all samples */
    int64_t *end;    /* (count) where a sample's labels end */
    int64_t used, count;
} choir__targets;

/* Reads the targets of a record, and adds them as a sample's if `keep` is true. Numbers are a
 * number or an array of them. Classes are one label or an array of labels; or an array of as
 * many truth values as the model has classes, or of 0.0 and 1.0; null stands for no label.
 * Errors: format. */
choir_status choir__targets_add(choir__targets *targets, choir__labels *labels,
    const choir__data_record_at *at, const choir__json *value, bool keep);

/* Writes the targets of a sample, y (outputs). */
void choir__targets_get(
    const choir__targets *targets, const choir__labels *labels, int64_t sample, float *y);

void choir__targets_free(choir__targets *targets);

#endif
