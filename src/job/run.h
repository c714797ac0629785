/* A job's way from its options to its end, for the command and for programs (choir/job.h). */
#ifndef CHOIR_JOB_RUN_H
#define CHOIR_JOB_RUN_H

#include "job/job.h"

/* Checks a job and prepares it. *usage: see choir__job_check. */
choir_status choir__job_make_ready(choir__job *job, bool *usage);

typedef struct choir__job_end {
    int by;          /* the signal that has interrupted the job; 0: none */
    bool unrecorded; /* a record could not be written */
} choir__job_end;

/* Returns the exit status of a process that has ended so; by: the signal of an interruption. */
int choir__job_exit_status(choir_status status, int by);

/* Trains a job that is ready, in this process or in forks of it, unless a launcher has started
 * the ranks. Error: the first failure of the ranks. */
choir_status choir__job_run(choir__job *job, choir__job_end *end);

#endif
