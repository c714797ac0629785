/* Ranks that keep the others waiting are named on all of them, in the same words, with their
 * last known activity. */
#include "fault/notes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "comm/group.h"
#include "multi/ranks.h"

/* The short limit begins when the ranks have met, however long a busy machine takes for that.
 */
static choir_group *join(double timeout_s)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = 60;
    choir_check(choir_group_init(NULL, opts, &group));
    group->engine->timeout_s = timeout_s;
    return group;
}

/* Ends the process of a rank that stopped itself, after the others have reported. The parent
 * cannot do this, because it waits for all. */
static void wake_later(pid_t pid, double seconds)
{
    if (fork() == 0) {
        nap(seconds);
        kill(pid, SIGCONT);
        _exit(0);
    }
}

static void same_on_all(const notes *n, int world, choir_status status)
{
    for (int r = 1; r < world; r++) {
        const char *zero =
            strstr(n->message[0], "rank 0: ") ? n->message[0] + 8 : n->message[0];
        const char *mine = n->message[r] + (strncmp(n->message[r], "rank ", 5) == 0 ? 8 : 0);
        assert_int_equal(n->status[r], status);
        assert_string_equal(mine, zero);
    }
}

/* --- stopped --- */

static int stopping(int rank, int world, void *arg)
{
    notes *n = arg;
    float x[3] = {1, 2, 3};
    choir_group *group = join(0.5);
    note_self(n, rank);
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank == 1) {
        wake_later(getpid(), 1.5);
        raise(SIGSTOP);
    }
    note(n, rank, choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_SUM, NULL));
    choir_group_free(group);
    return 0;
}

/* True if text has `want`, and then how many seconds ago that was. */
static bool has_age(const char *text, const char *want)
{
    char *end;
    const char *at = strstr(text, want);
    double seconds = at ? strtod(at + strlen(want), &end) : -1;
    return at && seconds > 0 && seconds < 60 && !strncmp(end, " s ago", 6);
}

static void test_stopped(void **state)
{
    for (int world = 2; world <= 3; world++) {
        notes *n = new_notes();
        char want[200];
        ok(choir_spawn(world, stopping, n));
        snprintf(want, sizeof want,
            "rank 1 (pid %d) is stopped (SIGSTOP) and did not come to all_reduce of 3 f32 "
            "(number 2) within 0.5 s; last seen: finished barrier (number 1) ",
            (int)n->pid[1]);
        same_on_all(n, world, CHOIR_ERR_TIMEOUT);
        if (!has_age(n->message[0], want))
            fail_msg("'%s' instead of '%s'", n->message[0], want);
        munmap(n, sizeof *n);
    }
}

static int stopping_by_twos(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group = join(0.5);
    note_self(n, rank);
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank == 1 || rank == 3) {
        wake_later(getpid(), 1.5);
        raise(SIGSTOP);
    }
    if (rank == 2)
        nap(1.2);
    note(n, rank, choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

static void test_several(void **state)
{
    notes *n = new_notes();
    char want[300];
    ok(choir_spawn(4, stopping_by_twos, n));
    same_on_all(n, 4, CHOIR_ERR_TIMEOUT);
    const char *text = n->message[0];
    if (!strstr(text, "ranks 1, 2, 3 did not come to barrier (number 2) within 0.5 s; "))
        fail_msg("'%s'", text);
    for (int r = 1; r < 4; r++) {
        snprintf(want, sizeof want, "rank %d (pid %d) %sfinished barrier (number 1) ", r,
            (int)n->pid[r], r == 2 ? "" : "stopped (SIGSTOP), ");
        if (!has_age(text, want))
            fail_msg("'%s' lacks '%s'", text, want);
    }
    munmap(n, sizeof *n);
}

/* A whole job that is stopped for longer than the timeout, as by Ctrl-Z, continues normally. */
static int all_stopping(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group = join(1.5);
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank == 0) {
        n->pid[0] = getpid();
        nap(0.3); /* rank 1 waits by then, and is stopped there; we are late */
    } else {
        n->pid[1] = getpid();
    }
    note(n, rank, choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

static void test_whole_job_stopped(void **state)
{
    notes *n = new_notes();
    int status;
    pid_t pid = spawner(2, all_stopping, n);
    nap(0.1);
    kill(n->pid[0], SIGSTOP);
    kill(n->pid[1], SIGSTOP);
    nap(2);
    kill(n->pid[1], SIGCONT);
    nap(0.1);
    kill(n->pid[0], SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ok(n->status[0]);
    ok(n->status[1]);
    munmap(n, sizeof *n);
}

/* --- busy elsewhere --- */

/* Rank 1 waits in a sub-group for rank 2, which waits for rank 1 in the world: a deadlock, as
 * from two groups used in different orders. */
static int deadlocked(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group = join(0.7), *part;
    note_self(n, rank);
    CHECK_OK(choir_group_split(group, rank > 0, rank, &part));
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank == 1)
        nap(0.2); /* so that the world's timeout is the first */
    note(n, rank,
        rank == 1 ? choir_group_barrier(part, NULL) : choir_group_barrier(group, NULL));
    choir_group_free(part);
    choir_group_free(group);
    return 0;
}

static void test_deadlock(void **state)
{
    notes *n = new_notes();
    char want[200];
    ok(choir_spawn(3, deadlocked, n));
    snprintf(
        want, sizeof want, "rank 1 (pid %d) did not come to barrier (number ", (int)n->pid[1]);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(n->status[r], CHOIR_ERR_TIMEOUT);
        const char *text = strstr(n->message[r], want);
        if (!text || !strstr(text, "; last seen: finished ") ||
            !strstr(text, " running barrier (number 1) of group world/"))
            fail_msg("'%s' instead of '%s'", n->message[r], want);
    }
    munmap(n, sizeof *n);
}

/* --- dead --- */

static int dying(int rank, int world, void *arg)
{
    notes *n = arg;
    float x[3] = {1, 2, 3};
    choir_group *group = join(20);
    note_self(n, rank);
    CHECK_OK(choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_MAX, NULL));
    if (rank == 1) {
        nap(0.2);
        if (n->killed)
            raise(SIGKILL);
        _exit(0);
    }
    note(n, rank, choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

/* A rank that returns early has not died. */
static void check_gone(bool killed, const char *how)
{
    notes *n = new_notes();
    char want[300];
    n->killed = killed;
    assert_int_equal(choir_spawn(3, dying, n), killed ? CHOIR_ERR_PEER_LOST : CHOIR_OK);
    snprintf(want, sizeof want,
        "rank 1 (pid %d) %s; its last call was all_reduce of 3 f32 (max) (number 1)",
        (int)n->pid[1], how);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(n->status[r], CHOIR_ERR_PEER_LOST);
        if (!strstr(n->message[r], want))
            fail_msg("'%s' instead of '%s'", n->message[r], want);
    }
    munmap(n, sizeof *n);
}

static void test_died(void **state)
{
    check_gone(true, "died during barrier (number 2)");
}

static void test_ended(void **state)
{
    check_gone(false, "has ended (it exited with status 0), and barrier (number 2) needs it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_whole_job_stopped),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_died),
        cmocka_unit_test(test_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
