/* The lock around every call of MPI, and whether this process has abandoned MPI. */
#include <pthread.h>
#include <stdatomic.h>

#include "comm/mpi/mpi.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool abandoned;

void choir__mpi_lock(void)
{
    pthread_mutex_lock(&one_at_a_time);
}

void choir__mpi_unlock(void)
{
    pthread_mutex_unlock(&one_at_a_time);
}

void choir__mpi_abandon(void)
{
    atomic_store(&abandoned, true);
}

bool choir__mpi_abandoned(void)
{
    return atomic_load(&abandoned);
}
