/* An agent's part in a job on several nodes: it joins, tells what becomes of its workers, and
 * learns when to start them, when to stop them, and how the job ended.
 *
 * Threads: called from one; the object runs one of its own. */
#ifndef CHOIR_LAUNCH_AGENT_NODES_H
#define CHOIR_LAUNCH_AGENT_NODES_H

#include "launch/agent/agent.h"
#include "launch/agent/agent_state.h"

typedef struct choir__nodes choir__nodes;

/* A running generation: the facts on which all agents agree, and this node's place in it. */
typedef struct choir__roster {
    choir__job_place place; /* place of this node's first worker */
    char job[CHOIR__JOB_TEXT], run_id[128];
    int generation, restarts; /* from 1; used by failures so far */
    int most_workers;         /* largest number of workers on a node of the generation */
} choir__roster;

/* Sets the run's name: the one in the options, or else a random one (no part of the secret). */
choir_status choir__roster_name(const choir__agent_opts *opts, char run_id[128]);

/* An agent's orders. */
typedef enum choir__order {
    CHOIR__WAIT,  /* without workers; those that run are stopped */
    CHOIR__RUN,   /* run the workers of the roster's generation */
    CHOIR__LEAVE, /* the job is over, or continues without this node: see the verdict */
} choir__order;

/* Joins the job. Errors: argument, timed out, mismatch, state, I/O, peer lost. *nodes is set
 * also after an error, and left by the caller. */
choir_status choir__nodes_join(const choir__agent_opts *opts, choir__nodes **nodes);

/* Returns a descriptor that becomes readable when there is something new. */
int choir__nodes_fd(const choir__nodes *nodes);
/* The changes since the last look, in lines: for people, and as JSON; NULL: none. */
typedef struct choir__news {
    char *lines, *events;
} choir__news;

/* Returns the order of the moment; the news are the caller's. */
choir__order choir__nodes_look(choir__nodes *nodes, choir__roster *roster, choir__news *news);
/* Returns whether workers that are stopped now have a moment to notice a failure by themselves:
 * false if they stop because nodes have changed. */
bool choir__nodes_failure(choir__nodes *nodes);
/* Returns whether the others may run already without this node, so workers get no time. */
bool choir__nodes_fenced(const choir__nodes *nodes);
const char *choir__nodes_run_id(const choir__nodes *nodes);

/* These report the state of this node's workers. They return false, or TIMEOUT, if the ledger
 * does not answer. */
choir_status choir__nodes_failed(choir__nodes *nodes, const choir__verdict *failure);
bool choir__nodes_done(choir__nodes *nodes);
bool choir__nodes_ready(choir__nodes *nodes); /* This node has no workers any more. */
/* This node leaves on a signal; everywhere: and ends the job. */
bool choir__nodes_quit(choir__nodes *nodes, int status, const char *report, bool everywhere);

/* Returns how the job ended, after CHOIR__LEAVE. */
choir__verdict choir__nodes_verdict(choir__nodes *nodes);
void choir__nodes_leave(choir__nodes *nodes); /* accepts NULL */

#endif
