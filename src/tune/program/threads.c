/* choir_tune with threads: the thread of a place calls the function. */
#include <math.h>
#include <string.h>

#include "tune/program/program.h"

typedef struct call {
    choir__attempt base;
    choir__trial_end end;
} call;

choir_status choir__program_call(
    const choir__program *p, choir_trial *trial, double values[CHOIR_STUDY_OBJECTIVES])
{
    for (int i = 0; i < CHOIR_STUDY_OBJECTIVES; i++)
        values[i] = (double)NAN;
    choir__set_message("");
    choir_status status = p->fn(trial, p->arg, values);
    if (status != CHOIR_OK && !*choir__message())
        choir__set_message(choir_status_text(status));
    return status;
}

choir__trial_end choir__program_end(
    const choir_trial *trial, const double values[CHOIR_STUDY_OBJECTIVES], char *why)
{
    choir__trial_end end = {.state = CHOIR_TRIAL_COMPLETE, .why = why};
    memcpy(end.values, values, sizeof end.values);
    if (why)
        end.state = CHOIR_TRIAL_FAIL;
    else if (choir_trial_should_stop(trial))
        end.state = CHOIR_TRIAL_PRUNED;
    return end;
}

static choir_status start(choir__driver *d, choir__attempt *a)
{
    double values[CHOIR_STUDY_OBJECTIVES];
    choir_status status = choir__program_call(d->arg, a->trial, values);
    char *why = status == CHOIR_OK ? NULL : choir__strdup(choir__message());
    ((call *)a)->end = choir__program_end(a->trial, values, why);
    return CHOIR_OK;
}

static choir__trial_end end(choir__attempt *a, char *why)
{
    (void)why;
    return ((call *)a)->end;
}

const choir__runner_ops choir__thread_runner = {
    .bytes = sizeof(call), .start = start, .end = end};
