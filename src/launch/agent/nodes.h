/* The agents of a job on several nodes, and what they tell each other: who is there, and how it
 * ended. They meet in a store that node 0's agent serves.
 *
 * Threads: one, besides one of its own. */
#ifndef CHOIR_LAUNCH_AGENT_NODES_H
#define CHOIR_LAUNCH_AGENT_NODES_H

#include "launch/agent/agent.h"

enum { CHOIR__REPORT_TEXT = 8192 };

typedef struct choir__nodes choir__nodes;

/* What all agents agree on. */
typedef struct choir__roster {
    choir__job_place place; /* of this node's first worker */
    char job[CHOIR__JOB_TEXT], run_id[128];
} choir__roster;

/* Its run_id: what the options say, or a random one (and no part of the secret). */
choir_status choir__roster_name(const choir__agent_opts *opts, choir__roster *roster);

/* The end of the job, by the first who had to say something about it. */
typedef struct choir__verdict {
    int status; /* of `choir run`; 0: all workers of all nodes exited 0 */
    char report[CHOIR__REPORT_TEXT];
} choir__verdict;

/* Waits for the others. Errors: argument, timed out (naming who never came), mismatch, I/O,
 * peer lost. */
choir_status choir__nodes_meet(
    const choir__agent_opts *opts, choir__roster *roster, choir__nodes **nodes);

/* Readable as soon as there is a verdict. */
int choir__nodes_fd(const choir__nodes *nodes);
/* This node's word about the end, of which the first counts. status 0: our workers are done. */
void choir__nodes_post(choir__nodes *nodes, int status, const char *report);
/* Waits for it. */
const choir__verdict *choir__nodes_verdict(choir__nodes *nodes);
/* Node 0 stays until the others have seen the verdict. NULL is fine. */
void choir__nodes_leave(choir__nodes *nodes);

#endif
