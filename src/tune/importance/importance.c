/* How important parameters are: the trials that count, and the shares from an evaluator's
 * numbers. */
#include "tune/importance/importance.h"

#include <math.h>
#include <stdlib.h>

#include "base/floats.h"
#include "tune/study.h"
#include "tune/trial.h"

static choir__valued values_of(const choir_study *s, int objective)
{
    size_t most = (size_t)s->count + 1;
    choir__valued v = {
        choir__alloc(most * sizeof(choir_trial *)), choir__alloc(most * sizeof(double)), 0};
    for (int64_t i = 0; i < s->count; i++) {
        const choir_trial *t = s->trial[i];
        if (t->state != CHOIR_TRIAL_COMPLETE || !isfinite(t->values[objective]))
            continue;
        v.trial[v.count] = t;
        v.loss[v.count++] = s->sign[objective] * t->values[objective];
    }
    return v;
}

/* Returns whether a complete trial has the parameter. */
static bool is_used(const choir_study *s, int param)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->trial[i]->state == CHOIR_TRIAL_COMPLETE && !isnan(s->trial[i]->params[param]))
            return true;
    return false;
}

static void scale(const choir_study *s, double *shares)
{
    double sum = 0;
    int used = 0;
    for (int i = 0; i < s->space->count; i++) {
        sum += shares[i];
        used += is_used(s, i);
    }
    for (int i = 0; i < s->space->count; i++)
        shares[i] = sum > 0 ? shares[i] / sum : is_used(s, i) ? 1.0 / used : 0;
}

choir_status choir_study_importance_by(
    const choir_study *study, const char *evaluator, int objective, double *shares)
{
    CHOIR__DEFAULT_FLOATS;
    const choir__importance_ops *ops;
    if (choir__lacks(study, __func__, "study") ||
        choir__lacks(evaluator, __func__, "evaluator") ||
        choir__lacks(shares, __func__, "shares"))
        return CHOIR_ERR_ARGUMENT;
    choir_study *s = (choir_study *)(uintptr_t)study;
    if (objective < 0 || objective >= s->objectives)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_study_importance: expected an objective from 0 to %d, got %d",
            s->objectives - 1, objective);
    choir_status status = choir__importance_find(evaluator, &ops);
    if (status != CHOIR_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    choir__valued v = values_of(s, objective);
    if (!v.count)
        status = choir__error(
            CHOIR_ERR_STATE, "importance: expected a complete trial with a finite value");
    for (int i = 0; i < s->space->count && status == CHOIR_OK; i++)
        shares[i] = 0;
    if (status == CHOIR_OK && v.count > 1)
        ops->evaluate(s, &v, shares);
    if (status == CHOIR_OK)
        scale(s, shares);
    pthread_mutex_unlock(&s->lock);
    free(v.trial);
    free(v.loss);
    return status;
}

choir_status choir_study_importance(const choir_study *study, int objective, double *shares)
{
    if (choir__lacks(study, __func__, "study") || choir__lacks(shares, __func__, "shares"))
        return CHOIR_ERR_ARGUMENT;
    return choir_study_importance_by(study, "ped-anova", objective, shares);
}
