/* choir_spawn: its ranks know who they are, and when one fails or the caller is told to stop,
 * all are stopped and the status says why. */
#include "fault/notes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "multi/ranks.h"

static int exits_with_3(int rank, int world, void *arg)
{
    (void)arg;
    if (rank == world - 1)
        return 3;
    nap(60);
    return 0;
}

static void test_exit_status(void **state)
{
    double start = choir__now();
    (void)state;
    assert_int_equal(choir_spawn(3, exits_with_3, NULL), CHOIR_ERR_PEER_LOST);
    assert_non_null(strstr(choir_error_message(), "rank 2 (pid "));
    assert_non_null(strstr(choir_error_message(), "exited with status 3"));
    assert_true(choir__now() - start < 10); /* the others were stopped */
    errno = 0;
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    assert_int_equal(choir_spawn(0, exits_with_3, NULL), CHOIR_ERR_ARGUMENT);
}

static int knows_itself(int rank, int world, void *arg)
{
    (void)arg;
    CHECK(atoi(getenv("RANK")) == rank && atoi(getenv("LOCAL_RANK")) == rank);
    CHECK(atoi(getenv("WORLD_SIZE")) == world && atoi(getenv("LOCAL_WORLD_SIZE")) == world);
    CHECK(strlen(getenv("CHOIR_JOB")) == 32);
    CHECK(getpgrp() == *(pid_t *)arg);
    return 0;
}

static void test_environment(void **state)
{
    pid_t group = getpgrp();
    (void)state;
    assert_int_equal(choir_spawn(4, knows_itself, &group), CHOIR_OK);
}

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static int waits_for_signal(int rank, int world, void *arg)
{
    (void)world;
    signal(SIGTERM, stop);
    ((notes *)arg)->pid[rank] = getpid();
    while (!stopped)
        nap(0.02);
    return 7;
}

static void test_signal_passed_on(void **state)
{
    int status;
    notes *n = new_notes();
    (void)state;
    pid_t pid = spawner(3, waits_for_signal, n);
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), -CHOIR_ERR_INTERRUPTED);
    munmap(n, sizeof *n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_signal_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
