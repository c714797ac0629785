/* Evaluators of importance: how much each parameter of a study decides. */
#ifndef CHOIR_TUNE_IMPORTANCE_H
#define CHOIR_TUNE_IMPORTANCE_H

#include <stddef.h>
#include <choir/study.h>

/* The complete trials with finite values of an objective. */
typedef struct choir__valued {
    const choir_trial **trial; /* (count) */
    double *loss;              /* (count) less is better */
    int64_t count;
} choir__valued;

typedef struct choir__importance_ops {
    const char *name;
    /* Writes importance (space->count), 0 or more, of two or more trials. The sum need not be
     * 1. The study's lock is held. */
    void (*evaluate)(const choir_study *s, const choir__valued *v, double *importance);
} choir__importance_ops;

/* Finds an evaluator by its name. Error: argument. */
choir_status choir__importance_find(const char *name, const choir__importance_ops **ops);
/* Returns the name of evaluator i, or NULL if there are fewer. */
const char *choir__importance_name(size_t i);

#endif
