/* What a process that was started as one of many is told: its place in the job, as environment
 * variables under torchrun's names, which choir_group_init and PyTorch read. */
#ifndef CHOIR_LAUNCH_PROCESS_JOB_H
#define CHOIR_LAUNCH_PROCESS_JOB_H

#include "base/base.h"

enum { CHOIR__JOB_TEXT = 33, CHOIR__HOST_TEXT = 256 };

typedef struct choir__job_place {
    int rank, world, local_rank, local_world, node, nodes;
    char master[CHOIR__HOST_TEXT]; /* where rank 0 can be called; "": not said */
    int master_port;
} choir__job_place;

/* RANK, WORLD_SIZE, LOCAL_RANK and so on, of this process. */
void choir__job_place_export(const choir__job_place *place);
void choir__set_number(const char *name, int value); /* a variable of the environment */

/* Takes master and its port out of a method, if that is tcp://host:port. */
void choir__job_place_master(choir__job_place *place, const char *method);

/* "host:port", "[::1]:port", or "host" with the port that stands in *port already. */
choir_status choir__host_port(const char *text, char host[CHOIR__HOST_TEXT], int *port);

/* A name that nobody can guess, in hexadecimal. */
choir_status choir__job_random(char text[CHOIR__JOB_TEXT]);

/* Returns 64 bits of a hash of a job's name, for names that anybody on the machine may read. */
uint64_t choir__job_hash(const char *job);

/* A TCP port that nobody uses now. */
choir_status choir__job_free_port(int *port);

#endif
