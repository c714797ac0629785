/* Conformance of layer norm (RMS norm within it) and batch norm, their gradients included. */
#include "conformance/harness.h"

static const int64_t shapes[][2] = {{1, 1}, {1, 33}, {2, 1}, {2, 2}, {3, 7}, {7, 3}, {5, 15},
    {15, 16}, {16, 17}, {31, 33}, {33, 31}, {4, 64}, {65, 65}, {3, 127}, {127, 3}, {257, 17},
    {2, 1025}};

/* Runs a trial over every shape; variant counts through the optional arguments. */
#define EACH(shape, variant, variants)                                                         \
    for (size_t shape = 0; shape < CHOIR_COUNT(shapes); shape++)                               \
        for (int variant = 0; variant < (variants); variant++)

static void layer_norm(void **state)
{
    EACH(s, v, 16) /* bits: gamma, beta, a residual, RMS */
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1];
        trial t = TRIAL(layer_norm, .rows = rows, .cols = cols, .eps = 1e-5f);
        t.tolerance = 1e-5;
        t.no_half = v & 4 && cols < 7; /* sums that agree but for their rounding */
        give(&t, AT(layer_norm, x), rows * cols, uniform(rows * cols, -2, 3));
        if (v & 4) {
            t.half_slack =
                4; /* a short row's terms may nearly cancel, and their sum is rounded */
            give(&t, AT(layer_norm, add), rows * cols, uniform(rows * cols, -1, 1));
            take(&t, AT(layer_norm, sum), rows * cols);
        }
        if (v & 1)
            give_wide(&t, AT(layer_norm, gamma), cols, uniform(cols, 0.5f, 2));
        if (v & 2)
            give_wide(&t, AT(layer_norm, beta), cols, uniform(cols, -1, 1));
        take(&t, AT(layer_norm, y), rows * cols);
        if (!(v & 8))
            take_wide(&t, AT(layer_norm, mean), rows);
        take_wide(&t, AT(layer_norm, rstd), rows);
        check(t);
    }
}

/* The mean is far from 0 compared with the deviation: the variance must not be computed as E
 * x^2 - mean^2. */
static void layer_norm_offset(void **state)
{
    for (size_t s = 4; s < CHOIR_COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1];
        if (cols < 3)
            continue;
        trial t = TRIAL(layer_norm, .rows = rows, .cols = cols, .eps = 1e-5f);
        t.tolerance = 5e-4; /* f32 has 3e-5 of the deviation left at 1000 */
        t.no_half = true;   /* bf16 has none */
        give(&t, AT(layer_norm, x), rows * cols, uniform(rows * cols, 999, 1001));
        take(&t, AT(layer_norm, y), rows * cols);
        take_wide(&t, AT(layer_norm, mean), rows);
        take_wide(&t, AT(layer_norm, rstd), rows);
        check(t);
    }
}

static void layer_norm_backward(void **state)
{
    EACH(s, v, 12)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        bool rms = v >= 6;
        trial t = TRIAL(layer_norm_backward, .rows = rows, .cols = cols);
        t.tolerance = 1e-5;
        give(&t, AT(layer_norm_backward, x), n, uniform(n, -2, 3));
        if (v % 2)
            give_wide(&t, AT(layer_norm_backward, gamma), cols, uniform(cols, 0.5f, 2));
        if (!rms)
            give_wide(&t, AT(layer_norm_backward, mean), rows, uniform(rows, 0, 1));
        give_wide(&t, AT(layer_norm_backward, rstd), rows, uniform(rows, 0.5f, 1));
        give(&t, AT(layer_norm_backward, gy), n, uniform(n, -2, 2));
        if (v % 6 / 2)
            give(&t, AT(layer_norm_backward, gx_add), n, uniform(n, -2, 2));
        if (v % 6 / 2 == 2)
            in_place(&t, AT(layer_norm_backward, gx));
        else
            take(&t, AT(layer_norm_backward, gx), n);
        check(t);
    }
}

/* Gradients of no rows and of no columns. It runs first, while a device has no scratch memory
 * yet. */
static void nothing(void **state)
{
    trial t = TRIAL(layer_norm_weights, .cols = 17);
    take_wide(&t, AT(layer_norm_weights, ggamma), 17);
    take_wide(&t, AT(layer_norm_weights, gbeta), 17);
    check(t);
    for (int64_t cols = 0; cols < 18; cols += 17) {
        t = TRIAL(batch_norm_backward, .rows = cols ? 0 : 3, .cols = cols, .train = true);
        give_wide(&t, AT(batch_norm_backward, mean), cols, uniform(cols, 0, 1));
        give_wide(&t, AT(batch_norm_backward, rstd), cols, uniform(cols, 0.5f, 1));
        take_wide(&t, AT(batch_norm_backward, ggamma), cols);
        take_wide(&t, AT(batch_norm_backward, gbeta), cols);
        check(t);
    }
}

static void layer_norm_weights(void **state)
{
    EACH(s, v, 6)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        trial t = TRIAL(layer_norm_weights, .rows = rows, .cols = cols);
        t.tolerance = 1e-5;
        give(&t, AT(layer_norm_weights, x), n, uniform(n, -2, 3));
        if (v < 3)
            give_wide(&t, AT(layer_norm_weights, mean), rows, uniform(rows, 0, 1));
        give_wide(&t, AT(layer_norm_weights, rstd), rows, uniform(rows, 0.5f, 1));
        give(&t, AT(layer_norm_weights, gy), n, uniform(n, -1, 2));
        if (v % 3 != 1)
            take_wide(&t, AT(layer_norm_weights, ggamma), cols);
        if (v % 3 != 2)
            take_wide(&t, AT(layer_norm_weights, gbeta), cols);
        check(t);
    }
}

/* variant: 0 eval, 1 train, 2 train and update; + 3: with gamma and beta */
static void batch_norm(void **state)
{
    EACH(s, v, 6)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        if (rows == 1 && v % 3 == 2)
            continue; /* no unbiased variance of one sample */
        trial t = TRIAL(batch_norm, .rows = rows, .cols = cols, .eps = 1e-5f, .momentum = 0.1f,
            .train = v % 3 > 0, .update = v % 3 == 2);
        t.tolerance = 1e-5;
        give(&t, AT(batch_norm, x), n, uniform(n, -2, 3));
        if (v >= 3) {
            give_wide(&t, AT(batch_norm, gamma), cols, uniform(cols, 0.5f, 2));
            give_wide(&t, AT(batch_norm, beta), cols, uniform(cols, -1, 1));
        }
        update_wide(&t, AT(batch_norm, running_mean), cols, uniform(cols, -1, 1));
        update_wide(&t, AT(batch_norm, running_var), cols, uniform(cols, 0.5f, 2));
        take(&t, AT(batch_norm, y), n);
        take_wide(&t, AT(batch_norm, mean), cols);
        take_wide(&t, AT(batch_norm, rstd), cols);
        check(t);
    }
}

/* Columns far from 0, and columns whose first row is far from all others. */
static void batch_norm_offset(void **state)
{
    for (int v = 0; v < 4; v++) {
        int64_t rows = v < 2 ? 257 : 64, cols = 17, n = rows * cols;
        bool outlier = v & 1;
        float *x = outlier ? uniform(n, -1, 1) : uniform(n, 999, 1001);
        for (int64_t c = 0; outlier && c < cols; c++)
            x[c] = 1000;
        trial t = TRIAL(batch_norm, .rows = rows, .cols = cols, .eps = 1e-5f, .train = true);
        t.tolerance = outlier ? 1e-5 : 5e-4; /* f32 has 3e-5 of the deviation left at 1000 */
        t.no_half = !outlier;                /* bf16 has none */
        give(&t, AT(batch_norm, x), n, x);
        take(&t, AT(batch_norm, y), n);
        take_wide(&t, AT(batch_norm, mean), cols);
        take_wide(&t, AT(batch_norm, rstd), cols);
        check(t);
    }
}

/* variant: bit 0 train, bit 1 gamma, bit 2 the weights' gradients */
static void batch_norm_backward(void **state)
{
    EACH(s, v, 8)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        trial t = TRIAL(batch_norm_backward, .rows = rows, .cols = cols, .train = v & 1);
        t.tolerance = 1e-5;
        give(&t, AT(batch_norm_backward, x), n, uniform(n, -2, 3));
        if (v & 2)
            give_wide(&t, AT(batch_norm_backward, gamma), cols, uniform(cols, 0.5f, 2));
        give_wide(&t, AT(batch_norm_backward, mean), cols, uniform(cols, 0, 1));
        give_wide(&t, AT(batch_norm_backward, rstd), cols, uniform(cols, 0.5f, 1));
        give(&t, AT(batch_norm_backward, gy), n, uniform(n, -1, 2));
        take(&t, AT(batch_norm_backward, gx), n);
        if (v & 4) {
            take_wide(&t, AT(batch_norm_backward, ggamma), cols);
            take_wide(&t, AT(batch_norm_backward, gbeta), cols);
        }
        check(t);
    }
}

static void give_batch_norm(trial *t, int64_t rows, int64_t cols, bool residual, bool updates)
{
    int64_t n = rows * cols;
    give(t, AT(batch_norm, x), n, uniform(n, -2, 3));
    give_wide(t, AT(batch_norm, gamma), cols, uniform(cols, 0.5f, 2));
    give_wide(t, AT(batch_norm, beta), cols, uniform(cols, -1, 1));
    if (residual)
        give(t, AT(batch_norm, residual), n, uniform(n, -2, 2));
    (updates ? update_wide : give_wide)(
        t, AT(batch_norm, running_mean), cols, uniform(cols, -1, 1));
    (updates ? update_wide : give_wide)(
        t, AT(batch_norm, running_var), cols, uniform(cols, 0.5f, 2));
    take(t, AT(batch_norm, y), n);
    take_wide(t, AT(batch_norm, mean), cols);
    take_wide(t, AT(batch_norm, rstd), cols);
}

/* variant: bit 0 a residual, bit 1 train, bit 2 ReLU off */
static void batch_norm_fused(void **state)
{
    EACH(s, v, 8)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1];
        trial t = TRIAL(batch_norm, .rows = rows, .cols = cols, .eps = 1e-5f, .momentum = 0.1f,
            .train = v & 2, .relu = !(v & 4));
        t.tolerance = 1e-5;
        give_batch_norm(&t, rows, cols, v & 1, false);
        check(t);
    }
}

/* variant: bit 0 train, bit 1 a given y (of a residual's block), bit 2 its gradient */
static void batch_norm_fused_backward(void **state)
{
    EACH(s, v, 12)
    {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        trial t = TRIAL(
            batch_norm_backward, .rows = rows, .cols = cols, .train = v & 1, .relu = true);
        t.tolerance = 1e-4; /* a channel's sum may all but cancel */
        give(&t, AT(batch_norm_backward, x), n, uniform(n, -2, 3));
        give_wide(&t, AT(batch_norm_backward, gamma), cols, uniform(cols, 0.5f, 2));
        give_wide(&t, AT(batch_norm_backward, beta), cols, uniform(cols, -1, 1));
        give_wide(&t, AT(batch_norm_backward, mean), cols, uniform(cols, 0, 1));
        give_wide(&t, AT(batch_norm_backward, rstd), cols, uniform(cols, 0.5f, 1));
        if (v & 2)
            give(&t, AT(batch_norm_backward, y), n, uniform(n, -1, 1));
        give(&t, AT(batch_norm_backward, gy), n, uniform(n, -1, 2));
        if (v >= 8)
            in_place(&t, AT(batch_norm_backward, gresidual));
        else if (v & 4)
            take(&t, AT(batch_norm_backward, gresidual), n);
        take(&t, AT(batch_norm_backward, gx), n);
        take_wide(&t, AT(batch_norm_backward, ggamma), cols);
        take_wide(&t, AT(batch_norm_backward, gbeta), cols);
        check(t);
    }
}

static void assert_near(const float *out, const float *expected, int64_t n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)expected[i];
    assert_true(distance(out, wide, n) <= 1e-5);
    free(wide);
}

/* The option `again` computes the same bits from mean and rstd alone, and backward finds the
 * sign that the forward had, given or recomputed. */
static void batch_norm_again(void **state)
{
    enum { ROWS = 97, COLS = 83, N = ROWS * COLS };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    float *x = uniform(N, -2, 3), *gy = uniform(N, -1, 1), *gamma = uniform(COLS, -1, 1);
    float *beta = uniform(COLS, -0.1f, 0.1f), mean[COLS], rstd[COLS], var[COLS];
    static float y[N], y2[N], gx[N], gx2[N];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        choir__k_batch_norm k = {.x = x,
            .gamma = gamma,
            .beta = beta,
            .y = y,
            .mean = mean,
            .rstd = rstd,
            .running_mean = mean,
            .running_var = var,
            .rows = ROWS,
            .cols = COLS,
            .eps = 1e-5f,
            .train = true,
            .relu = true};
        tables[j]->batch_norm(&k);
        k.y = y2, k.again = true, k.running_mean = k.running_var = NULL;
        tables[j]->batch_norm(&k);
        assert_memory_equal(y, y2, sizeof y);
        choir__k_batch_norm_backward b = {.x = x,
            .gamma = gamma,
            .beta = beta,
            .mean = mean,
            .rstd = rstd,
            .gy = gy,
            .gx = gx,
            .rows = ROWS,
            .cols = COLS,
            .train = true,
            .relu = true};
        tables[j]->batch_norm_backward(&b);
        b.y = y, b.gx = gx2;
        tables[j]->batch_norm_backward(&b);
        assert_memory_equal(gx, gx2, sizeof gx);
    }
    free(x), free(gy), free(gamma), free(beta);
}

/* Rows as long as in models, and rows too long for the registers of a GPU's block. bit 0: RMS,
 * bit 1: without a residual and weights */
static void layer_norm_long_rows(void **state)
{
    static const int64_t widths[] = {768, 1024, 1600, 2047, 2304, 4096, 8193, 8448};
    for (size_t i = 0; i < 4 * CHOIR_COUNT(widths); i++) {
        int64_t cols = widths[i / 4], rows = cols <= 1024 ? 9 : 2, n = rows * cols;
        trial f = TRIAL(layer_norm, .rows = rows, .cols = cols, .eps = 1e-5f);
        trial b = TRIAL(layer_norm_backward, .rows = rows, .cols = cols);
        f.tolerance = b.tolerance = 1e-5;
        give(&f, AT(layer_norm, x), n, uniform(n, -2, 3));
        give(&b, AT(layer_norm_backward, x), n, uniform(n, -2, 3));
        if (!(i & 2)) {
            give(&f, AT(layer_norm, add), n, uniform(n, -1, 1));
            take(&f, AT(layer_norm, sum), n);
            give_wide(&f, AT(layer_norm, gamma), cols, uniform(cols, 0.5f, 2));
            give_wide(&f, AT(layer_norm, beta), cols, uniform(cols, -1, 1));
            give_wide(&b, AT(layer_norm_backward, gamma), cols, uniform(cols, 0.5f, 2));
            give(&b, AT(layer_norm_backward, gx_add), n, uniform(n, -2, 2));
        }
        if (!(i & 1)) {
            take_wide(&f, AT(layer_norm, mean), rows);
            give_wide(&b, AT(layer_norm_backward, mean), rows, uniform(rows, 0, 1));
        }
        take(&f, AT(layer_norm, y), n);
        take_wide(&f, AT(layer_norm, rstd), rows);
        give_wide(&b, AT(layer_norm_backward, rstd), rows, uniform(rows, 0.5f, 1));
        give(&b, AT(layer_norm_backward, gy), n, uniform(n, -2, 2));
        take(&b, AT(layer_norm_backward, gx), n);
        check(f);
        check(b);
    }
}

/* Columns that several blocks of a GPU add up: rows, columns. */
static const int64_t tall[][2] = {{1537, 5}, {1100, 64}, {300, 272}, {6011, 3}, {6000, 8}};

static void layer_norm_weights_tall(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(tall); s++) {
        int64_t rows = tall[s][0], cols = tall[s][1], n = rows * cols;
        trial t = TRIAL(layer_norm_weights, .rows = rows, .cols = cols);
        t.tolerance = 1e-5;
        give(&t, AT(layer_norm_weights, x), n, uniform(n, -2, 3));
        give_wide(&t, AT(layer_norm_weights, mean), rows, uniform(rows, 0, 1));
        give_wide(&t, AT(layer_norm_weights, rstd), rows, uniform(rows, 0.5f, 1));
        give(&t, AT(layer_norm_weights, gy), n, uniform(n, -1, 2));
        take_wide(&t, AT(layer_norm_weights, ggamma), cols);
        take_wide(&t, AT(layer_norm_weights, gbeta), cols);
        check(t);
    }
}

static void batch_norm_tall(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(tall); s++) {
        int64_t rows = tall[s][0], cols = tall[s][1], n = rows * cols;
        trial t = TRIAL(batch_norm, .rows = rows, .cols = cols, .eps = 1e-5f, .momentum = 0.1f,
            .train = true, .update = true, .relu = s & 1);
        t.tolerance = 1e-5;
        give_batch_norm(&t, rows, cols, s & 2, true);
        check(t);
        t = TRIAL(
            batch_norm_backward, .rows = rows, .cols = cols, .train = true, .relu = s & 1);
        t.tolerance = 1e-5;
        give(&t, AT(batch_norm_backward, x), n, uniform(n, -2, 3));
        give_wide(&t, AT(batch_norm_backward, gamma), cols, uniform(cols, 0.5f, 2));
        give_wide(&t, AT(batch_norm_backward, mean), cols, uniform(cols, 0, 1));
        give_wide(&t, AT(batch_norm_backward, rstd), cols, uniform(cols, 0.5f, 1));
        give(&t, AT(batch_norm_backward, y), n, uniform(n, -1, 2));
        give(&t, AT(batch_norm_backward, gy), n, uniform(n, -1, 2));
        take(&t, AT(batch_norm_backward, gresidual), n);
        take(&t, AT(batch_norm_backward, gx), n);
        take_wide(&t, AT(batch_norm_backward, ggamma), cols);
        take_wide(&t, AT(batch_norm_backward, gbeta), cols);
        check(t);
    }
}

/* The rows of two ranks in parts, with their sums added in between, against all rows at
 * once. */
static void batch_norm_parts(void **state)
{
    enum { COLS = 21, FIRST = 700, ROWS = 1000, N = ROWS * COLS, SUMS = 2 * COLS + 1 };
    static float y[2][N], gx[2][N], gout[2][N];
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    float *x = uniform(N, 2, 5), *gy = uniform(N, -1, 2), *gamma = uniform(COLS, 0.5f, 2);
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        float mean[2][COLS], rstd[2][COLS], run[2][2][COLS] = {{{0}}}, gg[3][COLS], gb[3][COLS];
        int64_t batches[2] = {0};
        double sums[2][SUMS];
        choir__k_batch_norm f[3];
        choir__k_batch_norm_backward b[3];
        for (int i = 0; i < 3; i++) { /* all rows, the first rank's, the second's */
            int parts = i > 0, first = i == 2 ? FIRST : 0;
            int64_t rows = i == 0 ? ROWS : i == 1 ? FIRST : ROWS - FIRST;
            f[i] = (choir__k_batch_norm){.x = x + first * COLS,
                .gamma = gamma,
                .y = y[parts] + first * COLS,
                .mean = mean[parts],
                .rstd = rstd[parts],
                .running_mean = run[parts][0],
                .running_var = run[parts][1],
                .batches = &batches[parts],
                .rows = rows,
                .cols = COLS,
                .eps = 1e-5f,
                .momentum = 0.1f,
                .train = true,
                .update = i < 2,
                .relu = true,
                .part = parts ? CHOIR__NORM_SUMS : CHOIR__NORM_WHOLE,
                .sums = parts ? sums[i - 1] : NULL};
            b[i] = (choir__k_batch_norm_backward){.x = x + first * COLS,
                .gamma = gamma,
                .mean = mean[parts],
                .rstd = rstd[parts],
                .gy = gy + first * COLS,
                .gx = gx[parts] + first * COLS,
                .ggamma = gg[i],
                .gbeta = gb[i],
                .gresidual = gout[parts] + first * COLS,
                .y = y[parts] + first * COLS,
                .rows = rows,
                .cols = COLS,
                .train = true,
                .relu = true,
                .part = f[i].part,
                .sums = f[i].sums};
            tables[j]->batch_norm(&f[i]);
        }
        for (int back = 0; back < 2; back++) {
            for (int i = 0; back && i < 3; i++)
                tables[j]->batch_norm_backward(&b[i]);
            for (int i = 0; i < SUMS; i++)
                sums[0][i] += sums[1][i];
            for (int i = 1; i < 3; i++) {
                f[i].part = b[i].part = CHOIR__NORM_REST;
                f[i].sums = b[i].sums = sums[0];
                if (back)
                    tables[j]->batch_norm_backward(&b[i]);
                else
                    tables[j]->batch_norm(&f[i]);
            }
            assert_true(sums[0][2 * COLS] == ROWS);
            for (int i = 1; i < 3 && !back; i++) {
                b[i].part = CHOIR__NORM_SUMS;
                b[i].sums = sums[i - 1];
            }
        }
        for (int c = 0; c < COLS; c++) {
            gg[1][c] += gg[2][c];
            gb[1][c] += gb[2][c];
        }
        assert_near(y[1], y[0], N);
        assert_near(gx[1], gx[0], N);
        assert_near(run[1][0], run[0][0], 2 * COLS);
        assert_near(gg[1], gg[0], COLS);
        assert_near(gb[1], gb[0], COLS);
        assert_memory_equal(gout[1], gout[0], sizeof gout[0]);
        assert_true(batches[0] == 1 && batches[1] == 1);
    }
    free(x), free(gy), free(gamma);
}

/* Equal inputs of a row give equal bits wherever they are, and a row does not depend on other
 * rows. */
static void position_independence(void **state)
{
    enum { ROWS = 5, COLS = 67, N = ROWS * COLS };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        float *x = uniform(N, -4, 4), together[N], alone[N], mean[ROWS], rstd[ROWS];
        for (int i = 0; i < N; i++)
            x[i] = x[i / COLS * COLS + i % COLS % 7];
        choir__k_layer_norm k = {.x = x,
            .y = together,
            .mean = mean,
            .rstd = rstd,
            .rows = ROWS,
            .cols = COLS,
            .eps = 1e-5f};
        tables[j]->layer_norm(&k);
        for (int i = 0; i < N; i++)
            assert_true(together[i] == together[i / COLS * COLS + i % COLS % 7]);
        for (int r = 0; r < ROWS; r++) {
            k.x = x + r * COLS, k.y = alone + r * COLS, k.rows = 1;
            tables[j]->layer_norm(&k);
        }
        assert_memory_equal(together, alone, sizeof alone);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(layer_norm_offset),
        cmocka_unit_test(layer_norm_backward),
        cmocka_unit_test(layer_norm_weights),
        cmocka_unit_test(batch_norm),
        cmocka_unit_test(batch_norm_offset),
        cmocka_unit_test(batch_norm_backward),
        cmocka_unit_test(batch_norm_fused),
        cmocka_unit_test(batch_norm_fused_backward),
        cmocka_unit_test(batch_norm_again),
        cmocka_unit_test(layer_norm_long_rows),
        cmocka_unit_test(layer_norm_weights_tall),
        cmocka_unit_test(batch_norm_tall),
        cmocka_unit_test(batch_norm_parts),
        cmocka_unit_test(position_independence),
    };
    return cmocka_run_group_tests_name("normalising kernels", tests, NULL, NULL);
}
