/* Masked language modelling: which tokens are replaced, how often and by which token, and that
 * this depends only on seed and sample. */

#include <choir/data.h>

#include "check.h"

enum { CONTEXT = 50, VOCAB = 40, MASK = 40, SAMPLES = 2000 };

static choir_dataset *open_masked(uint64_t seed)
{
    choir_dataset *inner, *masked;
    ok(choir_dataset_random_tokens(SAMPLES, CONTEXT, VOCAB, 9, &inner));
    ok(choir_dataset_masked(inner, MASK, VOCAB, seed, &masked));
    return masked;
}

static void near(double count, double total, double share)
{
    assert_true(count / total > share - 0.01 && count / total < share + 0.01);
}

static void shares(void **state)
{
    choir_dataset *plain, *masked = open_masked(1);
    int64_t x[CONTEXT], y[CONTEXT], was[CONTEXT], next[CONTEXT];
    double chosen = 0, hidden = 0, replaced = 0;
    ok(choir_dataset_random_tokens(SAMPLES, CONTEXT, VOCAB, 9, &plain));
    assert_int_equal(choir_dataset_length(masked), SAMPLES);
    assert_int_equal(masked->classes, MASK + 1);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int targets = 0;
        ok(choir_dataset_get(masked, i, x, y));
        ok(choir_dataset_get(plain, i, was, next));
        for (int t = 0; t < CONTEXT; t++) {
            bool is_chosen = y[t] != CHOIR_IGNORED;
            if (is_chosen)
                assert_int_equal(y[t], was[t]);
            else
                assert_int_equal(x[t], was[t]);
            assert_true(x[t] >= 0 && x[t] <= MASK);
            targets += is_chosen;
            hidden += x[t] == MASK;
            replaced += x[t] != MASK && x[t] != was[t];
        }
        assert_true(targets > 0);
        chosen += targets;
    }
    near(chosen, SAMPLES * CONTEXT, 0.15);
    near(hidden, chosen, 0.8);
    near(replaced, chosen, 0.1 * (VOCAB - 1) / VOCAB); /* some get their old token */
    choir_dataset_free(masked);
    choir_dataset_free(plain);
}

static void by_seed_and_sample(void **state)
{
    choir_dataset *a = open_masked(1), *b = open_masked(1), *c = open_masked(2);
    int64_t x[3][CONTEXT], y[3][CONTEXT];
    int differ = 0;
    for (int64_t i = 0; i < 20; i++) {
        ok(choir_dataset_get(a, i, x[0], y[0]));
        ok(choir_dataset_get(b, 19 - i, x[1], y[1]));
        ok(choir_dataset_get(b, i, x[1], y[1]));
        ok(choir_dataset_get(c, i, x[2], y[2]));
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        differ += memcmp(y[0], y[2], sizeof y[0]) != 0;
    }
    assert_int_equal(differ, 20);
    choir_dataset_free(a);
    choir_dataset_free(b);
    choir_dataset_free(c);
}

static void by_epoch(void **state)
{
    choir_dataset *masked = open_masked(1);
    int64_t x[4][CONTEXT], y[4][CONTEXT];
    int differ = 0;
    for (int64_t i = 0; i < 20; i++) {
        ok(choir_dataset_get(masked, i, x[3], y[3]));
        for (int e = 0; e < 3; e++)
            ok(choir_dataset_get_epoch(masked, e, i, x[e], y[e]));
        assert_memory_equal(x[0], x[3], sizeof x[0]);
        assert_memory_equal(y[0], y[3], sizeof y[0]);
        differ += memcmp(y[0], y[1], sizeof y[0]) != 0;
        differ += memcmp(y[1], y[2], sizeof y[1]) != 0;
        ok(choir_dataset_get_epoch(masked, 1, i, x[3], y[3]));
        assert_memory_equal(x[1], x[3], sizeof x[1]);
        assert_memory_equal(y[1], y[3], sizeof y[1]);
    }
    assert_int_equal(differ, 40);
    choir_dataset_free(masked);
}

/* In a window of one token, that token is always chosen. */
static void shortest(void **state)
{
    choir_dataset *inner, *masked;
    int64_t x, y;
    ok(choir_dataset_random_tokens(50, 1, 7, 9, &inner));
    ok(choir_dataset_masked(inner, 7, 7, 1, &masked));
    for (int64_t i = 0; i < 50; i++) {
        ok(choir_dataset_get(masked, i, &x, &y));
        assert_true(y >= 0 && y < 7);
    }
    choir_dataset_free(masked);
}

static void refused(void **state)
{
    choir_dataset *images, *tokens, *masked;
    ok(choir_dataset_random(9, choir_dims(4), CHOIR_SCALAR, 3, 1, &images));
    assert_int_equal(choir_dataset_masked(images, 1, 1, 1, &masked), CHOIR_ERR_ARGUMENT);
    ok(choir_dataset_random_labelled(9, 4, 7, 3, 1, &tokens));
    assert_int_equal(choir_dataset_masked(tokens, 1, 1, 1, &masked), CHOIR_ERR_ARGUMENT);
    choir_dataset_free(tokens);
    ok(choir_dataset_random_tokens(9, 4, 7, 1, &tokens));
    assert_int_equal(choir_dataset_masked(tokens, -1, 1, 1, &masked), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_dataset_masked(tokens, 1, 0, 1, &masked), CHOIR_ERR_ARGUMENT);
    choir_dataset_free(tokens);
    choir_dataset_free(images);
}

static void random_labels(void **state)
{
    choir_dataset *data;
    int64_t x[4], y, seen[3] = {0};
    ok(choir_dataset_random_labelled(99, 4, 7, 3, 1, &data));
    for (int64_t i = 0; i < 99; i++) {
        ok(choir_dataset_get(data, i, x, &y));
        assert_true(y >= 0 && y < 3 && x[0] >= 0 && x[0] < 7 && x[3] >= 0 && x[3] < 7);
        seen[y]++;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    choir_dataset_free(data);
    assert_int_equal(choir_dataset_random_labelled(99, 4, 7, 0, 1, &data), CHOIR_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares),
        cmocka_unit_test(by_seed_and_sample), cmocka_unit_test(by_epoch),
        cmocka_unit_test(shortest), cmocka_unit_test(refused), cmocka_unit_test(random_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
