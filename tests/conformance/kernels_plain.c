/* Conformance of the products and convolutions that CPU devices use where oneDNN is not built
 * in: the trials of kernels_matmul.c, then sizes that cross block boundaries, with the same
 * bits on every instruction set. */
#include "device/cpu/context.h"
#include "device/cpu/half.h"

static const choir__kernels *plain_kernels(const char *isa);
int trials(void);

#define choir__cpu_kernels plain_kernels
#define main               trials
#include "conformance/kernels_matmul.c"
#undef main
#undef choir__cpu_kernels

#define THROUGH_F32(name, isa)                                                                 \
    static void name##_##isa(const choir__k_##name *k)                                         \
    {                                                                                          \
        if (k->dtype == CHOIR_BF16 || k->dtype == CHOIR_F16)                                   \
            choir__half_##name(&f32_##isa, k);                                                 \
        else                                                                                   \
            choir__cpu_plain_##name##_##isa(k);                                                \
    }

#define PLAIN(isa)                                                                             \
    void choir__cpu_plain_matmul_##isa(const choir__k_matmul *);                               \
    void choir__cpu_plain_conv_##isa(const choir__k_conv *);                                   \
    void choir__cpu_plain_conv_backward_input_##isa(const choir__k_conv_backward_input *);     \
    void choir__cpu_plain_conv_backward_weight_##isa(const choir__k_conv_backward_weight *);   \
    static choir__kernels f32_##isa; /* what 16-bit operands go through */                     \
    THROUGH_F32(matmul, isa)                                                                   \
    THROUGH_F32(conv, isa)                                                                     \
    THROUGH_F32(conv_backward_input, isa)                                                      \
    THROUGH_F32(conv_backward_weight, isa)                                                     \
    static void take_##isa(choir__kernels *table)                                              \
    {                                                                                          \
        f32_##isa = *table;                                                                    \
        f32_##isa.matmul = choir__cpu_plain_matmul_##isa;                                      \
        f32_##isa.conv = choir__cpu_plain_conv_##isa;                                          \
        f32_##isa.conv_backward_input = choir__cpu_plain_conv_backward_input_##isa;            \
        f32_##isa.conv_backward_weight = choir__cpu_plain_conv_backward_weight_##isa;          \
        table->matmul = matmul_##isa;                                                          \
        table->conv = conv_##isa;                                                              \
        table->conv_backward_input = conv_backward_input_##isa;                                \
        table->conv_backward_weight = conv_backward_weight_##isa;                              \
    }
PLAIN(baseline)
#if defined(__x86_64__)
PLAIN(avx2)
PLAIN(avx512)
#endif

/* Returns the instruction set's table with Choir's own products in it. */
static const choir__kernels *plain_kernels(const char *isa)
{
    static choir__kernels table[MAX_TABLES];
    const choir__kernels *usual = choir__cpu_kernels(isa);
    choir__kernels *own = &table[!strcmp(isa, "baseline") ? 0 : !strcmp(isa, "avx2") ? 1 : 2];
    if (!usual)
        return NULL;
    *own = *usual;
#if defined(__x86_64__)
    if (!strcmp(isa, "avx2"))
        take_avx2(own);
    else if (!strcmp(isa, "avx512"))
        take_avx512(own);
    else
#endif
        take_baseline(own);
    return own;
}

/* m, n, k: around the blocks of 96 rows, 2048 columns and 256 terms, and nothing to add. */
static void blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {95, 31, 255}, {97, 65, 257}, {193, 33, 513}, {5, 2049, 3}, {1, 4097, 300}, {7, 5, 0}};
    for (size_t c = 0; c < 4 * CHOIR_COUNT(sizes); c++) {
        int64_t m = sizes[c / 4][0], n = sizes[c / 4][1], k = sizes[c / 4][2];
        bool turned = c & 1;
        trial t = TRIAL(matmul, .batch0 = 1, .batch1 = 1, .m = m, .n = n, .k = k,
            .a_row = turned ? 1 : k, .a_col = turned ? m : 1, .b_row = turned ? 1 : n,
            .b_col = turned ? k : 1, .c_row = n, .accumulate = c & 2);
        t.tolerance = 1e-5;
        give(&t, AT(matmul, a), m * k, uniform(m * k, -1, 2));
        give(&t, AT(matmul, b), k * n, uniform(k * n, -1, 2));
        give(&t, AT(matmul, bias), n, uniform(n, -1, 1));
        if (c & 2)
            update(&t, AT(matmul, c), m * n, uniform(m * n, -1, 1));
        else
            take(&t, AT(matmul, c), m * n);
        check(t);
    }
}

/* Images of several blocks of rows (1 MiB of windows each), in two groups and in one. */
static void blocks_of_pixels(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 2; groups++) {
        choir__conv_shape s = with_output(
            (choir__conv_shape)CONV(3, 31, 30, 16, 18, 3, 3, groups, 1, 1, 1, 1, 1, 1));
        conv_sizes n = sizes_of(s);
        trial y = TRIAL(conv, .s = s), gx = TRIAL(conv_backward_input, .s = s),
              gw = TRIAL(conv_backward_weight, .s = s);
        y.tolerance = gx.tolerance = gw.tolerance = 1e-5;
        give(&y, AT(conv, x), n.x, uniform(n.x, -1, 2));
        give(&y, AT(conv, w), n.w, uniform(n.w, -1, 1));
        give(&y, AT(conv, bias), s.o, uniform(s.o, -1, 1));
        take(&y, AT(conv, y), n.y);
        check(y);
        give(&gx, AT(conv_backward_input, gy), n.y, uniform(n.y, -1, 2));
        give(&gx, AT(conv_backward_input, w), n.w, uniform(n.w, -1, 1));
        take(&gx, AT(conv_backward_input, gx), n.x);
        check(gx);
        give(&gw, AT(conv_backward_weight, gy), n.y, uniform(n.y, -1, 2));
        give(&gw, AT(conv_backward_weight, x), n.x, uniform(n.x, -1, 1));
        take(&gw, AT(conv_backward_weight, gw), n.w);
        take(&gw, AT(conv_backward_weight, gbias), s.o);
        check(gw);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(blocks_of_pixels),
    };
    int failed = trials();
    return failed + cmocka_run_group_tests_name("blocks of plain products", tests, NULL, NULL);
}
