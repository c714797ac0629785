/* Ranks that die, leave, disagree or fall silent: all others soon get an error that names them,
 * and nothing is left behind. Times are upper bounds in seconds, for slow machines. */
#include "fault/notes.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "comm/group.h"
#include "multi/ranks.h"

/* --- death --- */

typedef enum moment { BEFORE_A_CALL, AMID_CALLS, EXIT_WITHOUT_FREE } moment;

typedef struct death {
    notes *notes;
    moment when;
    int victim;
    bool busy; /* rank 0 computes until the others have found out without it */
} death;

static int dying(int rank, int world, void *arg)
{
    death *d = arg;
    choir_group *group;
    float *x = calloc(100000, sizeof *x);
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    note_self(d->notes, rank);
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank == d->victim && d->when != AMID_CALLS) {
        nap(0.2); /* the others are asleep by then */
        d->notes->died_at = choir__now();
        if (d->when == EXIT_WITHOUT_FREE)
            _exit(0);
        kill(getpid(), SIGKILL);
    }
    if (rank == d->victim && fork() == 0) { /* strikes at any moment */
        nap(0.2);
        d->notes->died_at = choir__now();
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    for (int r = 1; r < world && d->busy && rank == 0; r++)
        while (r != d->victim && !*(volatile choir_status *)&d->notes->status[r])
            nap(0.01);
    choir_status status = CHOIR_OK;
    for (int i = 0; !status; i++)
        status =
            choir_group_all_reduce(group, x, i % 3 ? 100000 : 10, CHOIR_F32, CHOIR_SUM, NULL);
    note(d->notes, rank, status);
    choir_group_free(group);
    free(x);
    return 0;
}

static void dies(moment when, int world, int victim, bool busy)
{
    char who[96];
    death d = {new_notes(), when, victim, busy};
    choir_status status = choir_spawn(world, dying, &d);
    snprintf(who, sizeof who, "rank %d (pid %d) %s", victim, (int)d.notes->pid[victim],
        when == EXIT_WITHOUT_FREE ? "has ended (it exited with status 0), and all_reduce"
                                  : "died during all_reduce");
    for (int r = 0; r < world; r++) {
        if (r == victim)
            continue;
        if (!strstr(d.notes->message[r], who))
            fail_msg(
                "world %d, victim %d, rank %d: '%s'", world, victim, r, d.notes->message[r]);
        assert_int_equal(d.notes->status[r], CHOIR_ERR_PEER_LOST);
        assert_true(d.notes->seconds[r] < HANGS_S);
    }
    if (when == EXIT_WITHOUT_FREE) {
        ok(status); /* a rank may do that to itself */
    } else {
        assert_int_equal(status, CHOIR_ERR_PEER_LOST);
        snprintf(who, sizeof who, "rank %d (pid %d) was killed by SIGKILL", victim,
            (int)d.notes->pid[victim]);
        assert_says(who);
    }
    munmap(d.notes, sizeof *d.notes);
}

static void test_death(void **state)
{
    for (int when = BEFORE_A_CALL; when <= EXIT_WITHOUT_FREE; when++) {
        dies((moment)when, 2, 1, false);
        dies((moment)when, 3, 0, false);
        dies((moment)when, 5, 2, false);
    }
}

static void test_death_while_rank_0_is_busy(void **state)
{
    dies(BEFORE_A_CALL, 4, 2, true);
}

/* Before everyone has met. */
static int dying_early(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = LATE_S;
    if (rank == 1)
        return 0; /* never comes */
    note(n, rank, choir_group_init(NULL, opts, &group));
    return 0;
}

static void test_never_came(void **state)
{
    notes *n = new_notes();
    ok(choir_spawn(3, dying_early, n));
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(n->status[r], CHOIR_ERR_TIMEOUT);
        assert_non_null(strstr(n->message[r], "rank 1 of 3 never came within 4 s"));
    }
    munmap(n, sizeof *n);
}

/* Ranks 0 and 2, 1 and 3 are to become sub-groups; the victim announces that, and then dies or
 * falls silent. */
typedef struct split {
    notes *notes;
    int victim;
    bool dies;
} split;

static int splitting(int rank, int world, void *arg)
{
    split *s = arg;
    choir_group *group, *child = NULL;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = s->dies ? 20 : LATE_S;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    note_self(s->notes, rank);
    int32_t mine[3] = {rank % 2, rank, rank}, all[3 * 4]; /* what choir_group_split gathers */
    if (rank == s->victim) {
        CHECK_OK(choir_group_all_gather(group, mine, all, 3, CHOIR_I32, NULL));
        if (s->dies)
            kill(getpid(), SIGKILL);
        while (!*(volatile choir_status *)&s->notes->status[4 - rank])
            nap(0.01);
        _exit(0);
    }
    note(s->notes, rank, choir_group_split(group, rank % 2, rank, &child));
    choir_group_free(child);
    choir_group_free(group);
    return world < 0;
}

/* The sentence names the victim by its number in the group that is split. */
static void test_lost_in_split(void **state)
{
    for (int victim = 1; victim <= 3; victim += 2)
        for (int dies = 0; dies < 2; dies++) {
            split s = {new_notes(), victim, dies};
            int partner = 4 - victim;
            char who[64];
            choir_spawn(4, splitting, &s);
            snprintf(who, sizeof who, "rank %d (pid %d) %s", victim, (int)s.notes->pid[victim],
                dies ? "died" : "did not come to choir_group_split");
            if (!strstr(s.notes->message[partner], who))
                fail_msg("rank %d: '%s', not '%s'", partner, s.notes->message[partner], who);
            assert_int_equal(
                s.notes->status[partner], dies ? CHOIR_ERR_PEER_LOST : CHOIR_ERR_TIMEOUT);
            munmap(s.notes, sizeof *s.notes);
        }
}

/* Ranks whose RANK or WORLD_SIZE was set wrongly. */
static int wrong_world(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = 20;
    opts.rank = rank;
    opts.world = rank == 1 ? world + 1 : world;
    note(arg, rank, choir_group_init(NULL, opts, &group));
    return 0;
}

static int wrong_rank(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = 20;
    opts.rank = rank == 2 ? 1 : rank;
    opts.world = world;
    note(arg, rank, choir_group_init(NULL, opts, &group));
    return 0;
}

static void test_wrongly_started(void **state)
{
    notes *n = new_notes();
    ok(choir_spawn(2, wrong_world, n));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(n->status[r], CHOIR_ERR_MISMATCH);
        assert_non_null(
            strstr(n->message[r], "a rank 1 of 3 joined where rank 0 counts 2 ranks"));
    }
    ok(choir_spawn(3, wrong_rank, n));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(n->status[r], CHOIR_ERR_MISMATCH);
        assert_non_null(strstr(n->message[r], "say they are rank 1"));
    }
    munmap(n, sizeof *n);
}

/* --- leaving, silence, disagreement --- */

static int leaving(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_barrier(group, NULL));
    if (rank != 1)
        note(n, rank, choir_group_barrier(group, NULL));
    choir_group_free(group);
    if (rank == 1)
        nap(0.5);
    return 0;
}

static void test_left(void **state)
{
    notes *n = new_notes();
    ok(choir_spawn(3, leaving, n));
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(n->status[r], CHOIR_ERR_PEER_LOST);
        assert_non_null(
            strstr(n->message[r], "has left the group, and barrier (number 2) needs it"));
        assert_non_null(strstr(n->message[r], "rank 1 (pid"));
    }
    munmap(n, sizeof *n);
}

static int silent(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    float x = 1;
    opts.timeout_s = LATE_S;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    CHECK_OK(choir_group_barrier(group, NULL));
    for (int r = 0; r < 4 && (rank == 1 || rank == 2); r += 3)
        while (!*(volatile choir_status *)&n->status[r])
            nap(0.01);
    note(n, rank, choir_group_all_reduce(group, &x, 1, CHOIR_F32, CHOIR_SUM, NULL));
    choir_group_free(group);
    return 0;
}

static void test_silence(void **state)
{
    notes *n = new_notes();
    ok(choir_spawn(4, silent, n));
    for (int r = 0; r < 4; r++) { /* the silent ones learn of it when they come */
        assert_int_equal(n->status[r], CHOIR_ERR_TIMEOUT);
        assert_non_null(
            strstr(n->message[r], "ranks 1, 2 did not come to all_reduce of 1 f32"));
    }
    munmap(n, sizeof *n);
}

static int disagreeing(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    float x[40000] = {0}; /* past the size that takes a single step */
    int64_t count = rank == 1 ? 20000 : 40000;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_SUM, NULL));
    note(n, rank, choir_group_all_reduce(group, x, count, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK(choir_group_barrier(group, NULL) == CHOIR_ERR_MISMATCH); /* it sticks */
    choir_group_free(group);
    return 0;
}

static int disagreeing_calls(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    float x[3] = {0};
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    note(n, rank,
        rank == 1 ? choir_group_broadcast(group, x, 12, CHOIR_U8, 0, NULL)
                  : choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_SUM, NULL));
    choir_group_free(group);
    return 0;
}

static void test_mismatch(void **state)
{
    notes *n = new_notes();
    for (int world = 2; world <= 5; world++) {
        ok(choir_spawn(world, disagreeing, n));
        for (int r = 0; r < world; r++) {
            assert_int_equal(n->status[r], CHOIR_ERR_MISMATCH);
            assert_non_null(strstr(n->message[r],
                "rank 1 called all_reduce of 20000 f32 while rank 0 called all_reduce of "
                "40000 f32"));
        }
        ok(choir_spawn(world, disagreeing_calls, n));
        for (int r = 0; r < world; r++)
            assert_non_null(strstr(n->message[r],
                "rank 1 called broadcast of 12 u8 from rank 0 while rank 0 called "
                "all_reduce of 3 f32"));
    }
    munmap(n, sizeof *n);
}

/* --- nothing left behind --- */

/* Names in this process's network namespace and files that could have been left behind. */
static int traces(void)
{
    char line[512];
    int found = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && fgets(line, sizeof line, f))
        found += strstr(line, "@choir/") != NULL;
    if (f)
        fclose(f);
    return found + shared_files();
}

static int computes_forever(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_group *group;
    choir__shared *shared;
    float x = 0;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, 1 << 20, &shared));
    n->pid[rank] = getpid();
    for (;;)
        CHECK_OK(choir_group_all_reduce(group, &x, 1, CHOIR_F32, CHOIR_SUM, NULL));
}

static void test_nothing_left(void **state)
{
    notes *n = new_notes();
    int before = traces();
    kill_spawner(spawner(3, computes_forever, n), n, 3);
    double deadline = choir__now() + HANGS_S;
    while (traces() > before && choir__now() < deadline)
        nap(0.02); /* other tests of this machine may be at it */
    assert_true(traces() <= before);
    munmap(n, sizeof *n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_while_rank_0_is_busy),
        cmocka_unit_test(test_never_came),
        cmocka_unit_test(test_lost_in_split),
        cmocka_unit_test(test_wrongly_started),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
