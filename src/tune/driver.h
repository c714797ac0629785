/* A search: asks a study for trials, runs them, retries failed ones, and tells the study how
 * they end, until the study has no more trials.
 *
 * The runner decides how a trial runs: as a call of a C function in a thread or in a fork
 * (program/), or as a program (trials/). A search has `parallel` places, each for one attempt
 * at a trial at a time:
 *
 *     ask -> start -> look, look, ... -> end -> tell        a trial that failed: start again
 *
 * An attempt ends a part of a trial, or the whole trial if no scheduler pauses trials. Parts
 * are counted in the order in which they began, so that "failures in a row" does not depend on
 * the number of parallel trials.
 *
 * Threads: a runner with processes runs in the caller's thread. Without processes, each place
 * has a thread for the runner's functions. */
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
    int64_t failed;       /* failed attempts at the trial before */
    double started;       /* time of choir__now */
    choir__family family; /* process of the attempt, if the runner has processes */
    char *cannot; /* reason why it could not be started, on the heap; NULL: it was started */
    bool timed_out;
} choir__attempt;

/* How an attempt has ended. */
typedef struct choir__trial_end {
    choir_trial_state state;
    double values[CHOIR_STUDY_OBJECTIVES];
    char *why; /* FAIL: reason, the words after "it failed because it", on the heap */
} choir__trial_end;

enum { CHOIR__ATTEMPT_FDS = 2 };

/* All functions but start and end may be NULL. */
typedef struct choir__runner_ops {
    size_t bytes;  /* size of the runner's attempt struct */
    bool abandons; /* an error of the study kills running trials */

    /* Starts a->trial: its process in a->family; or, if the runner has no `poll`, runs it to
     * its end. An error means that the attempt failed. The runner's members after `a` are zero,
     * or left over from the previous attempt. */
    choir_status (*start)(choir__driver *d, choir__attempt *a);
    /* Fills in more pollfds, besides the process's, and returns their number. */
    int (*poll)(const choir__attempt *a, struct pollfd polled[CHOIR__ATTEMPT_FDS]);
    /* Returns the ms that the search may sleep; -1: no limit. */
    int (*patience)(const choir__attempt *a);
    /* Reads what the process has written, and may stop it. Returns whether everything has been
     * read, which matters only after the process has ended. */
    bool (*look)(choir__attempt *a);
    /* Returns how an attempt has ended. why: the search's own reason for a failure, or NULL. */
    choir__trial_end (*end)(choir__attempt *a, char *why);
    /* Kills all remaining processes of an attempt, and frees its members. */
    void (*clear)(choir__attempt *a);

    /* The search calls these two before and after it tells the study how a trial ends. */
    choir_status (*before_tell)(choir__driver *d, choir_trial *trial, choir_trial_state state);
    void (*after_tell)(choir__driver *d, choir_trial *trial);
    /* Called for each part that has ended, in the parts' order. */
    void (*count)(choir__driver *d, const choir__segment_view *part);
    /* Called before the search sleeps; returns the largest ms to sleep, or -1. */
    int (*before_sleep)(choir__driver *d);
    void (*after_sleep)(choir__driver *d);
} choir__runner_ops;

struct choir__driver {
    /* --- set by the caller --- */
    choir_study *study;
    const choir__runner_ops *ops;
    void *arg; /* the runner's argument */
    int parallel;
    int64_t retries, failures_max;
    double timeout_s; /* limit of an attempt; 0: no limit */
    bool follows;     /* trials of other processes are counted and awaited, as this one's are */
    int wakes;        /* descriptor whose input ends the search's sleep; -1: none */

    /* --- the search --- */
    pthread_mutex_t lock;      /* guards the members below */
    pthread_cond_t changed;    /* a part has ended */
    choir__attempt **attempt;  /* (parallel) */
    int running;               /* parts that run */
    int64_t before;            /* parts that began before this search */
    int64_t counted;           /* parts of the study counted so far, in order */
    int64_t failures;          /* failures in a row among the last counted parts */
    const choir_trial *failed; /* last trial that failed */
    bool gave_up;              /* too many failures in a row: later ends are not counted */
    bool halted;         /* the caller stopped the search: trials that end now have no result */
    bool ended;          /* the study has no more trials, and no trial runs */
    choir_status status; /* the first error */
    char *error;         /* message of the first error */
};

/* Runs the search, whose first members the caller has set, until no more trials run. d->status
 * is the first error, and the thread's message describes it. */
void choir__driver_run(choir__driver *d);

/* Returns seconds as a time for poll, of at most an hour. */
int choir__in_ms(double seconds);

/* Returns an error if the caller, or a trial's function, holds a trial of the study whose end
 * it has not told, since the study would wait for it forever. Call it while no part of a search
 * runs. */
choir_status choir__driver_check_held(choir_study *study);

#endif
