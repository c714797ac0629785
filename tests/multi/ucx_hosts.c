/* The engine "ucx" between machines, which are network namespaces here. Messages use TCP alone,
 * and rank 0 keeps the store and requires a key. The test is skipped where namespaces cannot be
 * made. */
#include "over_ucx.h"
#include "ucx_ranks.h"

static void test_messages(void **state)
{
    for (int world = 2; world <= 4; world += 2) {
        stage *s = start(world, true, 60, do_swaps);
        finish(s);
        assert_all_well(s);
    }
}

static void reduce_some(choir__engine *e, stage *s)
{
    for (int64_t n = 1; n < 2000000; n = 7 * n + 3)
        if (!reduce_all(e, n, CHOIR__EXCHANGE))
            return;
}

static void test_collectives(void **state)
{
    stage *s = start(3, true, 60, reduce_some);
    finish(s);
    assert_all_well(s);
}

static void test_a_rank_that_dies(void **state)
{
    for (int victim = 0; victim < 3; victim++) { /* rank 0 takes the store along */
        char who[64];
        stage *s = start(3, true, 60, swap_on);
        await_all(s, 2);
        kill(s->pids[victim], SIGKILL);
        finish(s);
        snprintf(who, sizeof who, "rank %d (pid %d on host%d)", victim, (int)s->pids[victim],
            victim);
        assert_all_failed(s, victim, CHOIR_ERR_PEER_LOST, who);
    }
}

static void test_a_rank_that_is_stopped(void **state)
{
    stage *s = start(3, true, LATE_S, swap_on);
    await_all(s, 2);
    kill(s->pids[1], SIGSTOP);
    await_stage(s, 0, ENDED);
    await_stage(s, 2, ENDED);
    kill(s->pids[1], SIGCONT);
    finish(s);
    assert_all_failed(s, -1, CHOIR_ERR_TIMEOUT, "on host1) did not come to all_reduce");
}

/* The ranks that still reach the store agree on which rank is gone. The rank that is cut off
 * knows only that no other rank answers. */
static void test_a_rank_that_is_cut_off(void **state)
{
    stage *s = start(3, true, LATE_S, swap_on);
    await_all(s, 2);
    cut_off(s, 2);
    finish(s);
    assert_int_not_equal(s->ranks[2].status, CHOIR_OK);
    assert_non_null(strstr(s->ranks[2].message, "cut off"));
    s->world = 2;
    assert_all_failed(s, -1, CHOIR_ERR_TIMEOUT, "rank 2 (pid");
}

int main(void)
{
    const char *reason = have_ucx() ? no_hosts() : no_ucx();
    if (reason) {
        printf("skipped: %s\n", reason);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_a_rank_that_dies),
        cmocka_unit_test(test_a_rank_that_is_stopped),
        cmocka_unit_test(test_a_rank_that_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
