/* choir_tune: what its two ways to run trials share.
 *
 * Parts of trials (a whole trial where none goes on) are counted in the order in which they
 * begin, so that "failures in a row" means the same however many run at once. */
#ifndef CHOIR_TUNE_TUNING_H
#define CHOIR_TUNE_TUNING_H

#include <pthread.h>
#include <choir/tune.h>

#include "base/base.h"

typedef struct choir__tuning {
    choir_study *study;
    choir_trial_fn *fn;
    void *arg;
    choir_tune_opts opts;
    pthread_mutex_t lock;   /* of the members below */
    pthread_cond_t changed; /* a part has ended */
    signed char *part;      /* (begun) -1: it runs, 0: it ended well, 1: it failed */
    int64_t begun, room;
    int64_t running;           /* of those that have begun */
    int64_t counted, failures; /* of the first `counted` parts the last `failures` failed */
    char *why;                 /* the last failure */
    bool over;                 /* nothing is left to be begun */
    choir_status status;       /* the first error, whose message is error */
    char *error;
} choir__tuning;

/* A part of a trial. */
typedef struct choir__tuned {
    choir_trial *trial;
    int64_t part;
    int attempt;
    double began; /* choir__now */
    double values[CHOIR_STUDY_OBJECTIVES];
    choir_status status;
    char *why; /* it failed; NULL: it did not */
} choir__tuned;

enum { CHOIR__OTHERS_MS = 100 }; /* between looks at other processes' trials */

/* Returns an error if the caller of choir_tune, or a trial's function, has asked the study for
 * a trial and has not told its end, for which the study would wait for ever. No part runs. */
choir_status choir__tuning_check_held(const choir__tuning *t);
/* Begins the next part. Returns false if there is none for now, or the search is over
 * (t->over). */
bool choir__tuning_begin(choir__tuning *t, int place, choir__tuned *one);
/* Like choir__tuning_begin, but waits until there is one; false: the search is over. */
bool choir__tuning_await(choir__tuning *t, int place, choir__tuned *one);
/* Tells the study how a part has ended. Returns true if it is to be tried again. */
bool choir__tuning_end(choir__tuning *t, choir__tuned *one);
/* Calls the function. */
void choir__tuned_run(const choir__tuning *t, choir__tuned *one);

/* Returns an error if this process cannot fork (rest.c). */
choir_status choir__tune_may_fork(void);
/* Brings all other threads of the process to rest, before a fork. */
void choir__tune_rest(void);

/* The two ways. */
void choir__tune_by_threads(choir__tuning *t);
void choir__tune_by_forks(choir__tuning *t);

#endif
