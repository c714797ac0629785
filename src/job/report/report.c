/* Times of a rank's steps, and the figures that follow from them: rates, medians, and when a
 * line is due. Passes each event to the form of output in use, JSON or sentences. */
#include "job/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/number.h"
#include "line/command.h"

void choir__job_report_begin(choir__job_report *r, const choir__recorder_ops *ops,
    const choir__job *job, int64_t first_step)
{
    *r = (choir__job_report){.base.ops = ops,
        .job = job,
        .first = first_step,
        .last = first_step,
        .started = choir__now(),
        .terminal = isatty(STDOUT_FILENO) && !job->ranks.relayed,
        .scale = (double)NAN};
}

void choir__job_report_tell(
    choir__job_report *r, const choir__event_kind *kind, const void *told)
{
    const choir__record_event e = {.kind = kind->name, .table = kind, .told = told};
    if (kind == &choir__kind_step) {
        const choir__told_step *s = told;
        r->last = s->step;
        r->line_steps++;
        r->line_s += s->step_s;
    }
    (void)!r->base.ops->event(&r->base, &e); /* lost output is noticed at the end */
}

void choir__job_report_free(choir__job_report *r)
{
    if (r->line_open)
        printf("\n");
    r->line_open = false;
    free(r->step_s);
}

/* --- figures --- */

void choir__job_report_note(choir__job_report *r, double seconds)
{
    if (!r->steps)
        r->first_step_s = choir__line_uptime();
    CHOIR__GROW(r->step_s, r->steps);
    r->step_s[r->steps++] = seconds;
    r->in_steps += seconds;
    if (r->steps == 1)
        r->first_end = choir__now();
}

double choir__job_report_items(const choir__job_report *r)
{
    return (double)(r->job->training.batch_size * r->job->model.info.items);
}

double choir__job_report_rate_of_line(choir__job_report *r)
{
    double rate =
        r->line_s > 0 ? choir__job_report_items(r) * (double)r->line_steps / r->line_s : 0;
    r->line_steps = 0;
    r->line_s = 0;
    return rate;
}

bool choir__job_report_is_due(const choir__job_report *r, int64_t step)
{
    int64_t every = r->job->records.log_every;
    return !every || step % every == 0 || step == r->job->training.steps;
}

double choir__job_report_median(const double *values, int64_t n)
{
    if (n < 1)
        return 0;
    double *sorted = choir__alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, choir__by_number);
    double median = sorted[n / 2];
    free(sorted);
    return median;
}

double choir__job_report_median_step(const choir__job_report *r)
{
    int64_t skip = r->steps > 2 * CHOIR__JOB_REPORT_WARM_UP ? CHOIR__JOB_REPORT_WARM_UP : 0;
    return choir__job_report_median(r->step_s + skip, r->steps - skip);
}

choir_status choir__job_report_written(const choir__job_records *r)
{
    return r->silent ? CHOIR_OK : choir__line_flush();
}

/* --- no output --- */

static choir_status ignore(choir__recorder *base, const choir__record_event *e)
{
    (void)base, (void)e;
    return CHOIR_OK;
}

const choir__recorder_ops choir__recorder_silent = {.name = "silent", .event = ignore};

void choir__job_report_flush(const choir__job_report *r)
{
    if (!r->outlived)
        fflush(stdout);
}
