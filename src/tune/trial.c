/* Trials, as programs see them: parameters by name, reports, the budget, and whether to stop. A
 * function that reads what other threads change holds the study's lock. */
#include "tune/trial.h"

#include <math.h>
#include <stdlib.h>

#include "tune/study.h"

int64_t choir_trial_number(const choir_trial *trial)
{
    return choir__lacks(trial, __func__, "trial") ? -1 : trial->number;
}

choir_trial_state choir_trial_result(const choir_trial *trial)
{
    return choir__lacks(trial, __func__, "trial") ? CHOIR_TRIAL_FAIL : trial->state;
}

double choir_trial_value(const choir_trial *trial, int objective)
{
    if (choir__lacks(trial, __func__, "trial"))
        return (double)NAN;
    bool has = objective >= 0 && objective < trial->study->objectives;
    if (trial->values && has)
        return trial->values[objective];
    bool runs = trial->state == CHOIR_TRIAL_RUNNING;
    int64_t count = runs ? trial->before : trial->report_count;
    bool stopped = (runs || trial->state == CHOIR_TRIAL_PRUNED) && count && !objective;
    return stopped ? trial->reports[count - 1].value : (double)NAN;
}

/* --- segments --- */

bool choir_trial_should_stop(const choir_trial *trial)
{
    if (choir__lacks(trial, __func__, "trial"))
        return true;
    pthread_mutex_lock(&trial->study->lock);
    bool stop = trial->stop;
    pthread_mutex_unlock(&trial->study->lock);
    return stop;
}

int64_t choir_trial_budget(const choir_trial *trial)
{
    if (choir__lacks(trial, __func__, "trial"))
        return 0;
    pthread_mutex_lock(&trial->study->lock);
    int64_t budget = trial->study->segment[trial->segment].budget;
    pthread_mutex_unlock(&trial->study->lock);
    return budget == CHOIR__NO_BUDGET ? 0 : budget;
}

int64_t choir_trial_step(const choir_trial *trial)
{
    if (choir__lacks(trial, __func__, "trial"))
        return -1;
    return trial->before ? trial->reports[trial->before - 1].step : trial->began;
}

int64_t choir_trial_last_step(const choir_trial *trial)
{
    if (choir__lacks(trial, __func__, "trial"))
        return -1;
    pthread_mutex_lock(&trial->study->lock);
    int64_t step = trial->report_count ? trial->reports[trial->report_count - 1].step : -1;
    pthread_mutex_unlock(&trial->study->lock);
    return step;
}

int64_t choir_trial_reports(
    const choir_trial *trial, int64_t *steps, double *values, int64_t room)
{
    if (choir__lacks(trial, __func__, "trial"))
        return 0;
    pthread_mutex_lock(&trial->study->lock);
    int64_t count = trial->report_count;
    for (int64_t i = 0; i < count && i < room; i++) {
        if (steps)
            steps[i] = trial->reports[i].step;
        if (values)
            values[i] = trial->reports[i].value;
    }
    pthread_mutex_unlock(&trial->study->lock);
    return count;
}

int64_t choir_trial_parent(const choir_trial *trial)
{
    return choir__lacks(trial, __func__, "trial") ? -1 : trial->parent;
}

/* Returns the place of a parameter that the trial has, or -1. */
static int place(const choir_trial *trial, const char *name, const char *function)
{
    if (choir__lacks(trial, function, "trial") || choir__lacks(name, function, "name"))
        return -1;
    int i = choir__space_find(trial->study->space, name);
    return i >= 0 && !isnan(trial->params[i]) ? i : -1;
}

bool choir_trial_has(const choir_trial *trial, const char *name)
{
    return place(trial, name, __func__) >= 0;
}

double choir_trial_real(const choir_trial *trial, const char *name)
{
    int i = place(trial, name, __func__);
    if (i < 0)
        return (double)NAN;
    const choir__dist *d = &trial->study->space->param[i].dist;
    if (d->kind != CHOIR__CHOICE)
        return trial->params[i];
    const choir__choice *c = &d->choices[(int)trial->params[i]];
    return c->is_number ? c->number : (double)NAN;
}

int64_t choir_trial_int(const choir_trial *trial, const char *name)
{
    double x = choir_trial_real(trial, name);
    return fabs(x) < 0x1p62 ? (int64_t)x : 0;
}

/* Returns the text of parameter i, which the trial has and keeps. */
static const char *text_of(choir_trial *t, int i)
{
    choir_study *s = t->study;
    pthread_mutex_lock(&s->lock);
    if (!t->texts)
        t->texts = choir__calloc((size_t)s->space->count, sizeof(char *));
    if (!t->texts[i])
        t->texts[i] = choir__dist_write(&s->space->param[i].dist, t->params[i]);
    pthread_mutex_unlock(&s->lock);
    return t->texts[i];
}

const char *choir_trial_text(const choir_trial *trial, const char *name)
{
    int i = place(trial, name, __func__);
    return i < 0 ? NULL : text_of((choir_trial *)(uintptr_t)trial, i);
}
