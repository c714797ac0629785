/* Rules that several schedulers share. */
#ifndef CHOIR_TUNE_RULES_H
#define CHOIR_TUNE_RULES_H

#include "tune/scheduler/scheduler.h"

/* A scheduler's `next` that begins new trials only, and a `free` for those without memory. */
void choir__next_is_new(
    choir__scheduler *s, const choir__history *history, bool more, choir__next_segment *turn);
void choir__free_scheduler(choir__scheduler *s);

/* A rung: the trials that have reached one budget. */
typedef struct choir__rung_entry {
    int64_t trial;
    double loss;   /* less is better; infinity: it failed, or its value is no number */
    bool promoted; /* the trial was promoted, or can never be */
} choir__rung_entry;

typedef struct choir__rung {
    int64_t budget;
    choir__rung_entry *entry; /* (count) the best first; of equal ones the first trial */
    int64_t count;
} choir__rung;

/* Adds the trial whose segment has ended, which may be promoted if it reached the budget. */
void choir__rung_add(
    choir__rung *r, const choir__history *history, const choir__trial_segment *segment);
/* Returns the best of the first `places` entries that is not promoted, now promoted; or -1. */
int64_t choir__rung_promote(choir__rung *r, int64_t places);

/* The budgets of an elimination that keeps one of `eta` at each rung. */
typedef struct choir__ladder {
    int64_t min, max, eta;
} choir__ladder;

/* Reads "asha:min=1,max=100,eta=4"; *ladder holds the defaults. */
choir_status choir__ladder_parse(const char *text, const char *what, choir__ladder *ladder);

#endif
