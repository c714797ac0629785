/* choir_spawn: its ranks know their rank and world. When one fails or the caller is asked to
 * stop, all are stopped, and the status gives the reason. */
#include "fault/notes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "multi/ranks.h"

static int exits_with_3(int rank, int world, void *arg)
{
    if (rank == world - 1)
        return 3;
    nap(2 * HANGS_S);
    return 0;
}

static void test_exit_status(void **state)
{
    double start = choir__now();
    assert_fails(choir_spawn(3, exits_with_3, NULL), CHOIR_ERR_PEER_LOST, "rank 2 (pid ");
    assert_says("exited with status 3");
    assert_true(choir__now() - start < HANGS_S); /* the others were stopped */
    errno = 0;
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    assert_int_equal(choir_spawn(0, exits_with_3, NULL), CHOIR_ERR_ARGUMENT);
}

static int knows_itself(int rank, int world, void *arg)
{
    CHECK(atoi(getenv("RANK")) == rank && atoi(getenv("LOCAL_RANK")) == rank);
    CHECK(atoi(getenv("WORLD_SIZE")) == world && atoi(getenv("LOCAL_WORLD_SIZE")) == world);
    CHECK(strlen(getenv("CHOIR_JOB")) == 32);
    CHECK(getpgrp() == *(pid_t *)arg);
    return 0;
}

static void test_environment(void **state)
{
    pid_t group = getpgrp();
    ok(choir_spawn(4, knows_itself, &group));
}

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    stopped = 1;
}

static int waits_for_signal(int rank, int world, void *arg)
{
    signal(SIGTERM, stop);
    ((notes *)arg)->pid[rank] = getpid();
    while (!stopped)
        nap(0.02);
    return 7;
}

static void assert_interrupted_ends(choir_spawn_fn *rank, choir_status expected)
{
    int status;
    notes *n = new_notes();
    pid_t pid = spawner(3, rank, n);
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), -expected);
    munmap(n, sizeof *n);
}

static void test_signal_passed_on(void **state)
{
    assert_interrupted_ends(waits_for_signal, CHOIR_ERR_INTERRUPTED);
}

/* Rank 1 crashes at the signal, which is reported although rank 0 ends in order. */
static int crashes_at_signal(int rank, int world, void *arg)
{
    int status = waits_for_signal(rank, world, arg);
    signal(SIGABRT, SIG_DFL);
    return rank == 1 ? raise(SIGABRT) : status;
}

static void test_crash_at_signal(void **state)
{
    assert_interrupted_ends(crashes_at_signal, CHOIR_ERR_PEER_LOST);
}

/* --- one of several nodes --- */

static int on_second_node(int rank, int world, void *arg)
{
    int local = atoi(getenv("LOCAL_RANK"));
    CHECK(rank == 2 + local && world == 6);
    CHECK(atoi(getenv("RANK")) == rank && atoi(getenv("WORLD_SIZE")) == 6);
    CHECK(atoi(getenv("LOCAL_WORLD_SIZE")) == 2 && atoi(getenv("GROUP_RANK")) == 1);
    CHECK(!strcmp(getenv("CHOIR_INIT"), "tcp://[::1]:4567"));
    CHECK(!strcmp(getenv("MASTER_ADDR"), "::1") && !strcmp(getenv("MASTER_PORT"), "4567"));
    CHECK(!strcmp(getenv("CHOIR_KEY_FILE"), "key") && !getenv("CHOIR_JOB"));
    return 0;
}

static int fails_on_node_1(int rank, int world, void *arg)
{
    return rank == 3 ? 9 : 0;
}

static void test_several_nodes(void **state)
{
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.node = 1;
    opts.nodes = 3;
    assert_fails(
        choir_spawn_with(2, on_second_node, NULL, opts), CHOIR_ERR_ARGUMENT, "meeting point");
    opts.method = "tcp://[::1]:4567";
    opts.key_file = "key";
    ok(choir_spawn_with(2, on_second_node, NULL, opts));
    assert_fails(
        choir_spawn_with(2, fails_on_node_1, NULL, opts), CHOIR_ERR_PEER_LOST, "rank 3 (pid ");
    opts.node = 3;
    assert_int_equal(choir_spawn_with(2, on_second_node, NULL, opts), CHOIR_ERR_ARGUMENT);
}

/* --- in the ranks of a launcher --- */

static int returns_at_once(int rank, int world, void *arg)
{
    return 0;
}

/* Stores what spawns of one rank write to standard error in a process that a launcher would
 * have started as this rank of `world`. */
static void spawn_as(const char *rank, const char *world, int nodes, char text[1024])
{
    choir_spawn_opts opts = choir_spawn_defaults();
    int ends[2], before = dup(STDERR_FILENO);
    opts.nodes = nodes;
    opts.method = nodes > 1 ? "tcp://127.0.0.1:4567" : NULL;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", world, 1);
    choir_status status = choir_spawn_with(1, returns_at_once, NULL, opts);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    memset(text, 0, 1024);
    (void)!read(ends[0], text, 1023);
    close(ends[0]);
    ok(status);
}

static void test_notes_a_launcher(void **state)
{
    char text[1024];
    spawn_as("0", "2", 1, text);
    assert_non_null(
        strstr(text, "note: this is rank 0 of 2 of a launcher; choir_spawn starts"));
    spawn_as("1", "2", 1, text);
    assert_string_equal(text, "");
    spawn_as("0", "1", 1, text);
    assert_string_equal(text, "");
    spawn_as("0", "2", 2, text); /* the processes start the parts of one job */
    assert_string_equal(text, "");
}

/* --- asked what its ranks are at --- */

static int meets_and_waits(int rank, int world, void *arg)
{
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_barrier(group, NULL));
    ((notes *)arg)->pid[rank] = getpid();
    nap(60);
    return 0;
}

static void test_shows_recorders(void **state)
{
    char text[8192] = "";
    size_t used = 0;
    int status, ends[2], before = dup(STDERR_FILENO);
    notes *n = new_notes();
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    pid_t pid = spawner(2, meets_and_waits, n);
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    kill(pid, SIGUSR1);
    nap(0.5);
    kill(pid, SIGTERM);
    for (ssize_t got; (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_non_null(strstr(text, "barrier"));
    for (int r = 0; r < 2; r++) {
        char number[16];
        snprintf(number, sizeof number, "%d", (int)n->pid[r]);
        assert_non_null(strstr(text, number));
    }
    close(ends[0]);
    close(before);
    munmap(n, sizeof *n);
}

/* Rank 1 stops behind its last collective, where no group looks for it any more. */
static int stop_at_the_end(int rank, int world, void *arg)
{
    if (rank == 1)
        raise(SIGSTOP);
    return 0;
}

static void stopped_at_the_end(void **state)
{
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.timeout_s = 1;
    double start = choir__now();
    assert_int_equal(choir_spawn_with(2, stop_at_the_end, NULL, opts), CHOIR_ERR_PEER_LOST);
    assert_true(choir__now() - start < HANGS_S);
    assert_says("rank 1 (pid ");
    assert_says("was stopped (SIGSTOP) for 1 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_signal_passed_on),
        cmocka_unit_test(test_crash_at_signal),
        cmocka_unit_test(test_several_nodes),
        cmocka_unit_test(test_notes_a_launcher),
        cmocka_unit_test(test_shows_recorders),
        cmocka_unit_test(stopped_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
