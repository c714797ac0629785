/* A trial: its parameters, the values reported on the way, and how it ended. */
#ifndef CHOIR_TUNE_TRIAL_H
#define CHOIR_TUNE_TRIAL_H

#include <choir/study.h>

#include "tune/storage/attributes.h"

/* A value on the way. */
typedef struct choir__report {
    int64_t step;
    double value;
} choir__report;

struct choir_trial {
    choir_study *study;
    int64_t number;
    choir_trial_state state;
    double *values;         /* (objectives), NaN before the end */
    choir__report *reports; /* (report_count), by step */
    int64_t report_count;
    bool given;   /* choir_study_enqueue gave parameters of it */
    bool foreign; /* of a stored study: another worker runs it, or ran it */
    bool adopted; /* its parameters are those of the stored one */
    bool again;   /* its worker is dead: it is to be run again */
    choir__stored_attributes attributes;
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
