/* The engine "ucx" among processes of one machine: messages, sub-groups, disagreement, ranks
 * that die, stop, leave or are late, and that nothing is left behind. */
#include "over_ucx.h"
#include "ucx_ranks.h"

#include "comm/openers.h"

#include <dirent.h>
#include <pthread.h>

static void run(int world, rank_fn *fn)
{
    stage *s = start(world, false, 60, fn);
    finish(s);
    assert_all_well(s);
}

/* --- messages --- */

static void test_messages(void **state)
{
    for (int world = 1; world <= 5; world += 2)
        run(world, do_swaps);
    run(2, do_swaps);
}

static void test_more_ranks_than_cores(void **state)
{
    run(8, do_swaps);
}

static void test_over_tcp_alone(void **state)
{
    setenv("UCX_TLS", "tcp,self", 1);
    run(3, do_swaps);
    unsetenv("UCX_TLS");
}

static void reduce_some(choir__engine *e, stage *s)
{
    for (int64_t n = 1; n < 2000000; n = 7 * n + 3)
        if (!reduce_all(e, n, CHOIR__EXCHANGE) || !reduce_all(e, n, CHOIR__RING))
            return;
}

static void test_collectives(void **state)
{
    run(2, reduce_some);
    run(5, reduce_some);
}

/* Sends before the receives are posted, then receives in order. */
static void send_ahead(choir__engine *e, stage *s)
{
    enum { COUNT = 300, ROOM = 40000 };
    static char data[COUNT][ROOM];
    choir__request requests[COUNT];
    choir__stamp stamp = {.kind = CHOIR__SEND, .dtype = CHOIR_F32, .peer = 1};
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = (size_t)(i * 7919 % ROOM) + 1;
        stamp.count = bytes;
        if (e->rank == 0) {
            memset(data[i], i, bytes);
            e->ops->send(e, 1, data[i], bytes, &stamp, &requests[i]);
        } else {
            if (i == 0)
                usleep(50000);
            e->ops->receive(e, 0, data[i], bytes, &stamp, &requests[i]);
        }
    }
    if (e->ops->wait(e, requests, COUNT))
        return;
    for (int i = 0; i < COUNT; i++)
        for (int at = 0; at <= i * 7919 % ROOM; at++)
            if (data[i][at] != (char)i)
                choir__engine_fail(e, CHOIR_ERR_INTERNAL, "message %d is wrong", i);
}

static void test_early_messages(void **state)
{
    run(2, send_ahead);
}

/* --- sub-groups --- */

static choir__engine *split_off(choir__engine *e, int color)
{
    int ranks[MAX_RANKS], count = 0, mine = 0;
    choir__engine *child = NULL;
    e->seq++;
    for (int r = 0; r < e->world; r++)
        if (r % 2 == color) {
            mine = r == e->rank ? count : mine;
            ranks[count++] = r;
        }
    if (e->ops->split(e, ranks, count, mine, color, &child))
        exit(4);
    return child;
}

static void pass_on(choir__engine *e, choir__engine *child)
{
    if (child->failed)
        choir__engine_fail(e, child->failed, "%s", child->message);
}

static void use_halves(choir__engine *e, stage *s)
{
    if (e->rank > 1)
        usleep(20000); /* messages come before the group is there */
    choir__engine *half = split_off(e, e->rank % 2);
    for (int i = 0; i < 50; i++)
        if (!reduce_all(half, 1000 * i + 1, CHOIR__EXCHANGE) ||
            !reduce_all(e, 100 * i + 1, CHOIR__EXCHANGE))
            break;
    pass_on(e, half);
    half->ops->close(half);
    reduce_all(e, 1000, CHOIR__RING);
}

static void *reduce_in_thread(void *engine)
{
    for (int i = 0; i < 200; i++)
        if (!reduce_all(engine, 300 * i + 1, CHOIR__EXCHANGE))
            break;
    return NULL;
}

static void use_two_threads(choir__engine *e, stage *s)
{
    pthread_t thread;
    choir__engine *half = split_off(e, e->rank % 2);
    pthread_create(&thread, NULL, reduce_in_thread, half);
    reduce_in_thread(e);
    pthread_join(thread, NULL);
    pass_on(e, half);
    half->ops->close(half);
}

static void test_sub_groups(void **state)
{
    run(4, use_halves);
    run(5, use_halves);
}

static void test_groups_on_two_threads(void **state)
{
    run(4, use_two_threads);
}

/* --- disagreement --- */

static void call_different_things(choir__engine *e, stage *s)
{
    reduce_all(e, 10, CHOIR__EXCHANGE);
    reduce_all(e, e->rank == 1 ? 20 : 30, CHOIR__EXCHANGE);
}

static void test_a_disagreement_shows_both_sides(void **state)
{
    stage *s = start(3, false, 60, call_different_things);
    finish(s);
    assert_all_failed(s, -1, CHOIR_ERR_MISMATCH, "all_reduce of 20 f32");
    assert_all_failed(s, -1, CHOIR_ERR_MISMATCH, "all_reduce of 30 f32");
}

/* The error names the receiver's side as a receive, although engines match it by its sender's
 * stamp. */
static void send_less_than_wanted(choir__engine *e, stage *s)
{
    float x[4] = {0};
    choir__request request;
    choir__stamp stamp = {
        .count = e->rank ? 4 : 3, .kind = CHOIR__SEND, .dtype = CHOIR_F32, .peer = 1};
    if (e->rank == 0)
        e->ops->send(e, 1, x, 3 * sizeof *x, &stamp, &request);
    else
        e->ops->receive(e, 0, x, 4 * sizeof *x, &stamp, &request);
    e->ops->wait(e, &request, 1);
    reduce_all(e, 10, CHOIR__EXCHANGE); /* where the sender gets the error */
}

static void test_a_message_of_another_size(void **state)
{
    stage *s = start(2, false, 60, send_less_than_wanted);
    finish(s);
    assert_all_failed(s, -1, CHOIR_ERR_MISMATCH,
        "rank 1 called receive of 4 f32 from rank 0 while rank 0 called send of 3 f32 to rank "
        "1");
}

/* Each waits for the other's broadcast: no message ever shows that they disagree. */
static void wait_for_different_roots(choir__engine *e, stage *s)
{
    float x = 0;
    e->seq++;
    choir__call call = {.in = &x, .out = &x};
    call.stamp =
        (choir__stamp){.count = 1, .seq = e->seq, .kind = CHOIR__BROADCAST, .dtype = CHOIR_F32};
    call.stamp.peer = 1 - e->rank;
    e->ops->run(e, &call);
}

static void test_ranks_that_wait_in_different_calls(void **state)
{
    stage *s = start(2, false, 600, wait_for_different_roots);
    finish(s);
    assert_all_failed(s, -1, CHOIR_ERR_MISMATCH, "broadcast");
    assert_true(s->ranks[0].seconds < HANGS_S); /* and not after the timeout */
}

/* --- ranks that go away --- */

static void test_a_rank_that_dies(void **state)
{
    for (int victim = 0; victim < 3; victim++)
        for (int i = 0; i < 4; i++) {
            char who[64];
            if (i == 3)
                setenv("UCX_TLS", "tcp,self", 1);
            stage *s = start(3, false, 60, swap_on);
            unsetenv("UCX_TLS");
            await_all(s, 2);
            usleep((unsigned)(i * 7000));
            kill(s->pids[victim], SIGKILL);
            finish(s);
            snprintf(who, sizeof who, "rank %d (pid %d) died", victim, (int)s->pids[victim]);
            assert_all_failed(s, victim, CHOIR_ERR_PEER_LOST, who);
        }
}

static void test_a_rank_that_is_stopped(void **state)
{
    char who[64];
    stage *s = start(4, false, LATE_S, swap_on);
    await_all(s, 2);
    kill(s->pids[2], SIGSTOP);
    for (int r = 0; r < 4; r++)
        if (r != 2)
            await_stage(s, r, ENDED);
    kill(s->pids[2], SIGCONT);
    finish(s); /* and rank 2 gets the error when it continues */
    snprintf(who, sizeof who, "rank 2 (pid %d) is stopped", (int)s->pids[2]);
    assert_all_failed(s, -1, CHOIR_ERR_TIMEOUT, who);
}

/* Rank 1 waits for rank 2, rank 0 for rank 1, by a chain; rank 2 does something else. */
static void wait_in_a_chain(choir__engine *e, stage *s)
{
    char byte;
    choir__request request;
    choir__stamp stamp = stamp_of(e, 1);
    if (e->rank == 2) {
        while (atomic_load(&s->ranks[0].stage) < ENDED)
            usleep(1000);
        return;
    }
    e->ops->receive(e, e->rank + 1, &byte, 1, &stamp, &request);
    e->ops->wait(e, &request, 1);
}

static void test_who_is_late_behind_who_waits(void **state)
{
    stage *s = start(3, false, LATE_S, wait_in_a_chain);
    finish(s);
    ok(s->ranks[2].status);
    assert_all_failed(s, 2, CHOIR_ERR_TIMEOUT, "rank 2 (pid");
    assert_null(strstr(s->ranks[0].message, "rank 1"));
}

static void leave_early(choir__engine *e, stage *s)
{
    if (!reduce_all(e, 5000, CHOIR__EXCHANGE) || e->rank == 1)
        return;
    reduce_all(e, 5000, CHOIR__EXCHANGE);
}

static void test_a_rank_that_leaves(void **state)
{
    stage *s = start(3, false, 60, leave_early);
    finish(s);
    ok(s->ranks[1].status);
    assert_all_failed(s, 1, CHOIR_ERR_PEER_LOST, "has left the group");
}

/* --- leftovers in the system --- */

/* System V segments that a rank made: "key shmid perms size cpid ...". */
static int count_segments(const stage *s)
{
    char line[300];
    int found = 0, pid;
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    while (file && fgets(line, sizeof line, file))
        for (int r = 0; r < s->world && sscanf(line, "%*s %*s %*s %*s %d", &pid) == 1; r++)
            found += pid == (int)s->pids[r];
    if (file)
        fclose(file);
    return found;
}

/* Counts the files of UCX only, because other programs may use the folder at the same time. */
static int count_shm(void)
{
    int n = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        n += strstr(entry->d_name, "ucx") != NULL;
    if (folder)
        closedir(folder);
    return n;
}

static void test_nothing_is_left_behind(void **state)
{
    int shm = count_shm();
    stage *s = start(3, false, 60, swap_on);
    await_all(s, 2);
    for (int r = 0; r < 3; r++)
        kill(s->pids[r], SIGKILL);
    finish(s);
    assert_int_equal(count_shm(), shm);
    assert_int_equal(count_segments(s), 0);
}

/* --- layers: four ranks that play two machines --- */

/* Sums until a rank dies. The ranks then exit by themselves, because the fixture knows only one
 * engine. */
static void sum_in_layers(choir__engine *whole, stage *s)
{
    static float x[10000];
    choir__engine *e = NULL;
    choir__meeting m = {
        .rank = whole->rank, .world = s->world, .nodes = 2, .timeout_s = s->timeout_s};
    report *mine = &s->ranks[whole->rank];
    snprintf(m.job, sizeof m.job, "layers of %d at %d", (int)getppid(), s->port);
    m.members = choir__calloc((size_t)m.world, sizeof *m.members);
    for (int r = 0; r < m.world; r++) {
        m.members[r] = whole->members[r];
        m.members[r].node = r / 2;
        m.members[r].local_rank = r % 2;
    }
    mine->status = choir__hierarchy_open(whole, &m, &e);
    for (int i = 0; !mine->status; i++) {
        choir__call call = {.stamp = {.seq = ++e->seq,
                                .kind = CHOIR__ALL_REDUCE,
                                .count = (uint64_t)(i % 3 ? 10000 : 10)},
            .in = x,
            .out = x};
        mine->status = e->ops->run(e, &call);
        in_stage(s, m.rank, 2 + i % 100);
    }
    snprintf(mine->message, sizeof mine->message, "%s", e ? e->message : choir_error_message());
    free(m.members);
    if (e)
        e->ops->close(e);
    _exit(0);
}

static void test_a_rank_of_layers_that_dies(void **state)
{
    for (int victim = 0; victim < 4; victim++) {
        char who[64];
        stage *s = start(4, false, 30, sum_in_layers);
        await_all(s, 2);
        kill(s->pids[victim], SIGKILL);
        finish(s);
        snprintf(who, sizeof who, "rank %d (pid %d", victim, (int)s->pids[victim]);
        assert_all_failed(s, victim, CHOIR_ERR_PEER_LOST, who);
    }
}

int main(void)
{
    if (!have_ucx()) {
        printf("skipped: %s\n", no_ucx());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_more_ranks_than_cores),
        cmocka_unit_test(test_over_tcp_alone),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_early_messages),
        cmocka_unit_test(test_sub_groups),
        cmocka_unit_test(test_groups_on_two_threads),
        cmocka_unit_test(test_a_disagreement_shows_both_sides),
        cmocka_unit_test(test_a_message_of_another_size),
        cmocka_unit_test(test_ranks_that_wait_in_different_calls),
        cmocka_unit_test(test_a_rank_that_dies),
        cmocka_unit_test(test_a_rank_that_is_stopped),
        cmocka_unit_test(test_who_is_late_behind_who_waits),
        cmocka_unit_test(test_a_rank_that_leaves),
        cmocka_unit_test(test_a_rank_of_layers_that_dies),
        cmocka_unit_test(test_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
