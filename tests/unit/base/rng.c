/* Random numbers against published vectors: Random123's for Philox, PyTorch's for randperm. */
#include <stdbool.h>
#include <stdlib.h>
#include "check.h"
#include "base/rng.h"

/* From Random123's kat_vectors, "philox4x32 10": counter, key, result. */
static void philox(void **state)
{
    static const struct {
        uint64_t lo, hi, key;
        uint32_t out[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822,
            {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        choir__philox(known[i].key, known[i].hi, known[i].lo, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void unit_interval(void **state)
{
    assert_true(choir__unit(0) == 0);
    assert_true(choir__unit(0x80000000u) == 0.5f);
    assert_true(choir__unit(UINT32_MAX) == 1 - 0x1p-24f); /* never 1 */
}

/* The 10000th draw of a generator seeded with 5489: the C++ standard's own check of mt19937. */
static void mersenne(void **state)
{
    choir__mt19937 mt;
    choir__mt_seed(&mt, 5489);
    for (int i = 1; i < 10000; i++)
        choir__mt_next(&mt);
    assert_int_equal(choir__mt_next(&mt), 4123659995u);
}

/* From PyTorch 2.15.0: torch.manual_seed(seed); torch.randperm(n).tolist(). */
static void randperm(void **state)
{
    static const struct {
        uint64_t seed;
        int64_t n, out[20];
    } known[] = {
        {0, 10, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
        {0, 1, {0}},
        {1, 7, {0, 6, 1, 3, 5, 2, 4}},
        {42, 16, {6, 3, 0, 7, 10, 15, 2, 12, 14, 9, 8, 5, 4, 13, 11, 1}},
        {5, 12, {11, 0, 9, 6, 10, 3, 4, 5, 8, 7, 1, 2}},
        {4294967301, 12, {11, 0, 9, 6, 10, 3, 4, 5, 8, 7, 1, 2}}, /* 2^32 + 5: 32 bits count */
        {123456789, 20, {8, 1, 0, 17, 14, 5, 18, 3, 6, 19, 7, 15, 10, 9, 2, 12, 13, 4, 11, 16}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int64_t out[20];
        choir__randperm(known[i].seed, known[i].n, out);
        assert_memory_equal(out, known[i].out, (size_t)known[i].n * sizeof *out);
    }
}

/* A long permutation, past many refills of the generator: both ends match PyTorch's. */
static void randperm_long(void **state)
{
    enum { N = 40000 };
    static const int64_t head[] = {21615, 38303, 13217, 38042, 21599, 597, 5451, 24768};
    static const int64_t tail[] = {38942, 19912, 10674, 24326};
    int64_t *out = malloc(N * sizeof *out);
    bool *seen = calloc(N, sizeof *seen);
    choir__randperm(7, N, out);
    assert_memory_equal(out, head, sizeof head);
    assert_memory_equal(out + N - 4, tail, sizeof tail);
    for (int i = 0; i < N; i++) {
        assert_true(out[i] >= 0 && out[i] < N && !seen[out[i]]);
        seen[out[i]] = true;
    }
    free(out);
    free(seen);
}

/* Keys depend on every bit of the seed and of the name, and mixing on the number mixed in. */
static void keys_differ(void **state)
{
    uint64_t key = choir__rng_key(1, "layer.0.weight");
    assert_true(key == choir__rng_key(1, "layer.0.weight"));
    assert_true(key != choir__rng_key(2, "layer.0.weight"));
    assert_true(key != choir__rng_key(1 + (1ULL << 63), "layer.0.weight"));
    assert_true(key != choir__rng_key(1, "layer.1.weight"));
    assert_true(key != choir__rng_key(1, "layer.0.weigh"));
    assert_true(choir__mix(key, 0) != choir__mix(key, 1));
}

/* A permutation that is read in steps, first a few entries and in the end all. */
static void shuffled_in_steps(void **state)
{
    enum { N = 20000 };
    static int64_t all[N], out[N];
    static const int64_t steps[] = {1, 2, 40, 41, 600, 1100, 1250, 1251, 7000, N};
    choir__shuffle s = {0};
    for (int64_t n = N; n > 0; n /= 3)
        for (uint64_t seed = 1; seed < 3; seed++) {
            choir__randperm(seed, n, all);
            memset(out, 0xff, sizeof out);
            choir__shuffle_begin(&s, seed, n, out); /* also after one that ended early */
            for (size_t i = 0; i < CHOIR_COUNT(steps) - seed; i++) {
                int64_t count = choir__min(steps[i], n);
                choir__shuffle_reach(&s, count);
                assert_memory_equal(out, all, (size_t)count * sizeof *out);
            }
        }
    choir__shuffle_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox),
        cmocka_unit_test(unit_interval),
        cmocka_unit_test(mersenne),
        cmocka_unit_test(randperm),
        cmocka_unit_test(randperm_long),
        cmocka_unit_test(shuffled_in_steps),
        cmocka_unit_test(keys_differ),
    };
    return cmocka_run_group_tests_name("random numbers", tests, NULL, NULL);
}
