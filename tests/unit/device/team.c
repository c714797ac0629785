/* Teams of threads: device/cpu/team.h. */
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "device/cpu/team.h"
#include "check.h"

enum { THREADS = 3, PARTS = 7 };

/* One part is computed by one thread. */
static void count(const void *arg, int thread, int threads)
{
    int *counts = *(int *const *)arg;
    assert_true(thread < threads && threads <= THREADS);
    for (int i = thread; i < PARTS; i += threads)
        counts[i]++;
}

static void run_rounds(choir__team *team, int rounds)
{
    int counts[PARTS] = {0}, *const p = counts;
    for (int i = 0; i < rounds; i++)
        choir__team_run(team, count, &p);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(counts[i], rounds);
}

static void each_round_runs_once(void **state)
{
    choir__team *team = choir__team_new(THREADS);
    run_rounds(team, 5000);
    choir__team_free(team);
}

/* Longer than threads look before they sleep. */
static void sleepers_wake(void **state)
{
    const struct timespec pause = {0, 2000000};
    choir__team *team = choir__team_new(THREADS);
    for (int i = 0; i < 20; i++) {
        run_rounds(team, 1);
        nanosleep(&pause, NULL);
    }
    choir__team_free(team); /* while they sleep */
}

/* The last thread takes longer than the caller looks. */
static void rest(const void *arg, int thread, int threads)
{
    const struct timespec pause = {0, 2000000};
    if (thread == threads - 1)
        nanosleep(&pause, NULL);
    (*(atomic_int *const *)arg)[0]++;
}

static void slow_threads_are_awaited(void **state)
{
    atomic_int ended = 0, *const p = &ended;
    choir__team *team = choir__team_new(THREADS);
    for (int i = 1; i <= 20; i++) {
        choir__team_run(team, rest, &p);
        assert_int_equal(ended, i * THREADS);
    }
    choir__team_free(team);
}

static void idle_teams_end(void **state)
{
    choir__team_free(choir__team_new(THREADS)); /* it never began */
    choir__team_free(NULL);
}

static void a_child_has_threads_of_its_own(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer ends a child that starts threads */
#endif
    int status;
    choir__team *team = choir__team_new(THREADS);
    run_rounds(team, 10);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run_rounds(team, 10);
        choir__team_free(team);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_rounds(team, 10);
    choir__team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_round_runs_once),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(slow_threads_are_awaited),
        cmocka_unit_test(idle_teams_end),
        cmocka_unit_test(a_child_has_threads_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
