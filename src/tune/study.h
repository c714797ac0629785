/* The study behind choir_study, and as its trials see it. */
#ifndef CHOIR_TUNE_STUDY_H
#define CHOIR_TUNE_STUDY_H

#include <pthread.h>
#include <choir/study.h>

#include "tune/sampler/sampler.h"

/* Parameters that choir_study_enqueue gave for a later trial. */
typedef struct choir__given {
    double *params; /* (space->count) NaN: to be suggested */
    struct choir__given *next;
} choir__given;

struct choir_study {
    pthread_mutex_t lock;
    choir_space *space;
    choir__sampler *sampler;
    uint64_t key;
    int64_t window;
    int objectives;
    double sign[CHOIR_STUDY_OBJECTIVES]; /* 1: less is better */
    choir_trial **trial;                 /* (count) by number */
    int64_t count, room;
    int64_t ended; /* trials 0 ... ended - 1 have ended, trial `ended` has not */
    choir__given *queue;
};

/* Returns the text of the trial's parameter i, which it has; the trial keeps it. */
const char *choir__study_text(choir_trial *trial, int i);

#endif
