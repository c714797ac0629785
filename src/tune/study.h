/* The study behind choir_study, and as its trials see it. */
#ifndef CHOIR_TUNE_STUDY_H
#define CHOIR_TUNE_STUDY_H

#include <pthread.h>
#include <choir/study.h>

#include "tune/sampler/sampler.h"
#include "tune/kept.h"

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
    int64_t window, trials;
    int objectives;
    double sign[CHOIR_STUDY_OBJECTIVES]; /* 1: less is better */
    choir_trial **trial;                 /* (count) by number */
    int64_t count, room;
    int64_t ended; /* trials 0 ... ended - 1 have ended, trial `ended` has not */
    choir__given *queue;
    choir__kept *kept; /* NULL: in memory alone */
    choir__stored_attributes attributes;
};

/* Appends a trial, whose parameters are to be filled in. */
choir_trial *choir__study_append(choir_study *s);
/* Counts the trials that have ended. */
void choir__study_count_ended(choir_study *s);
/* Gives the next new trial. */
choir_status choir__study_ask(choir_study *s, choir_trial **trial);
bool choir__study_ready(const choir_study *s);
/* Drops the parameters that were given for the next trial. */
void choir__study_drop_given(choir_study *s);
/* Draws the parameters that are not given (NaN). */
void choir__space_take_given(
    const choir_space *space, const double *given, choir__draws *draws, double *params);

/* Returns the text of the trial's parameter i, which it has; the trial keeps it. */
const char *choir__study_text(choir_trial *trial, int i);

#endif
