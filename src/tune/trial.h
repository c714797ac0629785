/* A trial: its parameters, the values reported on the way, and how it ended. */
#ifndef CHOIR_TUNE_TRIAL_H
#define CHOIR_TUNE_TRIAL_H

#include <choir/study.h>

/* A value on the way. */
typedef struct choir__report {
    int64_t step;
    double value;
} choir__report;

struct choir_trial {
    choir_study *study;
    int64_t number, parent;
    /* As samplers and schedulers see it: what the rule of order lets them know. RUNNING: nothing
     * is known. From then on it never is RUNNING again, also where the trial goes on. */
    choir_trial_state state;
    int64_t report_count;
    int64_t known_since; /* the segment of that result */
    /* As it is. */
    choir_trial_state now;
    int64_t segment;               /* the present one */
    double *values;                /* (objectives) of a complete trial */
    choir__report *reports;        /* (reported), by step; the first report_count are known */
    int64_t reported, before;      /* before: those of earlier segments */
    choir__report *later;          /* (later_count) those after the budget was reached */
    int64_t later_count;
    bool stop;
    char **texts;    /* (space->count) made when asked for; NULL: none yet */
    double params[]; /* (space->count), see space.h; NaN: the trial lacks the parameter */
};

/* Returns whether the trial's result can guide a sampler. */
static inline bool choir__trial_counts(const choir_trial *t)
{
    return t->state == CHOIR_TRIAL_COMPLETE ||
           (t->state == CHOIR_TRIAL_PRUNED && t->report_count > 0);
}

#endif
