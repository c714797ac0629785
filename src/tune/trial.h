/* A trial: its parameters, the values reported on the way, and how it ended. */
#ifndef CHOIR_TUNE_TRIAL_H
#define CHOIR_TUNE_TRIAL_H

#include <choir/study.h>

#include "tune/storage/attributes.h"

/* INT64_MAX itself stands for "no budget" (segment.h). */
#define CHOIR__MOST_STEP (INT64_MAX - 1)

/* A value on the way. */
typedef struct choir__report {
    int64_t step;
    double value;
} choir__report;

struct choir_trial {
    choir_study *study;
    int64_t number;
    int64_t parent; /* trial whose checkpoint it began with, or -1 */
    int64_t began;  /* the step of that checkpoint, or -1 */
    choir_trial_state state;
    double *values;         /* (objectives) values of a complete trial */
    choir__report *reports; /* (report_count), by step */
    int64_t report_count;
    /* The view of samplers and schedulers, by the rule of order; RUNNING: nothing yet.
     * Afterwards it is never RUNNING again, even if the trial is resumed. */
    choir_trial_state known;
    int64_t known_reports; /* the first ones */
    int64_t known_since;   /* the segment of that result */
    int64_t known_news;    /* the place of that result in the news */
    /* The trial's current or last segment. */
    int64_t segment, before; /* before: reports of earlier segments */
    int64_t parts;           /* segments that have begun */
    choir__report *later;    /* (later_count) those after it was stopped */
    int64_t later_count;
    bool stop;
    int place;                      /* place in choir_tune, counted from 1; 0: none */
    struct choir__trial_link *link; /* in a fork: link to the process that has the study */
    /* choir_study_enqueue gave some of the trial's parameters */
    bool given;
    char *point; /* point given by choir_study_enqueue or Optuna's enqueue_trial (enqueue.c) */
    double *fixed; /* (space->count) the point's values; NULL: the space lacks some */
    bool foreign;  /* in a stored study: another worker runs it, or ran it */
    bool adopted;  /* the parameters come from the stored trial */
    bool again;    /* the worker is dead, and the trial must run again */
    bool retaken;  /* the worker of its segment has died; reports may be lost */
    bool begun;    /* another worker had it before, and may have left files in its folder */
    bool silent;   /* another program has it and shows no sign of life: it counts as failed */
    bool closed;   /* stored as a trial that cannot be resumed */
    choir__stored_attributes attributes;
    char **texts;    /* (space->count) made when asked for; NULL: none yet */
    double params[]; /* (space->count), see space/space.h; NaN: the trial lacks the parameter */
};

/* Returns whether the trial's known result can guide a sampler. */
static inline bool choir__trial_counts(const choir_trial *t)
{
    return t->known == CHOIR_TRIAL_COMPLETE ||
           (t->known == CHOIR_TRIAL_PRUNED && t->known_reports > 0);
}

/* Returns the first of the trial's known reports from `step` on; NULL: it has not come so far.
 */
static inline const choir__report *choir__report_from(const choir_trial *t, int64_t step)
{
    int64_t low = 0, high = t->known_reports;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->reports[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->known_reports ? &t->reports[low] : NULL;
}

/* A trial among others, or the place of one: less is better. */
typedef struct choir__ranked {
    int64_t number;
    double value;
} choir__ranked;

/* Compares two of them, for qsort: by value; of equal ones, the first comes first. */
static inline int choir__by_value(const void *a, const void *b)
{
    const choir__ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

#endif
