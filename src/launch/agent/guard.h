/* The guard is the process that the user sees; the agent is its only child. */
#ifndef CHOIR_LAUNCH_AGENT_GUARD_H
#define CHOIR_LAUNCH_AGENT_GUARD_H

#include <stdbool.h>

/* Descriptors that connect the agent to its guard. */
typedef struct choir__guarded {
    int guard; /* a pidfd: readable once the guard has ended */
    int input; /* standard input of rank 0 */
} choir__guarded;

typedef int choir__guarded_fn(const choir__guarded *self, void *arg);

/* Forks. The child runs fn; the parent guards it and returns its exit status. */
int choir__guard(choir__guarded_fn *fn, void *arg);

/* The signals that the guard forwards to the agent, and the agent to the workers. */
extern const int choir__guard_signals[];
extern const int choir__guard_signal_count;

#endif
