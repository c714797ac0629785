/* The membership of a job on several nodes: its agents and their workers, the failures so far,
 * and the end of the job.
 *
 * The agents share one state. Each change is a function of this header that takes the state and
 * returns the next; no function waits, reads a clock or talks. nodes.c writes each next state
 * into a ledger (ledger.h), whose entries have one order for all agents.
 *
 *     GATHERING  --all members are ready, and enough-->  RUNNING  --all are done-->  OVER
 *         ^                                                 |
 *         +--- a worker failed, a node was lost or joined --+
 *
 * A start of all workers is a generation. A failure costs one restart of the whole job,
 * whichever node it is on; a change of membership costs none. The cost is settled at the end of
 * a gathering, when it is known whether all nodes of the generation still answer, because ranks
 * that fail since a machine is gone are often noticed before the machine. */
#ifndef CHOIR_LAUNCH_AGENT_MEMBERSHIP_H
#define CHOIR_LAUNCH_AGENT_MEMBERSHIP_H

#include "launch/process/job.h"

enum { CHOIR__REPORT_TEXT = 8192, CHOIR__WHO_TEXT = CHOIR__HOST_TEXT + 32 };

typedef enum choir__phase { CHOIR__GATHERING, CHOIR__RUNNING, CHOIR__OVER } choir__phase;

typedef enum choir__stage {
    CHOIR__READY, /* has no workers: waits for the next generation, or is a spare */
    CHOIR__BUSY,  /* workers run, or are being stopped */
    CHOIR__DONE,  /* workers have exited with 0 */
} choir__stage;

typedef struct choir__agent_node {
    char id[CHOIR__JOB_TEXT];  /* random, new each time the agent joins */
    char who[CHOIR__WHO_TEXT]; /* "node7 (pid 4711)" */
    /* name for counting the node's failures, also after it returns */
    char name[CHOIR__WHO_TEXT];
    char host[CHOIR__HOST_TEXT]; /* address where rank 0 would listen on this node */
    int port;
    int workers;
    int number; /* --node-rank, or the lowest free number */
    bool keeps; /* serves the ledger, so that the job ends with this node */
    choir__stage stage;
    int index, rank; /* GROUP_RANK and first RANK in this generation; -1: a spare */
    bool is_new;     /* the node was not in the generation before */
} choir__agent_node;

/* Ranks that have left a generation: all ranks of a node, or one failed rank. */
typedef struct choir__departure {
    char id[CHOIR__JOB_TEXT]; /* id of the node */
    int offset;               /* index of the first rank among the node's workers */
    int rank, workers;        /* number of the first rank then; number of ranks */
    char host[CHOIR__HOST_TEXT], why[256];
} choir__departure;

/* The end of the job. */
typedef struct choir__verdict {
    int status; /* exit status of `choir run`; 0: all workers of all nodes exited with 0 */
    int worker; /* index of the failed worker on its node; -1: all workers */
    bool final; /* a worker has said that no start would help */
    char report[CHOIR__REPORT_TEXT];
} choir__verdict;

/* The options that must be equal on all nodes. */
typedef struct choir__terms {
    char version[32];
    char key[20];   /* a fingerprint of the key file; "": none */
    char work[400]; /* command of the ranks; "": not compared */
    int nodes_min, nodes_max, max_restarts;
    int node_failures; /* failures after which a node is excluded; 0: no limit */
} choir__terms;

typedef struct choir__agent_tally {
    char name[CHOIR__WHO_TEXT];
    int failures;
} choir__agent_tally;

typedef struct choir__agent_state {
    choir__terms terms;
    char run_id[128];
    bool named; /* run_id was given by --rdzv-id */
    choir__phase phase;
    int generation; /* starts so far */
    int restarts;   /* restarts used by failures */
    int left_done;  /* nodes of this generation that are done and have left */
    int round;      /* number of the current wait; a new wait starts a new timeout */
    bool call; /* too few nodes were present: once enough are ready, wait a moment for more */
    char secret[CHOIR__JOB_TEXT]; /* secret of this generation, so that ranks of other
                                     generations cannot join */
    int count;
    choir__agent_node *nodes; /* (count), in the order of arrival */
    int tally_count;
    choir__agent_tally *tallies; /* (tally_count) */
    choir__verdict cause;        /* cause of this gathering; report "": none */
    bool cause_costs; /* the cause costs a restart: a worker failed, and no node was lost */
    char failing[CHOIR__JOB_TEXT]; /* id of the node whose worker failed */
    char first[256];               /* first failure that cost a restart, in one line */
    int departed_count;
    choir__departure *departed; /* (departed_count) departures since the last generation */
    char *news;                 /* lines to show for this change; NULL: none */
    choir__verdict verdict;     /* valid in phase OVER */
} choir__agent_state;

/* An agent's own measure of a gathering: when waiting ends. */
typedef struct choir__patience {
    double waited_s; /* seconds since this agent saw the round begin */
    double timeout_s, last_call_s;
    const char *where; /* place of the meeting, for messages */
} choir__patience;

void choir__agent_state_free(choir__agent_state *m);
choir__agent_state choir__agent_state_copy(const choir__agent_state *m);

/* Convert the state to JSON, on the heap, and back. Error: format. */
char *choir__agent_state_text(const choir__agent_state *m);
choir_status choir__agent_state_read(const char *text, choir__agent_state *m);

/* Returns a report without the command's name at its beginning. */
const char *choir__without_name(const char *report);

/* Returns the last change between two running generations as an event in JSON, on the heap.
 * Times are in seconds since a lost rank or a new node was noticed: gathered_s until no rank of
 * the old generation was left, resumed_s until the ranks of the new one were started. */
char *choir__agent_state_event(
    const choir__agent_state *m, double gathered_s, double resumed_s);

/* Returns the member with this id, or NULL. */
choir__agent_node *choir__agent_state_find(const choir__agent_state *m, const char *id);
/* A job that is not elastic ends when a worker fails or a node is lost. */
bool choir__agent_state_is_elastic(const choir__agent_state *m);

/* The changes. A change that returns a bool returns false if it changed nothing. */

/* Adds a node; number -1: any. *ends_all: the whole job must end. Errors: mismatch (terms),
 * state (another node has the number; the node is excluded; too many nodes). */
choir_status choir__agent_state_join(choir__agent_state *m, const choir__terms *terms,
    const choir__agent_node *node, bool *ends_all);
/* The node has no workers any more; port: a new port for its rank 0. */
bool choir__agent_state_ready(choir__agent_state *m, const char *id, int port);
/* choir__agent_state_done: all workers of the node, in this generation, have exited with 0;
 * choir__agent_state_failed: the first of them has failed. */
bool choir__agent_state_done(choir__agent_state *m, const char *id, int generation);
bool choir__agent_state_failed(
    choir__agent_state *m, const char *id, int generation, const choir__verdict *failure);
/* The node's agent has been silent for quiet_s seconds; INFINITY: it died or was cut off. */
bool choir__agent_state_lost(choir__agent_state *m, const char *id, double quiet_s);
/* The node leaves because of a signal; everywhere: the job ends on all nodes. */
bool choir__agent_state_leave(
    choir__agent_state *m, const char *id, const choir__verdict *reason, bool everywhere);
/* Starts the next generation if it is time, or ends the job. secret: the new generation's. */
bool choir__agent_state_advance(
    choir__agent_state *m, const choir__patience *patience, const char *secret);
/* Ends the job. */
void choir__agent_state_end(choir__agent_state *m, int status, const char *report);

#endif
