/* 16-bit operands beside f32 ones, in layer norm and its gradients and in sums: the bits are
 * those of the same call in f32 alone, with copies of these operands. */
#include "conformance/harness.h"

enum { ROWS = 37, MOST = 1056 };

static const int64_t widths[] = {1, 3, 8, 33, 64, 127, 1032, MOST};
static const choir_dtype halves[] = {CHOIR_BF16, CHOIR_F16};

static uint16_t half_of(float x, choir_dtype dtype)
{
    return dtype == CHOIR_BF16 ? choir__bf16_from_f32(x) : choir__f16_from_f32(x);
}

/* Returns the values in 16 bits, and rounds them to these. */
static uint16_t *halved(float *x, int64_t n, choir_dtype dtype)
{
    uint16_t *h = malloc((size_t)n * sizeof *h);
    for (int64_t i = 0; i < n; i++) {
        h[i] = half_of(x[i], dtype);
        x[i] = rounded(x[i], dtype);
    }
    return h;
}

static void assert_halves(const uint16_t *h, const float *x, int64_t n, choir_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(h[i], half_of(x[i], dtype));
}

/* Calls body for each table, width and 16-bit dtype. */
static void each(void (*body)(const choir__kernels *table, int64_t cols, choir_dtype half))
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (size_t w = 0; w < CHOIR_COUNT(widths); w++)
            for (size_t h = 0; h < CHOIR_COUNT(halves); h++)
                body(tables[j], widths[w], halves[h]);
}

/* Only the kernels of GPUs take such operands themselves. The instruction sets leave them to
 * the reference, which sums in f64, so they are compared with it in f32. */
static const choir__kernels *plain_of(const choir__kernels *table)
{
    return test_device() ? table : &choir__cpu_reference;
}

static void norm(const choir__kernels *table, int64_t cols, choir_dtype half)
{
    int64_t n = ROWS * cols;
    float *x = uniform(n, -2, 3), *add = uniform(n, -1, 1), *gamma = uniform(cols, 0.5f, 2);
    float *y = uniform(n, 0, 1), *sum = uniform(n, 0, 1), *sum_beside = uniform(n, 0, 1),
          *y_beside = uniform(n, 0, 1);
    float mean[2][ROWS], rstd[2][ROWS];
    uint16_t *add_half = halved(add, n, half), *y_half = malloc((size_t)n * sizeof *y_half);
    choir__k_layer_norm k = {.x = x,
        .add = add,
        .gamma = gamma,
        .y = y,
        .sum = sum,
        .mean = mean[0],
        .rstd = rstd[0],
        .rows = ROWS,
        .cols = cols,
        .eps = 1e-5f};
    plain_of(table)->layer_norm(&k);
    k.add = add_half, k.y = y_half, k.sum = sum_beside, k.mean = mean[1], k.rstd = rstd[1];
    k.half = half, k.half_add = k.half_y = true;
    table->layer_norm(&k);
    assert_halves(y_half, y, n, half);
    assert_memory_equal(sum_beside, sum, (size_t)n * sizeof *sum);
    assert_memory_equal(mean[1], mean[0], sizeof mean[0]);
    assert_memory_equal(rstd[1], rstd[0], sizeof rstd[0]);
    k.y = y_beside, k.y_half = y_half, k.half_y = false; /* y and its copy */
    table->layer_norm(&k);
    assert_memory_equal(y_beside, y, (size_t)n * sizeof *y);
    assert_halves(y_half, y, n, half);
    void *all[] = {x, add, gamma, y, sum, sum_beside, y_beside, add_half, y_half};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        free(all[i]);
}

static void norm_backward(const choir__kernels *table, int64_t cols, choir_dtype half)
{
    int64_t n = ROWS * cols;
    float *x = uniform(n, -2, 3), *gy = uniform(n, -1, 1), *gamma = uniform(cols, 0.5f, 2);
    float *given = uniform(n, -1, 1), *gx = uniform(n, 0, 1), *gx_beside = uniform(n, 0, 1);
    float *mean = uniform(ROWS, 0, 1), *rstd = uniform(ROWS, 0.5f, 1);
    float weights[2][2][MOST] = {{{0}}};
    uint16_t *gy_half = halved(gy, n, half), *gx_half = malloc((size_t)n * sizeof *gx_half);
    choir__k_layer_norm_backward k = {.x = x,
        .gamma = gamma,
        .mean = mean,
        .rstd = rstd,
        .gy = gy,
        .gx_add = given,
        .gx = gx,
        .rows = ROWS,
        .cols = cols};
    plain_of(table)->layer_norm_backward(&k);
    k.gy = gy_half, k.gx = gx_beside, k.gx_half = gx_half, k.half = half, k.half_gy = true;
    table->layer_norm_backward(&k);
    assert_memory_equal(gx_beside, gx, (size_t)n * sizeof *gx);
    assert_halves(gx_half, gx, n, half);
    k.gy = gy, k.half_gy = false; /* the copy alone */
    table->layer_norm_backward(&k);
    assert_halves(gx_half, gx, n, half);
    choir__k_layer_norm_weights w = {.x = x,
        .mean = mean,
        .rstd = rstd,
        .gy = gy,
        .ggamma = weights[0][0],
        .gbeta = weights[0][1],
        .rows = ROWS,
        .cols = cols};
    plain_of(table)->layer_norm_weights(&w);
    w.gy = gy_half, w.ggamma = weights[1][0], w.gbeta = weights[1][1], w.half = half;
    w.half_gy = true;
    table->layer_norm_weights(&w);
    assert_memory_equal(weights[1], weights[0], sizeof weights[0]);
    void *all[] = {x, gy, gamma, given, gx, gx_beside, mean, rstd, gy_half, gx_half};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        free(all[i]);
}

static void sum(const choir__kernels *table, int64_t cols, choir_dtype half)
{
    int64_t n = ROWS * cols;
    float *a = uniform(n, -2, 3), *b = uniform(n, -1, 1), *y = uniform(n, 0, 1),
          *beside = uniform(n, 0, 1);
    uint16_t *b_half = halved(b, n, half);
    choir__k_add_scaled k = {a, b, y, n, 0.5f, CHOIR_F32, 0};
    table->add_scaled(&k);
    k.b = b_half, k.y = beside, k.b_half = half;
    table->add_scaled(&k);
    assert_memory_equal(beside, y, (size_t)n * sizeof *y);
    void *all[] = {a, b, y, beside, b_half};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        free(all[i]);
}

static void runs(const choir__kernels *table, int64_t cols, choir_dtype half)
{
    enum { COUNT = CHOIR__ROUNDED_RUNS };
    float *x[COUNT];
    uint16_t *y[COUNT];
    choir__k_round k = {.count = COUNT, .dtype = half};
    for (int i = 0; i < COUNT; i++) { /* of different lengths, and one of none */
        int64_t n = cols * i;
        x[i] = uniform(n, -2, 3), y[i] = malloc((size_t)n * sizeof *y[i] + 1);
        k.run[i].x = x[i], k.run[i].y = y[i], k.run[i].n = n;
    }
    k.run[5].x++, k.run[5].y = y[5] + 1, k.run[5].n--; /* not aligned */
    table->round(&k);
    for (int i = 0; i < COUNT; i++)
        assert_halves(y[i] + (i == 5), x[i] + (i == 5), cols * i - (i == 5), half);
    for (int i = 0; i < COUNT; i++)
        free(x[i]), free(y[i]);
}

static void norms(void **state)
{
    each(norm);
}

static void norms_backward(void **state)
{
    each(norm_backward);
}

static void sums(void **state)
{
    each(sum);
}

static void roundings(void **state)
{
    each(runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(norms_backward),
        cmocka_unit_test(sums),
        cmocka_unit_test(roundings),
    };
    return cmocka_run_group_tests_name("16 bits beside f32", tests, NULL, NULL);
}
