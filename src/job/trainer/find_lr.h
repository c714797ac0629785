/* --find-lr: the loss over rates that rise from step to step (Smith, 2017), and a rate to begin
 * with. */
#ifndef CHOIR_JOB_TRAINER_FIND_LR_H
#define CHOIR_JOB_TRAINER_FIND_LR_H

#include "job/job.h"

typedef struct choir__rate_test {
    double *rates, *losses;
    int64_t count, steps; /* count: rates whose loss is known; steps: limit */
    int64_t without;      /* steps in a row that had no target */
    int64_t patience;     /* limit of `without`: steps of an epoch */
    double smooth, best;  /* smoothed loss; smallest smoothed loss */
} choir__rate_test;

void choir__rate_test_begin(choir__rate_test *test, const choir__job *job);
/* Returns the rate of the next step. */
double choir__rate_test_next(const choir__rate_test *test);
/* Notes the step's loss; returns false when the test is over: after the last rate, or when the
 * smoothed loss is four times the least one. A step without a target (none) measures nothing,
 * and the next one has its rate; the test is over after a whole epoch of them. */
bool choir__rate_test_note(choir__rate_test *test, bool none, double loss);
/* Prints the rate at which the loss is halfway down its fall, and draws the picture. */
choir_status choir__rate_test_report(const choir__rate_test *test, const choir__job *job);
void choir__rate_test_free(choir__rate_test *test);

/* Checks that the picture can be made. Errors: argument, state (no gnuplot), I/O. */
choir_status choir__rate_test_check(choir__job *job);

#endif
