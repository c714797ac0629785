/* The agents of a job on several nodes exchange two things: the list of nodes, and how the job
 * ended. They meet in a store that node 0's agent serves.
 *
 * Threads: called from one; the object runs one of its own. */
#ifndef CHOIR_LAUNCH_AGENT_NODES_H
#define CHOIR_LAUNCH_AGENT_NODES_H

#include "launch/agent/agent.h"

enum { CHOIR__REPORT_TEXT = 8192 };

typedef struct choir__nodes choir__nodes;

/* The facts on which all agents agree. */
typedef struct choir__roster {
    choir__job_place place; /* of this node's first worker */
    char job[CHOIR__JOB_TEXT], run_id[128];
} choir__roster;

/* Sets roster->run_id: the one in the options, or else a random one (no part of the secret). */
choir_status choir__roster_name(const choir__agent_opts *opts, choir__roster *roster);

/* The end of the job, as the first agent to report it describes it. */
typedef struct choir__verdict {
    int status; /* of `choir run`; 0: all workers of all nodes exited 0 */
    char report[CHOIR__REPORT_TEXT];
} choir__verdict;

/* Waits for the other nodes. Errors: argument, timed out (naming the missing nodes), mismatch,
 * I/O, peer lost. */
choir_status choir__nodes_meet(
    const choir__agent_opts *opts, choir__roster *roster, choir__nodes **nodes);

/* Returns a descriptor that becomes readable once there is a verdict. */
int choir__nodes_fd(const choir__nodes *nodes);
/* Posts this node's view of the end; the first post of all nodes counts. status 0: this node's
 * workers are done. */
void choir__nodes_post(choir__nodes *nodes, int status, const char *report);
/* Returns true if node 0 did not take a failure that was posted: the verdict is that failure.
 */
bool choir__nodes_cut_off(const choir__nodes *nodes);
/* Waits for the verdict. */
const choir__verdict *choir__nodes_verdict(choir__nodes *nodes);
/* Leaves the job. Node 0 stays until the others have seen the verdict. Accepts NULL. */
void choir__nodes_leave(choir__nodes *nodes);

#endif
