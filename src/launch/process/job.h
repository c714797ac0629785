/* The place of a process in its job, passed on as environment variables under torchrun's names,
 * which choir_group_init and PyTorch read. */
#ifndef CHOIR_LAUNCH_PROCESS_JOB_H
#define CHOIR_LAUNCH_PROCESS_JOB_H

#include "base/base.h"

enum { CHOIR__JOB_TEXT = 33, CHOIR__HOST_TEXT = 256 };

typedef struct choir__job_place {
    int rank, world, local_rank, local_world, node, nodes;
    char master[CHOIR__HOST_TEXT]; /* address of rank 0; "": unspecified */
    int master_port;
} choir__job_place;

/* Sets RANK, WORLD_SIZE, LOCAL_RANK and so on in this process's environment. */
void choir__job_place_export(const choir__job_place *place);
void choir__set_number(const char *name, int value); /* sets an environment variable */

/* Copies host and port to master and master_port from a method of the form tcp://host:port;
 * after any other method, master is empty. */
void choir__job_place_master(choir__job_place *place, const char *method);

/* Parses "host:port", "[::1]:port", or "host", which leaves *port unchanged. */
choir_status choir__host_port(const char *text, char host[CHOIR__HOST_TEXT], int *port);

/* Makes an unguessable name in hexadecimal. */
choir_status choir__job_random(char text[CHOIR__JOB_TEXT]);

/* Returns 64 bits of a hash of a job's name, for names that anybody on the machine may read. */
uint64_t choir__job_hash(const char *job);

/* Finds a TCP port that is free now. */
choir_status choir__job_free_port(int *port);

#endif
