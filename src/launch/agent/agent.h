/* The agent is the process that `choir run` becomes on one node. It starts the node's workers
 * and forwards their output and the signals that it receives. When a worker fails, it stops all
 * of them and reports which one failed, and how. */
#ifndef CHOIR_LAUNCH_AGENT_AGENT_H
#define CHOIR_LAUNCH_AGENT_AGENT_H

#include <stdio.h>
#include "launch/process/job.h"
#include "launch/agent/output.h"

/* How to reach an etcd; NULL: unspecified. */
typedef struct choir__etcd_conf {
    bool is_used; /* nodes meet in etcd, at the endpoint */
    bool tls;
    const char *cacert, *cert, *key; /* files */
    const char *user, *password;
} choir__etcd_conf;

typedef struct choir__agent_opts {
    char **command;   /* command and arguments, ended by NULL */
    const char *work; /* command of the ranks, equal on all nodes; "": not compared */
    int nproc;        /* workers on this node */
    const choir__routes *routes; /* (nproc) */

    int nodes_min, nodes_max; /* a single node ignores the members below */
    int node;                 /* -1: assigned in the order of arrival */
    /* address of node 0's store, or of etcd; "": unspecified */
    char endpoint[CHOIR__HOST_TEXT];
    int endpoint_port;
    choir__etcd_conf etcd;
    bool raft;        /* the agents hold the ledger together; the endpoint is where they meet */
    bool json;        /* changes of membership go to standard output as events */
    bool witness;     /* this agent has no workers and only votes on the ledger */
    double timeout_s; /* seconds to wait for the other nodes */
    double last_call_s; /* seconds to wait for more nodes, once the minimum is there */

    char master[CHOIR__HOST_TEXT]; /* "": node 0's address, as the others reach it */
    int master_port;               /* 0: a free one */
    const char *run_id;            /* NULL: a random one */
    const char *log_dir;           /* NULL: a temporary folder, if a route needs one */
    const char *key_file;          /* NULL: none */
    const char *role;              /* ROLE_NAME */
    const char *prefix;            /* prefix of output lines (output.h); NULL: the default */
    int max_restarts;              /* restarts of all workers of the job after failures */
    int node_failures;             /* failures after which a node is excluded; 0: no limit */
    double shutdown_s;             /* seconds from SIGTERM to SIGKILL */
    /* Bit N: signal N is passed on, and if a worker ends by it, so does the job. */
    uint64_t handled_signals;

    /* Writes what process `pid` is doing, for SIGUSR1. Returns false if nothing is known. */
    bool (*show)(int pid, FILE *out);
} choir__agent_opts;

/* Runs the job to its end in two processes: an agent, which is the workers' parent, and the
 * calling process as its guard. Returns a shell's exit status: 0 only if all workers exited 0;
 * the first failure's status, or 128 + its signal; 127 or 126 for a command that is missing or
 * cannot run. A job that a signal ends returns 128 + that signal, unless a worker crashes
 * meanwhile: then it returns 128 + the crash's. */
int choir__agent_run(const choir__agent_opts *opts);

/* Takes part in a job without workers: the third vote where a job has two nodes. Returns the
 * job's exit status, or 128 + a signal. */
int choir__witness_run(const choir__agent_opts *opts);

#endif
