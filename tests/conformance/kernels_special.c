/* NaN, -0, and numbers that the result's dtype lacks: what include/choir/ops.h says of them, on
 * every instruction set, on a device, and of the reference. */
#include "conformance/harness.h"

enum { C = 21, MOST_TABLES = MAX_TABLES + 1 };

static int all_tables(const choir__kernels *tables[MOST_TABLES], const char *names[MOST_TABLES])
{
    int count = isa_tables(tables, names);
    if (!test_device())
        tables[count] = &choir__cpu_reference, names[count++] = "reference";
    return count;
}

/* Four entries, and the one that is the greatest of them. */
static const struct {
    float x[4];
    int best;
} lines[] = {
    {{1, 3, 2, 3}, 1},
    {{1, NAN, 2, NAN}, 1},
    {{NAN, 5, NAN, 1}, 0},
    {{-1, 7, -INFINITY, NAN}, 3},
    {{INFINITY, NAN, INFINITY, 0}, 1},
    {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
    {{-0.0f, 0.0f, -0.0f, -1}, 0},
    {{0.0f, -0.0f, -1, 0.0f}, 0},
};
enum { LINES = CHOIR_COUNT(lines) };

/* Same bits, but all NaN alike. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || choir__bits_of_f32(a) == choir__bits_of_f32(b);
}

static void is_best(const char *table, const char *kernel, size_t line, float y, int64_t at)
{
    int best = lines[line].best;
    if (!same(y, lines[line].x[best]) || at != best)
        fail_msg("%s, %s: of line %zu entry %lld, %g, is the greatest", table, kernel, line,
            (long long)at, (double)y);
}

/* The entries of a line stand `step` apart in a row of -infinity, or are its first ones. */
static void greatest_of_rows(void **state)
{
    static const int steps[] = {1, 5, 16, 17, 40};
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--)
        for (size_t i = 0; i < LINES * CHOIR_COUNT(steps); i++) {
            int step = steps[i / LINES], n = 3 * step + 1;
            float x[128], y;
            int64_t at;
            for (int c = 0; c < n; c++)
                x[c] = c % step ? -INFINITY : lines[i % LINES].x[c / step];
            tables[j]->max_rows(&(choir__k_max_rows){
                .x = x, .y = &y, .index = &at, .rows = 1, .cols = n, .dtype = CHOIR_F32});
            is_best(names[j], "max_rows", i % LINES, y, at % step ? -1 : at / step);
        }
}

static void greatest_of_parts(void **state)
{
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--)
        for (size_t i = 0; i < LINES; i++) {
            int64_t index[4] = {0, 1, 2, 3}, at;
            float x[4];
            memcpy(x, lines[i].x, sizeof x);
            tables[j]->part_max(&(choir__k_part_max){
                .max = x, .index = index, .y = &at, .parts = 4, .rows = 1, .dtype = CHOIR_F32});
            is_best(names[j], "part_max", i, x[at], at);
        }
}

/* C lines beside each other, as channels of a window of four pixels, and as columns. */
static void greatest_of_columns(void **state)
{
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    float x[4 * C], y[C];
    uint8_t place[C];
    int32_t pixel[C];
    int64_t at[C];
    choir__conv_shape s = {.n = 1,
        .h = 2,
        .w = 2,
        .c = C,
        .oh = 1,
        .ow = 1,
        .o = C,
        .kh = 2,
        .kw = 2,
        .groups = 1,
        .stride_h = 1,
        .stride_w = 1,
        .dilation_h = 1,
        .dilation_w = 1};
    for (int i = 0; i < 4 * C; i++)
        x[i] = lines[i % C % LINES].x[i / C];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--) {
        tables[j]->pool(&(choir__k_pool){
            .x = x, .y = y, .index = place, .s = s, .max = true, .dtype = CHOIR_F32});
        for (size_t c = 0; c < C; c++)
            is_best(names[j], "pool", c % LINES, y[c], place[c]);
        tables[j]->adaptive_pool(&(choir__k_adaptive_pool){
            .x = x, .y = y, .index = pixel, .s = s, .max = true, .dtype = CHOIR_F32});
        for (size_t c = 0; c < C; c++)
            is_best(names[j], "adaptive_pool", c % LINES, y[c], pixel[c]);
        tables[j]->extreme(&(choir__k_extreme){
            .x = x, .y = y, .index = at, .outer = 1, .n = 4, .inner = C, .dtype = CHOIR_F32});
        for (size_t c = 0; c < C; c++)
            is_best(names[j], "extreme", c % LINES, y[c], at[c]);
    }
}

static void activations(void **state)
{
    static const float in[] = {NAN, -0.0f, 0.0f, -1, 2, -INFINITY, INFINITY};
    static const float relu[] = {NAN, -0.0f, 0.0f, 0.0f, 2, 0.0f, INFINITY};
    static const float clamped[] = {NAN, -0.0f, 0.0f, 0.0f, 1, 0.0f, 1};
    enum { KINDS = CHOIR_COUNT(in), N = 3 * KINDS };
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--)
        for (int clamp = 0; clamp < 2; clamp++) {
            float x[N], y[N];
            for (int i = 0; i < N; i++)
                x[i] = in[i % KINDS];
            tables[j]->unary(&(choir__k_unary){.x = x,
                .y = y,
                .n = N,
                .a = 0,
                .b = 1,
                .op = clamp ? CHOIR__CLAMP : CHOIR__RELU,
                .dtype = CHOIR_F32});
            for (int i = 0; i < N; i++)
                if (!same(y[i], (clamp ? clamped : relu)[i % KINDS]))
                    fail_msg("%s: %s of %g is %g", names[j], clamp ? "clamp" : "relu",
                        (double)x[i], (double)y[i]);
        }
}

/* --- conversions --- */

static void copy_on(
    const choir__kernels *table, void *y, choir_dtype to, void *x, choir_dtype from, int64_t n)
{
    table->copy(&(choir__k_copy){.y = {.p = y, .stride = {1}},
        .x = {.p = x, .stride = {1}},
        .shape = {n},
        .ndim = 1,
        .y_dtype = to,
        .x_dtype = from});
}

static int64_t integer(const void *p, int i, choir_dtype dtype)
{
    return dtype == CHOIR_I64   ? ((const int64_t *)p)[i]
           : dtype == CHOIR_I32 ? ((const int32_t *)p)[i]
                                : ((const uint8_t *)p)[i];
}

/* Numbers of every float type, and their values as i64, i32 and u8. */
static const struct {
    float x;
    int64_t whole[3];
} numbers[] = {
    {NAN, {0, 0, 0}},
    {INFINITY, {INT64_MAX, INT32_MAX, 255}},
    {-INFINITY, {INT64_MIN, INT32_MIN, 0}},
    {-0.0f, {0, 0, 0}},
    {-2.5f, {-2, -2, 0}},
    {254.5f, {254, 254, 254}},
    {300, {300, 300, 255}},
    {49152, {49152, 49152, 255}},
};
static const struct {
    float x;
    int64_t whole[3];
} large[] = {
    {0x1p31f, {INT64_C(1) << 31, INT32_MAX, 255}},
    {-0x1p31f, {-(INT64_C(1) << 31), INT32_MIN, 0}},
    {-0x1p40f, {-(INT64_C(1) << 40), INT32_MIN, 0}},
    {0x1p63f, {INT64_MAX, INT32_MAX, 255}},
    {-0x1p63f, {INT64_MIN, INT32_MIN, 0}},
    {1e30f, {INT64_MAX, INT32_MAX, 255}},
    {-1e30f, {INT64_MIN, INT32_MIN, 0}},
};

static void floats_become_integers(void **state)
{
    static const choir_dtype floats[] = {CHOIR_F32, CHOIR_F64, CHOIR_BF16, CHOIR_F16};
    static const choir_dtype wholes[] = {CHOIR_I64, CHOIR_I32, CHOIR_U8};
    enum { FEW = CHOIR_COUNT(numbers), ALL = FEW + CHOIR_COUNT(large), N = 3 * ALL };
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--)
        for (int c = 0; c < 4 * 3; c++) {
            choir_dtype from = floats[c / 3], to = wholes[c % 3];
            int kinds = from == CHOIR_F16 ? FEW : ALL; /* f16 ends at 65504 */
            float x[N];
            double in[N], y[N]; /* room for each type */
            for (int i = 0; i < N; i++)
                x[i] = i % kinds < FEW ? numbers[i % kinds].x : large[i % kinds - FEW].x;
            copy_on(&choir__cpu_reference, in, from, x, CHOIR_F32, N);
            copy_on(tables[j], y, to, in, from, N);
            for (int i = 0; i < N; i++) {
                int64_t want = i % kinds < FEW ? numbers[i % kinds].whole[c % 3]
                                               : large[i % kinds - FEW].whole[c % 3];
                if (integer(y, i, to) != want)
                    fail_msg("%s: %s %g as %s is %lld, not %lld", names[j],
                        choir_dtype_name(from), (double)x[i], choir_dtype_name(to),
                        (long long)integer(y, i, to), (long long)want);
            }
        }
}

static void large_floats_become_infinite(void **state)
{
    enum { N = 33 };
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    for (int j = all_tables(tables, names) - 1; j >= 0; j--) {
        float x[N], back[N];
        double wide[N];
        uint16_t half[N];
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? -65520 : 65519, wide[i] = i % 2 ? -1e39 : 3e38;
        copy_on(tables[j], half, CHOIR_F16, x, CHOIR_F32, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(half[i], i % 2 ? 0xfc00 : 0x7bff);
        copy_on(tables[j], back, CHOIR_F32, wide, CHOIR_F64, N);
        for (int i = 0; i < N; i++)
            assert_true(back[i] == (i % 2 ? -INFINITY : 3e38f));
        for (int i = 0; i < N; i++)
            x[i] = choir__f32_of_bits(i % 2 ? 0xff7f8000 : 0x7f7f7fff);
        copy_on(tables[j], half, CHOIR_BF16, x, CHOIR_F32, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(half[i], i % 2 ? 0xff80 : 0x7f7f);
    }
}

/* 8-bit state of one block, where one of the gradients is NaN: so is the state's scale. */
static void coded_state_keeps_nan(void **state)
{
    enum { N = 256 };
    const choir__kernels *tables[MOST_TABLES];
    const char *names[MOST_TABLES];
    choir__opt_hyper h = {
        .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f, .step_size = 0.1f, .rsqrt_bias2 = 1};
    for (int j = all_tables(tables, names) - 1; j >= 0; j--) {
        float param[N] = {0}, grad[N], m_most[1] = {1}, v_most[1] = {1};
        uint8_t m[N] = {0}, v[N] = {0};
        choir__opt_entry e = {.param = param,
            .grad = grad,
            .m_codes = m,
            .v_codes = v,
            .m_most = m_most,
            .v_most = v_most,
            .n = N,
            .row = N};
        for (int i = 0; i < N; i++)
            grad[i] = i == 3 ? NAN : 0.1f;
        tables[j]->adam(
            &(choir__k_adam){.entries = &e, .count = 1, .hyper = &h, .coded = true});
        if (!isnan(m_most[0]) || !isnan(v_most[0]))
            fail_msg(
                "%s: the scales are %g and %g", names[j], (double)m_most[0], (double)v_most[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greatest_of_rows),
        cmocka_unit_test(greatest_of_parts),
        cmocka_unit_test(greatest_of_columns),
        cmocka_unit_test(activations),
        cmocka_unit_test(floats_become_integers),
        cmocka_unit_test(large_floats_become_infinite),
        cmocka_unit_test(coded_state_keeps_nan),
    };
    return cmocka_run_group_tests_name("special values", tests, NULL, NULL);
}
