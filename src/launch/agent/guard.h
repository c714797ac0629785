/* The guard: the process that the user sees and its only child, the agent. */
#ifndef CHOIR_LAUNCH_AGENT_GUARD_H
#define CHOIR_LAUNCH_AGENT_GUARD_H

#include <stdbool.h>

/* What the agent has of its guard. */
typedef struct choir__guarded {
    int guard; /* a pidfd: readable when the guard is gone */
    int input; /* what rank 0 reads */
} choir__guarded;

typedef int choir__guarded_fn(const choir__guarded *self, void *arg);

/* Forks; runs fn in the child, guards it in the parent, and returns its exit status there. */
int choir__guard(choir__guarded_fn *fn, void *arg);

/* The signals that go from guard to agent, and on to the workers. */
extern const int choir__guard_signals[];
extern const int choir__guard_signal_count;

#endif
