/* The front of trials that none dominates: see pareto.h, study.h. */
#include "tune/pareto.h"

#include <stdlib.h>

#include "tune/study.h"

bool choir__dominates(
    const choir_trial *a, const choir_trial *b, const double *sign, int objectives)
{
    bool better = false;
    for (int i = 0; i < objectives; i++) {
        double x = sign[i] * a->values[i], y = sign[i] * b->values[i];
        if (x > y)
            return false;
        better = better || x < y;
    }
    return better;
}

/* Adds a trial to a front, unless one there dominates it, and removes those that it
 * dominates. */
static int64_t add(const choir_study *s, choir_trial **front, int64_t count, choir_trial *t)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (choir__dominates(front[i], t, s->sign, s->objectives))
            return count;
    for (int64_t i = 0; i < count; i++)
        if (!choir__dominates(t, front[i], s->sign, s->objectives))
            front[kept++] = front[i];
    front[kept++] = t;
    return kept;
}

int64_t choir_study_pareto(const choir_study *study, choir_trial **trials, int64_t room)
{
    if (choir__lacks(study, __func__, "study"))
        return 0;
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    choir_trial **front = choir__alloc((size_t)(s->count + 1) * sizeof(choir_trial *));
    int64_t count = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (s->trial[i]->state == CHOIR_TRIAL_COMPLETE)
            count = add(s, front, count, s->trial[i]);
    pthread_mutex_unlock(&s->lock);
    for (int64_t i = 0; trials && i < count && i < room; i++)
        trials[i] = front[i];
    free(front);
    return count;
}
