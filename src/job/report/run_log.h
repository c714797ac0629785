/* The records of a training job: its run folder, and the destinations of --log. Rank 0 has
 * them; other ranks do nothing. */
#ifndef CHOIR_JOB_REPORT_RUN_LOG_H
#define CHOIR_JOB_REPORT_RUN_LOG_H

#include "job/report/report.h"

typedef struct choir__run_log choir__run_log;

/* Returns the folder of the job's records, or NULL. */
const char *choir__run_log_folder(const choir__job *job);

typedef struct choir__run_log_start {
    int64_t step;
    bool goes_on, evaluates_again; /* choir_log_opts's */
} choir__run_log_start;

/* Opens the records of a job that continues after a step, or begins if goes_on is false.
 * parameters: the model's number of parameters; -1: unknown. start_s: seconds from the
 * process's start to its first step; NaN: it has begun before. A destination that cannot be
 * opened or, later, written costs a warning, and the job's exit status
 * (choir__job.records.unrecorded); training continues. */
choir__run_log *choir__run_log_open(
    const choir__job *job, choir__run_log_start from, int64_t parameters, double start_s);

/* All of these accept NULL in place of the record. */

/* Records an event (CHOIR__TOLD); a step with the figures of the part's devices. */
void choir__run_log_tell(choir__run_log *r, const choir__event_kind *kind, const void *told);
void choir__run_log_step(
    choir__run_log *r, const choir__told_step *step, const choir__job_rank *part);
/* A failure, or an interruption; the sentence is choir_error_message's. */
void choir__run_log_failure(choir__run_log *r, int64_t step, choir_status status);
/* Ends the logs as logs of a failed job, whose supervisor records the failure itself. */
void choir__run_log_spoil(choir__run_log *r);
void choir__run_log_close(choir__run_log *r);

/* Adds a failure to the run folder of a job whose rank 0 could not. */
void choir__run_log_loss(const choir__job *job);

#endif
