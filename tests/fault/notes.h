/* Notes that ranks leave for their test, even if they die: memory that forks share. */
#ifndef CHOIR_TEST_NOTES_H
#define CHOIR_TEST_NOTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <choir/group.h>
#include "base/base.h"

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
    notes *n = mmap(NULL, sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n != MAP_FAILED);
    return n;
}

static inline void note(notes *n, int rank, choir_status status)
{
    n->status[rank] = status;
    snprintf(n->message[rank], sizeof n->message[rank], "%s", choir_error_message());
    n->seconds[rank] = choir__now() - n->died_at;
}

/* Runs choir_spawn in a separate process, whose exit status is minus the result. */
static inline pid_t spawner(int world, choir_spawn_fn *fn, notes *n)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(-choir_spawn(world, fn, n));
    for (int r = 0; r < world; r++)
        while (!*(volatile pid_t *)&n->pid[r])
            nap(0.01);
    return pid;
}

#endif
