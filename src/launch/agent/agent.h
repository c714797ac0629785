/* The agent: what `choir run` is on one node. It starts this node's workers, passes on what
 * they write and the signals it gets, and when one fails stops them all and says which and how.
 */
#ifndef CHOIR_LAUNCH_AGENT_AGENT_H
#define CHOIR_LAUNCH_AGENT_AGENT_H

#include <stdio.h>
#include "launch/process/job.h"
#include "launch/agent/output.h"

typedef struct choir__agent_opts {
    char **command;              /* and its arguments, NULL behind the last */
    int nproc;                   /* workers on this node */
    const choir__routes *routes; /* (nproc) */

    int nodes_min, nodes_max;        /* one node needs none of what follows */
    int node;                        /* -1: in the order of arrival */
    char endpoint[CHOIR__HOST_TEXT]; /* where node 0's agent serves the store; "": not said */
    int endpoint_port;
    double timeout_s; /* for the others to come */

    char master[CHOIR__HOST_TEXT]; /* "": node 0's, as the others call it */
    int master_port;               /* 0: a free one */
    const char *run_id;            /* NULL: a random one */
    const char
        *log_dir; /* NULL: a folder of its own in the temporary one, if a route wants it */
    const char *key_file; /* NULL: none */
    int max_restarts;     /* of all workers, after a failure; one node alone */

    /* Writes what process `pid` is doing, for SIGUSR1; false if it has nothing to tell. */
    bool (*show)(int pid, FILE *out);
} choir__agent_opts;

/* Runs the job to its end, in processes of its own: an agent, which is the workers' parent, and
 * the calling process as its guard. Returns what a shell would show: 0 only if all exited 0;
 * the first failure's status, or 128 + its signal; 127 and 126 for a command that is not there
 * or cannot run. */
int choir__agent_run(const choir__agent_opts *opts);

#endif
