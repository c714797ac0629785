/* The runs and studies that the page shows. Each has a place, whose number readers use. A new
 * one that finds all places taken gets the place of a run or study whose folder is gone, or is
 * left out. */
#ifndef CHOIR_CLI_WATCH_SHOWN_H
#define CHOIR_CLI_WATCH_SHOWN_H

#include "cli/watch/run.h"

#include <sys/stat.h>
#include "base/base.h"
#include "cli/watch/study.h"

enum { CHOIR__WATCH_RUNS = 64, CHOIR__WATCH_STUDIES = 16 };

typedef struct choir__watch_counts {
    int64_t runs, studies;
    int64_t runs_left_out, studies_left_out; /* there was no place */
    int64_t folders_left_out;                /* folders in which no run was searched */
} choir__watch_counts;

typedef struct choir__watch_shown {
    choir__watch_run *runs[CHOIR__WATCH_RUNS]; /* (run_count) */
    choir__watch_study *studies[CHOIR__WATCH_STUDIES];
    int run_count, study_count;
    choir__watch_counts counts;
    int next_run, next_study; /* where the next search for a free place begins */
} choir__watch_shown;

/* Looks for runs and studies in the places (count). A run in a place of another has a higher
 * generation. */
void choir__watch_shown_find(choir__watch_shown *shown, char *const *places, int count);
void choir__watch_shown_free(choir__watch_shown *shown);

#endif
