/* Standard output of `choir train`: a recorder of the training's events, which prints lines of
 * JSON for programs (json.c), or sentences and a progress line for people (terminal.c). */
#ifndef CHOIR_JOB_REPORT_REPORT_H
#define CHOIR_JOB_REPORT_REPORT_H

#include <choir/elastic.h>
#include <choir/trace.h>
#include "job/job.h"
#include "record/recorder.h"

/* Steps at the beginning of a run that its median leaves out, if it has more than twice as
 * many: they make primitives, measure costs, place parameters and record. */
enum { CHOIR__JOB_REPORT_WARM_UP = 4 };

typedef struct choir__device_figures {
    char device[16];
    uint64_t peak_bytes, comm_bytes;
    int64_t resident_bytes; /* memory of the process, on its first device; else 0 */
    double busy;            /* share of the time spent training */
} choir__device_figures;

/* A step that is done. */
typedef struct choir__done_step {
    int64_t number; /* number of the step, from 1 */
    bool none;      /* no target of the step counted, so it has no loss */
    float loss; /* loss of the step, else of the last step that had one; NaN: no step had one */
    double seconds, lr, grad_norm; /* grad_norm: NaN if it was not measured */
    double data_s; /* seconds of the step, and before it, that this rank waited for samples */
} choir__done_step;

/* The output, and figures of this process's steps. All ranks note these, since a loss of ranks
 * may make any of them rank 0. */
typedef struct choir__job_report {
    choir__recorder base;
    const choir__job *job;
    double *step_s;   /* seconds of each step of this process */
    double in_steps;  /* their sum */
    double first_end; /* choir__now() at the end of the first one */
    int64_t steps, first,
        last; /* steps: run by this process; first: done before it started; last: done so far */
    double started, last_line;
    /* Rates are means since the last line, of a terminal or of --json: of the steps that have
     * come since, over the time in which they ran. Validation and saves are not in it. */
    int64_t line_steps;
    double line_s;
    double stayed; /* time of the last line that stays on a terminal */
    bool terminal, line_open;
    bool outlived; /* other ranks continue if this process is killed */
    double first_step_s;
    double scale;       /* scale of gradients after the latest step; NaN: not scaled */
    int64_t skipped;    /* steps skipped because of infinite gradients */
    int64_t without;    /* steps without a target, out of `counted` steps */
    int64_t counted;    /* steps so far; if ranks step by themselves, of all ranks */
    choir_trace *trace; /* NULL: no profile is shown */
} choir__job_report;

/* Prepares the output and the figures of a rank. ops: choir__recorder_terminal, _json
 * or _silent. */
void choir__job_report_begin(choir__job_report *r, const choir__recorder_ops *ops,
    const choir__job *job, int64_t first_step);
/* Notes for how long a step ran. */
void choir__job_report_note(choir__job_report *r, double seconds);
void choir__job_report_free(choir__job_report *r);

/* Tells the output an event (CHOIR__TOLD). Where this rank may be lost, the caller then notes
 * that the line is shown and flushes it, so that the next rank 0 does not show it again. */
void choir__job_report_tell(
    choir__job_report *r, const choir__event_kind *kind, const void *told);

/* Returns the median of the seconds of a step. */
double choir__job_report_median(const double *values, int64_t n);
double choir__job_report_median_step(const choir__job_report *r);

/* Returns the items of a step: tokens, or samples. */
double choir__job_report_items(const choir__job_report *r);

/* Returns the rate of the line that is being printed; the next line's begins here. */
double choir__job_report_rate_of_line(choir__job_report *r);

/* Returns whether a step has a line by --log-every. */
bool choir__job_report_is_due(const choir__job_report *r, int64_t step);

/* Flushes standard output, unless this rank may be lost: see choir__job_report_tell. */
void choir__job_report_flush(const choir__job_report *r);

/* Prints the sentence of an event, if it has one. Some are for standard error, where they are
 * printed with --json, too. */
void choir__job_report_say(choir__job_report *r, const choir__record_event *e);

/* Flushes the output of a job, unless it has none. Error: I/O, if any of it was lost. */
choir_status choir__job_report_written(const choir__job_records *records);

extern const choir__recorder_ops choir__recorder_terminal, choir__recorder_json,
    choir__recorder_silent;

#endif
