/* Standard output for programs: each event is a line of JSON, as events.def says. */
#include <stdio.h>

#include "job/report/report.h"

/* A step's rate is the mean since the line before. */
static void print_step(choir__job_report *r, const choir__told_step *told)
{
    choir__told_step s = *told;
    if (!choir__job_report_is_due(r, s.step))
        return;
    s.items_per_s = choir__job_report_rate_of_line(r);
    choir__event_print(&choir__kind_step, &s);
    if (r->terminal || s.step_s > 0.05)
        choir__job_report_flush(r);
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    choir__job_report *r = (choir__job_report *)base;
    if (e->table == &choir__kind_step) {
        print_step(r, e->told);
        return CHOIR_OK;
    }
    choir__job_report_say(r, e);
    if (e->table->where & CHOIR__TO_OUT)
        choir__event_print(e->table, e->told);
    choir__job_report_flush(r);
    return CHOIR_OK;
}

const choir__recorder_ops choir__recorder_json = {.name = "json", .event = event};
