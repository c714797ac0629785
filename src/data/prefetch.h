/* Prefetching: a thread that fills the next stages while this one trains.
 *
 *     FREE -> FILLING -> READY -> COPYING -> FREE        the life of each stage
 *
 * A stage is host memory for one micro-batch. The thread fills free ones in the order of
 * positions; the training thread takes the one it wants and launches its copy to a device.
 * That runs when the device's queue comes to it, so the stage is free again only after its
 * event.
 *
 * take, copied and restart are the training thread's; fill is called on the other one. */
#ifndef CHOIR_PREFETCH_H
#define CHOIR_PREFETCH_H

#include "device/queue.h"

typedef struct choir__prefetch choir__prefetch;

typedef enum choir__stage_state {
    CHOIR__FREE,
    CHOIR__FILLING,
    CHOIR__READY,
    CHOIR__COPYING
} choir__stage_state;

typedef struct choir__stage {
    choir__stage_state state;
    int64_t position;
    void *x, *y;
    choir__event copied;
    choir_status status; /* of filling it */
    char *message;
} choir__stage;

/* Writes micro-batch `position` to x and y. */
typedef choir_status choir__fill_fn(void *arg, int64_t position, void *x, void *y);

/* Starts at position 0, with the first take. Error: memory. */
choir_status choir__prefetch_new(choir__fill_fn *fill, void *arg, size_t x_bytes,
    size_t y_bytes, choir__prefetch **prefetch);
void choir__prefetch_free(choir__prefetch *p); /* waits for copies; NULL is fine */

/* Waits for the stage of a position, which is what follows the last one taken or restart's.
 * The error of filling it is returned once: taking it again tries again. */
choir_status choir__prefetch_take(choir__prefetch *p, int64_t position, choir__stage **stage);

/* The stage taken is read up to this event, and may then be filled again. */
void choir__prefetch_copied(choir__prefetch *p, choir__stage *stage, choir__event event);

/* Forgets what is prepared, and goes on from position. */
void choir__prefetch_restart(choir__prefetch *p, int64_t position);

#endif
