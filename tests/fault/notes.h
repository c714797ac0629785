/* Notes that ranks leave for their test, even if they die: memory that forks share. */
#ifndef CHOIR_TEST_NOTES_H
#define CHOIR_TEST_NOTES_H

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <choir/group.h>
#include "base/base.h"
#include "helpers.h"
#include "over_ucx.h"

static inline void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

/* Notes of a test's ranks, in anonymous memory that forks share. */
typedef struct notes {
    choir_status status[8];
    char message[8][512];
    double seconds[8]; /* from the death until the rank reports it */
    double died_at;
    pid_t pid[8];
    bool killed; /* the rank that goes is killed, or else returns early */
} notes;

static inline notes *new_notes(void)
{
    return shared_memory(sizeof(notes));
}

/* A rank on a busy machine is late to report the loss of another one: it outlives the SIGTERM
 * by which the supervisor ends all that are left then, a second and a half after the loss. */
static inline void note_self(notes *n, int rank)
{
    signal(SIGTERM, SIG_IGN);
    n->pid[rank] = getpid();
}

static inline void note(notes *n, int rank, choir_status status)
{
    n->status[rank] = status;
    snprintf(n->message[rank], sizeof n->message[rank], "%s", choir_error_message());
    n->seconds[rank] = choir__now() - n->died_at;
}

/* Asserts that a rank ended with an error whose message contains the words. */
static inline void assert_told(const notes *n, int rank, const char *words)
{
    if (n->status[rank] == CHOIR_OK)
        fail_msg("rank %d ended without an error", rank);
    if (!strstr(n->message[rank], words))
        fail_msg("rank %d: '%s' lacks '%s'", rank, n->message[rank], words);
}

/* Asserts that every other rank has reported that the victim is lost. */
static inline void assert_others_name(const notes *n, int ranks, int victim)
{
    char name[64];
    snprintf(name, sizeof name, "rank %d (pid %d", victim, (int)n->pid[victim]);
    for (int r = 0; r < ranks; r++)
        if (r != victim) {
            assert_int_equal(n->status[r], CHOIR_ERR_PEER_LOST);
            assert_told(n, r, name);
        }
}

/* Asserts that the other ranks ended with an error that contains the words, in time. */
static inline void assert_others_told(const notes *n, int ranks, int victim, const char *words)
{
    for (int r = 0; r < ranks; r++)
        if (r != victim) {
            assert_told(n, r, words);
            assert_true(n->seconds[r] < HANGS_S);
        }
}

/* Returns the number of Choir's files in shared memory. */
static inline int shared_files(void)
{
    int found = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        found += strstr(e->d_name, "choir") != NULL;
    if (d)
        closedir(d);
    return found;
}

/* Kills the process that spawned ranks, and asserts that all of them end. */
static inline void kill_spawner(pid_t pid, const notes *n, int ranks)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    double deadline = choir__now() + HANGS_S;
    for (int r = 0; r < ranks; r++)
        while (!gone(n->pid[r]) && choir__now() < deadline)
            nap(0.02);
    for (int r = 0; r < ranks; r++)
        assert_true(gone(n->pid[r]));
}

static inline void await_pids(const notes *n, int ranks)
{
    for (int r = 0; r < ranks; r++)
        while (!*(volatile const pid_t *)&n->pid[r])
            nap(0.01);
}

/* Runs choir_spawn in a separate process, whose exit status is minus the result. */
static inline pid_t spawner(int world, choir_spawn_fn *fn, notes *n)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(-choir_spawn(world, fn, n));
    await_pids(n, world);
    return pid;
}

#endif
