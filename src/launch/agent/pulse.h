/* The pulse of a job's agents: an agent that is stopped has none.
 *
 * Until there is a verdict, each agent renews its key beat/K in the store each second. A
 * stopped agent does no harm while its ranks work: they are processes of their own. But it does
 * not report that they are done. So node 0 posts a verdict about an agent that has been silent
 * for the time limit since the first node was done. Node 0 itself is silent if its store is. */
#ifndef CHOIR_LAUNCH_AGENT_PULSE_H
#define CHOIR_LAUNCH_AGENT_PULSE_H

#include <choir/store.h>
#include <stdatomic.h>

typedef struct choir__pulse {
    choir_store *store; /* a connection of its own */
    int node, nodes;
    double timeout_s;
    atomic_bool done; /* this node's workers are; set by another thread */
} choir__pulse;

/* Waits for the verdict, and returns its text in *verdict, which the caller frees. Errors: peer
 * lost (node 0 is gone), timed out (node 0 has been silent for the time limit). */
choir_status choir__pulse_await(choir__pulse *pulse, char **verdict);

#endif
