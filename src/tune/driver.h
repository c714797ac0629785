/* A search: asks a study for trials, has them run, tries failed ones again, and tells the study
 * how they end, until there are no more.
 *
 * How a trial runs is its runner's matter: as a call of a C function in a thread or in a fork
 * (program/), or as a program (trials/). A search has `parallel` places, each for one attempt
 * at a trial at a time:
 *
 *     ask -> start -> look, look, ... -> end -> tell        a trial that failed: start again
 *
 * What ends is a part of a trial, or the whole trial where none goes on. Parts are counted in
 * the order in which they began, so that "failures in a row" means the same however many run at
 * once.
 *
 * Threads: a runner with processes runs in the caller's thread. The functions of one without
 * run in a thread per place. */
#ifndef CHOIR_TUNE_DRIVER_H
#define CHOIR_TUNE_DRIVER_H

#include <poll.h>
#include <pthread.h>
#include <choir/study.h>

#include "launch/process/process.h"
#include "tune/segment.h"

typedef struct choir__driver choir__driver;

/* An attempt at a trial, first in the runner's own struct. The search sets its members. */
typedef struct choir__attempt {
    int place; /* from 0 */
    bool busy;
    choir_trial *trial;
    int64_t failed;       /* attempts at the trial before */
    double started;       /* choir__now */
    choir__family family; /* its process, if it has one */
    char *cannot;         /* why it could not be started, on the heap; NULL: it was */
    bool timed_out;
} choir__attempt;

/* How an attempt has ended. */
typedef struct choir__trial_end {
    choir_trial_state state;
    double values[CHOIR_STUDY_OBJECTIVES];
    char *why; /* FAIL: what follows "it failed because it", on the heap */
} choir__trial_end;

enum { CHOIR__ATTEMPT_FDS = 2 };

/* All functions but start and end may be NULL. */
typedef struct choir__runner_ops {
    size_t bytes;  /* of its struct */
    bool abandons; /* an error of the study kills the trials that run */

    /* Starts a->trial: its process in a->family; or, if the runner has no `poll`, runs it to
     * its end. An error is an attempt that failed. Members behind
     * `a` are those of the attempt before, or zero. */
    choir_status (*start)(choir__driver *d, choir__attempt *a);
    /* Fills in pollfds beside those of the process, and returns their number. */
    int (*poll)(const choir__attempt *a, struct pollfd polled[CHOIR__ATTEMPT_FDS]);
    /* Returns for how many ms the search may sleep, or -1. */
    int (*patience)(const choir__attempt *a);
    /* Reads what the process has written, and may stop it. Returns whether all has been read,
     * which counts only once the process has ended. */
    bool (*look)(choir__attempt *a);
    /* Returns how an attempt has ended. why: the search's own reason that it failed, or NULL.
     */
    choir__trial_end (*end)(choir__attempt *a, char *why);
    /* Kills all processes of an attempt that are left, and frees its members. */
    void (*clear)(choir__attempt *a);

    /* The search calls these two before and after it tells the study how a trial ends. */
    choir_status (*before_tell)(choir__driver *d, choir_trial *trial, choir_trial_state state);
    void (*after_tell)(choir__driver *d, choir_trial *trial);
    /* Called for each part in their order, once it has ended. */
    void (*count)(choir__driver *d, const choir__segment_view *part);
    /* Called before the search sleeps; returns for how many ms at most, or -1. */
    int (*before_sleep)(choir__driver *d);
    void (*after_sleep)(choir__driver *d);
} choir__runner_ops;

struct choir__driver {
    /* --- set by the caller --- */
    choir_study *study;
    const choir__runner_ops *ops;
    void *arg; /* the runner's */
    int parallel;
    int64_t retries, failures_max;
    double timeout_s; /* of an attempt; 0: no limit */
    bool follows;     /* trials of other processes are counted, and awaited, too */
    int wakes;        /* a descriptor whose input ends the search's sleep; -1: none */

    /* --- the search --- */
    pthread_mutex_t lock;      /* of the members below */
    pthread_cond_t changed;    /* a part has ended */
    choir__attempt **attempt;  /* (parallel) */
    int running;               /* parts */
    int64_t before;            /* parts that began before this search */
    int64_t counted;           /* parts of the study, in their order */
    int64_t failures;          /* the last ones of these */
    const choir_trial *failed; /* the last one that failed */
    bool gave_up;              /* too many failures in a row: what ends later is not counted */
    bool halted;               /* by its caller: trials that end now have no result */
    bool ended;                /* the study has no more trials, and none runs */
    choir_status status;       /* the first error */
    char *error;               /* its message */
};

/* Runs the search, whose first members are set, until no more trials run. An error is
 * d->status, and its message is the thread's. */
void choir__driver_run(choir__driver *d);

/* Returns seconds as a time for poll, of at most an hour. */
int choir__in_ms(double seconds);

/* Returns an error if the caller, or a trial's function, has asked the study for a trial and
 * has not told its end, for which the study would wait for ever. No part of a search runs. */
choir_status choir__driver_check_held(choir_study *study);

#endif
