/* Fibers: functions that can be suspended in mid-call and gone on with later, on the thread
 * that calls. A fiber has a stack of its own; nothing runs at the same time as its caller. */
#ifndef CHOIR_FIBER_H
#define CHOIR_FIBER_H

#include <stdbool.h>

typedef struct choir__fiber choir__fiber;

/* NULL: no memory for a stack. */
choir__fiber *choir__fiber_new(void);
void choir__fiber_free(choir__fiber *fiber); /* not one that is suspended; NULL is fine */

/* What the next resume begins with. The one before has returned. */
void choir__fiber_start(choir__fiber *fiber, void (*fn)(void *arg), void *arg);

/* Goes on until the fiber yields (true) or its function returns (false). */
bool choir__fiber_resume(choir__fiber *fiber);

/* From inside a fiber: back to whoever resumed it. */
void choir__fiber_yield(choir__fiber *fiber);

#endif
