/* Fibers: functions that can be suspended inside a call and resumed later, on the calling
 * thread. A fiber has its own stack; it never runs at the same time as its caller. */
#ifndef CHOIR_FIBER_H
#define CHOIR_FIBER_H

#include <stdbool.h>

typedef struct choir__fiber choir__fiber;

/* Returns NULL if there is no memory for a stack. */
choir__fiber *choir__fiber_new(void);
void choir__fiber_free(choir__fiber *fiber); /* must not be suspended; NULL is fine */

/* Sets the function that the next resume starts. The previous one must have returned. */
void choir__fiber_start(choir__fiber *fiber, void (*fn)(void *arg), void *arg);

/* Runs the fiber until it yields (true) or its function returns (false). */
bool choir__fiber_resume(choir__fiber *fiber);

/* From inside a fiber: returns to the caller of choir__fiber_resume. */
void choir__fiber_yield(choir__fiber *fiber);

#endif
