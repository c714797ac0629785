/* The runs, studies and plans that the page shows. Each has a place, whose number readers use.
 * A new one that finds all places taken gets the place of one whose folder or file is gone, or
 * is left out. */
#ifndef CHOIR_CLI_WATCH_SHOWN_H
#define CHOIR_CLI_WATCH_SHOWN_H

#include "cli/watch/run.h"

#include <sys/stat.h>
#include "base/base.h"
#include "cli/watch/plan.h"
#include "cli/watch/study.h"

enum { CHOIR__WATCH_RUNS = 64, CHOIR__WATCH_STUDIES = 16, CHOIR__WATCH_PLANS = 16 };

typedef enum choir__watch_kind {
    CHOIR__WATCH_RUN,
    CHOIR__WATCH_STUDY,
    CHOIR__WATCH_PLAN,
    CHOIR__WATCH_KINDS
} choir__watch_kind;

typedef struct choir__watch_counts {
    int64_t shown[CHOIR__WATCH_KINDS];
    int64_t left_out[CHOIR__WATCH_KINDS]; /* there was no place */
    int64_t folders_left_out;             /* folders in which no run was searched */
} choir__watch_counts;

typedef struct choir__watch_shown {
    choir__watch_run *runs[CHOIR__WATCH_RUNS];
    choir__watch_study *studies[CHOIR__WATCH_STUDIES];
    choir__watch_plan *plans[CHOIR__WATCH_PLANS];
    int count[CHOIR__WATCH_KINDS];
    int next[CHOIR__WATCH_KINDS]; /* where the next search for a free place begins */
    choir__watch_counts counts;
} choir__watch_shown;

/* Versions of studies and plans that one reader of the page knows. */
typedef struct choir__watch_told {
    int64_t studies[CHOIR__WATCH_STUDIES], plans[CHOIR__WATCH_PLANS];
} choir__watch_told;

/* Looks for runs, studies and plans in the places (count). A run in a place of another has a
 * higher generation. */
void choir__watch_shown_find(choir__watch_shown *shown, char *const *places, int count);
/* Looks at the studies and plans in turn, and adds the news of the first that has some for the
 * reader. */
void choir__watch_shown_news(
    choir__watch_shown *shown, choir__watch_told *told, choir__text_buffer *out);
void choir__watch_shown_free(choir__watch_shown *shown);

#endif
