/* How trials end: their values, and the reports on the way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/study.h"
#include "tune/trial.h"

static choir_status check_told(const choir_study *s, const choir_trial *t,
    choir_trial_state state, const double *values, int count)
{
    if (t->study != s)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "choir_study_tell: expected a trial of this study");
    if (t->state != CHOIR_TRIAL_RUNNING)
        return choir__error(
            CHOIR_ERR_STATE, "trial %lld has ended before", (long long)t->number);
    if (state <= CHOIR_TRIAL_RUNNING || state > CHOIR_TRIAL_FAIL)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_study_tell: expected one of CHOIR_TRIAL_COMPLETE, _PRUNED, _FAIL");
    if (state == CHOIR_TRIAL_COMPLETE && (count != s->objectives || !values))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "trial %lld: expected %d values, one per direction, got %d", (long long)t->number,
            s->objectives, values ? count : 0);
    return CHOIR_OK;
}

void choir__study_count_ended(choir_study *s)
{
    while (s->ended < s->count && s->trial[s->ended]->state != CHOIR_TRIAL_RUNNING)
        s->ended++;
}

static void tell(choir_study *s, choir_trial *t, choir_trial_state state, const double *values)
{
    for (int i = 0; state == CHOIR_TRIAL_COMPLETE && i < s->objectives; i++)
        if (isnan(values[i]))
            state = CHOIR_TRIAL_FAIL;
    if (state == CHOIR_TRIAL_COMPLETE) {
        t->values = choir__alloc((size_t)s->objectives * sizeof(double));
        memcpy(t->values, values, (size_t)s->objectives * sizeof(double));
    }
    t->state = state;
    choir__study_count_ended(s);
}

choir_status choir_study_tell(choir_study *s, choir_trial *trial, choir_trial_state state,
    const double *values, int count)
{
    if (choir__lacks(s, __func__, "study") || choir__lacks(trial, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    pthread_mutex_lock(&s->lock);
    choir_status status = check_told(s, trial, state, values, count);
    if (status == CHOIR_OK)
        tell(s, trial, state, values);
    choir__change *told =
        status == CHOIR_OK && s->kept ? choir__kept_tell(s->kept, trial) : NULL;
    pthread_mutex_unlock(&s->lock);
    return told ? choir__kept_wait(s->kept, told) : status;
}

static void take_report(choir_trial *t, int64_t step, double value)
{
    int64_t at = t->report_count;
    while (at > 0 && t->reports[at - 1].step >= step)
        at--;
    if (at < t->report_count && t->reports[at].step == step) {
        t->reports[at].value = value;
        return;
    }
    size_t n = (size_t)t->report_count++;
    t->reports = choir__realloc(t->reports, (n + 1) * sizeof *t->reports);
    memmove(t->reports + at + 1, t->reports + at, (n - (size_t)at) * sizeof *t->reports);
    t->reports[at] = (choir__report){step, value};
}

choir_status choir_trial_report(choir_trial *t, int64_t step, double value)
{
    if (choir__lacks(t, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    if (step < 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "expected a step of 0 or more, got %lld", (long long)step);
    pthread_mutex_lock(&t->study->lock);
    choir_status status = CHOIR_OK;
    if (t->state != CHOIR_TRIAL_RUNNING)
        status =
            choir__error(CHOIR_ERR_STATE, "trial %lld has ended before", (long long)t->number);
    else if (t->study->kept)
        status = choir__kept_report(t->study->kept, t, step, value);
    if (status == CHOIR_OK)
        take_report(t, step, value);
    pthread_mutex_unlock(&t->study->lock);
    return status;
}
