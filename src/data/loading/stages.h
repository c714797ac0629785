/* Internals of prefetching, shared by its two halves: workers fill stages (stages.c), and the
 * training thread does everything else (prefetch.c). */
#ifndef CHOIR_STAGES_H
#define CHOIR_STAGES_H

#include <pthread.h>
#include <time.h>

#include "data/loading/prefetch.h"

enum { CHOIR__MAX_STAGES = 64 };

struct choir__prefetch {
    choir__prefetch_source source;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    choir__prefetch_stage stages[CHOIR__MAX_STAGES];
    int depth;
    int64_t ahead; /* next position to fill */
    bool listing;  /* a worker is listing the samples of the stage that it opens */
    bool napping;  /* a worker watches the copies */
    pthread_t threads[CHOIR_MAX_WORKERS];
    int running; /* threads */
    int busy;    /* threads that are in one of the source's functions */
    /* the sample that each worker reads; -1: none */
    _Atomic int64_t reading[CHOIR_MAX_WORKERS];
    int started; /* threads that have taken a number */
    bool stop, hung;
    _Atomic bool left;     /* the loader has left; the last worker frees the object */
    choir__prefetch *next; /* next in the list of all */
};

/* Marks a stage READY when all its samples are there, or FREE if it has been discarded. Caller
 * holds the lock. */
void choir__stages_settle(choir__prefetch *p, choir__prefetch_stage *s);
/* Does some work and returns true, if there is any. Caller holds the lock, which is released
 * during the work. */
bool choir__stages_work(choir__prefetch *p, int *copying);
/* The main function of a worker thread. */
void *choir__stages_serve(void *prefetch);
/* Frees the object with its stages. */
void choir__stages_destroy(choir__prefetch *p);
/* Returns whether this thread is a worker. */
bool choir__stages_is_worker(void);

#endif
