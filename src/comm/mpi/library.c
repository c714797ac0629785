/* MPI's start and end; a process can have one of each.
 *
 * If the program has started MPI itself, it also ends it. Otherwise a thread, the keeper,
 * starts MPI for the first group that needs it and ends it at the process's exit. MPI requires
 * both to be called from one thread, and a start that never returns (a rank that mpirun started
 * has not come) must not hold up the caller past its timeout. MPI lives on between groups,
 * because it cannot start twice.
 *
 * MPI_Finalize waits for all ranks. It therefore runs only if every group was freed and no rank
 * was lost or late. A process that ends otherwise just exits; mpirun notices it and ends the
 * others. */
#include "comm/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/hold_signals.h"

static const double patience_s = 10;
static const struct timespec last_words = {.tv_sec = 1};

static struct library {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    pthread_t keeper;
    enum { ASLEEP, STARTING, RUNNING, BROKEN, ENDING, ENDED } state;
    int threads, engines; /* thread support that MPI grants; number of open engines */
    MPI_Comm home;
    choir__mpi *closed;
    bool lost; /* some rank was lost or late */
} library = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

MPI_Comm choir__mpi_home(void)
{
    return library.home;
}

void choir__mpi_count(int engines, choir_status failed)
{
    pthread_mutex_lock(&library.lock);
    library.engines += engines;
    library.lost = library.lost || (failed != CHOIR_OK && failed != CHOIR_ERR_MISMATCH);
    pthread_mutex_unlock(&library.lock);
}

/* --- closed engines --- */

/* Returns true if all ranks have said goodbye. Then no rank sends to this communicator any
 * more, and it can be freed here, independently of when the others do so. */
static bool quiet(choir__mpi *m)
{
    int done = 0;
    choir__mpi_letters(m);
    for (int r = 0; r < m->base.world; r++)
        if (r != m->base.rank && !m->left[r])
            return false;
    MPI_Testall(m->base.world, m->goodbye.requests, &done, MPI_STATUSES_IGNORE);
    return done;
}

static void release(choir__mpi *m)
{
    choir__mpi_call_back(&m->inbox_request, 1);
    MPI_Comm_free(&m->comm);
    choir__mpi_free(m);
}

void choir__mpi_bury(choir__mpi *m)
{
    choir__mpi_lock();
    if (m) {
        m->next = library.closed;
        library.closed = m;
    }
    for (choir__mpi **at = &library.closed, *one; (one = *at) && !choir__mpi_abandoned();) {
        if (quiet(one)) {
            *at = one->next;
            release(one);
        } else {
            at = &one->next;
        }
    }
    choir__mpi_unlock();
}

/* --- the keeper --- */

static void enter_state(int state)
{
    pthread_mutex_lock(&library.lock);
    library.state = state;
    pthread_cond_broadcast(&library.changed);
    pthread_mutex_unlock(&library.lock);
}

static bool make_home(void)
{
    if (MPI_Comm_dup(MPI_COMM_WORLD, &library.home) != MPI_SUCCESS)
        return false;
    MPI_Comm_set_errhandler(library.home, MPI_ERRORS_RETURN);
    return true;
}

static void finalize(void)
{
    double since = choir__now();
    do { /* MPI_Finalize would also wait, but complain about unread letters */
        choir__mpi_bury(NULL);
        if (library.closed)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    } while (library.closed && choir__now() - since < patience_s);
    while (library.closed) {
        choir__mpi *m = library.closed;
        library.closed = m->next;
        release(m);
    }
    MPI_Comm_free(&library.home);
    MPI_Finalize();
}

static void *keep(void *unused)
{
    (void)unused;
    bool well =
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &library.threads) == MPI_SUCCESS &&
        make_home();
    enter_state(well ? RUNNING : BROKEN);
    pthread_mutex_lock(&library.lock);
    while (library.state == RUNNING)
        pthread_cond_wait(&library.changed, &library.lock);
    bool end = library.state == ENDING;
    pthread_mutex_unlock(&library.lock);
    if (end)
        finalize();
    return NULL;
}

static void at_exit(void)
{
    pthread_mutex_lock(&library.lock);
    bool lost = library.lost || choir__mpi_abandoned();
    bool peace = library.state == RUNNING && !library.engines && !lost;
    if (peace) {
        library.state = ENDING;
        pthread_cond_broadcast(&library.changed);
    }
    pthread_mutex_unlock(&library.lock);
    if (peace)
        pthread_join(library.keeper, NULL);
    else if (lost)
        /* mpirun kills the others: lets them report why they fail */
        nanosleep(&last_words, NULL);
}

static choir_status start_keeper(void)
{
    library.state = STARTING;
    if (choir__thread_start(&library.keeper, keep, NULL)) {
        library.state = ASLEEP;
        return choir__error(CHOIR_ERR_IO, "cannot start a thread that starts MPI");
    }
    atexit(at_exit);
    return CHOIR_OK;
}

static choir_status wait_for_keeper(double timeout_s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)choir__min((int64_t)timeout_s, INT32_MAX) + 1;
    int late = 0;
    while (library.state == STARTING && !late)
        late = pthread_cond_clockwait(&library.changed, &library.lock, CLOCK_MONOTONIC, &until);
    if (library.state == STARTING)
        return choir__error(CHOIR_ERR_TIMEOUT,
            "MPI did not start within %g s: not all ranks that the launcher started have come "
            "to it",
            timeout_s);
    return CHOIR_OK;
}

/* Under library.lock. */
static choir_status start(double timeout_s)
{
    int there = 0, over = 0;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (over || library.state >= ENDING)
        return choir__error(CHOIR_ERR_STATE,
            "MPI has ended in this process, and cannot start again: init the group before "
            "MPI_Finalize");
    if (library.state == ASLEEP && there) { /* started by the program */
        MPI_Query_thread(&library.threads);
        library.state = make_home() ? RUNNING : BROKEN;
    } else if (library.state == ASLEEP && start_keeper() != CHOIR_OK) {
        return CHOIR_ERR_IO;
    }
    if (wait_for_keeper(timeout_s) != CHOIR_OK)
        return CHOIR_ERR_TIMEOUT;
    if (library.state != RUNNING)
        return choir__error(CHOIR_ERR_STATE, "MPI did not start");
    if (library.threads < MPI_THREAD_SERIALIZED)
        return choir__error(CHOIR_ERR_STATE,
            "MPI was started for one thread alone: start it with MPI_Init_thread and "
            "MPI_THREAD_SERIALIZED or more");
    return CHOIR_OK;
}

choir_status choir__mpi_start(double timeout_s)
{
    if (choir__mpi_abandoned())
        return choir__error(CHOIR_ERR_STATE,
            "a group of this process failed with MPI's transfers under way: start it again");
    pthread_mutex_lock(&library.lock);
    choir_status status = start(timeout_s);
    pthread_mutex_unlock(&library.lock);
    return status;
}
