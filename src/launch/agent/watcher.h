/* The watcher: a thread that follows the ledger, renews this agent's sign of life, notices
 * agents that are gone, and starts a generation when it is time. */
#ifndef CHOIR_LAUNCH_AGENT_WATCHER_H
#define CHOIR_LAUNCH_AGENT_WATCHER_H

#include <stdatomic.h>

#include "launch/agent/follower.h"

typedef struct choir__watcher {
    choir__follower *follower;
    choir__ledger *ledger; /* a connection of its own */
    const char *id;        /* this agent's */
    choir__patience patience;
    atomic_bool closing;
    /* this agent has no workers, so it can do nothing without the ledger */
    atomic_bool waiting;
    pthread_t thread;
    bool started;
    /* set by the thread, which then wakes the follower */
    atomic_bool fenced; /* the others may have continued without this agent */
    atomic_bool ended;  /* the ledger is out of reach for good: `why` says how */
    choir_status status;
    char why[600];
} choir__watcher;

/* Tells the others of agents that are gone, if this one knows of any; the thread does it. */
choir_status choir__watcher_report_lost(choir__watcher *w);

choir_status choir__watcher_start(choir__watcher *w);
void choir__watcher_stop(choir__watcher *w); /* waits for the thread */

#endif
