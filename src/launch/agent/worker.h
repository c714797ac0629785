/* Workers: one process per rank of this node, each running the command. */
#ifndef CHOIR_LAUNCH_AGENT_WORKER_H
#define CHOIR_LAUNCH_AGENT_WORKER_H

#include <sys/resource.h>
#include "launch/keeper.h"
#include "launch/process/process.h"
#include "launch/agent/nodes.h"

/* State that the workers of one attempt share. */
typedef struct choir__workers {
    const choir__agent_opts *opts;
    const choir__roster *roster;
    /* memory for their copies; empty if they are not started again */
    const choir__keeper *keeper;
    int agent_pid;
    int input; /* standard input of rank 0 */
    choir__output *output;
    choir__family family;
    struct rlimit files; /* limit on the workers' open files */
} choir__workers;

/* Returns 0, or 127 (not found) or 126 (cannot run) after a message on standard error. */
int choir__workers_check(const char *command);
/* Raises this process's limit of open files so that it can hold the workers' descriptors. */
void choir__workers_room(choir__workers *workers);
choir_status choir__workers_start(choir__workers *workers);

#endif
