/* Every collective over worlds, sizes and element types, against sums taken by recursion over
 * the tree; in private and in shared memory. The ranks are forks of this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/group.h>

#include "base/base.h"
#include "comm/group.h"
#include "multi/ranks.h"

static const int worlds[] = {1, 2, 3, 5, 8};
static const int64_t sizes[] = {0, 1, 7, 1000, 4099, 20011, 70001};

/* A number of a rank and a place, any type's worth of it. */
static uint64_t noise(int rank, int64_t i)
{
    uint64_t z = (uint64_t)i * 64 + (uint64_t)rank + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

typedef union number {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
} number;

static number value(choir_dtype dtype, int rank, int64_t i)
{
    uint64_t z = noise(rank, i);
    number x = {.i64 = 0};
    switch (dtype) {
    case CHOIR_F32: x.f32 = (float)(int32_t)(z >> 32) * 1e-5f; break;
    case CHOIR_F64: x.f64 = (double)(int64_t)z * 1e-9; break;
    case CHOIR_I64: x.i64 = (int64_t)z >> 8; break;
    default: x.i32 = (int32_t)(z >> 32) >> 6; break;
    }
    return x;
}

#define PICK(type)                                                                             \
    switch (op) {                                                                              \
    case CHOIR_MIN: r.type = a.type < b.type ? a.type : b.type; break;                         \
    case CHOIR_MAX: r.type = a.type > b.type ? a.type : b.type; break;                         \
    default: r.type = a.type + b.type; break;                                                  \
    }

static number combine(choir_dtype dtype, choir_reduce_op op, number a, number b)
{
    number r = {.i64 = 0};
    switch (dtype) {
    case CHOIR_F32: PICK(f32); break;
    case CHOIR_F64: PICK(f64); break;
    case CHOIR_I64: PICK(i64); break;
    default: PICK(i32); break;
    }
    return r;
}

/* The reduction over ranks [lo, lo + n), straight from the definition. */
static number over_ranks(choir_dtype dtype, choir_reduce_op op, int lo, int n, int64_t i)
{
    int half = 1;
    if (n == 1)
        return value(dtype, lo, i);
    while (2 * half < n)
        half *= 2;
    return combine(dtype, op, over_ranks(dtype, op, lo, half, i),
        over_ranks(dtype, op, lo + half, n - half, i));
}

static number expected(choir_dtype dtype, choir_reduce_op op, int world, int64_t i)
{
    number r = over_ranks(dtype, op, 0, world, i);
    if (op == CHOIR_MEAN)
        switch (dtype) {
        case CHOIR_F32: r.f32 *= 1.0f / (float)world; break;
        case CHOIR_F64: r.f64 *= 1.0 / world; break;
        case CHOIR_I64: r.i64 /= world; break;
        default: r.i32 /= world; break;
        }
    return r;
}

static int reduce_at(
    choir_group *group, char *data, int64_t n, choir_dtype dtype, choir_reduce_op op)
{
    size_t size = choir_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        number x = value(dtype, choir_group_rank(group), i);
        memcpy(data + (size_t)i * size, &x, size);
    }
    CHECK_OK(choir_group_all_reduce(group, data, n, dtype, op, NULL));
    for (int64_t i = 0; i < n; i++) {
        number x = expected(dtype, op, choir_group_world(group), i);
        CHECK(memcmp(data + (size_t)i * size, &x, size) == 0);
    }
    return 0;
}

static int all_reduces(int rank, int world, void *arg)
{
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_F64, CHOIR_I64, CHOIR_I32};
    choir_group *group;
    choir__shared *shared;
    size_t room = 8 * 70001 + 64;
    char *private = malloc(room);
    (void)rank, (void)world, (void)arg;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, room, &shared));
    char *mine = choir__shared_at(shared, rank);
    for (size_t s = 0; s < CHOIR_COUNT(sizes); s++)
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++)
            for (int op = CHOIR_SUM; op <= CHOIR_MAX; op++) {
                /* The direct way at offsets that differ from rank to rank. */
                char *place = mine + 8 * (rank % 3);
                if (reduce_at(group, private, sizes[s], dtypes[d], (choir_reduce_op)op) ||
                    reduce_at(group, place, sizes[s], dtypes[d], (choir_reduce_op)op))
                    return 1;
            }
    /* One rank in shared memory and the others not: all must take the same way. */
    if (reduce_at(group, rank == world - 1 ? mine : private, 40000, CHOIR_F32, CHOIR_SUM))
        return 1;
    choir__shared_free(shared);
    choir_group_free(group);
    free(private);
    return 0;
}

static int large(int rank, int world, void *arg)
{
    const int64_t n = 5 * 1000 * 1000 + 1; /* past the size that goes round the caches */
    choir_group *group;
    choir__shared *shared;
    (void)rank, (void)world, (void)arg;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, (size_t)n * 4, &shared));
    if (reduce_at(group, choir__shared_at(shared, rank), n, CHOIR_F32, CHOIR_MEAN))
        return 1;
    choir_group_free(group); /* before its memory: either order is fine */
    choir__shared_free(shared);
    return 0;
}

static int nans(int rank, int world, void *arg)
{
    choir_group *group;
    float x[3] = {(float)rank, (float)rank, (float)rank};
    (void)arg;
    if (rank == world / 2)
        x[1] = __builtin_nanf("");
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_all_reduce(group, x, 3, CHOIR_F32, CHOIR_MAX, NULL));
    CHECK(x[0] == (float)(world - 1) && x[1] != x[1] && x[2] == x[0]);
    choir_group_free(group);
    return 0;
}

static unsigned char byte(int rank, size_t i)
{
    return (unsigned char)noise(rank, (int64_t)i);
}

static int broadcasts_and_gathers(int rank, int world, void *arg)
{
    static const size_t lengths[] = {0, 1, 13, 4096, 131072, 131073, 300001};
    choir_group *group;
    unsigned char *data = malloc((size_t)world * 300001), *mine = malloc(300001);
    (void)arg;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    for (size_t l = 0; l < CHOIR_COUNT(lengths); l++) {
        size_t n = lengths[l];
        for (int root = 0; root < world; root++) {
            for (size_t i = 0; i < n; i++)
                data[i] = byte(rank, i);
            CHECK_OK(choir_group_broadcast(group, data, (int64_t)n, CHOIR_U8, root, NULL));
            for (size_t i = 0; i < n; i++)
                CHECK(data[i] == byte(root, i));
        }
        for (size_t i = 0; i < n; i++)
            mine[i] = byte(rank, i);
        memset(data, 0, (size_t)world * n);
        CHECK_OK(choir_group_all_gather(group, mine, data, (int64_t)n, CHOIR_U8, NULL));
        for (int r = 0; r < world; r++)
            for (size_t i = 0; i < n; i++)
                CHECK(data[(size_t)r * n + i] == byte(r, i));
        /* In place. */
        for (int r = 0; r < world; r++)
            for (size_t i = 0; i < n; i++)
                data[(size_t)r * n + i] = r == rank ? byte(r, i) : 0;
        CHECK_OK(choir_group_all_gather(
            group, data + (size_t)rank * n, data, (int64_t)n, CHOIR_U8, NULL));
        for (int r = 0; r < world; r++)
            for (size_t i = 0; i < n; i++)
                CHECK(data[(size_t)r * n + i] == byte(r, i));
    }
    choir_group_free(group);
    free(data);
    free(mine);
    return 0;
}

/* Nobody leaves a barrier before all have come. */
static int barriers(int rank, int world, void *arg)
{
    choir_group *group;
    choir__shared *shared;
    choir_work work;
    (void)arg;
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
    (void)arg;
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
    /* More than there is: an error on all ranks, and the group lives. */
    size_t bytes = rank == world - 1 ? (size_t)1 << 46 : 4096;
    CHECK(choir__shared_new(group, bytes, &failed) == CHOIR_ERR_MEMORY);
    CHECK(strstr(choir_error_message(), "shared memory wanted"));
    CHECK(!failed);
    CHECK_OK(choir_group_barrier(group, NULL));
    choir_group_free(group);
    return 0;
}

/* Groups of one job one after another and side by side, and groups of some of the ranks. */
static int several_groups(int rank, int world, void *arg)
{
    choir_group *a, *b, *half;
    int32_t x = 1, y = 1;
    (void)arg;
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
    (void)rank, (void)arg;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK(choir__group_bytes(group) == 0);
    CHECK_OK(choir_group_all_reduce(group, x, 100, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK(world == 1 ? choir__group_bytes(group) == 0 : choir__group_bytes(group) >= 400);
    choir_group_free(group);
    return 0;
}

static void in_worlds(choir_spawn_fn *fn, int smallest)
{
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        if (worlds[w] >= smallest && choir_spawn(worlds[w], fn, NULL) != CHOIR_OK)
            fail_msg("world %d: %s", worlds[w], choir_error_message());
}

static void test_all_reduce(void **state)
{
    (void)state;
    in_worlds(all_reduces, 1);
}

static void test_large(void **state)
{
    (void)state;
    assert_int_equal(choir_spawn(2, large, NULL), CHOIR_OK);
    assert_int_equal(choir_spawn(3, large, NULL), CHOIR_OK);
}

static void test_nan(void **state)
{
    (void)state;
    in_worlds(nans, 1);
}

static void test_broadcast_and_gather(void **state)
{
    (void)state;
    in_worlds(broadcasts_and_gathers, 1);
}

static void test_barrier(void **state)
{
    (void)state;
    in_worlds(barriers, 1);
}

static void test_shared(void **state)
{
    (void)state;
    in_worlds(shared_memory, 1);
}

static void test_several(void **state)
{
    (void)state;
    in_worlds(several_groups, 2);
    assert_int_equal(choir_spawn(64, several_groups, NULL), CHOIR_OK);
}

static void test_bytes(void **state)
{
    (void)state;
    in_worlds(counts_bytes, 1);
}

static void test_arguments(void **state)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    float x = 1;
    (void)state;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    assert_int_equal(
        choir_group_init(NULL, opts, &group), CHOIR_OK); /* alone, without sockets */
    assert_int_equal(choir_group_world(group), 1);
    assert_int_equal(
        choir_group_broadcast(group, &x, 4, CHOIR_U8, 1, NULL), CHOIR_ERR_ARGUMENT);
    assert_int_equal(
        choir_group_all_reduce(group, &x, 1, CHOIR_F32, CHOIR_BAND, NULL), CHOIR_ERR_DTYPE);
    assert_int_equal(
        choir_group_all_reduce(group, &x, -1, CHOIR_F32, CHOIR_SUM, NULL), CHOIR_ERR_ARGUMENT);
    choir_group_free(group);
    choir_group_free(NULL);
    choir__shared_free(NULL);

    opts.rank = 2, opts.world = 2, opts.job = "x";
    assert_int_equal(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT);
    opts.rank = 0, opts.world = 1000;
    assert_int_equal(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT);
    opts.world = 2, opts.job = NULL;
    unsetenv("CHOIR_JOB");
    assert_int_equal(choir_group_init(NULL, opts, &group), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "CHOIR_JOB"));
    setenv("RANK", "three", 1);
    assert_int_equal(
        choir_group_init(NULL, choir_group_defaults(), &group), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "three"));
    unsetenv("RANK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_broadcast_and_gather),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
