/* choir_tune: the runners of trials that are calls of a C function. */
#ifndef CHOIR_TUNE_PROGRAM_H
#define CHOIR_TUNE_PROGRAM_H

#include <choir/tune.h>

#include "tune/driver.h"

/* The `arg` of both runners. */
typedef struct choir__program {
    choir_trial_fn *fn;
    void *arg;
} choir__program;

extern const choir__runner_ops choir__thread_runner, choir__fork_runner;

/* Calls the function. An error is the thread's message, which is not empty. */
choir_status choir__program_call(
    const choir__program *p, choir_trial *trial, double values[CHOIR_STUDY_OBJECTIVES]);
/* Returns how a call has ended. why: on the heap, or NULL if it did not fail. */
choir__trial_end choir__program_end(
    const choir_trial *trial, const double values[CHOIR_STUDY_OBJECTIVES], char *why);

/* --- before_fork.c --- */

/* Returns an error if this process cannot fork. */
choir_status choir__tune_may_fork(void);
/* Brings all other threads of the process to rest, before a fork. */
void choir__tune_rest(void);

#endif
