/* Prefetching: threads that fill the next stages while this one trains.
 *
 *     FREE -> FILLING -> READY -> COPYING -> FREE        the life of each stage
 *
 * A stage is host memory for one micro-batch. One worker at a time opens a free stage, in the
 * order of positions, by listing its samples; all workers then take samples of open stages, a
 * few at a time, the earliest stage first. What a stage holds follows from its position,
 * whoever filled it. The training thread takes the stage it wants and launches its copy to a
 * device. That runs when the device's queue comes to it, so the stage is free again only after
 * its event.
 *
 * Stages are ordinary memory, which CPU devices copy from as it is; for a device whose memory
 * is far (device/far.h) they are pinned, so that it fetches them while the host goes on.
 *
 * take, copied and restart are the training thread's; list and get are called on the others,
 * list by one at a time. */
#ifndef CHOIR_PREFETCH_H
#define CHOIR_PREFETCH_H

#include <choir/data.h>
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
    bool pinned; /* x, and y behind it */
    choir__event copied;
    /* while FILLING */
    int64_t epoch, *index;       /* its samples: which ones of the dataset */
    int64_t count, next, active; /* how many, how many are given out, being read now */
    bool stale;                  /* nobody wants it any more */
    int64_t failed;              /* the first sample that failed; count: none */
    choir_status status;         /* of that one */
    char *message;
} choir__prefetch_stage;

typedef struct choir__prefetch_source {
    /* The samples of micro-batch `position`: index (samples), the epoch; *count is lowered if
     * there are fewer. */
    void (*list)(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count);
    /* Writes one sample. Several at a time with several workers. */
    choir_status (*get)(void *arg, int64_t epoch, int64_t index, void *x, void *y);
    /* Called when no worker will use arg any more; may be NULL. */
    void (*release)(void *arg);
    void *arg;
    int64_t samples;         /* of a stage */
    size_t x_bytes, y_bytes; /* of a sample */
    int workers;             /* 0: take does the work */
    int depth;               /* stages; 0: by their size */
    double timeout_s;        /* take waits no longer; 0: for ever */
    const choir__far *far;   /* of the device that most batches go to; NULL: it is none */
} choir__prefetch_source;

/* Starts at position 0, with the first take. Error: memory. */
choir_status choir__prefetch_new(
    const choir__prefetch_source *source, choir__prefetch **prefetch);
/* Waits for copies and for workers; if one has timed out, the last of them frees it all. NULL
 * is fine. */
void choir__prefetch_free(choir__prefetch *p);

/* Waits for the stage of a position, which is what follows the last one taken or restart's.
 * The error of filling it is returned once: taking it again tries again. */
choir_status choir__prefetch_take(
    choir__prefetch *p, int64_t position, choir__prefetch_stage **stage);

/* The stage taken is read up to this event, and may then be filled again. */
void choir__prefetch_copied(
    choir__prefetch *p, choir__prefetch_stage *stage, choir__event event);

/* The stage taken has been read. */
void choir__prefetch_done(choir__prefetch *p, choir__prefetch_stage *stage);

/* Forgets what is prepared, and goes on from position. */
void choir__prefetch_restart(choir__prefetch *p, int64_t position);

#endif
