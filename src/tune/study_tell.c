/* How trials end: their values, and the reports on the way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "tune/program/link.h"
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

static bool has_nan(const choir_study *s, const double *values)
{
    for (int i = 0; i < s->objectives; i++)
        if (isnan(values[i]))
            return true;
    return false;
}

/* Ends a trial's segment. A trial that was stopped waits for the scheduler, or is complete at
 * the largest budget. */
static void tell(choir_study *s, choir_trial *t, choir_trial_state state, const double *values)
{
    const choir__trial_segment *g = &s->segment[t->segment];
    double last = t->report_count ? t->reports[t->report_count - 1].value : (double)NAN;
    bool reached = t->report_count && t->reports[t->report_count - 1].step >= g->budget;
    if (t->stop && state == CHOIR_TRIAL_COMPLETE)
        state = CHOIR_TRIAL_PRUNED;
    if (state == CHOIR_TRIAL_PRUNED && reached && g->last) {
        state = CHOIR_TRIAL_COMPLETE;
        values = &last;
    }
    if (state == CHOIR_TRIAL_COMPLETE && has_nan(s, values))
        state = CHOIR_TRIAL_FAIL;
    if (state == CHOIR_TRIAL_COMPLETE) {
        t->values = choir__alloc((size_t)s->objectives * sizeof(double));
        memcpy(t->values, values, (size_t)s->objectives * sizeof(double));
    }
    t->state = state;
    choir__study_end_segment(s, t);
}

choir_status choir_study_tell(choir_study *s, choir_trial *trial, choir_trial_state state,
    const double *values, int count)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(s, __func__, "study") || choir__lacks(trial, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    if (s->forked)
        return choir__link_refuses(__func__);
    pthread_mutex_lock(&s->lock);
    choir_status status = check_told(s, trial, state, values, count);
    if (status == CHOIR_OK)
        tell(s, trial, state, values);
    choir__change *told =
        status == CHOIR_OK && s->kept ? choir__study_sync_tell(s->kept, trial) : NULL;
    pthread_mutex_unlock(&s->lock);
    return told ? choir__study_sync_wait(s->kept, told) : status;
}

choir_status choir_trial_report(choir_trial *t, int64_t step, double value)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(t, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    if (step < 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "expected a step of 0 or more, got %lld", (long long)step);
    if (step > CHOIR__MOST_STEP)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected a step of at most %lld, got %lld",
            (long long)CHOIR__MOST_STEP, (long long)step);
    if (t->link)
        return choir__link_report(t, step, value);
    pthread_mutex_lock(&t->study->lock);
    choir_status status = CHOIR_OK;
    if (t->state != CHOIR_TRIAL_RUNNING)
        status =
            choir__error(CHOIR_ERR_STATE, "trial %lld has ended before", (long long)t->number);
    else if (t->study->kept)
        status = choir__study_sync_check_step(t->study->kept, step);
    if (status == CHOIR_OK) {
        bool counts = choir__study_report(t->study, t, step, value);
        if (t->study->kept && counts) /* how many come later depends on how fast it stops */
            choir__study_sync_report(t->study->kept, t, step, value);
    }
    pthread_mutex_unlock(&t->study->lock);
    return status;
}
