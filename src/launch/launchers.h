/* Launchers: reads from the environment which program started this process as one rank of
 * several. */
#ifndef CHOIR_LAUNCH_LAUNCHERS_H
#define CHOIR_LAUNCH_LAUNCHERS_H

#include <stdbool.h>
#include <stddef.h>
#include <choir/status.h>
#include "launch/meet/meeting.h"

typedef struct choir__launcher {
    const char *name; /* "RANK", "mpirun", "srun" and so on, for messages; NULL: no launcher */
    int rank, world, local_rank, local_world, node; /* -1: unspecified */
    bool mpi;                                       /* MPI reaches all ranks */
    bool agent_store; /* torchrun's agent serves a store of its own at MASTER_PORT */
    char job[128];    /* the job's name, identical on all ranks; empty: unknown */
    char method[300]; /* method by which ranks on several machines meet without MPI; "":
                         unspecified */
} choir__launcher;

/* Finds the first launcher that is present: RANK and WORLD_SIZE (choir run, torchrun, a user)
 * unless clusters_only; Open MPI's variables; MPICH's; jsrun's; Flux's; Slurm's. Errors:
 * argument (a variable that is missing or not a number). */
choir_status choir__launcher_find(bool clusters_only, choir__launcher *launcher);

/* Fills in *meeting from a cluster's launcher (meet/launched.c). *method is set to
 * "tcp://host:port", which points into the launcher, if the ranks still have to meet there,
 * else to NULL. */
choir_status choir__meet_launched(const choir__launcher *launcher, const choir_group_opts *opts,
    choir__meet_need need, choir__meeting *meeting, const char **method);

/* Returns the MPI plug-in ("mpi_openmpi", "mpi_mpich" or "mpi") that belongs to the mpirun that
 * started this process; without mpirun, the one that is installed. */
const char *choir__launcher_plugin(void);

/* Returns which generation of the job's ranks this process belongs to, from 1: the ranks as
 * they were after each change of membership. 0: unknown. */
int choir__launcher_generation(void);

/* Returns the seconds that a cluster's scheduler leaves to a job that gets a signal now (Slurm:
 * until the end that SLURM_JOB_END_TIME names, if that is within an hour, else its
 * configuration's KillWait, by default 30 s); below 0: unknown. Tests call it, too. */
double choir__launcher_grace(double now);

/* Read a variable of the environment, as text or as a whole number. choir__variable returns
 * NULL for an empty or unset variable; choir__variable_number then leaves *value unchanged.
 * Errors: argument. */
const char *choir__variable(const char *name);
choir_status choir__variable_number(const char *name, int *value);

/* Extracts the first host of a list in Slurm's notation: "gpu03" from "gpu[03-05,9],login1".
 * Tests call it, too. */
void choir__first_host(const char *list, char *host, size_t room);

#endif
