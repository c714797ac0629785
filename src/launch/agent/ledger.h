/* A ledger: the entries that the agents of a job have written one after another, and which of
 * the agents are alive.
 *
 * Entry n+1 can be written only once, so of two agents that add at a time one succeeds, and the
 * other reads first what that one wrote. The backends are Choir's own store, which node 0's
 * agent serves (ledger_store.c), etcd (src/launch/etcd/, a plug-in), and the agents together,
 * by Raft (src/launch/raft/, a plug-in).
 *
 * Threads: an object is one connection, for one thread at a time. */
#ifndef CHOIR_LAUNCH_AGENT_LEDGER_H
#define CHOIR_LAUNCH_AGENT_LEDGER_H

#include "launch/agent/agent.h"

typedef struct choir__ledger choir__ledger;

typedef struct choir__ledger_ops {
    /* Reads entry n, and waits for it. TIMEOUT: it is not there after wait_s, or an agent may
     * have gone. Other errors are permanent. */
    choir_status (*read)(choir__ledger *ledger, int64_t n, double wait_s, char **text);
    /* Returns the number of the newest entry, which may lag behind by a moment; 0: no entry. */
    choir_status (*newest)(choir__ledger *ledger, int64_t *n);
    /* Writes entry n, unless it exists. */
    choir_status (*append)(choir__ledger *ledger, int64_t n, const char *text, bool *mine);
    /* Announces that the agent `id` lives, until this object is closed. */
    choir_status (*live)(choir__ledger *ledger, const char *id);
    /* Renews the announcement, and looks at the other agents'; called about each second. */
    choir_status (*beat)(choir__ledger *ledger);
    /* Returns for how many seconds an agent has given no sign; INFINITY: it is gone. */
    double (*quiet_s)(choir__ledger *ledger, const char *id);
    /* over: the job is, and the ledger may be removed. */
    void (*close)(choir__ledger *ledger, bool over);
} choir__ledger_ops;

/* The common beginning of every backend's object. */
struct choir__ledger {
    const choir__ledger_ops *ops;
    bool keeps; /* this agent serves the ledger, so that the job ends with it */
    /* this agent checks often, since it may be the first to notice others' deaths */
    bool looks;
    bool founds;     /* this agent may write the first entry */
    double silent_s; /* seconds since the ledger's last answer */
    int voters;      /* agents whose majority decides on entries; 0: no majority needed */
    /* Seconds without an answer after which the other agents may continue without this one, so
     * that its workers must end; 0: they never do. */
    double fence_s;
    char id[CHOIR__JOB_TEXT];    /* id of this agent in the ledger; "": `live` reports it */
    char self[CHOIR__HOST_TEXT]; /* this machine's address, as seen from the ledger */
};

/* Opens a connection to the job's ledger. first: the agent's first one, which serves the ledger
 * where that is this agent's task, and is closed last; NULL: this is it. */
choir_status choir__ledger_open(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger);
choir_status choir__ledger_store(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger);

#endif
