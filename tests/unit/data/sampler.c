/* The order of samples, against PyTorch's own DistributedSampler. */
#include <math.h>
#include <stdlib.h>
#include <choir/data.h>
#include "check.h"
#include "data/loading/sampler.h"
#include "data/loading/skips.h"

/* From PyTorch 2.15.0, the lists of replicas 0 ... M - 1 one after another:
 *
 *     s = DistributedSampler(range(N), num_replicas=M, rank=r, shuffle=shuffle, seed=seed,
 *                            drop_last=drop_last)
 *     s.set_epoch(epoch); list(s)                                                          */
static const struct {
    int64_t n, m, seed, epoch;
    bool shuffle, drop_last;
    int64_t each, lists[16];
} known[] = {
    {10, 4, 0, 0, false, false, 3, {0, 4, 8, 1, 5, 9, 2, 6, 0, 3, 7, 1}},
    {10, 4, 0, 0, true, false, 3, {4, 3, 6, 1, 9, 2, 7, 0, 4, 5, 8, 1}},
    {10, 4, 3, 2, true, false, 3, {1, 3, 8, 4, 5, 7, 9, 0, 1, 6, 2, 4}},
    {10, 4, 3, 2, true, true, 2, {1, 3, 4, 5, 9, 0, 6, 2}},
    {10, 4, 0, 0, false, true, 2, {0, 4, 1, 5, 2, 6, 3, 7}},
    {11, 3, 42, 7, true, false, 4, {6, 8, 1, 2, 4, 3, 7, 9, 10, 5, 0, 6}},
    {11, 3, 42, 7, true, true, 3, {6, 8, 1, 4, 3, 7, 10, 5, 0}},
    {3, 8, 0, 0, false, false, 1, {0, 1, 2, 0, 1, 2, 0, 1}}, /* repeated: shorter than M */
    {3, 8, 1, 0, true, false, 1, {1, 2, 0, 1, 2, 0, 1, 2}},
    {2, 5, 9, 1, true, false, 1, {1, 0, 1, 0, 1}},
    {12, 4, 5, 0, true, true, 3, {11, 10, 8, 0, 3, 7, 9, 4, 1, 6, 5, 2}},
    {1, 3, 0, 0, true, false, 1, {0, 0, 0}},
    {13, 1, 11, 1, true, false, 13, {4, 8, 9, 10, 1, 7, 3, 0, 11, 2, 6, 12, 5}},
};

static void as_pytorch_deals(void **state)
{
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        choir__sample_order s;
        ok(choir__sample_order_init(&s, known[c].n, known[c].m, known[c].m,
            (uint64_t)known[c].seed, known[c].shuffle, known[c].drop_last));
        choir__sample_order_set_epoch(&s, known[c].epoch);
        assert_int_equal(s.dealt, known[c].each);
        assert_int_equal(s.batches, known[c].each);
        for (int64_t r = 0; r < known[c].m; r++)
            for (int64_t i = 0; i < known[c].each; i++)
                assert_int_equal(choir__sample_order_of_micro(&s, r, i),
                    known[c].lists[r * known[c].each + i]);
        choir__sample_order_free(&s);
    }
}

/* The public functions give the same order. */
static void public_sampler(void **state)
{
    for (size_t c = 0; c < sizeof known / sizeof *known; c++)
        for (int64_t r = 0; r < known[c].m; r++) {
            choir_sampler *s;
            choir_sampler_opts o = choir_sampler_defaults();
            o.world = known[c].m;
            o.rank = r;
            o.seed = (uint64_t)known[c].seed;
            o.shuffle = known[c].shuffle;
            o.drop_last = known[c].drop_last;
            ok(choir_distributed_sampler(known[c].n, o, &s));
            choir_sampler_set_epoch(s, known[c].epoch);
            assert_int_equal(choir_sampler_length(s), known[c].each);
            for (int64_t i = 0; i < known[c].each; i++)
                assert_int_equal(choir_sampler_at(s, i), known[c].lists[r * known[c].each + i]);
            assert_int_equal(choir_sampler_at(s, known[c].each), -1);
            assert_int_equal(choir_sampler_at(s, -1), -1);
            choir_sampler_free(s);
        }
    choir_sampler *s = NULL;
    choir_sampler_opts o = choir_sampler_defaults();
    o.rank = 1;
    assert_fails(choir_distributed_sampler(3, o, &s), CHOIR_ERR_ARGUMENT, "rank 1 of 1");
    o.world = 4;
    o.drop_last = true;
    assert_int_equal(choir_distributed_sampler(3, o, &s), CHOIR_ERR_ARGUMENT);
    assert_null(s);
    choir_sampler_free(NULL);
}

/* 10 samples over 4 replicas in batches of 8: two of each replica per batch, the second filled
 * up. */
static void last_batch_is_filled(void **state)
{
    static const int64_t lists[4][3] = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
    choir__sample_order s;
    ok(choir__sample_order_init(&s, 10, 4, 8, 0, false, false));
    assert_int_equal(s.batches, 2);
    for (int64_t k = 0; k < 6; k++) /* three epochs, all alike */
        for (int64_t m = 0; m < 4; m++)
            for (int64_t j = 0; j < 2; j++)
                assert_int_equal(
                    choir__sample_order_at(&s, k, m, j), lists[m][(k % 2 * 2 + j) % 3]);
    choir__sample_order_free(&s);
}

static void last_batch_is_dropped(void **state)
{
    choir__sample_order s;
    ok(choir__sample_order_init(&s, 13, 2, 4, 0, false, true));
    assert_int_equal(s.dealt, 6);
    assert_int_equal(s.batches, 3);
    assert_int_equal(choir__sample_order_at(&s, 2, 1, 1), 11);
    assert_int_equal(
        choir__sample_order_at(&s, 3, 0, 0), 0); /* sample 12 never comes: unshuffled */
    choir__sample_order_free(&s);
}

/* Batch k does not depend on the batches requested before; epochs differ. */
static void any_order_of_asking(void **state)
{
    enum { N = 24, M = 2, B = 6, STEPS = 12, EACH = B / M };
    int64_t seen[STEPS][M][EACH];
    choir__sample_order s;
    ok(choir__sample_order_init(&s, N, M, B, 5, true, true));
    assert_int_equal(s.batches, 4);
    for (int64_t k = 0; k < STEPS; k++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t j = 0; j < EACH; j++)
                seen[k][m][j] = choir__sample_order_at(&s, k, m, j);
    for (int64_t k = STEPS - 1; k >= 0; k--)
        for (int64_t m = M - 1; m >= 0; m--)
            for (int64_t j = EACH - 1; j >= 0; j--)
                assert_int_equal(choir__sample_order_at(&s, k, m, j), seen[k][m][j]);
    for (int64_t epoch = 0; epoch < 3; epoch++) { /* each takes every sample once */
        int count[N] = {0};
        for (int64_t i = 0; i < N; i++)
            count[seen[epoch * 4 + i / B][i % B / EACH][i % EACH]]++;
        for (int i = 0; i < N; i++)
            assert_int_equal(count[i], 1);
    }
    assert_memory_not_equal(seen[0], seen[4], sizeof seen[0] * 4);
    assert_memory_not_equal(seen[4], seen[8], sizeof seen[0] * 4);
    choir__sample_order_free(&s);
}

/* A list of skipped batches, against batches that are crossed out one by one. */
static void skipped(void **state)
{
    static const struct {
        const char *text, *same, *up_to_12;
    } lists[] = {
        {"5:7,8", "5:7,8", "5:7,8"},
        {"8,5:7,7", "5:9", "5:9"},
        {"1", "1", "1"},
        {"4:5", "4", "4"},
        {"3:10,4:6", "3:10", "3:10"},
        {"10:21,2", "2,10:21", "2,10:13"},
        {"30:41", "30:41", NULL},
    };
    for (size_t c = 0; c < sizeof lists / sizeof *lists; c++) {
        choir__skips s = {0};
        ok(choir__skips_add(&s, lists[c].text));
        char *text = choir__skips_text(&s, INT64_MAX), *begin = choir__skips_text(&s, 12);
        assert_string_equal(text, lists[c].same);
        assert_int_equal(!begin, !lists[c].up_to_12);
        if (begin)
            assert_string_equal(begin, lists[c].up_to_12);
        for (int64_t batch = 1, step = 1; batch < 60; batch++) {
            bool out = false;
            for (int i = 0; i < s.count; i++)
                out |= batch >= s.ranges[i].first && batch <= s.ranges[i].last;
            if (!out)
                assert_int_equal(choir__skips_batch(&s, step++), batch);
        }
        free(text);
        free(begin);
        choir__skips_free(&s);
    }
    static const char *const bad[] = {
        "", "0", "6:5", "6:6", "1:2:3", "1,,2", "x", "-4", "1:", ":1", "99999999999999999999"};
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        choir__skips s = {0};
        assert_int_equal(choir__skips_add(&s, bad[c]), CHOIR_ERR_ARGUMENT);
        choir__skips_free(&s);
    }
}

static void refusals(void **state)
{
    static const struct {
        int64_t n, m, batch;
        bool drop_last;
        const char *says;
    } bad[] = {
        {0, 1, 1, true, "0 samples"},
        {-4, 1, 1, false, "-4 samples"},
        {INT64_MAX, 1, 1, false, "samples cannot"},
        {10, 0, 4, true, "micro-batch or more, got 0"},
        {10, -2, 4, true, "micro-batch or more, got -2"},
        {10, 1, 0, true, "batch size of 1 or more, got 0"},
        {10, 1, -8, true, "batch size of 1 or more, got -8"},
        {10, 3, 8, true, "a batch of 8 does not divide into 3 micro-batches"},
        {10, 1, 11, true, "10 samples are fewer than a batch of 11"},
        {7, 8, 8, true, "7 samples are fewer than a batch of 8"},
    };
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        choir__sample_order s;
        assert_fails(choir__sample_order_init(
                         &s, bad[c].n, bad[c].m, bad[c].batch, 0, false, bad[c].drop_last),
            CHOIR_ERR_ARGUMENT, bad[c].says);
    }
    choir__sample_order s; /* the same numbers are fine when the last batch is filled up */
    ok(choir__sample_order_init(&s, 7, 8, 8, 0, false, false));
    assert_int_equal(s.batches, 1);
}

/* Draws in proportion to weights, which interop.images compares with torch.multinomial. */
static void weighted(void **state)
{
    static const double weights[] = {0.1, 0.9, 0.4, 0.7, 3.0};
    int64_t drawn[5], count[5] = {0};
    choir_sampler_opts opts = choir_sampler_defaults();
    choir_sampler *s;
    opts.weights = weights;
    for (int64_t epoch = 0; epoch < 2000; epoch++) {
        opts.seed = 3;
        opts.world = 1;
        opts.rank = 0;
        ok(choir_distributed_sampler(5, opts, &s));
        choir_sampler_set_epoch(s, epoch);
        for (int i = 0; i < 5; i++)
            count[drawn[i] = choir_sampler_at(s, i)]++;
        choir_sampler_free(s);
        opts.world = 2;
        opts.drop_last = true;
        for (opts.rank = 0; opts.rank < 2;
             opts.rank++) { /* the same draws, on any number of ranks */
            ok(choir_distributed_sampler(5, opts, &s));
            choir_sampler_set_epoch(s, epoch);
            assert_int_equal(choir_sampler_length(s), 2);
            for (int i = 0; i < 2; i++)
                assert_int_equal(choir_sampler_at(s, i), drawn[opts.rank + 2 * i]);
            choir_sampler_free(s);
        }
        opts.drop_last = false;
    }
    for (int i = 0; i < 5; i++) {
        double share = (double)count[i] / 10000 - weights[i] / 5.1;
        assert_true(share > -0.02 && share < 0.02);
    }
    static const double wrong[3][2] = {{0, 0}, {1, -1}, {1, (double)INFINITY}};
    for (int i = 0; i < 3; i++) {
        opts.weights = wrong[i];
        opts.rank = 0;
        opts.world = 1;
        assert_int_equal(choir_distributed_sampler(2, opts, &s), CHOIR_ERR_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch_deals),
        cmocka_unit_test(public_sampler),
        cmocka_unit_test(last_batch_is_filled),
        cmocka_unit_test(last_batch_is_dropped),
        cmocka_unit_test(any_order_of_asking),
        cmocka_unit_test(skipped),
        cmocka_unit_test(refusals),
        cmocka_unit_test(weighted),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
