/* The output of `choir train`: lines of JSON for programs, a progress line for people. */
#ifndef CHOIR_REPORT_H
#define CHOIR_REPORT_H

#include <choir/elastic.h>
#include <choir/trace.h>
#include "job/job.h"

/* Steps at the beginning of a run that its median leaves out, if it has more than twice as
 * many: they make primitives, measure costs, place parameters and record. */
enum { CHOIR__CLI_WARM_UP = 4 };

typedef struct choir__device_figures {
    char device[16];
    uint64_t peak_bytes, comm_bytes;
    double busy; /* share of the time spent training */
} choir__device_figures;

typedef struct choir__cli_report {
    const choir__job *job;
    double *step_s;             /* seconds of each step of this process */
    double in_steps;            /* their sum */
    double first_end;           /* choir__now() at the end of the first one */
    int64_t steps, first, last; /* of this process; before its first; the last that is done */
    double started, last_line;
    /* Rates are means since the last line, of a terminal or of --json: of the steps that have
     * come since, over the time in which they ran. Validation and saves are not in it. */
    int64_t line_steps;
    double line_s;
    double stayed; /* when the last line was printed that stays on a terminal */
    bool terminal, line_open;
    bool outlived; /* others go on if this process is killed */
    double first_step_s;
    double scale;    /* of gradients, after the latest step; NaN: not scaled */
    int64_t skipped; /* steps skipped because of infinite gradients */
    int64_t without; /* steps that had no target; of `counted` ones, of all ranks that step */
    int64_t counted; /* by themselves */
} choir__cli_report;

/* choir__cli_report_begin prepares the report of a rank; choir__cli_report_start prints
 * the job's sizes before the first step. */
void choir__cli_report_begin(choir__cli_report *r, const choir__job *job, int64_t first_step);
void choir__cli_report_start(choir__cli_report *r, int64_t parameters);
/* A step that is done. */
typedef struct choir__cli_step {
    int64_t number; /* from 1 */
    bool none;      /* no target of the step counted, so it has no loss */
    float loss;     /* none: of the last step that has one; NaN: none has so far */
    double seconds, lr, grad_norm; /* grad_norm: NaN if it was not measured */
} choir__cli_step;

/* Notes for how long a step ran; all ranks do, for the case that they report later. */
void choir__cli_report_note(choir__cli_report *r, double seconds);
void choir__cli_report_step(choir__cli_report *r, const choir__cli_step *step);
/* Reports that ranks have left or joined. */
void choir__cli_report_membership(choir__cli_report *r, const choir_membership *m);
/* Names the rank for which the others wait. */
struct choir__cli_slow;
void choir__cli_report_slow(choir__cli_report *r, int64_t step,
    const struct choir__cli_slow *slow, const choir_env *env);
void choir__cli_report_eval(
    choir__cli_report *r, int64_t step, const choir_score *score, bool best);
/* Reports an epoch that is complete; loss: the mean of its steps that have one, or NaN. */
void choir__cli_report_epoch(choir__cli_report *r, int64_t epoch, int64_t step, double loss);
/* Reports that an option, such as "patience", ends the training before its last step. */
void choir__cli_report_end(choir__cli_report *r, int64_t step, const char *option);
void choir__cli_report_saved(choir__cli_report *r, int64_t step, const char *dir);
void choir__cli_report_summary(choir__cli_report *r, int64_t parameters, float loss,
    const choir_score *score, const char *sha256, const choir__device_figures *devices,
    int device_count);
/* Reports how the time was spent. steps is the number of steps in the trace. */
void choir__cli_report_profile(
    choir__cli_report *r, choir_trace *trace, int64_t steps, double matmul_rate);
void choir__cli_report_free(choir__cli_report *r);

#endif
