/* The column #wrong of choir bench counts wrong elements: 0 for a right result, 1 for each
 * wrong element. */
#include <stdlib.h>

#include "check.h"
#include "base/base.h"
#include "cli/bench/bench.h"
#include "comm/reduce.h"

enum { COUNT = 1000 };

static const choir__bench_collective *real;

/* Runs the collective, then damages the first and the last element. */
static choir_status spoiled(const choir__station *s, int64_t count)
{
    choir_status status = real->run(s, count);
    size_t size = choir_dtype_size(s->b->dtype);
    s->out[size - 1] ^= 0x41;
    s->out[(size_t)count * size - 1] ^= 0x41;
    return status;
}

static choir_status nothing(const choir__station *s, int64_t count)
{
    return CHOIR_OK;
}

static void check(choir_group *group, choir__bench b)
{
    char out[COUNT * 8], in[COUNT * 8];
    choir__station s = {.b = &b, .group = group, .rank = 0, .world = 1, .out = out};
    choir__bench_collective broken = *b.what;
    s.in = b.what->in_place ? out : in;
    assert_int_equal(choir__bench_check(&s, COUNT), 0);
    real = b.what;
    broken.run = spoiled;
    b.what = &broken;
    assert_int_equal(choir__bench_check(&s, COUNT), 2);
    broken.run = nothing;
    if (!real->in_place)
        assert_true(choir__bench_check(&s, COUNT) > COUNT / 3);
}

static void test_wrong_elements(void **state)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter",
        "broadcast", "reduce", "gather", "scatter", "all_to_all"};
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.rank = 0, opts.world = 1;
    choir_check(choir_group_init(NULL, opts, &group));
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        for (int dtype = 0; dtype < CHOIR_DTYPE_COUNT; dtype++)
            for (int op = 0; op < CHOIR_REDUCE_OP_COUNT; op++)
                if (choir__arith_find((choir_dtype)dtype, (choir_reduce_op)op))
                    check(group, (choir__bench){.what = choir__bench_collective_find(names[i]),
                                     .ranks = 1,
                                     .dtype = (choir_dtype)dtype,
                                     .op = (choir_reduce_op)op});
    choir_group_free(group);
}

static void test_names(void **state)
{
    assert_null(choir__bench_collective_find("frob"));
    assert_null(choir__bench_collective_find(""));
    assert_non_null(choir__bench_collective_find("sendrecv"));
    const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
        "reduce", "gather", "scatter", "all_to_all", "sendrecv", "barrier"};
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        assert_string_equal(choir__bench_collective_name(i), names[i]);
    assert_null(choir__bench_collective_name(CHOIR_COUNT(names)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_elements),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
