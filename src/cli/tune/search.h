/* choir tune: the search itself, from the study's first trial to its last. */
#ifndef CHOIR_CLI_TUNE_SEARCH_H
#define CHOIR_CLI_TUNE_SEARCH_H

#include <choir/study.h>

#include "tune/trials/running.h"

typedef struct choir__search {
    choir_study *study;
    const choir_space *space;
    choir__trial_job job;
    int64_t trials, parallel, retries, failures_max;
    bool most; /* more is better */
    bool json, quiet;
} choir__search;

/* Runs the search, printing each trial when it and all before it have ended, and the best one
 * last. Returns an exit status. */
int choir__search_run(const choir__search *s);

/* --- printing (print.c) --- */

/* A trial that has ended. */
typedef struct choir__outcome {
    const choir_trial *trial;
    char *why;    /* it failed; NULL: it did not */
    int64_t step; /* of the last report, -1: none */
    double seconds;
} choir__outcome;

void choir__search_print_head(const choir__search *s);
void choir__search_print_trial(const choir__search *s, const choir__outcome *o);
void choir__search_print_best(const choir__search *s, const choir_trial *best);

#endif
