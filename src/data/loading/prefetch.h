/* Prefetching: threads fill the next stages while the training thread trains.
 *
 *     FREE -> FILLING -> READY -> COPYING -> FREE        the life of each stage
 *
 * A stage is host memory for one micro-batch. One worker at a time opens a free stage, in the
 * order of positions, by listing its samples. All workers then take samples of open stages, a
 * few at a time, from the earliest stage first. A stage's contents depend only on its position,
 * not on the workers that filled it. The training thread takes the stage of the next position
 * and launches its copy to a device. The copy runs when the device's queue reaches it, so the
 * stage becomes free only after the copy's event.
 *
 * Stages are ordinary memory, which CPU devices read directly. For a device with separate
 * memory (device/far.h) they are pinned, so that the device copies them while the host
 * continues.
 *
 * Threads: the training thread calls take, copied, done and restart. Workers call list, one at
 * a time, and get. */
#ifndef CHOIR_PREFETCH_H
#define CHOIR_PREFETCH_H

#include <choir/data.h>
#include <pthread.h>
#include <time.h>
#include "base/process/forks.h"
#include "device/far.h"
#include "device/queue.h"

typedef struct choir__prefetch choir__prefetch;

typedef enum choir__prefetch_state {
    CHOIR__FREE,
    CHOIR__FILLING,
    CHOIR__READY,
    CHOIR__COPYING
} choir__prefetch_state;

typedef struct choir__prefetch_stage {
    choir__prefetch_state state;
    int64_t position;
    void *x, *y;
    bool pinned; /* x, with y behind it in one block */
    choir__event copied;
    /* Valid while FILLING: */
    int64_t epoch, *index;       /* the samples' indices in the dataset */
    int64_t count, next, active; /* samples in all, handed out, being read now */
    bool stale;                  /* restart discarded it */
    int64_t failed;              /* first sample that failed; count: none */
    choir_status status;         /* status of the failed sample */
    char *message;
} choir__prefetch_stage;

typedef struct choir__prefetch_source {
    /* Lists the samples of micro-batch `position`: index (samples) and the epoch. Lowers *count
     * if there are fewer. */
    void (*list)(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count);
    /* Writes one sample. Workers call it concurrently. */
    choir_status (*get)(void *arg, int64_t epoch, int64_t index, void *x, void *y);
    /* Called when no worker uses arg any more; may be NULL. */
    void (*release)(void *arg);
    void *arg;
    int64_t samples;         /* per stage */
    size_t x_bytes, y_bytes; /* per sample */
    int workers;             /* 0: take reads the samples itself */
    int depth;               /* number of stages; 0: chosen by their size */
    int64_t length;          /* sample i has number i % length in messages; 0: i */
    double timeout_s;        /* the longest time that take waits; 0: no limit */
    /* far memory of the device that gets most batches; NULL: it uses host memory */
    const choir__far *far;
} choir__prefetch_source;

/* Creates the stages. The first take starts the workers, at position 0. Error:
 * memory. */
choir_status choir__prefetch_new(
    const choir__prefetch_source *source, choir__prefetch **prefetch);
/* Waits for copies and for workers. If a worker has timed out, the last worker frees the object
 * later. NULL is allowed. */
void choir__prefetch_free(choir__prefetch *p);

/* Waits for the stage of a position, which must follow the last one taken, or be restart's. An
 * error of filling the stage is returned once; another take fills it again. */
choir_status choir__prefetch_take(
    choir__prefetch *p, int64_t position, choir__prefetch_stage **stage);

/* Returns the seconds that choir__prefetch_take has waited for samples. */
double choir__prefetch_waited(choir__prefetch *p);

/* Returns the bytes of all stages. */
size_t choir__prefetch_bytes(const choir__prefetch *p);

/* Marks the taken stage as being read until this event; it may be filled again afterwards. */
void choir__prefetch_copied(
    choir__prefetch *p, choir__prefetch_stage *stage, choir__event event);

/* Marks the taken stage as read: it is free now. */
void choir__prefetch_done(choir__prefetch *p, choir__prefetch_stage *stage);

/* Discards prepared stages and continues from position. */
void choir__prefetch_restart(choir__prefetch *p, int64_t position);
/* Like choir__prefetch_restart, but first ends the threads, so that the caller may change what
 * the source lists; the next take starts them again. */
void choir__prefetch_rest(choir__prefetch *p, int64_t position);

/* Internals of prefetching, shared by its two halves: workers fill stages (stages.c), and the
 * training thread does everything else (prefetch.c). */

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
    int started;     /* threads that have taken a number */
    double waited_s; /* time that take has waited for samples */
    bool stop, hung;
    _Atomic bool left; /* the loader has left; the last worker frees the object */
    choir__forkable forkable;
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

#endif
