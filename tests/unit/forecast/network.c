/* Prices of collectives against the formulas of their algorithms, and how they share links. */
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "base/base.h"
#include "forecast/network.h"

/* A cluster whose own memory costs nothing, with round numbers for links. */
static choir__cluster cluster_of(int64_t nodes, int64_t devices)
{
    choir__cluster c;
    ok(choir__cluster_preset("H100", nodes, devices, &c));
    c.device.memory_bytes_s = 1e30;
    for (int level = 0; level < CHOIR__LEVELS; level++)
        c.links[level] = (choir__link){.alpha_s = level < CHOIR__LEVEL_NODE ? 1e-6 : 1e-5,
            .beta_bytes_s = level < CHOIR__LEVEL_NODE ? 1e11 : 1e10,
            .share = 1,
            .ports = 1};
    return c;
}

static choir__call_shape call_of(choir__kind kind, choir__algorithm algorithm, int64_t count,
    int64_t size, int64_t stride, int64_t world)
{
    return (choir__call_shape){.kind = kind,
        .algorithm = algorithm,
        .dtype = CHOIR_F32,
        .count = count,
        .leaves = size,
        .group = {size, stride},
        .world = world};
}

static choir__call_cost price(const choir__cluster *c, choir__call_shape call)
{
    choir__call_cost cost;
    ok(choir__network_price(c, &call, &cost));
    return cost;
}

static void near(double got, double expected, double part)
{
    if (!(got >= expected * (1 - part) && got <= expected * (1 + part)))
        fail_msg("expected %g, got %g", expected, got);
}

enum { COUNT = 64 << 20 }; /* f32: 256 MiB */
static const double bytes = 4.0 * COUNT;

static void test_formulas(void **state)
{
    choir__cluster c = cluster_of(1, 16);
    for (int64_t n = 2; n <= 16; n *= 2) {
        const double p = (double)n, share = (p - 1) / p * bytes / 1e11;
        near(price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__RING, COUNT, n, 1, n)).seconds,
            2 * (p - 1) * 1e-6 + 2 * share, 1e-6);
        near(price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__EXCHANGE, COUNT, n, 1, n)).seconds,
            2e-6 + 2 * share, 1e-6);
        near(price(&c, call_of(CHOIR__ALL_GATHER, CHOIR__EXCHANGE, COUNT, n, 1, n)).seconds,
            1e-6 + (p - 1) * bytes / 1e11, 1e-6);
        choir__call_cost tree =
            price(&c, call_of(CHOIR__BROADCAST, CHOIR__BINOMIAL, 1, n, 1, n));
        near(tree.seconds, 1e-6 * (double)(n == 2 ? 1 : n == 4 ? 2 : n == 8 ? 3 : 4), 1e-3);
        near(price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__NATIVE, COUNT, n, 1, n)).seconds,
            2 * (p - 1) * 1e-6 + 2 * share, 0.1);
    }
    choir__call_shape message = call_of(CHOIR__SEND, CHOIR__AUTO, COUNT, 16, 1, 16);
    message.root = 1;
    near(price(&c, message).seconds, 1e-6 + bytes / 1e11, 1e-6);
    assert_true(
        price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__AUTO, COUNT, 1, 1, 16)).seconds == 0);
}

/* Groups of the same dimension share their nodes' ports. */
static void test_shared_links(void **state)
{
    choir__cluster c = cluster_of(4, 8);
    choir__call_shape across = call_of(CHOIR__ALL_REDUCE, CHOIR__EXCHANGE, COUNT, 4, 8, 32);
    const double alone = 2 * 0.75 * bytes / 1e10;
    near(price(&c, across).seconds, 2e-5 + 8 * alone, 1e-6);
    c.links[CHOIR__LEVEL_NODE].ports = 8;
    near(price(&c, across).seconds, 2e-5 + alone, 1e-6);
    across.algorithm = CHOIR__NATIVE;
    near(price(&c, across).seconds, alone, 0.01);
    /* Bytes by level: each rank of the group sends 1.5 times its data. */
    across.algorithm = CHOIR__EXCHANGE;
    near(price(&c, across).bytes[CHOIR__LEVEL_NODE], 4 * 1.5 * bytes, 1e-6);
    assert_true(price(&c, across).bytes[CHOIR__LEVEL_CORE] == 0);
    /* Hierarchical: each slice crosses between nodes, 2 (N-1)/N of the data per node. */
    choir__call_cost all = price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__AUTO, COUNT, 32, 1, 32));
    assert_int_equal(all.algorithm, CHOIR__HIERARCHICAL);
    near(all.bytes[CHOIR__LEVEL_NODE], 4 * 1.5 * bytes, 1e-6);
    near(all.seconds, 2 * 0.75 * bytes / 8 / 1e10 + 2 * 7 / 8.0 * bytes / 1e11, 0.01);
}

/* A group that lists its ranks is priced on the links between them, in any order. */
static void test_listed(void **state)
{
    static const choir__algorithm algorithms[] = {CHOIR__AUTO, CHOIR__NATIVE, CHOIR__EXCHANGE};
    int spread[] = {0, 8, 16, 24}, moved[] = {3, 27, 11, 19}, near_by[] = {9, 12, 10, 15},
        pairs[] = {4, 21, 5, 20};
    choir__cluster c = cluster_of(4, 8);
    for (size_t i = 0; i < CHOIR_COUNT(algorithms); i++) {
        choir__call_shape call = call_of(CHOIR__ALL_REDUCE, algorithms[i], COUNT, 4, 8, 32);
        const choir__call_cost across = price(&c, call);
        int *const lists[] = {spread, moved};
        for (int k = 0; k < 2; k++) {
            call.group = (choir__step_group){4, 1, lists[k]};
            call.first = lists[k][0];
            const choir__call_cost listed = price(&c, call);
            near(listed.seconds, across.seconds, 1e-6);
            near(listed.bytes[CHOIR__LEVEL_NODE], across.bytes[CHOIR__LEVEL_NODE], 1e-6);
        }
        call = call_of(CHOIR__ALL_REDUCE, algorithms[i], COUNT, 4, 1, 32);
        const choir__call_cost inside = price(&c, call);
        call.group = (choir__step_group){4, 1, near_by};
        call.first = near_by[0];
        near(price(&c, call).seconds, inside.seconds, 1e-6);
        assert_true(price(&c, call).bytes[CHOIR__LEVEL_NODE] == 0);
    }
    /* Two members on each of two nodes: messages between them and inside them. */
    choir__call_shape call = call_of(CHOIR__ALL_REDUCE, CHOIR__EXCHANGE, COUNT, 4, 1, 32);
    call.group = (choir__step_group){4, 1, pairs};
    call.first = pairs[0];
    const choir__call_cost mixed = price(&c, call);
    near(mixed.bytes[CHOIR__LEVEL_NODE], 2 * mixed.bytes[CHOIR__LEVEL_CORE], 1e-6);
    pairs[3] = 32;
    choir__call_cost none;
    assert_int_equal(choir__network_price(&c, &call, &none), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "4 ranks up to rank 32"));
}

/* One node stands for all: the same price as with all members, where both are possible. */
static void test_many(void **state)
{
    static const choir__algorithm algorithms[] = {
        CHOIR__HIERARCHICAL, CHOIR__EXCHANGE, CHOIR__RING};
    for (size_t i = 0; i < CHOIR_COUNT(algorithms); i++) {
        /* 4096 members are walked if they are few moves, 8192 never. */
        double seconds[2];
        for (int k = 0; k < 2; k++) {
            const int64_t n = i == 2 ? 512 << k : 1024 << (3 * k);
            choir__cluster c = cluster_of(n / 8, 8);
            c.links[CHOIR__LEVEL_NODE].ports = 8;
            c.links[CHOIR__LEVEL_NODE].alpha_s = c.links[CHOIR__LEVEL_CORE].alpha_s = 0;
            seconds[k] =
                price(&c, call_of(CHOIR__ALL_REDUCE, algorithms[i], COUNT, n, 1, n)).seconds;
        }
        near(seconds[1], seconds[0], 0.02);
    }
}

/* 100,000 devices, each by each, in little time and memory. */
static void test_hundred_thousand(void **state)
{
    choir__cluster c = cluster_of(12500, 8);
    c.links[CHOIR__LEVEL_NODE].ports = 8;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    small = before;
/* Sanitizers take terabytes of addresses themselves. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    small.rlim_cur = (rlim_t)2 << 30;
#endif
    assert_int_equal(setrlimit(RLIMIT_DATA, &small), 0);
    double all =
        price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__AUTO, COUNT, 100000, 1, 100000)).seconds;
    near(all, 2 * bytes / 8 / 1e10 + 2 * 7 / 8.0 * bytes / 1e11, 0.01);
    double across =
        price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__AUTO, COUNT, 12500, 8, 100000)).seconds;
    near(across, 2 * bytes / 1e10, 0.02);
    double tree =
        price(&c, call_of(CHOIR__ALL_REDUCE, CHOIR__BINOMIAL, 64, 100000, 1, 100000)).seconds;
    assert_true(tree > 10e-6 && tree < 1e-3);
    near(price(&c, call_of(CHOIR__BARRIER, CHOIR__AUTO, 1, 100000, 1, 100000)).seconds, 17e-5,
        0.2);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

static void test_wrong(void **state)
{
    choir__cluster c = cluster_of(2, 8);
    choir__call_cost cost;
    choir__call_shape far = call_of(CHOIR__ALL_REDUCE, CHOIR__AUTO, COUNT, 17, 1, 17);
    assert_int_equal(choir__network_price(&c, &far, &cost), CHOIR_ERR_ARGUMENT);
    assert_non_null(
        strstr(choir_error_message(), "expected ranks of the cluster's 16 devices"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_shared_links),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_hundred_thousand),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
