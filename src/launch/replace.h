/* Between the files of choir_spawn: spawn.c starts processes and ends with the first that
 * fails; replace.c supervises ranks that are replaced. */
#ifndef CHOIR_LAUNCH_REPLACE_H
#define CHOIR_LAUNCH_REPLACE_H

#include "launch/process/process.h"
#include "launch/crew/crew.h"
#include "launch/spawn.h"

/* The arguments with which the processes of a spawn start. */
typedef struct choir__spawning {
    choir__job_place place;
    const choir__spawn_host *host;
    const choir_spawn_opts *opts;
    const char *job;
    choir_spawn_fn *fn;
    void *arg;
    choir__crew *crew; /* NULL: ranks that fail are not replaced */
    int seat;          /* of the process that is about to start */
} choir__spawning;

/* The calling process, while it waits for them. */
typedef struct choir__supervisor {
    choir__spawning *spawning;
    choir__family family;
    bool interrupted;
    int restarts_left;
    double looked_at; /* for ranks that are stopped or silent */
    bool done;        /* the job's work is done */
    int failed;       /* the seat whose end is the job's; -1: none */
} choir__supervisor;

/* Starts the process of one more seat. */
choir_status choir__spawn_more(choir__supervisor *supervisor, int seat);
/* Passes on the signals that this process has received. */
void choir__spawn_signals(choir__supervisor *supervisor);

/* replace.c: waits for the job's end, and replaces ranks until then. Error: the first cause of
 * its failure. */
choir_status choir__spawn_replace(choir__supervisor *supervisor);

#endif
