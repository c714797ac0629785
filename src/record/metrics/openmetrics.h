/* The latest numbers of a run in OpenMetrics' text form, which Prometheus scrapes. */
#ifndef CHOIR_RECORD_OPENMETRICS_H
#define CHOIR_RECORD_OPENMETRICS_H

#include "record/recorder.h"
#include "base/text.h"

typedef struct choir__gauge_list {
    char **names;   /* (count): as in rows, in the order in which they first came */
    double *values; /* (count) */
    int count;
    int64_t step;
    double items, seconds; /* sums over the steps since the last page */
} choir__gauge_list;

/* Takes over the numbers of a row. Steps come faster than readers, so the rate of a page,
 * items_per_s, is the mean over the steps since the page before, whose times are step_s. Tests
 * call both, too. */
void choir__gauges_take(choir__gauge_list *list, const choir__row *row);
void choir__gauges_free(choir__gauge_list *list);

/* Writes the page: one family per name. "loss" is choir_loss, "eval/loss" choir_eval_loss, and
 * "device/0/cpu:0/bytes" (rank 0) is choir_device_bytes{device="0/cpu:0"}. params become
 * choir_run_info. Tests call it, too. */
void choir__openmetrics(
    choir__gauge_list *list, const json_t *params, choir__text_buffer *page);

#endif
