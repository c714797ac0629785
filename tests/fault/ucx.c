/* The engine "ucx": failures while ranks open it, with the rank that the error blames, and rank
 * 0's duties to the others after a failure, since it keeps their store. */
#include "over_ucx.h"
#include "ucx_ranks.h"

#include "comm/group.h"

static const char *who(const stage *s, int rank, char text[64])
{
    snprintf(text, 64, "rank %d (pid %d", rank, (int)s->pids[rank]);
    return text;
}

static void do_nothing(choir__engine *e, stage *s)
{
}

static void await_shared(const _Atomic int *flag, int at)
{
    for (int i = 0; i < 30000 && atomic_load(flag) < at; i++)
        usleep(1000);
}

/* --- while they open --- */

/* Rank 2 is dead, and its process reaped, before anybody can watch it. */
static void die_first(choir__meeting *m, stage *s)
{
    if (m->rank == 2)
        raise(SIGKILL);
    await_shared(&s->ranks[2].stage, REAPED);
}

static void test_a_rank_that_was_dead_before(void **state)
{
    char name[64];
    before_opening = die_first;
    stage *s = start(3, false, 60, do_nothing);
    before_opening = NULL;
    finish(s);
    assert_all_failed(s, 2, CHOIR_ERR_PEER_LOST, who(s, 2, name));
}

/* Rank 2 never opens; rank 0 gives up, and exits. Rank 1, which has a long timeout, must not
 * report rank 0 as the dead one. */
static void never_open(choir__meeting *m, stage *s)
{
    if (m->rank == 0)
        m->timeout_s = LATE_S;
    if (m->rank != 2)
        return;
    for (int r = 0; r < 2; r++)
        await_shared(&s->ranks[r].stage, REAPED);
    exit(0);
}

static void test_a_rank_that_gives_up(void **state)
{
    before_opening = never_open;
    stage *s = start(3, false, 60, do_nothing);
    before_opening = NULL;
    finish(s);
    assert_all_failed(s, 2, CHOIR_ERR_TIMEOUT, "rank 2 did not open backend 'ucx'");
}

/* Replaces the test's function: returns on rank 0 when all are connected. */
static void keep_the_store(choir__meeting *m, stage *s)
{
    choir_store_opts opts = choir_store_defaults();
    opts.timeout_s = LATE_S;
    choir_store_free(m->store);
    if (m->rank == 0) {
        if (choir_store_serve(opts, &m->server))
            exit(9);
        s->port = choir_store_port(m->server);
        in_stage(s, 0, 1);
    }
    await_shared(&s->ranks[0].stage, 1);
    if (choir_store_connect("127.0.0.1", s->port, opts, &m->store))
        exit(9);
    in_stage(s, m->rank, 1);
    for (int r = 1; r < s->world && m->rank == 0; r++)
        await_shared(&s->ranks[r].stage, 1);
}

static void keep_it_and_stop(choir__meeting *m, stage *s)
{
    keep_the_store(m, s);
    if (m->rank == 0)
        raise(SIGSTOP);
}

/* Waits until all ranks from 1 on have stored their outcome. */
static void await_words(const stage *s)
{
    for (int r = 1; r < s->world; r++)
        for (int i = 0; i < 30000 && !*(const volatile char *)s->ranks[r].message; i++)
            usleep(1000);
}

static void test_rank_0_is_stopped(void **state)
{
    char name[64];
    before_opening = keep_it_and_stop;
    stage *s = start(2, false, LATE_S, do_nothing);
    before_opening = NULL;
    await_words(s);
    kill(s->pids[0], SIGKILL);
    finish(s);
    assert_all_failed(s, 0, CHOIR_ERR_TIMEOUT, who(s, 0, name));
    assert_non_null(strstr(s->ranks[1].message, "stopped"));
}

/* --- who waits for whom --- */

/* Each waits for the other; rank 1 is a call ahead, which is no disagreement. */
static void wait_a_call_apart(choir__engine *e, stage *s)
{
    char byte;
    choir__request request;
    e->seq += (uint32_t)e->rank;
    choir__stamp stamp = stamp_of(e, 1 + (uint64_t)e->rank);
    e->ops->receive(e, 1 - e->rank, &byte, 1, &stamp, &request);
    e->ops->wait(e, &request, 1);
}

static void test_calls_of_other_numbers_differ_by_right(void **state)
{
    stage *s = start(2, false, LATE_S, wait_a_call_apart);
    finish(s);
    assert_all_failed(s, -1, CHOIR_ERR_TIMEOUT, "ranks 0, 1 all wait for each other");
}

/* Rank 1 waits for rank 2, and that one for rank 0, which is stopped and the store with it: no
 * answers lead rank 1 there. */
static void wait_for_who_waits(choir__engine *e, stage *s)
{
    char byte;
    choir__request request;
    choir__stamp stamp = stamp_of(e, 1);
    in_stage(s, e->rank, 2);
    for (int r = 1; r < 3 && e->rank == 0; r++)
        await_shared(&s->ranks[r].stage, 2);
    if (e->rank == 0)
        raise(SIGSTOP);
    e->ops->receive(e, e->rank == 1 ? 2 : 0, &byte, 1, &stamp, &request);
    e->ops->wait(e, &request, 1);
}

static void test_rank_0_is_stopped_behind_who_waits(void **state)
{
    char name[64];
    before_opening = keep_the_store;
    stage *s = start(3, false, LATE_S, wait_for_who_waits);
    before_opening = NULL;
    await_words(s);
    kill(s->pids[0], SIGKILL);
    finish(s);
    assert_all_failed(s, 0, CHOIR_ERR_TIMEOUT, who(s, 0, name));
    assert_non_null(strstr(s->ranks[1].message, "is stopped"));
}

/* --- afterwards --- */

/* Rank 2 dies. Rank 0 finds out and frees its group, while rank 1 still computes: the store,
 * where it will read why, must still be there. */
typedef struct aftermath {
    _Atomic int failed;
    char method[64];
} aftermath;

static int live_on(int rank, aftermath *a)
{
    choir_group *g;
    choir_group_opts opts = choir_group_defaults();
    char *value = NULL;
    opts.rank = rank;
    opts.world = 3;
    opts.backend = "ucx";
    if (choir_group_init(a->method, opts, &g) || choir_group_barrier(g, NULL))
        return 1;
    if (rank == 2)
        raise(SIGKILL);
    if (rank == 0) {
        int failed = choir_group_barrier(g, NULL) == CHOIR_ERR_PEER_LOST;
        atomic_store(&a->failed, 1);
        choir_group_free(g);
        return !failed;
    }
    await_shared(&a->failed, 1);
    usleep(150000); /* rank 0 would be gone by now */
    choir_status status =
        choir_store_get(g->job->meeting.store, "meet/outcome", 0, &value, NULL);
    free(value);
    choir_group_free(g);
    return status ? 2 : 0;
}

static void test_rank_0_keeps_the_store_for_a_moment(void **state)
{
    pid_t pids[3];
    int status;
    aftermath *a = shared_memory(sizeof *a);
    snprintf(a->method, sizeof a->method, "file:///tmp/choir-test-ucx-%d", (int)getpid());
    fflush(NULL);
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(live_on(r, a));
        }
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, r == 2 ? SIGKILL : 0);
    }
    unlink(a->method + strlen("file://"));
    munmap(a, sizeof *a);
}

int main(void)
{
    if (!have_ucx()) {
        printf("skipped: %s\n", no_ucx());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_that_was_dead_before),
        cmocka_unit_test(test_a_rank_that_gives_up),
        cmocka_unit_test(test_rank_0_is_stopped),
        cmocka_unit_test(test_calls_of_other_numbers_differ_by_right),
        cmocka_unit_test(test_rank_0_is_stopped_behind_who_waits),
        cmocka_unit_test(test_rank_0_keeps_the_store_for_a_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
