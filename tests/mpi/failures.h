/* The scenarios of failures.sh. Each returns the exit status of its rank. */
#ifndef CHOIR_TESTS_MPI_FAILURES_H
#define CHOIR_TESTS_MPI_FAILURES_H

#include <choir/choir.h>

/* Runs the scenario of that name on ranks that have met. */
int failures(choir_group *g, const char *scenario);
/* MPI's rank 2 never joins, so there is no group. */
int never_comes(choir_group_opts opts);

#endif
