/* Conformance of matmul, the convolutions and pooling. */
#include "conformance/harness.h"
#include "device/cpu/multiplier.h"

typedef struct matmul_case {
    int64_t batch0, batch1, m, n, k;
} matmul_case;

static const matmul_case products[] = {
    {1, 1, 1, 1, 1},
    {1, 1, 2, 3, 1},
    {1, 1, 3, 2, 7},
    {1, 1, 7, 1, 15},
    {1, 1, 1, 17, 16},
    {1, 1, 15, 16, 17},
    {1, 1, 31, 33, 65},
    {1, 1, 65, 31, 127},
    {1, 1, 64, 10, 257},
    {1, 1, 1, 257, 33},
    {3, 1, 7, 5, 3},
    {1, 3, 5, 7, 16},
    {2, 3, 17, 15, 8},
    {2, 3, 16, 33, 31},
};

static bool half_biases(void)
{
    return test_device() && test_device()->half;
}

/* Each matrix is used as it is or transposed. */
static void matmul(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(products); c++)
        for (int v = 0; v < (half_biases() ? 12 : 8); v++) {
            matmul_case p = products[c];
            bool ta = v & 1, tb = v & 2;
            int64_t count = p.batch0 * p.batch1;
            trial t = TRIAL(matmul, .batch0 = p.batch0, .batch1 = p.batch1, .m = p.m, .n = p.n,
                .k = p.k, .a_row = ta ? 1 : p.k, .a_col = ta ? p.m : 1, .b_row = tb ? 1 : p.n,
                .b_col = tb ? p.k : 1, .c_row = p.n, .a_batch0 = p.batch1 * p.m * p.k,
                .a_batch1 = p.m * p.k, .b_batch0 = p.batch1 * p.k * p.n, .b_batch1 = p.k * p.n,
                .c_batch0 = p.batch1 * p.m * p.n, .c_batch1 = p.m * p.n, .half_bias = v & 8);
            t.tolerance = 1e-5;
            t.bits_may_differ = !choir__cpu_own_products();
            give(&t, AT(matmul, a), count * p.m * p.k, uniform(count * p.m * p.k, -1, 2));
            give(&t, AT(matmul, b), count * p.k * p.n, uniform(count * p.k * p.n, -1, 2));
            if (v & 12)
                give(&t, AT(matmul, bias), p.n, uniform(p.n, -1, 1));
            if (v & 4)
                keep_wide(&t);
            take(&t, AT(matmul, c), count * p.m * p.n);
            check(t);
        }
}

/* A second operand whose rows are pages apart is copied in panels of columns: whole panels, and
 * a last one of one column; from a wider matrix, into a wider one. */
static void matmul_panels(void **state)
{
    enum { M = 50, N = 1025, K = 5, ROW = 3072, WIDE = 1100 };
    for (int bias = 0; bias < 2; bias++) {
        trial t = TRIAL(matmul, .batch0 = 1, .batch1 = 1, .m = M, .n = N, .k = K, .a_row = K,
            .a_col = 1, .b_row = ROW, .b_col = 1, .c_row = WIDE);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(matmul, a), M * K, uniform(M * K, -1, 2));
        give(&t, AT(matmul, b), K * ROW, uniform(K * ROW, -1, 2));
        if (bias)
            give(&t, AT(matmul, bias), N, uniform(N, -1, 1)), keep_wide(&t);
        take(&t, AT(matmul, c), M * WIDE);
        check(t);
    }
}

/* Attention's products from one (B, T, 3, H, D) tensor: rows far apart, batch strides that
 * interleave, an operand that all batches share (stride 0), and an output (B, T, H, D). */
static void matmul_views(void **state)
{
    enum { B = 2, T = 9, H = 3, D = 5, ROW = 3 * H * D };
    for (int shared = 0; shared < 2; shared++) {
        trial t = TRIAL(matmul, .batch0 = B, .batch1 = H, .m = T, .n = T, .k = D, .a_row = ROW,
            .a_col = 1, .b_row = 1, .b_col = ROW, .c_row = T, .a_batch0 = T * ROW,
            .a_batch1 = D, .b_batch0 = shared ? 0 : T * ROW, .b_batch1 = shared ? 0 : D,
            .c_batch0 = H * T * T, .c_batch1 = T * T);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(matmul, a), B * T * ROW, uniform(B * T * ROW, -1, 1));
        give(&t, AT(matmul, b), B * T * ROW, uniform(B * T * ROW, -1, 1));
        take(&t, AT(matmul, c), B * H * T * T);
        check(t);

        t = TRIAL(matmul, .batch0 = B, .batch1 = H, .m = T, .n = D, .k = T, .a_row = T,
            .a_col = 1, .b_row = ROW, .b_col = 1, .c_row = H * D, .a_batch0 = H * T * T,
            .a_batch1 = T * T, .b_batch0 = shared ? 0 : T * ROW, .b_batch1 = shared ? 0 : D,
            .c_batch0 = T * H * D, .c_batch1 = D);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(matmul, a), B * H * T * T, uniform(B * H * T * T, -1, 1));
        give(&t, AT(matmul, b), B * T * ROW, uniform(B * T * ROW, -1, 1));
        take(&t, AT(matmul, c), B * T * H * D);
        check(t);
    }
}

/* K is cut into leaves of several blocks: whole, and a node of the tree alone. */
static void matmul_cuts(void **state)
{
    static const matmul_case cases[] = {
        {1, 1, 5, 7, 0}, {1, 1, 17, 9, 6}, {1, 2, 6, 33, 54}, {2, 1, 31, 10, 1290}};
    static const choir__cut cuts[] = {{1, 2}, {2, 3}, {3, 8}, {1, 7}, {6, 4}};
    for (size_t i = 0; i < CHOIR_COUNT(cases) * CHOIR_COUNT(cuts); i++)
        for (int v = 0; v < (half_biases() ? 16 : 8); v++) {
            matmul_case p = cases[i / CHOIR_COUNT(cuts)];
            bool ta = v & 1, tb = v & 2, half_bias = v & 8, wide = ta && !half_bias;
            int64_t count = p.batch0 * p.batch1;
            trial t = TRIAL(matmul, .batch0 = p.batch0, .batch1 = p.batch1, .m = p.m, .n = p.n,
                .k = p.k, .a_row = ta ? 1 : p.k, .a_col = ta ? p.m : 1, .b_row = tb ? 1 : p.n,
                .b_col = tb ? p.k : 1, .c_row = p.n, .a_batch0 = p.batch1 * p.m * p.k,
                .a_batch1 = p.m * p.k, .b_batch0 = p.batch1 * p.k * p.n, .b_batch1 = p.k * p.n,
                .c_batch0 = p.batch1 * p.m * p.n, .c_batch1 = p.m * p.n, .half_bias = half_bias,
                .accumulate = v & 4, .wide = wide, .cut = cuts[i % CHOIR_COUNT(cuts)],
                .node = {i % 2 ? 1 : 0, i % 2});
            t.tolerance = 1e-5;
            t.bits_may_differ = !choir__cpu_own_products();
            give(&t, AT(matmul, a), count * p.m * p.k, uniform(count * p.m * p.k, -1, 2));
            give(&t, AT(matmul, b), count * p.k * p.n, uniform(count * p.k * p.n, -1, 2));
            if (tb || half_bias) {
                give(&t, AT(matmul, bias), p.n, uniform(p.n, -1, 1));
                t.operand[t.count - 1].wide = !half_bias;
            }
            if (v & 4)
                update(&t, AT(matmul, c), count * p.m * p.n, uniform(count * p.m * p.n, -1, 1));
            else
                take(&t, AT(matmul, c), count * p.m * p.n);
            t.operand[t.count - 1].wide = wide;
            check(t);
        }
}

/* A product and the sums of one operand over K: the gradients of a linear layer, whose weight
 * is (out, in) or (in, out). Results of 16-bit operands are 16-bit or f32, and C may
 * accumulate. */
static void matmul_sums(void **state)
{
    if (!test_device() || !test_device()->epilogues)
        skip();
    for (size_t c = 0; c < CHOIR_COUNT(products); c++)
        for (int v = 0; v < 8; v++) {
            matmul_case p = products[c];
            bool of_a = v & 1;
            if (p.batch0 * p.batch1 > 1)
                continue;
            int64_t apart = (int64_t)(c % 3) * 5; /* of the summed operand's rows */
            int64_t a = p.m + (of_a ? apart : 0), b = p.n + (of_a ? 0 : apart);
            trial t = TRIAL(matmul, .batch0 = 1, .batch1 = 1, .m = p.m, .n = p.n, .k = p.k,
                .a_row = 1, .a_col = a, .b_row = b, .b_col = 1, .c_row = p.n, .wide = v & 2,
                .accumulate = v & 4);
            t.tolerance = 1e-5;
            give(&t, AT(matmul, a), a * p.k, uniform(a * p.k, -1, 2));
            give(&t, AT(matmul, b), p.k * b, uniform(p.k * b, -1, 2));
            if (v & 4)
                update(&t, AT(matmul, c), p.m * p.n, uniform(p.m * p.n, -1, 1));
            else
                take(&t, AT(matmul, c), p.m * p.n);
            t.operand[t.count - 1].wide = v & 2;
            take(&t, of_a ? AT(matmul, a_sums) : AT(matmul, b_sums), of_a ? p.m : p.n);
            t.operand[t.count - 1].wide = v & 2;
            check(t);
        }
}

/* The gradient of GELU's input behind a linear layer: cuBLASLt's where rows of C have a
 * multiple of 8 elements of 16 bits, else by two kernels. */
static void matmul_gelu(void **state)
{
    if (!test_device() || !test_device()->epilogues)
        skip();
    static const matmul_case more[] = {
        {1, 1, 5, 8, 3}, {1, 1, 16, 64, 33}, {1, 1, 33, 72, 16}, {1, 1, 9, 24, 0}};
    for (size_t c = 0; c < CHOIR_COUNT(products) + CHOIR_COUNT(more); c++)
        for (int turned = 0; turned < 2; turned++) {
            matmul_case p = c < CHOIR_COUNT(more) ? more[c] : products[c - CHOIR_COUNT(more)];
            if (p.batch0 * p.batch1 > 1)
                continue;
            trial t = TRIAL(matmul, .batch0 = 1, .batch1 = 1, .m = p.m, .n = p.n, .k = p.k,
                .a_row = p.k, .a_col = 1, .b_row = turned ? 1 : p.n, .b_col = turned ? p.k : 1,
                .c_row = p.n);
            t.tolerance = 1e-5;
            give(&t, AT(matmul, a), p.m * p.k, uniform(p.m * p.k, -1, 2));
            give(&t, AT(matmul, b), p.k * p.n, uniform(p.k * p.n, -1, 2));
            give(&t, AT(matmul, gelu_in), p.m * p.n, uniform(p.m * p.n, -4, 4));
            take(&t, AT(matmul, c), p.m * p.n);
            check(t);
        }
}

static int64_t out_size(
    int64_t in, int64_t window, int64_t stride, int64_t pad, int64_t dilation)
{
    return (in + 2 * pad - dilation * (window - 1) - 1) / stride + 1;
}

static choir__conv_shape with_output(choir__conv_shape s)
{
    if (s.oh)
        return s;
    s.oh = out_size(s.h, s.kh, s.stride_h, s.pad_h, s.dilation_h);
    s.ow = out_size(s.w, s.kw, s.stride_w, s.pad_w, s.dilation_w);
    return s;
}

/* n h w c, o kh kw groups, strides, paddings, dilations */
#define CONV(N, H, W, C, O, KH, KW, G, SH, SW, PH, PW, DH, DW)                                 \
    {                                                                                          \
        .n = N, .h = H, .w = W, .c = C, .o = O, .kh = KH, .kw = KW, .groups = G,               \
        .stride_h = SH, .stride_w = SW, .pad_h = PH, .pad_w = PW, .dilation_h = DH,            \
        .dilation_w = DW                                                                       \
    }

/* Pixels at the image's end that no window covers, as from a transposed convolution's output
 * padding: therefore the output's size is given. */
#define SPARE(N, H, W, C, O, K, STRIDE, DILATION, OH, OW)                                      \
    {                                                                                          \
        .n = N, .h = H, .w = W, .c = C, .o = O, .kh = K, .kw = K, .groups = 1,                 \
        .stride_h = STRIDE, .stride_w = STRIDE, .dilation_h = DILATION,                        \
        .dilation_w = DILATION, .oh = OH, .ow = OW                                             \
    }

static const choir__conv_shape convs[] = {
    CONV(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1),
    CONV(2, 7, 5, 3, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1),
    CONV(3, 8, 8, 16, 17, 3, 3, 1, 1, 1, 1, 1, 1, 1),
    CONV(2, 9, 7, 5, 6, 3, 2, 1, 2, 1, 1, 0, 1, 1),
    CONV(1, 12, 11, 2, 3, 3, 3, 1, 2, 3, 2, 1, 2, 2),
    CONV(2, 6, 6, 4, 6, 3, 3, 2, 1, 1, 1, 1, 1, 1),
    CONV(2, 7, 7, 6, 6, 3, 3, 6, 1, 1, 1, 1, 1, 1), /* depthwise */
    CONV(2, 7, 7, 3, 9, 3, 3, 3, 2, 2, 1, 1, 1, 1),
    CONV(2, 8, 8, 33, 15, 1, 1, 1, 1, 1, 0, 0, 1, 1),
    CONV(2, 8, 8, 8, 16, 1, 1, 1, 2, 2, 0, 0, 1, 1), /* a residual's shortcut: pixels skipped */
    CONV(1, 32, 32, 3, 8, 7, 7, 1, 2, 2, 3, 3, 1, 1),
    CONV(2, 1, 17, 4, 5, 1, 5, 1, 1, 1, 0, 2, 1, 3),
    CONV(4, 28, 28, 1, 6, 5, 5, 1, 1, 1, 0, 0, 1, 1),
    CONV(2, 1, 1, 5, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1),     /* the window's centre alone meets it */
    CONV(2, 9, 8, 6, 4, 3, 3, 2, 2, 1, 2, 1, 2, 1),     /* grouped, dilated and strided */
    CONV(1, 14, 13, 64, 80, 3, 3, 1, 1, 1, 1, 1, 1, 1), /* Winograd's, with tiles cut off */
    CONV(2, 12, 12, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1),
    CONV(1, 2, 3, 512, 513, 1, 1, 1, 1, 1, 0, 0, 1, 1), /* wide ones: matrix products */
    CONV(1, 4, 5, 513, 512, 1, 1, 1, 2, 3, 0, 0, 1, 1),
    CONV(1, 3, 4, 512, 512, 3, 2, 1, 2, 1, 1, 1, 1, 2),
    CONV(1, 2, 2, 512, 512, 1, 1, 1, 1, 1, 1, 1, 1, 1), /* a margin of zeros */
    SPARE(2, 4, 5, 6, 5, 1, 1, 2, 3, 4), SPARE(2, 8, 8, 6, 5, 3, 1, 2, 3, 3),
    SPARE(2, 4, 5, 512, 512, 1, 1, 2, 3, 4), /* a row and a column more than products make */
};

typedef struct conv_sizes {
    int64_t x, y, w;
} conv_sizes;

static conv_sizes sizes_of(choir__conv_shape s)
{
    return (conv_sizes){
        s.n * s.h * s.w * s.c, s.n * s.oh * s.ow * s.o, s.o * s.kh * s.kw * (s.c / s.groups)};
}

static void conv(void **state)
{
    for (size_t c = 0; c < 2 * CHOIR_COUNT(convs); c++) {
        choir__conv_shape s = with_output(convs[c / 2]);
        conv_sizes n = sizes_of(s);
        trial t = TRIAL(conv, .s = s);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(conv, x), n.x, uniform(n.x, -1, 2));
        give(&t, AT(conv, w), n.w, uniform(n.w, -1, 1));
        if (c % 2)
            give(&t, AT(conv, bias), s.o, uniform(s.o, -1, 1)), keep_wide(&t);
        take(&t, AT(conv, y), n.y);
        check(t);
    }
}

static void conv_backward_input(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(convs); c++) {
        choir__conv_shape s = with_output(convs[c]);
        conv_sizes n = sizes_of(s);
        trial t = TRIAL(conv_backward_input, .s = s);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(conv_backward_input, gy), n.y, uniform(n.y, -1, 2));
        give(&t, AT(conv_backward_input, w), n.w, uniform(n.w, -1, 1));
        take(&t, AT(conv_backward_input, gx), n.x);
        check(t);
    }
}

/* The gradients of no images. It runs first, while a device has no scratch memory yet. */
static void no_images(void **state)
{
    for (int groups = 1; groups < 3; groups++) {
        choir__conv_shape s =
            with_output((choir__conv_shape)CONV(0, 5, 5, 4, 6, 3, 3, groups, 1, 1, 1, 1, 1, 1));
        trial t = TRIAL(conv_backward_weight, .s = s);
        take_wide(&t, AT(conv_backward_weight, gw), sizes_of(s).w);
        take_wide(&t, AT(conv_backward_weight, gbias), s.o);
        check(t);
    }
}

static void conv_backward_weight(void **state)
{
    for (size_t c = 0; c < 2 * CHOIR_COUNT(convs); c++) {
        choir__conv_shape s = with_output(convs[c / 2]);
        conv_sizes n = sizes_of(s);
        trial t = TRIAL(conv_backward_weight, .s = s);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(conv_backward_weight, gy), n.y, uniform(n.y, -1, 2));
        give(&t, AT(conv_backward_weight, x), n.x, uniform(n.x, -1, 1));
        take(&t, AT(conv_backward_weight, gw), n.w), keep_wide(&t);
        if (c % 2)
            take(&t, AT(conv_backward_weight, gbias), s.o), keep_wide(&t);
        check(t);
    }
}

static const choir__conv_shape pools[] = {
    CONV(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1),
    CONV(2, 8, 6, 3, 3, 2, 2, 1, 2, 2, 0, 0, 1, 1),
    CONV(2, 9, 7, 17, 17, 3, 3, 1, 2, 2, 1, 1, 1, 1), /* windows overlap and leave the image */
    CONV(1, 7, 7, 33, 33, 3, 3, 1, 1, 1, 1, 1, 1, 1),
    CONV(2, 7, 5, 16, 16, 7, 5, 1, 1, 1, 0, 0, 1, 1), /* the whole image */
    CONV(1, 11, 13, 2, 2, 3, 2, 1, 3, 4, 1, 1, 1, 1), /* pixels no window sees */
    CONV(1, 9, 9, 65, 65, 2, 2, 1, 2, 2, 0, 0, 1, 1),
    CONV(1, 9, 9, 5, 5, 3, 3, 1, 2, 2, 1, 1, 2, 2), /* dilated */
};

/* Every fourth value is whole, so that windows have ties, and all may be negative. */
static float *pool_values(int64_t n, bool negative)
{
    float *x = uniform(n, -3, negative ? -1 : 3);
    for (int64_t i = 0; i < n; i += negative ? 2 : 4)
        x[i] = rintf(x[i]);
    return x;
}

static void pool(void **state)
{
    for (size_t c = 0; c < 3 * CHOIR_COUNT(pools); c++) {
        choir__conv_shape s = with_output(pools[c / 3]);
        conv_sizes n = sizes_of(s);
        trial t = TRIAL(pool, .s = s, .max = c % 3 > 0);
        t.exact = c % 3 > 0;
        give(&t, AT(pool, x), n.x, pool_values(n.x, c % 3 == 2));
        take(&t, AT(pool, y), n.y);
        if (c % 3)
            take_raw(&t, AT(pool, index), n.y, 1);
        check(t);
    }
}

static void pool_backward(void **state)
{
    for (size_t c = 0; c < 2 * CHOIR_COUNT(pools); c++) {
        choir__conv_shape s = with_output(pools[c / 2]);
        conv_sizes n = sizes_of(s);
        trial t = TRIAL(pool_backward, .s = s, .max = c % 2);
        uint8_t *index = malloc((size_t)n.y);
        float *x = pool_values(n.x, false), *y = malloc((size_t)n.y * sizeof *y);
        choir__cpu_reference.pool(
            &(choir__k_pool){.x = x, .y = y, .index = index, .s = s, .max = true});
        ((choir__k_pool_backward *)t.args)->index = index;
        give(&t, AT(pool_backward, gy), n.y, uniform(n.y, -1, 2));
        take(&t, AT(pool_backward, gx), n.x);
        check(t);
        free(index);
        free(x);
        free(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_images),
        cmocka_unit_test(matmul),
        cmocka_unit_test(matmul_panels),
        cmocka_unit_test(matmul_views),
        cmocka_unit_test(matmul_cuts),
        cmocka_unit_test(matmul_sums),
        cmocka_unit_test(matmul_gelu),
        cmocka_unit_test(conv),
        cmocka_unit_test(conv_backward_input),
        cmocka_unit_test(conv_backward_weight),
        cmocka_unit_test(pool),
        cmocka_unit_test(pool_backward),
    };
    return cmocka_run_group_tests_name("matmul, conv and pool kernels", tests, NULL, NULL);
}
