/* Inside prefetching: what its two halves share. Filling (stages.c) is the workers', everything
 * else (prefetch.c) the training thread's. */
#ifndef CHOIR_STAGES_H
#define CHOIR_STAGES_H

#include <pthread.h>
#include <time.h>

#include "data/prefetch.h"

enum { CHOIR__MAX_STAGES = 64 };

struct choir__prefetch {
    choir__prefetch_source source;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    choir__prefetch_stage stages[CHOIR__MAX_STAGES];
    int depth;
    int64_t ahead; /* position to fill next */
    bool listing;  /* a worker is, of the stage it opens */
    bool napping;  /* a worker looks after the copies */
    pthread_t threads[CHOIR_MAX_WORKERS];
    int running;                                /* threads */
    int busy;                                   /* of them, in the source's functions */
    _Atomic int64_t reading[CHOIR_MAX_WORKERS]; /* the sample that each is at; -1: none */
    int started;                                /* threads that have taken a number */
    bool stop, hung;
    _Atomic bool left;     /* to the workers: the last one frees it all */
    choir__prefetch *next; /* in the registry */
};

/* A stage to open, or NULL; *copying: how many may be free soon. Under lock. */
choir__prefetch_stage *choir__stages_free(choir__prefetch *p, int *copying);
/* READY when all is there; FREE again, if nobody wants it. Under lock. */
void choir__stages_settle(choir__prefetch *p, choir__prefetch_stage *s);
/* Does some work, if there is any. Under lock, given up meanwhile. */
bool choir__stages_work(choir__prefetch *p, int *copying);
/* A worker's life. */
void *choir__stages_serve(void *prefetch);
/* A stage's x and y: pinned where the device's memory is far, so that copies need not wait. */
void choir__prefetch_free_stage(choir__prefetch_stage *s, const choir__far *far);
/* Frees it all. */
void choir__stages_destroy(choir__prefetch *p);
/* Whether this thread is a worker. */
bool choir__stages_is_worker(void);

/* The absolute time so many seconds from now, on the condition's clock. */
struct timespec choir__stages_in(double seconds);

#endif
