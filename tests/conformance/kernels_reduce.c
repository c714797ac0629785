/* Conformance of sum, max_rows, softmax and its gradient. */
#include "conformance/harness.h"

static const int64_t few[] = {1, 2, 3, 7, 17, 33};

/* f32 rows have a defined order: 16 lanes, joined 8, 4, 2, 1. */
static float lane_sum(const float *x, int64_t n)
{
    float lane[16] = {0};
    for (int64_t c = 0; c < n; c++)
        lane[c % 16] += x[c];
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            lane[i] += lane[i + step];
    return lane[0];
}

static void sum(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(few) * CHOIR_COUNT(odd_sizes) * 2; i++) {
        bool over_rows = i % 2;
        int64_t rows = few[i / 2 % CHOIR_COUNT(few)],
                cols = odd_sizes[i / 2 / CHOIR_COUNT(few)];
        int64_t outputs = over_rows ? cols : rows;
        for (int turn = 0; turn < (over_rows ? 2 : 1); turn++) { /* long columns too */
            int64_t r = turn ? cols : rows, c = turn ? rows : cols;
            int64_t row = i % 3 == 0 ? c + 5 : i % 3 == 1 ? c + 16 - c % 16 : 0;
            int64_t n = r * (row ? row : c);
            outputs = over_rows ? c : r;
            trial t = TRIAL(
                sum, .rows = r, .cols = c, .scale = 0.75, .over_rows = over_rows, .row = row);
            t.tolerance = 1e-5;
            give(&t, AT(sum, x), n, uniform(n, -1, 2));
            take(&t, AT(sum, y), outputs);
            check(t);
            if (!test_device())
                continue;
            t = TRIAL(sum, .rows = r, .cols = c, .scale = 0.75, .over_rows = over_rows,
                .wide = true, .row = row);
            t.tolerance = 1e-5;
            give(&t, AT(sum, x), n, uniform(n, -1, 2));
            take(&t, AT(sum, y), outputs), keep_wide(&t);
            check(t);
        }
    }
}

static void sum_order(void **state)
{
    if (test_device())
        skip(); /* a GPU's order is another one */
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (size_t s = 0; s < CHOIR_COUNT(odd_sizes); s++) {
            int64_t n = odd_sizes[s];
            float *x = uniform(3 * n, -1, 1), y[3];
            tables[j]->sum(&(choir__k_sum){.x = x, .y = y, .rows = 3, .cols = n, .scale = 1});
            for (int r = 0; r < 3; r++)
                assert_true(y[r] == lane_sum(x + r * n, n));
            free(x);
        }
}

static void max_rows(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(few) * CHOIR_COUNT(odd_sizes) * 4; i++) {
        int64_t rows = few[i / 4 % CHOIR_COUNT(few)],
                cols = odd_sizes[i / 4 / CHOIR_COUNT(few)];
        float *x = uniform(rows * cols, -5, 5);
        for (int64_t j = 0; j < rows * cols && i % 2; j++)
            x[j] = rintf(x[j]); /* ties: the first of them counts */
        trial t = TRIAL(max_rows, .rows = rows, .cols = cols);
        t.exact = true;
        give(&t, AT(max_rows, x), rows * cols, x);
        if (i % 4 != 1)
            take(&t, AT(max_rows, y), rows);
        if (i % 4 != 2)
            take_raw(&t, AT(max_rows, index), rows, sizeof(int64_t));
        check(t);
    }
}

enum { SOFTMAX_VARIANTS = 6 * 15 * 2 };

static void softmax(void **state)
{
    for (size_t i = 0; i < SOFTMAX_VARIANTS * 2; i++) {
        int64_t rows = few[i / 2 % 6], cols = odd_sizes[i / 12 % 15], n = rows * cols;
        trial t = TRIAL(softmax, .rows = rows, .cols = cols, .log = i >= SOFTMAX_VARIANTS);
        t.tolerance = 1e-5;
        give(&t, AT(softmax, x), n, uniform(n, -8, 8));
        if (i % 2)
            in_place(&t, AT(softmax, y));
        else
            take(&t, AT(softmax, y), n);
        check(t);
    }
}

static void softmax_backward(void **state)
{
    for (size_t i = 0; i < SOFTMAX_VARIANTS * 2; i++) {
        int64_t rows = few[i / 2 % 6], cols = odd_sizes[i / 12 % 15], n = rows * cols;
        bool log = i >= SOFTMAX_VARIANTS;
        trial t = TRIAL(softmax_backward, .rows = rows, .cols = cols, .log = log);
        t.tolerance = 1e-5;
        give(&t, AT(softmax_backward, y), n, uniform(n, log ? -6 : 0, log ? 0 : 1));
        give(&t, AT(softmax_backward, gy), n, uniform(n, -2, 2));
        if (i % 2)
            in_place(&t, AT(softmax_backward, gx));
        else
            take(&t, AT(softmax_backward, gx), n);
        check(t);
    }
}

/* Rows of special values, against the reference: huge, far apart, infinite, not a number. */
static void softmax_special(void **state)
{
    static const float rows[][5] = {{0, -0.0f, 0, 0, 0}, {100, -100, 0, 99, 1e-30f},
        {1e30f, -1e30f, 0, 1, 2}, {-INFINITY, 0, 1, -INFINITY, -1}, {NAN, 0, 1, 2, 3},
        {0, 1, INFINITY, 2, 3}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {-1e30f, -1e30f, -1e30f, -1e30f, -1e30f}, {88, 89, 90, 91, -104}};
    enum { ROWS = CHOIR_COUNT(rows), COLS = 35 };
    for (int log = 0; log < 2; log++)
        for (size_t r = 0; r < ROWS; r++) {
            float *x = malloc(COLS * sizeof *x);
            for (int c = 0; c < COLS; c++)
                x[c] = rows[r][c % 5];
            trial t = TRIAL(softmax, .rows = 1, .cols = COLS, .log = log);
            t.tolerance = 1e-5;
            give(&t, AT(softmax, x), COLS, x);
            take(&t, AT(softmax, y), COLS);
            check(t);
        }
}

/* Equal inputs of a row give equal bits wherever they are, and a row does not depend on other
 * rows. */
static void position_independence(void **state)
{
    enum { ROWS = 5, COLS = 67, N = ROWS * COLS };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (int log = 0; log < 2; log++) {
            float *x = uniform(N, -4, 4), together[N], alone[N];
            for (int i = 0; i < N; i++)
                x[i] = x[i / COLS * COLS + i % COLS % 7];
            choir__k_softmax k = {
                .x = x, .y = together, .rows = ROWS, .cols = COLS, .log = log};
            tables[j]->softmax(&k);
            for (int i = 0; i < N; i++)
                assert_true(together[i] == together[i / COLS * COLS + i % COLS % 7]);
            for (int r = 0; r < ROWS; r++) {
                k.x = x + r * COLS, k.y = alone + r * COLS, k.rows = 1;
                tables[j]->softmax(&k);
            }
            assert_memory_equal(together, alone, sizeof alone);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum),
        cmocka_unit_test(sum_order),
        cmocka_unit_test(max_rows),
        cmocka_unit_test(softmax),
        cmocka_unit_test(softmax_backward),
        cmocka_unit_test(softmax_special),
        cmocka_unit_test(position_independence),
    };
    return cmocka_run_group_tests_name("reducing kernels", tests, NULL, NULL);
}
