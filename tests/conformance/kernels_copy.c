/* Conformance of copy: every pair of dtypes, every sort of view, bit for bit. */
#include "conformance/harness.h"

typedef struct view_case {
    int ndim;
    int64_t shape[CHOIR__MAX_DIMS], y[CHOIR__MAX_DIMS], x[CHOIR__MAX_DIMS]; /* strides */
} view_case;

static const view_case views[] = {
    {0, {0}, {0}, {0}}, {1, {1}, {1}, {1}}, {1, {257}, {1}, {1}}, {1, {65}, {1}, {3}},
    {1, {65}, {3}, {1}}, {1, {33}, {1}, {0}},                           /* broadcast */
    {2, {7, 33}, {33, 1}, {33, 1}}, {2, {31, 17}, {17, 1}, {1, 31}},    /* transpose */
    {2, {31, 17}, {1, 31}, {17, 1}}, {2, {65, 130}, {130, 1}, {1, 65}}, /* beyond a tile */
    {2, {5, 15}, {40, 1}, {20, 1}}, /* columns of matrices */
    {2, {7, 16}, {16, 1}, {0, 1}}, {2, {7, 16}, {16, 1}, {1, 0}},
    {3, {3, 7, 33}, {231, 33, 1}, {33, 99, 1}},          /* (0 1) exchanged */
    {3, {3, 7, 33}, {231, 33, 1}, {1, 3, 21}},           /* reversed */
    {4, {2, 5, 7, 3}, {105, 21, 3, 1}, {105, 7, 1, 35}}, /* NCHW to NHWC */
    {4, {2, 3, 5, 7}, {105, 35, 7, 1}, {105, 1, 21, 3}}, /* NHWC to NCHW */
    {4, {2, 3, 5, 8}, {120, 40, 8, 1}, {120, 8, 24, 1}}, /* heads before positions */
    {6, {2, 1, 3, 2, 2, 5}, {60, 60, 20, 10, 5, 1}, {1, 0, 2, 6, 12, 24}},
    {2, {0, 5}, {5, 1}, {5, 1}}, /* nothing */
};

enum { ELEMENTS = 16384 };

/* Values that every dtype can hold, with ties for the rounding of 16-bit floats among the
 * floats. */
static void fill_source(void *x, choir_dtype dtype)
{
    static const double odd[] = {
        0, 1, 1.00390625, 1.01171875, 2049, 2051, 3.75, 255, 200.5, 1e-5};
    for (int64_t i = 0; i < ELEMENTS; i++) {
        double value = odd[i % 10] + (i % 10 == 6 ? (double)(i % 200) / 7 : 0);
        int64_t whole = i * 37 % 251;
        switch (dtype) {
        case CHOIR_F32: ((float *)x)[i] = (float)value; break;
        case CHOIR_F64: ((double *)x)[i] = value; break;
        case CHOIR_BF16: ((uint16_t *)x)[i] = choir__bf16_from_f32((float)value); break;
        case CHOIR_F16: ((uint16_t *)x)[i] = choir__f16_from_f32((float)value); break;
        case CHOIR_I64: ((int64_t *)x)[i] = whole; break;
        case CHOIR_I32: ((int32_t *)x)[i] = (int32_t)whole; break;
        case CHOIR_U8: ((uint8_t *)x)[i] = (uint8_t)whole; break;
        default: ((uint8_t *)x)[i] = i % 3 == 0; break;
        }
    }
}

static bool is_floating(choir_dtype dtype)
{
    return dtype <= CHOIR_F16;
}

/* A float above 255 has no defined u8 value, neither in C nor in the kernel. */
static bool is_defined(choir_dtype y, choir_dtype x)
{
    return !(y == CHOIR_U8 && is_floating(x));
}

static void every_pair(void **state)
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    char *x = malloc(ELEMENTS * 8), *y = malloc(ELEMENTS * 8), *expected = malloc(ELEMENTS * 8);
    for (int pair = 0; pair < CHOIR_DTYPE_COUNT * CHOIR_DTYPE_COUNT; pair++) {
        choir_dtype from = (choir_dtype)(pair % CHOIR_DTYPE_COUNT);
        choir_dtype to = (choir_dtype)(pair / CHOIR_DTYPE_COUNT);
        fill_source(x, from);
        for (size_t v = 0; v < CHOIR_COUNT(views) && is_defined(to, from); v++) {
            choir__k_copy k = {.ndim = views[v].ndim, .y_dtype = to, .x_dtype = from};
            memcpy(k.shape, views[v].shape, sizeof k.shape);
            memcpy(k.y.stride, views[v].y, sizeof k.shape);
            memcpy(k.x.stride, views[v].x, sizeof k.shape);
            k.x.p = x, k.y.p = expected;
            memset(expected, 0xA5, ELEMENTS * 8);
            choir__cpu_reference.copy(&k);
            for (int j = 0; j < count; j++) {
                memset(y, 0xA5, ELEMENTS * 8);
                k.y.p = y;
                tables[j]->copy(&k);
                if (memcmp(y, expected, ELEMENTS * 8))
                    fail_msg("copy (%s): view %d from %s to %s differs", names[j], (int)v,
                        choir_dtype_name(from), choir_dtype_name(to));
            }
        }
    }
    free(x);
    free(y);
    free(expected);
}

static void copy_on(const choir__kernels *table, void *y, choir_dtype to, const void *x,
    choir_dtype from, int64_t n)
{
    choir__k_copy k = {
        .y = {.p = y, .stride = {1}}, .shape = {n}, .ndim = 1, .y_dtype = to, .x_dtype = from};
    memcpy(&k.x.p, &x, sizeof x);
    k.x.stride[0] = 1;
    table->copy(&k);
}

/* All 16-bit patterns are widened like the scalar conversions do; ties around each of them are
 * narrowed likewise. */
static void halves(void **state)
{
    enum { N = 65536 };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    uint16_t *half = malloc(N * sizeof *half), *back = malloc(N * sizeof *back);
    float *wide = malloc(N * sizeof *wide);
    for (int i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (int f16 = 0; f16 < 2; f16++) {
            choir_dtype dtype = f16 ? CHOIR_F16 : CHOIR_BF16;
            copy_on(tables[j], wide, CHOIR_F32, half, dtype, N);
            for (int i = 0; i < N; i++) {
                float value =
                    f16 ? choir__f32_from_f16(half[i]) : choir__f32_from_bf16(half[i]);
                assert_true(same_value((double)wide[i], (double)value));
                /* nudge to the tie above, just below it or just above it */
                wide[i] = choir__f32_of_bits(choir__bits_of_f32(value) +
                                             (f16 ? 0x1000u : 0x8000u) + (uint32_t)(i % 3) - 1);
            }
            copy_on(tables[j], back, dtype, wide, CHOIR_F32, N);
            for (int i = 0; i < N; i++) {
                uint16_t want =
                    f16 ? choir__f16_from_f32(wide[i]) : choir__bf16_from_f32(wide[i]);
                if (isnan(wide[i]))
                    assert_true((back[i] & 0x7FFF) > (f16 ? 0x7C00 : 0x7F80));
                else if (back[i] != want)
                    fail_msg("%s: %a to %s is %04x, not %04x", names[j], (double)wide[i],
                        choir_dtype_name(dtype), back[i], want);
            }
        }
    free(half);
    free(back);
    free(wide);
}

/* Whole numbers keep their bits; floats lose their fraction towards zero; bool is x != 0. */
static void integers(void **state)
{
    static const int64_t big[] = {INT64_MAX, INT64_MIN, (1LL << 53) + 1, -1, 0, 1};
    static const float real[] = {-1.99f, 1.99f, -0.5f, 0.5f, 16777216, -3};
    static const int64_t whole[] = {-1, 1, 0, 0, 16777216, -3};
    static const uint8_t truth[] = {1, 1, 1, 1, 1, 1};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        int64_t y[6];
        uint8_t b[6];
        copy_on(tables[j], y, CHOIR_I64, big, CHOIR_I64, 6);
        assert_memory_equal(y, big, sizeof big);
        copy_on(tables[j], y, CHOIR_I64, real, CHOIR_F32, 6);
        assert_memory_equal(y, whole, sizeof whole);
        copy_on(tables[j], b, CHOIR_BOOL, real, CHOIR_F32, 6);
        assert_memory_equal(b, truth, sizeof truth);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),
        cmocka_unit_test(halves),
        cmocka_unit_test(integers),
    };
    return cmocka_run_group_tests_name("copy kernel", tests, NULL, NULL);
}
