/* Conformance of linear algebra: factors of matrices, and triangular systems. */
#include "conformance/harness.h"

/* Returns batch matrices b b' + 1/2, which are positive definite. */
static float *positive(int64_t batch, int64_t n)
{
    float *b = uniform(batch * n * n, -1, 1),
          *x = malloc((size_t)(batch * n * n + 1) * sizeof *x);
    for (int64_t at = 0; at < batch * n * n; at++) {
        const float *rows = b + at / n / n * n * n;
        int64_t i = at / n % n, j = at % n;
        double sum = i == j ? 0.5 : 0;
        for (int64_t l = 0; l < n; l++)
            sum += (double)rows[i * n + l] * (double)rows[j * n + l];
        x[at] = (float)sum;
    }
    free(b);
    return x;
}

static const int64_t sizes[][2] = {/* batch, n */
    {1, 1}, {3, 2}, {2, 7}, {1, 16}, {2, 17}, {1, 33}, {1, 70}};

static void cholesky(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(sizes); c++) {
        int64_t batch = sizes[c][0], n = sizes[c][1];
        trial t = TRIAL(cholesky, .batch = batch, .n = n);
        t.no_half = true;
        t.tolerance = 1e-5;
        give(&t, AT(cholesky, x), batch * n * n, positive(batch, n));
        take(&t, AT(cholesky, y), batch * n * n);
        check(t);
    }
}

static void solve_triangular(void **state)
{
    static const int64_t columns[] = {1, 5, 19};
    for (size_t c = 0; c < CHOIR_COUNT(sizes) * CHOIR_COUNT(columns) * 2; c++) {
        const int64_t *s = sizes[c / 2 / CHOIR_COUNT(columns)];
        int64_t batch = s[0], n = s[1], cols = columns[c / 2 % CHOIR_COUNT(columns)];
        float *a = uniform(batch * n * n, -0.3f, 0.3f);
        for (int64_t i = 0; i < batch * n; i++)
            a[i * n + i % n] += i % 2 ? 1.5f : -1.5f;
        trial t = TRIAL(solve_triangular, .batch = batch, .n = n, .cols = cols, .upper = c % 2);
        t.no_half = true;
        t.tolerance = 1e-5;
        give(&t, AT(solve_triangular, a), batch * n * n, a);
        give(&t, AT(solve_triangular, b), batch * n * cols, uniform(batch * n * cols, -1, 1));
        take(&t, AT(solve_triangular, x), batch * n * cols);
        check(t);
    }
}

static const int64_t shapes[][3] = {/* batch, m, n */
    {1, 1, 1}, {3, 2, 2}, {2, 5, 3}, {1, 9, 8}, {2, 16, 16}, {1, 40, 17}, {1, 300, 3}};

/* variant: 0 any matrix; 1 columns that are multiples of each other, or 0; 2 an infinity */
static void svd(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(shapes) * 3; c++) {
        int64_t batch = shapes[c / 3][0], m = shapes[c / 3][1], n = shapes[c / 3][2];
        float *x = uniform(batch * m * n, -1, 1);
        for (int64_t i = 0; i < batch * m && c % 3 == 1; i++) {
            x[i * n + n - 1] = 0;
            x[i * n] = n > 1 ? -2 * x[i * n + 1] : 0;
        }
        if (c % 3 == 2)
            x[m * n / 2] = INFINITY;
        double *scratch = malloc((size_t)(batch * n * (m + n + 1)) * sizeof *scratch);
        trial t = TRIAL(svd, .batch = batch, .m = m, .n = n, .scratch = scratch);
        t.no_half = true;
        give(&t, AT(svd, x), batch * m * n, x);
        take(&t, AT(svd, y), batch * (m + 1 + n) * n);
        check(t);
        free(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cholesky),
        cmocka_unit_test(solve_triangular),
        cmocka_unit_test(svd),
    };
    return cmocka_run_group_tests_name("linear algebra", tests, NULL, NULL);
}
