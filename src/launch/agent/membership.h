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
 * a gathering, when it is known whether all nodes of the generation still answer: the ranks
 * that fail because a machine is gone are often noticed before the machine. */
#ifndef CHOIR_LAUNCH_AGENT_MEMBERSHIP_H
#define CHOIR_LAUNCH_AGENT_MEMBERSHIP_H

#include "launch/process/job.h"

enum { CHOIR__REPORT_TEXT = 8192, CHOIR__WHO_TEXT = CHOIR__HOST_TEXT + 32 };

typedef enum choir__phase { CHOIR__GATHERING, CHOIR__RUNNING, CHOIR__OVER } choir__phase;

typedef enum choir__stage {
    CHOIR__READY, /* without workers: for the next generation, or a spare */
    CHOIR__BUSY,  /* its workers run, or are being stopped */
    CHOIR__DONE,  /* its workers have exited with 0 */
} choir__stage;

typedef struct choir__agent_node {
    char id[CHOIR__JOB_TEXT];  /* of this agent's stay, random */
    char who[CHOIR__WHO_TEXT]; /* "node7 (pid 4711)" */
    char
        name[CHOIR__WHO_TEXT]; /* under which its failures are counted, also after it returns */
    char host[CHOIR__HOST_TEXT]; /* where rank 0 would listen on this node */
    int port;
    int workers;
    int number; /* --node-rank, or the lowest that was free */
    bool keeps; /* serves the ledger: the job ends with this node */
    choir__stage stage;
    int index, rank; /* GROUP_RANK and first RANK in this generation; -1: a spare */
    bool is_new;     /* it was not in the generation before */
} choir__agent_node;

/* Ranks that have left a generation: those of a node, or one that failed. */
typedef struct choir__departure {
    char id[CHOIR__JOB_TEXT]; /* of the node, and */
    int offset;               /* of the first rank among its workers */
    int rank, workers;        /* the first rank as it was numbered, and how many */
    char host[CHOIR__HOST_TEXT], why[256];
} choir__departure;

/* The end of the job. */
typedef struct choir__verdict {
    int status; /* of `choir run`; 0: all workers of all nodes exited 0 */
    int worker; /* of a node, that failed; -1: all of them */
    char report[CHOIR__REPORT_TEXT];
} choir__verdict;

/* The options that must be equal on all nodes. */
typedef struct choir__terms {
    char version[32];
    char key[20];   /* a fingerprint of the key file; "": none */
    char work[400]; /* of the ranks; "": not compared */
    int nodes_min, nodes_max, max_restarts;
    int node_failures; /* of a node, which is then left out; 0: no limit */
} choir__terms;

typedef struct choir__agent_tally {
    char name[CHOIR__WHO_TEXT];
    int failures;
} choir__agent_tally;

typedef struct choir__membership {
    choir__terms terms;
    char run_id[128];
    bool named; /* by --rdzv-id */
    choir__phase phase;
    int generation; /* starts so far */
    int restarts;   /* those that a failure cost */
    int left_done;  /* nodes of this generation that are done, and gone */
    int round;      /* the number of the time for which agents wait */
    bool call;      /* the fewest nodes were missing: wait for more than these, for a moment */
    char secret[CHOIR__JOB_TEXT]; /* of this generation: ranks of another do not meet it */
    int count;
    choir__agent_node *nodes; /* (count), in the order of arrival */
    int tally_count;
    choir__agent_tally *tallies;   /* (tally_count) */
    choir__verdict cause;          /* of this gathering; report "": none */
    bool cause_costs;              /* one restart: a worker failed, and no node was lost */
    char failing[CHOIR__JOB_TEXT]; /* the id of the node whose worker did */
    char first[256];               /* the first failure that cost a restart, in one line */
    int departed_count;
    choir__departure *departed; /* (departed_count) since the last generation */
    char *news;                 /* lines to show for this change; NULL: none */
    choir__verdict verdict;     /* when it is OVER */
} choir__membership;

/* A gathering's members, and when their waiting ends; an agent's own knowledge. */
typedef struct choir__patience {
    double waited_s; /* since this agent saw the round begin */
    double timeout_s, last_call_s;
    const char *where; /* they meet, for messages */
} choir__patience;

void choir__membership_free(choir__membership *m);
choir__membership choir__membership_copy(const choir__membership *m);

/* As JSON, on the heap, and back. Error: format. */
char *choir__membership_text(const choir__membership *m);
choir_status choir__membership_read(const char *text, choir__membership *m);

/* Returns a report without the name of the command before it. */
const char *choir__without_name(const char *report);

/* Returns the last change of membership, from a generation to one that runs, as an event in
 * JSON on the heap. In seconds since a rank was known to be lost or a node to come: gathered_s,
 * until no rank of the old generation was left; resumed_s, until those of the new one were
 * started. */
char *choir__membership_event(const choir__membership *m, double gathered_s, double resumed_s);

/* Returns the member with this id, or NULL. */
choir__agent_node *choir__membership_find(const choir__membership *m, const char *id);
/* A job that is not elastic ends when a worker fails or a node is lost. */
bool choir__membership_is_elastic(const choir__membership *m);

/* The changes. Those that return a bool return false where they changed nothing. */

/* Adds a node; number -1: any. *ends_all: the job is called off. Errors: mismatch (terms),
 * state (the number is another's; the node is left out, or one too many). */
choir_status choir__membership_join(choir__membership *m, const choir__terms *terms,
    const choir__agent_node *node, bool *ends_all);
/* The node has no workers any more; port: a new one for its rank 0. */
bool choir__membership_ready(choir__membership *m, const char *id, int port);
/* Its workers of generation `generation` have all exited with 0, or the first has failed. */
bool choir__membership_done(choir__membership *m, const char *id, int generation);
bool choir__membership_failed(
    choir__membership *m, const char *id, int generation, const choir__verdict *failure);
/* The node's agent has given no sign for so long; INFINITY: it died or was cut off. */
bool choir__membership_lost(choir__membership *m, const char *id, double quiet_s);
/* The node leaves on a signal; everywhere: the job ends with it. */
bool choir__membership_leave(
    choir__membership *m, const char *id, const choir__verdict *reason, bool everywhere);
/* Starts the next generation if it is time, or ends the job. secret: for the new one. */
bool choir__membership_advance(
    choir__membership *m, const choir__patience *patience, const char *secret);
/* Ends the job. */
void choir__membership_end(choir__membership *m, int status, const char *report);

#endif
