/* Products of our own have the bits of the rule of the chain (device/cpu/product/product.h):
 * each element equals a model in plain C, on every instruction set of this machine, on 1 to 4
 * cores, for any layout, size, dtype and cut of K, beside denormals, -0, infinities and NaN. */
#include "device/cpu/context.h"
#include "conformance/blocks_fixture.h"
#include "conformance/dense_product.h"
#include "products_fixture.h"
#include "sample.h"

/* --- the model --- */

typedef struct sum_of {
    const choir__k_matmul *k;
    int64_t a, b;             /* places of the first factors */
    int64_t from, run, terms; /* the leaf: its run of each block of K, and all its terms */
} sum_of;

/* Returns the factors of the leaf's term l. */
static double factor(const sum_of *s, int64_t l, bool of_b)
{
    const choir__k_matmul *k = s->k;
    const int64_t block = k->k / choir__cut_outer(k->cut);
    const int64_t at = l / s->run * block + s->from + l % s->run;
    return of_b ? get(k->b, s->b + at * k->b_row, k->dtype)
                : get(k->a, s->a + at * k->a_col, k->dtype);
}

/* x without denormals: a result that would round to less than 2^-126, were exponents without a
 * lower end, is a zero of its sign. f64 has x exactly, or far more of its bits than f32. */
static float flushed(double x)
{
    return fabs(x) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, (float)x) : (float)x;
}

static float flushed_fma(float a, float b, float sum)
{
    const double near = (double)a * (double)b + (double)sum;
    return fabs(near) < 0x1p-120 ? flushed(near) : fmaf(a, b, sum);
}

/* TDPBF16PS for one element: steps of 32 k, whose even and odd terms are chains of their own.
 */
static float steps(const sum_of *s, int64_t from, int64_t to)
{
    float sum = 0;
    for (int64_t step = from; step < to; step += 32) {
        float of[2] = {0, 0};
        for (int64_t l = step; l < step + 32; l++) {
            float a = 0, b = 0;
            if (l < to) {
                a = flushed(factor(s, l, false));
                b = flushed(factor(s, l, true));
            }
            of[l % 2] = flushed_fma(a, b, of[l % 2]);
        }
        const float both = flushed((double)(of[0] + of[1]));
        sum = flushed((double)(sum + both));
    }
    return sum;
}

static int64_t chain_length(void)
{
    return pairs ? CHOIR__PAIRS_CHAIN : CHOIR__CHAIN;
}

static double chain(const sum_of *s, int64_t first)
{
    const choir__k_matmul *k = s->k;
    const int64_t from = first * chain_length(),
                  to = choir__min(s->terms, from + chain_length());
    double wide = 0;
    float narrow = 0;
    if (pairs)
        return (double)steps(s, from, to);
    for (int64_t l = from; l < to; l++) {
        double a = factor(s, l, false), b = factor(s, l, true);
        if (k->dtype == CHOIR_F64)
            wide = fma(a, b, wide);
        else
            narrow = fmaf((float)a, (float)b, narrow);
    }
    return k->dtype == CHOIR_F64 ? wide : (double)narrow;
}

static double rounded(const choir__k_matmul *k, double x)
{
    return k->dtype == CHOIR_F64 ? x : (double)(float)x;
}

static int64_t left_half(int64_t n)
{
    int64_t half = 1;
    while (half * 2 < n)
        half *= 2;
    return half;
}

static double tree(const sum_of *s, int64_t first, int64_t chains)
{
    if (chains <= 1)
        return chain(s, first);
    const int64_t half = left_half(chains);
    return rounded(s->k, tree(s, first, half) + tree(s, first + half, chains - half));
}

/* The fixed tree over leaves [first, first + leaves) of the cut. */
static double tree_of_leaves(sum_of *s, int64_t first, int64_t leaves)
{
    const choir__k_matmul *k = s->k;
    int64_t to;
    if (leaves > 1) {
        const int64_t half = left_half(leaves);
        const double left = tree_of_leaves(s, first, half);
        return rounded(k, left + tree_of_leaves(s, first + half, leaves - half));
    }
    choir__cut_leaf(k->cut, k->k, first, &s->from, &to);
    s->run = to - s->from;
    s->terms = s->run * choir__cut_outer(k->cut);
    return tree(s, 0, (s->terms + chain_length() - 1) / chain_length());
}

static choir_dtype result_of(const choir__k_matmul *k)
{
    return is_half(k->dtype) && k->wide ? CHOIR_F32 : k->dtype;
}

static void model(const choir__k_matmul *k)
{
    const choir_dtype to = result_of(k), sums = k->dtype == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
    const choir__node node = choir__cut_node(k->cut, k->node);
    for (int64_t x = 0; x < k->batch1; x++)
        for (int64_t i = 0; i < k->m; i++)
            for (int64_t j = 0; j < k->n; j++) {
                sum_of s = {
                    k, x * k->a_batch1 + i * k->a_row, x * k->b_batch1 + j * k->b_col, 0, 0, 0};
                int64_t at = x * k->c_batch1 + i * k->c_row + j;
                double y = tree_of_leaves(&s, node.start, node.leaves);
                if (k->bias)
                    y = rounded(k, y + get(k->bias, j, sums));
                if (k->accumulate)
                    y = rounded(k, get(k->c, at, to) + y);
                put(k->c, at, to, y);
            }
}

/* --- a trial: the model, then all instruction sets and numbers of cores --- */

static void compare(
    const choir__k_matmul *k, const void *expected, int64_t n, const char *isa, int threads)
{
    const choir_dtype to = result_of(k);
    const size_t size = choir_dtype_size(to);
    for (int64_t i = 0; i < n; i++) {
        double x = get(k->c, i, to), y = get(expected, i, to);
        if (memcmp((const char *)k->c + (size_t)i * size,
                (const char *)expected + (size_t)i * size, size) &&
            !(isnan(x) && isnan(y)))
            fail_msg(
                "%s, %d threads, %s: %lld x (%lld, %lld) by (%lld, %lld), strides %lld %lld "
                "%lld %lld, bias %d, accumulate %d, leaves [%lld, + %lld) of %lld in %lld "
                "blocks: element %lld is %a, not %a",
                isa, threads, choir_dtype_name(k->dtype), (long long)k->batch1, (long long)k->m,
                (long long)k->k, (long long)k->k, (long long)k->n, (long long)k->a_row,
                (long long)k->a_col, (long long)k->b_row, (long long)k->b_col, k->bias != NULL,
                k->accumulate, (long long)k->node.start, (long long)k->node.leaves,
                (long long)k->cut.leaves, (long long)k->cut.outer, (long long)i, x, y);
    }
}

static void try_all(choir__k_matmul k, int64_t n)
{
    static int trial;
    uint64_t seed;
    const bool sampled = sample_seed("CHOIR_TEST_SAMPLE", &seed);
    trial++;
    const size_t bytes = (size_t)n * choir_dtype_size(result_of(&k));
    void *c = k.c, *before = memcpy(malloc(bytes), c, bytes);
    void *expected = memcpy(malloc(bytes), c, bytes);
    k.c = expected;
    model(&k);
    k.c = c;
    for (size_t set = 0; set < CHOIR_COUNT(sets); set++)
        for (int threads = 1; threads <= 4; threads++) {
            if (!choir__cpu_kernels(sets[set].isa))
                continue;
            /* The baseline computes each term in software, for most of this test's time: in a
             * sample each trial gives it one number of cores. */
            if (sampled && set == 0 && threads != 1 + trial % 4)
                continue;
            choir__cpu_context *context = choir__cpu_context_new(threads);
            choir__cpu_context_enter(context);
            memcpy(c, before, bytes);
            multiply_by(set, &k);
            compare(&k, expected, n, sets[set].isa, threads);
            choir__cpu_context_free(context);
        }
    free(before);
    free(expected);
}

/* Strides of a matrix of rows x columns, one of which is 1 or neither is; returns its size. */
static int64_t layout(int64_t rows, int64_t columns, int64_t *row, int64_t *column)
{
    int64_t step = below(4) ? 1 : 2, apart = below(2) ? below(9) : 0;
    bool by_rows = below(2);
    *(by_rows ? column : row) = step;
    *(by_rows ? row : column) = (by_rows ? columns : rows) * step + apart;
    return by_rows ? rows * *row : columns * *column;
}

static void try_cut(int64_t batch, int64_t m, int64_t n, int64_t depth, choir_dtype dtype,
    int special, choir__cut cut, choir__node node)
{
    choir__k_matmul k = {.batch0 = 1,
        .batch1 = batch,
        .m = m,
        .n = n,
        .k = depth,
        .dtype = dtype,
        .cut = cut,
        .node = node};
    k.wide = below(2);
    k.accumulate = below(3) == 0;
    k.c_row = n + below(3);
    k.c_batch1 = m * k.c_row;
    k.a_batch1 = layout(m, depth, &k.a_row, &k.a_col);
    k.b_batch1 = layout(depth, n, &k.b_row, &k.b_col);
    if (below(4) == 0)
        k.b_batch1 = 0;
    const choir_dtype sums = dtype == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
    void *a = numbers(batch * m * depth * 2 + batch * k.a_batch1, dtype, special);
    void *b = numbers(depth * n * 2 + batch * k.b_batch1 + 16 * (depth + n), dtype, special);
    void *bias = below(3) == 0 ? numbers(n, sums, special) : NULL;
    k.a = a, k.b = b, k.bias = bias;
    k.c = numbers(batch * k.c_batch1, result_of(&k), special);
    try_all(k, batch * k.c_batch1);
    free(a);
    free(b);
    free(bias);
    free(k.c);
}

static void try_product(
    int64_t batch, int64_t m, int64_t n, int64_t depth, choir_dtype dtype, int special)
{
    try_cut(batch, m, n, depth, dtype, special, (choir__cut){below(4), 1}, (choir__node){0, 0});
}

static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_F32, CHOIR_F64, CHOIR_BF16, CHOIR_F16};

static void random_shapes(void **unused)
{
    static const int64_t depths[] = {0, 1, 2, 31, 33, CHOIR__CHAIN - 1, CHOIR__CHAIN,
        CHOIR__CHAIN + 1, 2 * CHOIR__CHAIN, 3 * CHOIR__CHAIN + 5, 7 * CHOIR__CHAIN};
    static const int specials[] = {
        0, 0, 7, 9, 12}; /* numbers() takes them: none, small, large, all */
    for (int i = 0; i < 160; i++) {
        int64_t depth = i < 2 * (int)CHOIR_COUNT(depths) ? depths[i / 2] : 1 + below(100);
        int64_t most = depth > 1000 ? 14 : depth > 100 ? 30 : 70;
        try_product(1 + (below(3) == 0) * below(3), 1 + below(most), 1 + below(most), depth,
            dtypes[below(CHOIR_COUNT(dtypes))], specials[below(CHOIR_COUNT(specials))]);
    }
}

/* Rows up to which B is read where it is (thin.h), and one more. */
static void few_rows(void **unused)
{
    static const int64_t depths[] = {0, 1, 3, 4, 17, 100, CHOIR__CHAIN + 7, 3 * CHOIR__CHAIN};
    for (int i = 0; i < 72; i++) {
        const int64_t depth = depths[i / 9];
        try_product(1, 1 + i % 9, 1 + below(depth > 100 ? 80 : 300), depth,
            dtypes[below(CHOIR_COUNT(dtypes))], i % 4 ? 0 : 9);
    }
    try_product(1, 1, 4096 + 33, 40, CHOIR_F32, 0);
}

/* K in 1 to 3 blocks and 2 to 8 leaves, whole or a node of it: no terms, fewer than leaves,
 * several chains in a leaf. */
static void cuts(void **unused)
{
    static const int64_t runs[] = {0, 1, 2, 5, 8, 31, 64, CHOIR__CHAIN, 3 * CHOIR__CHAIN + 1};
    for (int i = 0; i < 96; i++) {
        const choir__cut cut = {1 + below(3), 2 + i % 7};
        const int64_t run = i < 45 ? runs[i / 5] : below(80);
        const int64_t block = run * cut.leaves + below(cut.leaves);
        int64_t depth = block * cut.outer, most = depth > 1000 ? 10 : depth > 100 ? 30 : 70;
        choir__node node = {0, 0};
        if (i % 3 == 0) {
            node.start = below(cut.leaves);
            node.leaves = node.start % 2 || node.start + 2 > cut.leaves ? 1 : 2;
        }
        pairs = i % 4 == 1;
        try_cut(1 + (below(4) == 0), 1 + below(most), 1 + below(most), depth,
            pairs ? CHOIR_BF16 : dtypes[below(CHOIR_COUNT(dtypes))], i % 5 ? 0 : 9, cut, node);
    }
    pairs = true; /* runs of whole steps, which tiles may read where they are */
    for (int i = 0; i < 12; i++)
        try_cut(1, 48, 1 + below(40), 3 * 4 * 64, CHOIR_BF16, 0, (choir__cut){3, 4},
            (choir__node){0, 0});
}

/* The instruction, where this processor has it, and its models. */
static void amx(void **unused)
{
    static const int64_t depths[] = {1, 2, 31, 32, 33, 63, 64, 96, 160, 1024, 1056,
        CHOIR__PAIRS_CHAIN, CHOIR__PAIRS_CHAIN + 1, 3 * CHOIR__PAIRS_CHAIN + 7};
    pairs = true;
    for (int i = 0; i < 80; i++) {
        int64_t depth = i < 36 ? depths[i / 3] : 1 + below(100), most = depth > 100 ? 40 : 70;
        try_product(1 + below(2), 1 + below(most), 1 + below(most), depth, CHOIR_BF16,
            i % 3 ? (int[]){SMALL, SMALL, 7, 9, 12}[below(5)] : 0);
    }
    try_product(1, 96, 64, 64, CHOIR_BF16, 0);
    try_product(1, 300, 40, 33, CHOIR_BF16, 0);
    try_product(1, 33, 1100, 33, CHOIR_BF16, 0);
    try_product(1, 530, 17, CHOIR__PAIRS_CHAIN + 1, CHOIR_BF16, 7);
    try_product(1, 17, 530, CHOIR__PAIRS_CHAIN + 1, CHOIR_BF16, 7);
    pairs = false;
    print_message("amx: %s\n", choir__amx_here() ? "the instruction and its models"
                                                 : "the models alone, this processor lacks it");
}

/* More rows, or columns, than a block has, in one chain and in several; and one row. */
static void several_blocks(void **unused)
{
    static const int64_t sizes[][3] = {{1163, 3, 70}, {3, 2311, 9}, {601, 5, CHOIR__CHAIN + 9},
        {5, 1201, CHOIR__CHAIN + 9}, {1, 300, 600}, {300, 1, 600}};
    for (size_t i = 0; i < CHOIR_COUNT(sizes); i++)
        try_product(1, sizes[i][0], sizes[i][1], sizes[i][2], CHOIR_F32, 0);
}

/* Zeros beyond a matrix's edges meet infinities, which must not become NaN in C. */
static void padding_adds_nothing(void **unused)
{
    float a[3] = {INFINITY, 1, 1}, b[3] = {1, INFINITY, -1}, c[9] = {0};
    choir__k_matmul k = dense_product(CHOIR_F32, a, b, c, 3, 3, 1);
    try_all(k, 9);
    /* a chain whose only terms vanish is +0 or -0 by the terms' signs, as IEEE 754 says */
    float tiny = 0x1p-100f, minus = -0x1p-100f;
    k = dense_product(CHOIR_F32, &tiny, &minus, c, 1, 1, 1);
    try_all(k, 1);
    assert_true(c[0] == 0 && signbit(c[0]));
}

/* An operand in blocks has the bits of the operand with its values. turned: rows of memory lie
 * along k; else a row has an element of each column. */
static void try_held(
    choir__quant type, choir_dtype dtype, bool turned, int64_t m, int64_t n, int64_t depth)
{
    const int64_t rows = turned ? n : depth, cols = turned ? depth : n,
                  bytes = choir__quant_bytes(type, cols) + 2;
    const size_t size = choir_dtype_size(dtype);
    void *a = numbers(m * depth, dtype, 0), *b = malloc((size_t)(rows * cols) * size);
    float *values = numbers(cols, CHOIR_F32, 0), *bias = numbers(n, CHOIR_F32, 0);
    uint8_t *held = malloc((size_t)(rows * bytes));
    void *c = calloc((size_t)(m * n), size), *d = calloc((size_t)(m * n), size);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++)
            values[i] = (float)below(1 << 20) / (1 << 19) - 1;
        some_blocks(type, held + r * bytes, values, cols, (uint32_t)r);
        choir__quant_decode(type, values, held + r * bytes, 0, cols);
        for (int64_t i = 0; i < cols; i++)
            put(b, r * cols + i, dtype, (double)values[i]);
    }
    choir__k_matmul k = choir__product_of(dtype, choir__rows_at(c, n), choir__rows_at(a, depth),
        turned ? choir__transposed(choir__rows_at(b, cols)) : choir__rows_at(b, cols), m, n,
        depth);
    k.bias = bias;
    sets[0].multiply(&k);
    k.b = held;
    k.c = d;
    k.b_held = type;
    k.b_bytes = bytes;
    for (size_t i = 0; i < CHOIR_COUNT(sets); i++) {
        if (!choir__cpu_kernels(sets[i].isa))
            continue;
        memset(d, 0xa5, (size_t)(m * n) * size);
        sets[i].multiply(&k);
        if (memcmp(c, d, (size_t)(m * n) * size) != 0)
            fail_msg("%s: %lld x %lld x %lld of %s, held as %s", sets[i].isa, (long long)m,
                (long long)n, (long long)depth, choir_dtype_name(dtype),
                choir__quant_types[type].name);
    }
    free(a), free(b), free(values), free(bias), free(held), free(c), free(d);
}

static void blocks(void **unused)
{
    static const int64_t sizes[][3] = {/* m; n and k without turned: whole blocks */
        {1, 256, 512}, {2, 512, 768}, {3, 768, 256}, {8, 256, 1280}, {70, 512, 1280},
        {200, 256, 768}, {9, 768, 512}, {600, 256, 768}};
    for (size_t i = 0; i < CHOIR_COUNT(sizes) * 2 * CHOIR__QUANT_COUNT; i++) {
        const int64_t *s = sizes[i % CHOIR_COUNT(sizes)];
        const bool turned = i / CHOIR_COUNT(sizes) % 2;
        const choir__quant type = (choir__quant)(i / CHOIR_COUNT(sizes) / 2);
        if (type == CHOIR__F32 || !sample_combination(4))
            continue;
        try_held(
            type, CHOIR_F32, turned, s[0], turned ? s[1] - 3 : s[1], turned ? s[2] : s[2] - 5);
        if (type != CHOIR__BF16)
            try_held(type, CHOIR_BF16, turned, s[0], s[1], s[2]);
    }
}

/* The error beside f64, in units of the rounding of f32 and of the size of the sum's terms. */
static void long_sums_are_accurate(void **unused)
{
    enum { MOST = 1 << 16, TIMES = 24 };
    for (int64_t depth = 64; depth <= MOST; depth *= 8) {
        float *a = numbers(TIMES * depth, CHOIR_F32, 0), *b = numbers(depth, CHOIR_F32, 0);
        float c[TIMES];
        double error = 0, size = 0;
        choir__k_matmul k = dense_product(CHOIR_F32, a, b, c, TIMES, 1, depth);
        sets[0].multiply(&k);
        for (int i = 0; i < TIMES; i++) {
            double exact = 0;
            for (int64_t l = 0; l < depth; l++)
                exact += (double)a[i * depth + l] * (double)b[l];
            error += ((double)c[i] - exact) * ((double)c[i] - exact);
            size += exact * exact;
        }
        error = sqrt(error / size) * 0x1p24;
        print_message("K = %lld: %.1f roundings\n", (long long)depth, error);
        assert_true(error < 16);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(few_rows),
        cmocka_unit_test(cuts),
        cmocka_unit_test(amx),
        cmocka_unit_test(several_blocks),
        cmocka_unit_test(blocks),
        cmocka_unit_test(padding_adds_nothing),
        cmocka_unit_test(long_sums_are_accurate),
    };
    setenv("CHOIR_MATH", "chain", 1); /* own_matmul's class; pairs are tried by themselves */
    if (!sample_seed("CHOIR_TEST_SAMPLE", &state))
        state = 35;
    print_message("seed %llu (CHOIR_TEST_SAMPLE)\n", (unsigned long long)state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
