/* The front of trials that none dominates. Two objectives need one pass in the order of the
 * first; any number of them keeps a growing front and compares each trial with it. */
#include "tune/pareto.h"

#include <math.h>
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

/* --- two objectives: in the order of the first, a trial must be better in the second --- */

static int by_values(const void *a, const void *b, void *study)
{
    const choir_trial *x = *(choir_trial *const *)a, *y = *(choir_trial *const *)b;
    const double *sign = ((const choir_study *)study)->sign;
    for (int i = 0; i < 2; i++)
        if (x->values[i] != y->values[i])
            return sign[i] * x->values[i] < sign[i] * y->values[i] ? -1 : 1;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const choir_trial *x = *(choir_trial *const *)a, *y = *(choir_trial *const *)b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Keeps the front of the trials (count), which have no NaN; returns their number. */
static int64_t front_of_two(choir_study *s, choir_trial **trials, int64_t count)
{
    int64_t kept = 0;
    double best = INFINITY;
    bool any = false;
    qsort_r(trials, (size_t)count, sizeof *trials, by_values, s);
    for (int64_t from = 0, to; from < count; from = to) { /* equal in the first */
        double least = s->sign[1] * trials[from]->values[1], first = trials[from]->values[0];
        bool better = !any || least < best;
        for (to = from; to < count && trials[to]->values[0] == first; to++)
            if (better && s->sign[1] * trials[to]->values[1] == least)
                trials[kept++] = trials[to];
        best = better ? least : best;
        any = true;
    }
    qsort(trials, (size_t)kept, sizeof *trials, by_number);
    return kept;
}

/* Returns whether the trials have two values each, without a NaN. */
static bool have_order(const choir_study *s, choir_trial *const *trials, int64_t count)
{
    for (int64_t i = 0; i < count && s->objectives == 2; i++)
        if (isnan(trials[i]->values[0]) || isnan(trials[i]->values[1]))
            return false;
    return s->objectives == 2;
}

/* --- any number of them --- */

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

static int64_t front_of_many(const choir_study *s, choir_trial **trials, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        kept = add(s, trials, kept, trials[i]);
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
            front[count++] = s->trial[i];
    count = have_order(s, front, count) ? front_of_two(s, front, count)
                                        : front_of_many(s, front, count);
    pthread_mutex_unlock(&s->lock);
    for (int64_t i = 0; trials && i < count && i < room; i++)
        trials[i] = front[i];
    free(front);
    return count;
}
