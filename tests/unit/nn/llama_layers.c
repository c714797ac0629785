/* The layers of Llama's blocks: gradients against differences, norms of sums against the two
 * ops that they replace, and the properties of rotary positions. */
#include <math.h>
#include <stdio.h>

#include <choir/choir.h>

#include "nn/module.h"
#include "again_fixture.h"

/* --- gradients, in f64 --- */

static choir_tensor *leaf(choir_shape shape)
{
    char name[32];
    static int number;
    snprintf(name, sizeof name, "leaf %d", number++);
    bool grad = choir_set_grad(step, false);
    choir_tensor *t = choir_cast(choir_randn(step, shape, name), CHOIR_F64);
    choir_set_grad(step, grad);
    return choir_require_grad(t);
}

/* Returns a weighted sum, so that every element of y has a different gradient. */
static choir_tensor *weigh(choir_tensor *y)
{
    double w[256];
    int64_t n = choir_tensor_count(y);
    assert_true(n <= 256);
    for (int64_t i = 0; i < n; i++)
        w[i] = 0.3 + 0.1 * (double)(i * 7 % 11);
    choir_scope *s = choir_tensor_scope(y);
    return choir_sum(choir_mul(y, choir_from(s, CHOIR_F64, choir_tensor_shape(y), w)));
}

static void check(choir_check_fn *f, choir_tensor **in, int count)
{
    choir_status status = choir_gradcheck(f, in, count, NULL, 1e-6);
    if (status != CHOIR_OK)
        print_error("%s\n", choir_error_message());
    ok(status);
    check_again(f, in, count, NULL);
}

static choir_tensor *rms(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_rms_norm(in[0], count > 1 ? in[1] : NULL, 1e-5f));
}

static choir_tensor *swiglu(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_swiglu(in[0], count > 1 ? in[1] : NULL));
}

static choir_tensor *turned_swiglu(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_swiglu(choir_transpose(in[0], 0, 1), choir_transpose(in[1], 0, 1)));
}

/* Rotary positions with strides, at an offset, and with a transposed gradient. */
static choir_tensor *rotary(choir_tensor *const *in, int count, void *arg)
{
    choir_tensor *table =
        choir_rotary_table(choir_tensor_scope(in[0]), CHOIR_F64, 9, 4, choir_rotary_defaults());
    choir_tensor *x = choir_narrow(in[0], 2, 1, 2); /* (B, T, 2 of 3 heads, D) */
    return weigh(choir_transpose(choir_rotary(x, table, 3), 1, 2));
}

/* The sum has other readers besides the norm, before it and after it in the order of
 * backward. */
static choir_tensor *layer_norm_of_sum(choir_tensor *const *in, int count, void *arg)
{
    choir_tensor *s, *y = choir_add_layer_norm(in[0], in[1], in[2], in[3], 1e-5f, &s);
    return weigh(choir_add(choir_mul(y, choir_square(s)), choir_tanh(s)));
}

static choir_tensor *rms_norm_of_sum(choir_tensor *const *in, int count, void *arg)
{
    choir_tensor *s, *y = choir_add_rms_norm(in[0], in[1], in[2], 1e-5f, &s);
    return weigh(choir_add(choir_mul(y, s), choir_square(s)));
}

/* x passes by the norm unchanged, as in a block, and x is no result of an op. */
static choir_tensor *beside(choir_tensor *const *in, int count, void *arg)
{
    choir_tensor *a = choir_layer_norm(in[0], in[1], in[2], 1e-5f);
    choir_tensor *b = choir_rms_norm(in[0], in[1], 1e-5f);
    return weigh(choir_add(choir_add(in[0], a), b));
}

static void gradients(void **state)
{
    choir_shape s = choir_dims(2, 3, 5), c = choir_dims(5);
    choir_tensor *in[4] = {leaf(s), leaf(c)};
    check(rms, in, 2);
    check(rms, in, 1);
    choir_tensor *two[2] = {leaf(choir_dims(3, 4)), leaf(choir_dims(3, 4))};
    check(swiglu, two, 2);
    check(swiglu, two, 1); /* the halves */
    choir_tensor *turned[2] = {leaf(choir_dims(3, 4)), leaf(choir_dims(3, 4))};
    check(turned_swiglu, turned, 2);
    choir_tensor *heads = leaf(choir_dims(2, 3, 3, 4));
    check(rotary, &heads, 1);
    choir_tensor *sum[4] = {leaf(s), leaf(s), leaf(c), leaf(c)};
    check(layer_norm_of_sum, sum, 4);
    choir_tensor *rms_sum[3] = {leaf(s), leaf(s), leaf(c)};
    check(rms_norm_of_sum, rms_sum, 3);
    choir_tensor *broadcast[3] = {leaf(s), leaf(choir_dims(3, 1)), leaf(c)};
    check(rms_norm_of_sum, broadcast, 3);
    choir_tensor *block[3] = {leaf(s), leaf(c), leaf(c)};
    check(beside, block, 3);
}

/* --- one pass, the bits of two --- */

enum { ROWS = 3, COLS = 37, N = ROWS * COLS };

struct bits {
    float sum[N], y[N], gx[N], gr[N], ggamma[COLS];
};

/* half: the operand of the sum that has 16 bits, under autocast; -1: none */
static struct bits norm_of_sum(bool fused, bool rms_norm, int half, int64_t *tasks)
{
    struct bits b;
    choir_device_stats before, after;
    choir_scope *s = choir_micro_open(step, 0);
    choir_shape shape = choir_dims(ROWS, COLS);
    choir_tensor *leaf[4], *in[4];
    for (int i = 0; i < 4; i++) {
        char name[8] = {(char)('a' + i)};
        leaf[i] = choir_require_grad(choir_randn(s, i < 2 ? shape : choir_dims(COLS), name));
        in[i] = i == half ? choir_cast(leaf[i], CHOIR_BF16) : leaf[i];
    }
    if (half >= 0)
        choir_autocast(s, CHOIR_BF16);
    choir_check(choir_device_sync(choir__device_of(in[0])));
    choir_device_get_stats(choir__device_of(in[0]), &before);
    choir_tensor *sum = NULL, *y;
    if (!fused) {
        sum = choir_add(in[0], in[1]);
        y = rms_norm ? choir_rms_norm(sum, in[2], 1e-5f)
                     : choir_layer_norm(sum, in[2], in[3], 1e-5f);
    } else if (rms_norm) {
        y = choir_add_rms_norm(in[0], in[1], in[2], 1e-5f, &sum);
    } else {
        y = choir_add_layer_norm(in[0], in[1], in[2], in[3], 1e-5f, &sum);
    }
    choir_check(choir_device_sync(choir__device_of(sum)));
    choir_device_get_stats(choir__device_of(sum), &after);
    *tasks = (int64_t)(after.tasks - before.tasks);
    choir_check(choir_read(sum, b.sum, sizeof b.sum));
    choir_check(choir_read(y, b.y, sizeof b.y));
    choir_check(choir_backward(choir_sum(choir_add(choir_tanh(sum), choir_square(y)))));
    choir_check(choir_read(choir_grad(leaf[0]), b.gx, sizeof b.gx));
    choir_check(choir_read(choir_grad(leaf[1]), b.gr, sizeof b.gr));
    choir_check(choir_read(choir_grad(leaf[2]), b.ggamma, sizeof b.ggamma));
    choir_check(choir_scope_close(s));
    return b;
}

static void same_bits(void **state)
{
    for (int i = 0; i < 6; i++) {
        int half = i / 2 - 1;
        int64_t few, more;
        struct bits one = norm_of_sum(true, i % 2, half, &few);
        struct bits two = norm_of_sum(false, i % 2, half, &more);
        assert_memory_equal(&one, &two, sizeof one);
        assert_true(more == few + 1);
        if (half < 0)
            assert_memory_equal(one.gx, one.gr, sizeof one.gx);
        assert_true(one.gx[0] != 0 && one.ggamma[0] != 0 && one.sum[0] != one.y[0]);
    }
}

static void count_call(choir_module *module, choir_tensor *const *in, int count, void *arg)
{
    *(int *)arg += count;
}

/* A norm with a hook sees its input, and gives the same bits. */
static void hooked_norms(void **state)
{
    choir_module *norms[2] = {
        choir_nn_layer_norm(run, COLS), choir_nn_rms_norm(run, COLS, 1e-5f)};
    for (int i = 0; i < 2; i++) {
        choir_tensor *x = choir_randn(step, choir_dims(ROWS, COLS), "x"), *sum[3];
        choir_tensor *r = choir_randn(step, choir_dims(ROWS, COLS), "r"), *y[3];
        float bits[3][N];
        int seen = 0;
        for (int j = 0; j < 3; j++) { /* not yet in use; in one pass; hooked */
            if (j == 2)
                choir_module_hook(
                    norms[i], (choir_module_hooks){.before_forward = count_call}, &seen);
            y[j] = choir__norm_of_sum(norms[i], x, r, CHOIR__FOR_ANYONE, &sum[j]);
            choir_check(choir_read(y[j], bits[j], sizeof bits[j]));
            assert_memory_equal(bits[j], bits[0], sizeof bits[0]);
        }
        assert_int_equal(seen, 1);
    }
}

/* --- rotary positions --- */

static void tables(void **state)
{
    enum { POSITIONS = 5000, DIM = 8 };
    static float table[POSITIONS * DIM];
    choir_rotary_opts opts = choir_rotary_defaults();
    for (int way = 0; way < 3; way++) {
        if (way == 1)
            opts = (choir_rotary_opts){
                .theta = 10000, .scaling = CHOIR_ROTARY_LINEAR, .factor = 4};
        if (way == 2)
            opts = (choir_rotary_opts){.theta = 500000,
                .scaling = CHOIR_ROTARY_LLAMA3,
                .factor = 8,
                .low_freq = 1,
                .high_freq = 4,
                .original_context = 64};
        choir_check(choir_read(
            choir_rotary_table(step, CHOIR_F32, POSITIONS, DIM, opts), table, sizeof table));
        double f[4]; /* of the four planes; written out for Llama 3's: slow, in between, left */
        for (int i = 0; i < 4; i++)
            f[i] = pow(opts.theta, -i / 4.0) / (way == 1 ? 4 : 1);
        if (way == 2) {
            /* turns in 64 positions: 10.2, 0.383, 0.0144, 0.00054: one left, three slowed */
            f[1] /= 8, f[2] /= 8, f[3] /= 8;
        }
        for (int t = 0; t < POSITIONS; t += 617)
            for (int i = 0; i < 4; i++) {
                assert_true(table[t * DIM + i] == (float)cos(t * f[i]));
                assert_true(table[t * DIM + 4 + i] == (float)sin(t * f[i]));
            }
    }
    /* In between: 64 positions are 2.5 turns of theta 1's only plane's 0.2454..., so smooth is
     * (2.5 - 1) / 3 = 1/2. */
    double w = 2.5 * 2 * M_PI / 64; /* theta^(-2/4) */
    opts = (choir_rotary_opts){.theta = 1 / (w * w),
        .scaling = CHOIR_ROTARY_LLAMA3,
        .factor = 8,
        .low_freq = 1,
        .high_freq = 4,
        .original_context = 64};
    choir_check(
        choir_read(choir_rotary_table(step, CHOIR_F32, 2, 4, opts), table, 8 * sizeof *table));
    assert_true(fabs((double)table[7] - sin(w / 2 + w / 16)) < 1e-7);
}

/* A rotated vector keeps its length, and the product of two depends only on their distance. */
static void distances(void **state)
{
    enum { T = 6, D = 10 };
    float q[D], k[D], qs[T * D], ks[T * D], yq[T * D], yk[T * D];
    choir_check(choir_read(choir_randn(step, choir_dims(D), "q"), q, sizeof q));
    choir_check(choir_read(choir_randn(step, choir_dims(D), "k"), k, sizeof k));
    for (int i = 0; i < T * D; i++)
        qs[i] = q[i % D], ks[i] = k[i % D];
    choir_tensor *table =
        choir_rotary_table(step, CHOIR_F32, T + 2, D, choir_rotary_defaults());
    choir_shape shape = choir_dims(1, T, 1, D);
    choir_check(choir_read(
        choir_rotary(choir_from(step, CHOIR_F32, shape, qs), table, 0), yq, sizeof yq));
    choir_check(choir_read(
        choir_rotary(choir_from(step, CHOIR_F32, shape, ks), table, 2), yk, sizeof yk));
    assert_memory_equal(yq, q, sizeof q); /* position 0 */
    double first = 0, plain = 0;
    for (int t = 0; t < T; t++) {
        double dot = 0, length = 0, whole = 0;
        for (int i = 0; i < D; i++) {
            dot += (double)yq[t * D + i] * (double)yk[t * D + i];
            length += (double)yq[t * D + i] * (double)yq[t * D + i];
            whole += (double)q[i] * (double)q[i];
            plain += t ? 0 : (double)q[i] * (double)k[i];
        }
        first = t ? first : dot;
        assert_true(fabs(length - whole) < 1e-5 * whole);
        assert_true(fabs(dot - first) < 1e-5);
    }
    assert_true(fabs(first - plain) > 1e-3);
}

/* --- half precision, and what makes no sense --- */

static void half_precision(void **state)
{
    choir_tensor *x = choir_cast(choir_randn(step, choir_dims(2, 3, 2, 4), "x"), CHOIR_BF16);
    choir_tensor *table = choir_rotary_table(step, CHOIR_F32, 3, 4, choir_rotary_defaults());
    choir_tensor *sum,
        *y[4] = {choir_rms_norm(x, NULL, 1e-5f), choir_swiglu(x, x), choir_rotary(x, table, 0),
            choir_add_rms_norm(x, x, NULL, 1e-5f, &sum)};
    for (int i = 0; i < 4; i++)
        assert_int_equal(choir_tensor_dtype(y[i]), CHOIR_BF16);
    assert_int_equal(choir_tensor_dtype(sum), CHOIR_BF16);
    choir_check(choir_scope_status(step));
}

static void refused(choir_tensor *y, const char *what)
{
    assert_int_not_equal(choir_scope_status(step), CHOIR_OK);
    const char *message = choir_error_message();
    if (!strstr(message, what))
        fail_msg("'%s' does not say '%s'", message, what);
    choir_scope_clear(step);
}

static choir_tensor *some(choir_shape shape)
{
    return choir_full(step, CHOIR_F32, shape, 1);
}

static void bad_input(void **state)
{
    choir_rotary_opts opts = choir_rotary_defaults();
    refused(choir_rms_norm(some(choir_dims(2, 3)), some(choir_dims(2)), 1e-5f), "(2, 3)");
    refused(choir_swiglu(some(choir_dims(2, 3)), NULL), "(2, 3)");
    refused(choir_swiglu(some(choir_dims(2, 3)), some(choir_dims(3, 2))), "(3, 2)");
    refused(
        choir_rotary_table(step, CHOIR_F32, 4, 5, opts), "number of dimensions, got 4 of 5");
    refused(choir_rotary_table(step, CHOIR_I64, 4, 6, opts), "i64");
    refused(choir_rotary_table(step, CHOIR_F32, INT64_MAX, 6, opts), "positions");
    opts.theta = NAN;
    refused(choir_rotary_table(step, CHOIR_F32, 4, 6, opts), "theta nan");
    opts = (choir_rotary_opts){.theta = 10000,
        .scaling = CHOIR_ROTARY_LLAMA3,
        .factor = 8,
        .low_freq = 4,
        .high_freq = 1,
        .original_context = 64};
    refused(choir_rotary_table(step, CHOIR_F32, 4, 6, opts), "low_freq 4");
    choir_tensor *table = choir_rotary_table(step, CHOIR_F32, 4, 6, choir_rotary_defaults());
    refused(choir_rotary(some(choir_dims(1, 4, 2, 8)), table, 0), "(1, 4, 2, 8)");
    refused(choir_rotary(some(choir_dims(1, 3, 2, 6)), table, 2), "3 positions from 2");
    refused(choir_rotary(some(choir_dims(1, 3, 2, 6)), table, -1), "from -1");
    choir_tensor *sum;
    refused(choir_add_rms_norm(
                some(choir_dims(2, 3)), some(choir_dims(2, 3)), some(choir_dims(2)), 1, &sum),
        "(2, 3)");
    assert_true(sum && sum->poisoned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(gradients),
        IN_SCOPES(same_bits),
        IN_SCOPES(hooked_norms),
        IN_SCOPES(tables),
        IN_SCOPES(distances),
        IN_SCOPES(half_precision),
        IN_SCOPES(bad_input),
    };
    return cmocka_run_group_tests_name("layers of Llama's blocks", tests, NULL, NULL);
}
