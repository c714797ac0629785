/* Groups apart from the results of reductions (conformance/collectives.c): large sums in shared
 * memory, NaNs, barriers, shared memory, several groups, arguments. The ranks are forks of this
 * program. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/group.h>

#include "check.h"
#include "collectives_fixture.h"
#include "comm/group.h"
#include "multi/ranks.h"

static const int worlds[] = {1, 2, 3, 5, 6, 8};
static int large(int rank, int world, void *arg)
{
    const int64_t n = 5 * 1000 * 1000 + 1; /* above the size that bypasses the caches */
    choir_group *group;
    choir__shared *shared;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, (size_t)n * 4, &shared));
    const trial t = {.dtype = CHOIR_F32, .op = CHOIR_MEAN, .count = n, .world = world};
    float *data = choir__shared_at(shared, rank);
    for (int64_t i = 0; i < n; i++)
        data[i] = value(CHOIR_F32, rank, i).f32;
    CHECK_OK(choir_group_all_reduce(group, data, n, t.dtype, t.op, NULL));
    for (int64_t i = 0; i < n; i++)
        CHECK(data[i] == reduced(&t, i).f32);
    choir_group_free(group); /* before its memory: either order is fine */
    choir__shared_free(shared);
    return 0;
}

/* A value that differs is named with its ranks, on every rank; the group goes on. */
static int values(int rank, int world, void *arg)
{
    choir_group *group;
    char text[1000], longer[1001];
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_agree(group, "lr", "0.01"));
    CHECK_OK(choir_group_agree(group, "clip", NULL));
    CHECK_OK(choir_group_agree(NULL, "lr", rank ? "1" : "2")); /* alone */
    if (world > 1) {
        CHECK(choir_group_agree(group, "lr", rank == 1 ? "0.1" : "0.01") == CHOIR_ERR_MISMATCH);
        CHECK(strstr(choir_error_message(), "ranks disagree on lr: 0.01 on rank") != NULL);
        CHECK(strstr(choir_error_message(), "; 0.1 on rank 1") != NULL);
        CHECK(choir_group_agree(group, "clip", rank ? "0" : NULL) == CHOIR_ERR_MISMATCH);
        CHECK(strstr(choir_error_message(), "clip: unspecified on rank 0; 0 on rank") != NULL);
        CHECK(choir_group_agree(group, rank ? "lr" : "seed", "1") == CHOIR_ERR_MISMATCH);
    }
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    snprintf(longer, sizeof longer, "%s%s", text, rank ? "y" : "z");
    CHECK_OK(choir_group_agree(group, "a long text", text));
    if (world > 1) /* the difference is beyond the part that is shown */
        CHECK(choir_group_agree(group, "a long text", longer) == CHOIR_ERR_MISMATCH);
    CHECK_OK(choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

static int nans(int rank, int world, void *arg)
{
    choir_group *group;
    float x[3] = {(float)rank, (float)rank, (float)rank};
    if (rank == world / 2)
        x[1] = __builtin_nanf("");
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_MAX, NULL));
    CHECK(x[0] == (float)(world - 1) && x[1] != x[1] && x[2] == x[0]);
    choir_group_free(group);
    return 0;
}

/* A rank leaves a barrier only after all ranks have entered it. */
static int barriers(int rank, int world, void *arg)
{
    choir_group *group;
    choir__shared *shared;
    choir_work work;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, 64, &shared));
    for (int round = 1; round <= 200; round++) {
        *(volatile int *)choir__shared_at(shared, rank) = round;
        if (round % 2)
            choir_group_barrier(group, &work);
        CHECK_OK(choir_group_barrier(group, NULL));
        for (int r = 0; r < world; r++)
            CHECK(*(volatile int *)choir__shared_at(shared, r) >= round);
        CHECK_OK(choir_group_barrier(group, NULL));
    }
    choir__shared_free(shared);
    choir_group_free(group);
    return 0;
}

static int shared_memory(int rank, int world, void *arg)
{
    choir_group *group;
    choir__shared *shared, *failed = NULL;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    for (int round = 0; round < 3; round++) { /* sizes that differ, some 0 */
        size_t bytes = (size_t)((rank + round) % 3) * 5000;
        CHECK_OK(choir__shared_new(group, bytes, &shared));
        CHECK(choir__shared_bytes(shared, rank) == bytes);
        if (bytes)
            memset(choir__shared_at(shared, rank), rank + 1, bytes);
        CHECK_OK(choir_group_barrier(group, NULL));
        for (int r = 0; r < world; r++) {
            const unsigned char *p = choir__shared_at(shared, r);
            size_t n = choir__shared_bytes(shared, r);
            CHECK(n == (size_t)((r + round) % 3) * 5000);
            CHECK(n == 0 || (p[0] == r + 1 && p[n - 1] == r + 1));
        }
        CHECK_OK(choir_group_barrier(group, NULL));
        choir__shared_free(shared);
    }
    /* Asks for too much memory: all ranks get an error, and the group stays usable. */
    size_t bytes = rank == world - 1 ? (size_t)1 << 46 : 4096;
    CHECK(choir__shared_new(group, bytes, &failed) == CHOIR_ERR_MEMORY);
    CHECK(strstr(choir_error_message(), "shared memory requested"));
    CHECK(!failed);
    CHECK_OK(choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

/* Opens groups of one job in sequence and side by side, and groups of some of the ranks. */
static int several_groups(int rank, int world, void *arg)
{
    choir_group *a, *b, *half;
    int32_t x = 1, y = 1;
    for (int round = 0; round < 5; round++) {
        CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &a));
        CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &b));
        x = y = 1;
        CHECK_OK(choir_group_all_reduce(a, &x, 1, CHOIR_I32, CHOIR_SUM, NULL));
        CHECK_OK(choir_group_all_reduce(b, &y, 1, CHOIR_I32, CHOIR_MAX, NULL));
        CHECK(x == world && y == 1);
        choir_group_free(a);
        choir_group_free(b);
    }
    choir_group_opts opts = choir_group_defaults();
    char job[80];
    snprintf(job, sizeof job, "%s.%d", getenv("CHOIR_JOB"), rank % 2);
    opts.job = job;
    opts.rank = rank / 2;
    opts.world = (world + 1 - rank % 2) / 2;
    CHECK_OK(choir_group_init(NULL, opts, &half));
    x = 1;
    CHECK_OK(choir_group_all_reduce(half, &x, 1, CHOIR_I32, CHOIR_SUM, NULL));
    CHECK(x == opts.world);
    choir_group_free(half);
    return 0;
}

static int counts_bytes(int rank, int world, void *arg)
{
    choir_group *group;
    float x[100] = {0};
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK(choir_group_bytes(group) == 0);
    CHECK_OK(choir_group_all_reduce(group, x, 100, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK(world == 1 ? choir_group_bytes(group) == 0 : choir_group_bytes(group) >= 400);
    choir_group_free(group);
    return 0;
}

static void in_worlds(choir_spawn_fn *fn, int smallest)
{
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        if (worlds[w] >= smallest && choir_spawn(worlds[w], fn, NULL) != CHOIR_OK)
            fail_msg("world %d: %s", worlds[w], choir_error_message());
}

static void test_large(void **state)
{
    ok(choir_spawn(2, large, NULL));
    ok(choir_spawn(3, large, NULL));
}

static void test_nan(void **state)
{
    in_worlds(nans, 1);
}

static void test_values(void **state)
{
    in_worlds(values, 0);
}

static void test_barrier(void **state)
{
    in_worlds(barriers, 1);
}

static void test_shared(void **state)
{
    in_worlds(shared_memory, 1);
}

static void test_several(void **state)
{
    in_worlds(several_groups, 2);
    ok(choir_spawn(64, several_groups, NULL));
}

static void test_bytes(void **state)
{
    in_worlds(counts_bytes, 1);
}

/* Memory that is not shared may outlive its group as well. */
static void test_private_memory_last(void **state)
{
    choir_group *group;
    choir__shared *shared, *other;
    unsetenv("RANK");
    ok(choir_group_init(NULL, choir_group_defaults(), &group));
    choir__engine_ops ops = *group->engine->ops;
    const choir__engine_ops *whole = group->engine->ops;
    ops.share = NULL;
    group->engine->ops = &ops;
    ok(choir__shared_new(group, 100, &shared));
    ok(choir__shared_new(group, 100, &other));
    choir__shared_free(other);
    group->engine->ops = whole;
    choir_group_free(group);
    choir__shared_free(shared);
}

static choir_status no_split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    return choir__engine_fail(engine, CHOIR_ERR_IO, "the network is full");
}

/* Some engines do not report the reason. */
static void test_failed_split_says_why(void **state)
{
    choir_group *group, *child;
    unsetenv("RANK");
    ok(choir_group_init(NULL, choir_group_defaults(), &group));
    choir__engine_ops ops = *group->engine->ops;
    ops.split = no_split;
    group->engine->ops = &ops;
    assert_int_equal(choir_group_split(group, 0, 0, &child), CHOIR_ERR_IO);
    assert_string_equal(choir_error_message(), "the network is full");
    assert_null(child);
    choir_group_free(group);
}

/* The ranks split the same total in different ways: the error message shows both splits. */
static int cut(int rank, int world, void *arg)
{
    float x[5] = {0};
    choir_group *group;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_group_batch_begin(group);
    for (int i = 0; i < 2; i++)
        CHECK_OK(choir_group_all_reduce(group, x + (i ? 2 + rank : 0), i ? 3 - rank : 2 + rank,
            CHOIR_F32, CHOIR_SUM, NULL));
    CHECK(choir_group_batch_end(group, NULL) == CHOIR_ERR_MISMATCH);
    const char *layout = strstr(choir_error_message(), " in parts (layout ");
    CHECK(layout && strstr(layout + 1, " in parts (layout "));
    CHECK(strncmp(layout, strstr(layout + 1, " in parts (layout "), 26) != 0);
    choir_group_free(group);
    return 0;
}

static void test_cut_differently(void **state)
{
    ok(choir_spawn(2, cut, NULL));
}

static void test_arguments(void **state)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    float x = 1;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    ok(choir_group_init(NULL, opts, &group)); /* alone, without sockets */
    assert_int_equal(choir_group_world(group), 1);
    assert_fails(choir_group_broadcast(group, &x, 4, CHOIR_U8, 1, NULL), CHOIR_ERR_ARGUMENT,
        "expected a rank from 0 to 0, got 1");
    assert_fails(choir_group_all_reduce(group, &x, 1, CHOIR_F32, CHOIR_BAND, NULL),
        CHOIR_ERR_DTYPE, "(bitwise and): expected integers, got");
    assert_int_equal(
        choir_group_all_reduce(group, &x, -1, CHOIR_F32, CHOIR_SUM, NULL), CHOIR_ERR_ARGUMENT);
    int64_t counts[] = {1};
    choir_work work;
    choir_group *child;
    float y;
    assert_fails(choir_group_all_to_all_uneven(group, &x, counts, &x, counts, CHOIR_F32, NULL),
        CHOIR_ERR_ARGUMENT, "out must be elsewhere");
    choir_group_batch_begin(group);
    assert_int_equal(choir_group_split(group, 0, 0, &child), CHOIR_ERR_STATE);
    assert_null(child);
    ok(choir_group_all_to_all_uneven(/* in an open batch, and outside */
        group, &x, counts, &y, counts, CHOIR_F32, NULL));
    assert_int_equal(
        choir_group_all_to_all_uneven(group, &x, counts, &y, counts, CHOIR_F32, &work),
        CHOIR_ERR_ARGUMENT);
    choir_group_free(group);
    choir_group_free(NULL);
    choir__shared_free(NULL);

    opts.rank = 2, opts.world = 2, opts.job = "x";
    assert_int_equal(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT);
    opts.rank = 0, opts.world = 1000;
    assert_int_equal(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT);
    opts.world = 2, opts.job = NULL;
    unsetenv("CHOIR_JOB");
    assert_fails(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT, "CHOIR_JOB");
    setenv("RANK", "three", 1);
    assert_fails(
        choir_group_init(NULL, choir_group_defaults(), &group), CHOIR_ERR_ARGUMENT, "three");
    unsetenv("RANK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_private_memory_last),
        cmocka_unit_test(test_failed_split_says_why),
        cmocka_unit_test(test_cut_differently),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
