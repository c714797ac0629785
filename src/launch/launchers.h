/* What started this process as one rank of several: read from the environment. */
#ifndef CHOIR_LAUNCH_LAUNCHERS_H
#define CHOIR_LAUNCH_LAUNCHERS_H

#include <stdbool.h>
#include <stddef.h>
#include <choir/status.h>
#include "launch/meet/meeting.h"

typedef struct choir__launcher {
    const char *name; /* "RANK", "mpirun", "srun", for people; NULL: nobody did */
    int rank, world, local_rank, local_world, node; /* -1: not told */
    bool mpi;                                       /* MPI reaches all ranks */
    char job[128];    /* the job's name, the same on all ranks; empty: none is known */
    char method[300]; /* how ranks on several machines meet without MPI; empty: not told */
} choir__launcher;

/* The first of these that is there: RANK and WORLD_SIZE (choir run, torchrun, a user) unless
 * only clusters are asked for; Open MPI's variables, MPICH's, Slurm's. Errors: argument (a
 * variable that is no number, or missing). */
choir_status choir__launcher_find(bool clusters_only, choir__launcher *launcher);

/* Fills in *meeting as mpirun or srun has it (launched.c). *method: where the ranks have
 * yet to meet, as "tcp://host:port", in the launcher; NULL: they need not. */
choir_status choir__meet_launched(const choir__launcher *launcher, const choir_group_opts *opts,
    choir__meeting *meeting, const char **method);

/* Which of the plug-ins for MPI belongs to the mpirun that started us; the one that is there if
 * no mpirun did. "mpi_openmpi", "mpi_mpich", "mpi". */
const char *choir__launcher_plugin(void);

/* A variable of the environment; NULL where it is empty or not set. As a whole number: *value
 * stays as it is where there is none. Errors: argument. */
const char *choir__variable(const char *name);
choir_status choir__variable_number(const char *name, int *value);

/* The first host of a list as Slurm writes them, "gpu[03-05,9],login1": "gpu03". */
void choir__first_host(const char *list, char *host, size_t room);

#endif
