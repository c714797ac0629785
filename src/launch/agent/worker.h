/* Workers: the command, started once a rank of this node. */
#ifndef CHOIR_LAUNCH_AGENT_WORKER_H
#define CHOIR_LAUNCH_AGENT_WORKER_H

#include <sys/resource.h>
#include "launch/process/process.h"
#include "launch/agent/agent.h"

/* What the workers of one attempt share. */
typedef struct choir__workers {
    const choir__agent_opts *opts;
    choir__job_place place; /* of the first */
    const char *job, *run_id;
    int attempt;
    int input; /* what rank 0 reads */
    choir__output *output;
    choir__family family;
    struct rlimit files; /* how many they may open */
} choir__workers;

/* 0; or 127 or 126, after a word on standard error: the command is not there, or cannot run. */
int choir__workers_check(const char *command);
/* Makes room for their descriptors in this process. */
void choir__workers_room(choir__workers *workers);
choir_status choir__workers_start(choir__workers *workers);

#endif
