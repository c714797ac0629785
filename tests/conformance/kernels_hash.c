/* Conformance of the hash kernel: all dtypes, any cut, and what must change it; and of the
 * hashes that the optimizer takes in its pass. */
#include "conformance/harness.h"

enum { N = 3000, WIDE = 8 /* bytes */ };

static unsigned char bytes[N * WIDE + 64];

static void fill_bytes(void)
{
    for (size_t i = 0; i + 16 <= sizeof bytes; i += 16) {
        uint32_t word[4];
        choir__philox(11, 0, i, word);
        memcpy(bytes + i, word, sizeof word);
    }
}

static uint64_t hash_by(const choir__kernels *table, choir__k_hash k)
{
    uint64_t sum = 5;
    k.sum = &sum;
    table->hash(&k);
    return sum - 5;
}

/* Rows without gaps and with gaps, whose places in the whole have gaps, too. */
static const int64_t cases[][5] = {/* rows, cols, row, at, at_row */
    {1, 0, 0, 0, 0}, {1, 1, 1, 0, 1}, {1, 7, 7, 5, 7}, {1, N - 1, 0, INT64_C(1) << 33, 0},
    {11, 33, 40, 3, 50}, {2, 517, 600, 0, 517}, {40, 64, 64, 9, 64}};

static void every_dtype(void **state)
{
    fill_bytes();
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    for (size_t c = 0; c < CHOIR_COUNT(cases) * CHOIR_DTYPE_COUNT; c++) {
        const int64_t *s = cases[c / CHOIR_DTYPE_COUNT];
        choir_dtype dtype = (choir_dtype)(c % CHOIR_DTYPE_COUNT);
        choir__k_hash k = {.x = bytes + choir_dtype_size(dtype),
            .rows = s[0],
            .cols = s[1],
            .row = s[2],
            .at = s[3],
            .at_row = s[4],
            .dtype = dtype};
        uint64_t expected = hash_by(&choir__cpu_reference, k);
        for (int j = 0; j < count; j++)
            if (hash_by(tables[j], k) != expected)
                fail_msg("hash (%s): case %zu of %s differs from the reference", names[j],
                    c / CHOIR_DTYPE_COUNT, choir_dtype_name(dtype));
    }
}

/* Two blocks of columns, and a row cut in two, add up to the whole. */
static void parts_add_up(void **state)
{
    fill_bytes();
    const choir__kernels *table = first_table();
    choir__k_hash whole = {
        .x = bytes, .rows = 12, .cols = 200, .row = 200, .at = 0, .at_row = 200};
    choir__k_hash left = whole, right = whole, flat = whole;
    left.cols = 77;
    right.cols -= 77;
    right.x = bytes + 77 * sizeof(float);
    right.at = 77;
    uint64_t sum = hash_by(table, whole);
    assert_true(sum == hash_by(table, left) + hash_by(table, right));
    flat.rows = 1;
    flat.cols = flat.row = 2400;
    assert_true(sum == hash_by(table, flat));
}

/* A bit that flips, and two elements that change places, are found; a NaN is a NaN. */
static void changes(void **state)
{
    float x[257];
    const choir__kernels *table = first_table();
    for (int i = 0; i < 257; i++)
        x[i] = (float)i / 7;
    choir__k_hash k = {.x = x, .rows = 1, .cols = 257, .row = 257};
    uint64_t before = hash_by(table, k);
    for (int bit = 0; bit < 32; bit++) {
        uint32_t word;
        memcpy(&word, x + 8 * bit, sizeof word);
        word ^= UINT32_C(1) << bit;
        memcpy(x + 8 * bit, &word, sizeof word);
        assert_true(hash_by(table, k) != before);
        word ^= UINT32_C(1) << bit;
        memcpy(x + 8 * bit, &word, sizeof word);
    }
    x[3] = 9.0f / 7, x[9] = 3.0f / 7;
    assert_true(hash_by(table, k) != before);
    x[3] = 0;
    before = hash_by(table, k);
    x[3] = -0.0f;
    assert_true(hash_by(table, k) != before);
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};
    uint64_t of_nan[4];
    for (int i = 0; i < 4; i++) {
        memcpy(x + 3, &nans[i], sizeof nans[i]);
        of_nan[i] = hash_by(table, k);
        assert_true(of_nan[i] == of_nan[0]);
    }
    x[3] = INFINITY;
    assert_true(hash_by(table, k) != of_nan[0]);
}

/* --- in the pass of a step --- */

enum { TENSORS = CHOIR__OPT_READ };

/* Parameter, moments and gradient, in the order of choir__opt_of, with guards behind them. */
static float entry[TENSORS][N + 1];

static void fill_entry(int64_t n, int64_t nan_at)
{
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i <= N; i++) {
            uint32_t word[4];
            choir__philox(13, (uint64_t)t, (uint64_t)i, word);
            entry[t][i] = (float)(word[0] >> 8) / (1 << 24);
        }
    if (nan_at < n)
        entry[CHOIR__OPT_GRAD][nan_at] = -NAN;
}

static void hash_tensors(int64_t n, int64_t at, uint64_t hashes[TENSORS])
{
    for (int t = 0; t < TENSORS; t++)
        hashes[t] = hash_by(&choir__cpu_reference,
            (choir__k_hash){.x = entry[t], .rows = 1, .cols = n, .row = n, .at = at});
}

/* moments: 0 (SGD), 1 (SGD with momentum), 2 (Adam), 3 (its amsgrad). */
static void step_by(const choir__kernels *table, int moments, int64_t n, choir__opt_sums *sums)
{
    const choir__opt_hyper hyper = {.lr = 0.1f,
        .beta1 = 0.9f,
        .beta2 = 0.99f,
        .eps = 1e-8f,
        .step_size = 0.1f,
        .rsqrt_bias2 = 1,
        .momentum = moments == 1 ? 0.9f : 0,
        .hash = 1};
    const choir__opt_entry e = {.param = entry[CHOIR__OPT_PARAM],
        .grad = entry[CHOIR__OPT_GRAD],
        .m = moments > 0 ? entry[CHOIR__OPT_M] : NULL,
        .v = moments > 1 ? entry[CHOIR__OPT_V] : NULL,
        .top = moments > 2 ? entry[CHOIR__OPT_TOP] : NULL,
        .n = n,
        .row = n,
        .sums = sums};
    const choir__k_optim k = {.entries = &e, .count = 1, .hyper = &hyper};
    if (moments > 1)
        table->adam(&k);
    else
        table->sgd(&k);
}

/* Compares the hashes that a step has taken with hashes of its tensors before and behind it. */
static void check_pass(const choir__kernels *table, const char *name, int moments, int64_t n,
    int64_t at, int64_t nan_at)
{
    choir__opt_sums sums = {.at = at};
    uint64_t read[TENSORS], left[TENSORS];
    fill_entry(n, nan_at);
    hash_tensors(n, at, read);
    step_by(table, moments, n, &sums);
    hash_tensors(n, at, left);
    assert_int_equal(sums.counted, n);
    for (int t = 0; t < TENSORS; t++) {
        bool there = t == CHOIR__OPT_PARAM || t == CHOIR__OPT_GRAD || t <= moments;
        if (there &&
            (sums.read[t] != read[t] || (t < CHOIR__OPT_LEFT && sums.left[t] != left[t])))
            fail_msg("a step (%s) of %lld elements from %lld on, with %d moments, a NaN at "
                     "%lld: other hashes of tensor %d",
                name, (long long)n, (long long)at, moments, (long long)nan_at, t);
    }
}

/* Blocks of a step end at places that are odd and even, with and without words behind them. */
static void in_the_pass_of_a_step(void **state)
{
    static const int64_t sizes[] = {1, 2, 8, 9, 17, 63, 1023, 1024, 1025, 2047, N};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    if (test_device())
        skip(); /* hashes of far memory have kernels of their own */
    int count = isa_tables(tables, names);
    for (int j = 0; j < count; j++)
        for (size_t s = 0; s < CHOIR_COUNT(sizes); s++)
            for (int i = 0; i < 16; i++)
                check_pass(tables[j], names[j], i % 4, sizes[s],
                    i / 4 % 2 ? (INT64_C(1) << 33) + 3 : 4, i / 8 ? sizes[s] / 2 : N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(changes),
        cmocka_unit_test(in_the_pass_of_a_step),
    };
    return cmocka_run_group_tests_name("hashes", tests, NULL, NULL);
}
