/* Convolutions by products of our own (device/cpu/product/convolution.c), of random shapes: on
 * 1 to 3 cores all instruction sets of this machine give the same bits, in the class of chains
 * a plain loop does, too, and they are near the reference kernels. */
#include "conv_chains.h"
#include "conv_quads.h"
#include "device/cpu/product/conv_algorithm.h"
#include "sample.h"

static void assert_model(const trial *t, int pass, const array *is)
{
    const bool quads = choir__conv_algorithm_of(&t->k) == CHOIR__BY_QUADS;
    array was = like(is);
    if (quads)
        by_quads(t, pass, &was);
    for (int64_t i = 0; !quads && i < is->n; i++)
        put(&was, i, by_chains(t, pass, i));
    assert_same(t, pass, quads ? "quads" : "chains", is, &was);
    free(was.p);
}

static void try_pass(const trial *t, int pass)
{
    static conv_fn *const *const references[PASSES] = {&choir__cpu_reference.conv,
        &choir__cpu_reference.conv_backward_input, &choir__cpu_reference.conv_backward_weight};
    array near_bias, first = {0}, first_bias = {0}, bias;
    array near = result_of(t, pass, *references[pass], &near_bias);
    for (size_t i = 0; i < CHOIR_COUNT(sets); i++)
        for (int threads = 1; threads <= 3 && choir__cpu_kernels(sets[i].isa); threads++) {
            choir__cpu_context *context = choir__cpu_context_new(threads);
            choir__cpu_context_enter(context);
            array is = result_of(t, pass, sets[i].passes[pass], &bias);
            choir__cpu_context_free(context);
            if (!first.p) {
                first = is, first_bias = bias;
                assert_near(t, pass, sets[i].isa, &is, &near);
                assert_near(t, pass, sets[i].isa, &bias, &near_bias);
                if (choir__cpu_multiplies() == CHOIR__BY_CHAIN)
                    assert_model(t, pass, &is);
                continue;
            }
            assert_same(t, pass, sets[i].isa, &is, &first);
            assert_same(t, pass, sets[i].isa, &bias, &first_bias);
            free(is.p);
            free(bias.p);
        }
    free(near.p);
    free(near_bias.p);
    free(first.p);
    free(first_bias.p);
}

static void try_shape(const choir__conv_shape *s, choir_dtype dtype)
{
    static const choir__multiplier classes[] = {CHOIR__BY_CHAIN, CHOIR__BY_AMX};
    trial t = new_trial(s, dtype);
    for (int i = 0; i < (dtype == CHOIR_BF16 ? 2 : 1); i++) {
        ok(choir__multiplier_take(classes[i]));
        for (int pass = 0; pass < PASSES; pass++)
            try_pass(&t, pass);
        choir__multiplier_drop();
    }
    free_trial(&t);
}

/* --- shapes --- */

static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_BF16, CHOIR_F16, CHOIR_F64};

/* Chooses one dimension. Its window may be larger than the image, or in the padding; a
 * transposed convolution may have fewer windows than would fit. */
static void choose(int64_t *size, int64_t *out, int64_t *kernel, int64_t *stride, int64_t *pad,
    int64_t *dilation, int64_t most)
{
    do {
        *size = 1 + below(most);
        *kernel = 1 + below(5);
        *stride = 1 + below(below(2) ? 1 : 7);
        *dilation = 1 + below(below(2) ? 1 : 4);
        *pad = below(3) ? below(3) : below(*dilation * *kernel + 2);
        *out = (*size + 2 * *pad - *dilation * (*kernel - 1) - 1) / *stride + 1;
    } while (*size + 2 * *pad < *dilation * (*kernel - 1) + 1 || *out > 3 * most);
    if (*out > 1 && below(6) == 0)
        --*out;
}

static void random_shapes(void **unused)
{
    for (int i = 0; i < 120; i++) {
        choir__conv_shape s = {.n = 1 + below(3), .groups = 1 + (below(3) == 0) * below(4)};
        s.c = s.groups * (1 + below(below(3) ? 5 : 36));
        s.o = s.groups * (1 + below(below(3) ? 5 : 36));
        if (below(4) == 0) /* one channel a group */
            s.c = s.o = s.groups = 2 + below(below(2) ? 8 : 70);
        const int64_t most = s.c * s.o > 200 ? 6 : 13;
        choose(&s.h, &s.oh, &s.kh, &s.stride_h, &s.pad_h, &s.dilation_h, most);
        choose(&s.w, &s.ow, &s.kw, &s.stride_w, &s.pad_w, &s.dilation_w, most);
        if (s.n * s.oh * s.ow * s.kh * s.kw * s.c * s.o / s.groups > 400 * 1000)
            continue;
        try_shape(&s, dtypes[below(CHOIR_COUNT(dtypes))]);
    }
}

/* Many pixels and several chains, so that cores share them, and B is packed as a whole; a
 * window of one place; no images. */
static void chosen_shapes(void **unused)
{
    static const struct {
        choir__conv_shape s;
        choir_dtype dtype;
    } chosen[] = {
        {{1, 25, 25, 58, 25, 25, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{1, 23, 23, 114, 23, 23, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_BF16},
        {{2, 21, 9, 66, 11, 5, 18, 3, 3, 2, 2, 2, 1, 1, 1, 1}, CHOIR_F16},
        {{2, 9, 9, 33, 9, 9, 34, 1, 1, 1, 1, 1, 0, 0, 1, 1}, CHOIR_BF16},
        {{2, 9, 9, 32, 9, 9, 32, 1, 1, 2, 1, 1, 0, 0, 1, 1}, CHOIR_F64},
        {{2, 21, 29, 40, 21, 29, 40, 3, 3, 40, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{2, 21, 29, 37, 11, 15, 37, 5, 5, 37, 2, 2, 2, 2, 1, 1}, CHOIR_BF16},
        {{1, 23, 23, 33, 23, 23, 33, 7, 7, 33, 1, 1, 3, 3, 1, 1}, CHOIR_F16},
        {{0, 5, 5, 3, 5, 5, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{0, 5, 5, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{0, 5, 5, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_BF16},
    };
    for (size_t i = 0; i < CHOIR_COUNT(chosen); i++) {
        choir__conv_shape s = chosen[i].s;
        try_shape(&s, chosen[i].dtype);
    }
}

/* Quads: random sizes, odd ones too, and each padding. */
static void quads(void **unused)
{
    (void)unused;
    for (int i = 0; i < 9; i++) {
        choir__conv_shape s = {.n = 1 + below(2),
            .c = 16 * (1 + below(i % 4 ? 3 : 10)),
            .o = 16 * (1 + below(i % 4 ? 3 : 2)),
            .kh = 3,
            .kw = 3,
            .groups = 1,
            .stride_h = 1,
            .stride_w = 1,
            .pad_h = below(3),
            .pad_w = below(3),
            .dilation_h = 1,
            .dilation_w = 1,
            .oh = 5 + below(9)};
        s.ow = (63 + s.oh) / s.oh + below(3);
        s.h = s.oh + 2 - 2 * s.pad_h, s.w = s.ow + 2 - 2 * s.pad_w;
        const trial t = {.k = {.s = s}};
        assert_int_equal(choir__conv_algorithm_of(&t.k), CHOIR__BY_QUADS);
        try_shape(&s, (choir_dtype[]){CHOIR_F32, CHOIR_BF16, CHOIR_F16}[i % 3]);
    }
}

/* The mean square of what chains, or quads, are off from sums in f64, at some elements. */
static double error_of(const trial *t, int pass, const array *exact, bool by_windows)
{
    array is = like(exact);
    double sum = 0;
    if (!by_windows)
        by_quads(t, pass, &is);
    for (int64_t i = 0; i < is.n; i += is.n / 200) {
        const double x = by_windows ? by_chains(t, pass, i) : get(&is, i);
        sum += (x - get(exact, i)) * (x - get(exact, i));
    }
    free(is.p);
    return sum;
}

/* Quads are at most twice as far from f64 as windows, in all three passes. */
static void errors_of_quads(void **unused)
{
    static const choir__conv_shape shapes[] = {
        {4, 28, 28, 16, 28, 28, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1},
        {1, 14, 14, 256, 14, 14, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1},
    };
    static conv_fn *const *const exact[PASSES] = {&choir__cpu_reference.conv,
        &choir__cpu_reference.conv_backward_input, &choir__cpu_reference.conv_backward_weight};
    (void)unused;
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++)
        for (int pass = 0; pass < PASSES; pass++) {
            trial t = new_trial(&shapes[i], CHOIR_F32), wide = new_trial(&shapes[i], CHOIR_F64);
            for (int64_t j = 0; j < t.x.n; j++)
                put(&wide.x, j, get(&t.x, j));
            for (int64_t j = 0; j < t.w.n; j++)
                put(&wide.w, j, get(&t.w, j));
            for (int64_t j = 0; j < t.y.n; j++)
                put(&wide.y, j, get(&t.y, j));
            t.k.bias = wide.k.bias = NULL;
            array bias, is = result_of(&wide, pass, *exact[pass], &bias);
            const double quads = error_of(&t, pass, &is, false);
            const double windows = error_of(&t, pass, &is, true);
            if (quads > 4 * windows)
                fail_msg("pass %d: quads are %.2f times as far from f64 as windows", pass,
                    sqrt(quads / windows));
            free(is.p);
            free(bias.p);
            free_trial(&t);
            free_trial(&wide);
        }
}

/* oneDNN has no kernel for this shape, a transposed convolution with much output padding, so
 * our own products compute it: 16-bit images are copied to f32. */
static void beside_onednn(void **unused)
{
    const choir__conv_shape s = {1, 33, 33, 2, 22, 22, 66, 3, 3, 1, 1, 1, 0, 0, 4, 4};
    if (!choir__multiplier_is_here(CHOIR__BY_ONEDNN))
        skip();
    ok(choir__multiplier_take(CHOIR__BY_ONEDNN));
    trial t = new_trial(&s, CHOIR_F16);
    array bias,
        is = result_of(&t, INPUT, choir__cpu_kernels("baseline")->conv_backward_input, &bias);
    array near_bias,
        near = result_of(&t, INPUT, choir__cpu_reference.conv_backward_input, &near_bias);
    assert_near(&t, INPUT, "baseline", &is, &near);
    choir__multiplier_drop();
    free(is.p);
    free(bias.p);
    free(near.p);
    free(near_bias.p);
    free_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(chosen_shapes),
        cmocka_unit_test(quads),
        cmocka_unit_test(errors_of_quads),
        cmocka_unit_test(beside_onednn),
    };
    if (!sample_seed("CHOIR_TEST_SAMPLE", &state))
        state = 36;
    print_message("seed %llu (CHOIR_TEST_SAMPLE)\n", (unsigned long long)state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
