/* The CTC loss: gradients against central differences in f64, every reduction, targets that no
 * path reads, 16-bit operands, a loss per label under the divisor, and refusals. */
#include <math.h>

#include <choir/ctc.h>

#include "gradcheck_fixture.h"

enum { T = 6, B = 3, C = 4, S = 3 };

/* The third target needs a blank between its equal labels; entries beyond lengths are not
 * labels. */
static const int64_t labels[B * S] = {1, 3, 2, 3, -100, -100, 2, 2, -100};
static const int64_t input_lengths[B] = {6, 4, 5}, target_lengths[B] = {3, 1, 2};

static choir_tensor *ids(choir_scope *s, choir_shape shape, const int64_t *values)
{
    return choir_from(s, CHOIR_I64, shape, values);
}

static choir_tensor *loss_of(choir_tensor *x, const int64_t *steps, choir_ctc_loss_opts o)
{
    choir_scope *s = choir_tensor_scope(x);
    return choir_ctc_loss_with(x, ids(s, choir_dims(B, S), labels),
        ids(s, choir_dims(B), steps), ids(s, choir_dims(B), target_lengths), o);
}

static choir_tensor *apply(choir_tensor *const *in, int count, void *arg)
{
    choir_ctc_loss_opts o = *(const choir_ctc_loss_opts *)arg;
    return choir_add(choir_sum(loss_of(choir_log_softmax(in[0]), input_lengths, o)),
        choir_sum(loss_of(in[0], input_lengths, o))); /* of numbers that add up to nothing */
}

static void gradients(void **state)
{
    for (int reduction = CHOIR_LOSS_MEAN; reduction <= CHOIR_LOSS_NONE; reduction++) {
        choir_ctc_loss_opts o = choir_ctc_loss_defaults();
        o.reduction = (choir_reduction)reduction;
        choir_tensor *in[1] = {leaf(choir_dims(T, B, C), false)};
        check(apply, in, 1, &o);
    }
}

static void read(choir_tensor *t, float *to)
{
    choir_check(choir_read(t, to, (size_t)choir_tensor_count(t) * sizeof *to));
}

static void reductions(void **state)
{
    float each[B], sum, mean, plain;
    choir_ctc_loss_opts o = choir_ctc_loss_defaults();
    choir_tensor *x = choir_log_softmax(choir_randn(step, choir_dims(T, B, C), "x"));
    read(loss_of(x, input_lengths, o), &mean);
    read(choir_ctc_loss(x, ids(step, choir_dims(B, S), labels),
             ids(step, choir_dims(B), input_lengths), ids(step, choir_dims(B), target_lengths)),
        &plain);
    o.reduction = CHOIR_LOSS_SUM;
    read(loss_of(x, input_lengths, o), &sum);
    o.reduction = CHOIR_LOSS_NONE;
    read(loss_of(x, input_lengths, o), each);
    assert_true(plain == mean);
    assert_true(fabsf(sum - (each[0] + each[1] + each[2])) < 1e-5f);
    assert_true(fabsf(mean - (each[0] / 3 + each[1] + each[2] / 2) / 3) < 1e-5f);
}

/* Two equal labels need three steps. */
static void no_path(void **state)
{
    static const int64_t steps[B] = {6, 0, 2};
    float each[B], g[T * B * C];
    for (int zero = 0; zero < 2; zero++) {
        choir_ctc_loss_opts o = {.reduction = CHOIR_LOSS_NONE, .zero_infinity = zero};
        choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(T, B, C), "x"));
        choir_tensor *y = loss_of(x, steps, o);
        read(y, each);
        choir_check(choir_backward(choir_sum(y)));
        read(choir_grad(x), g);
        assert_true(isfinite(each[0]));
        assert_true(zero ? each[1] == 0 && each[2] == 0 : isinf(each[1]) && isinf(each[2]));
        for (int i = 0; i < T * B * C; i++) {
            int t = i / (B * C), b = i / C % B;
            if (b == 0)
                assert_true(isfinite(g[i]));
            else if (!zero && t < steps[b])
                assert_true(isnan(g[i]));
            else
                assert_true(g[i] == 0);
        }
    }
}

static void sixteen_bits(void **state)
{
    float wide, narrow;
    choir_ctc_loss_opts o = choir_ctc_loss_defaults();
    choir_tensor *leaf = choir_require_grad(choir_randn(step, choir_dims(T, B, C), "leaf"));
    choir_tensor *half = choir_cast(choir_log_softmax(leaf), CHOIR_BF16);
    choir_tensor *y = loss_of(half, input_lengths, o);
    assert_int_equal(choir_tensor_dtype(y), CHOIR_F32);
    read(y, &narrow);
    read(loss_of(choir_cast(half, CHOIR_F32), input_lengths, o), &wide);
    assert_true(wide == narrow);
    choir_check(choir_backward(y));
    assert_int_equal(choir_tensor_dtype(choir_grad(leaf)), CHOIR_F32);
}

/* The sum by the divisor of micro-batches is the loss per label of the whole batch. */
static void per_label(void **state)
{
    choir_ctc_loss_opts o = {.reduction = CHOIR_LOSS_SUM};
    choir_tensor *x = choir_log_softmax(choir_randn(step, choir_dims(T, B, C), "x"));
    choir_tensor *all = ids(step, choir_dims(B, S), labels);
    float whole, divisor;
    read(loss_of(x, input_lengths, o), &whole);
    read(choir_loss_divisor(&all, 1, choir_cross_entropy_defaults()), &divisor);
    assert_true(divisor == 3 + 1 + 2);
    assert_true(isfinite(whole / divisor));
}

/* --- refusals --- */

static void refusals(void **state)
{
    choir_ctc_loss_opts o = choir_ctc_loss_defaults();
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(T, B, C), -1);
    assert_refused(
        loss_of(choir_narrow(x, 1, 0, 2), input_lengths, o), CHOIR_ERR_SHAPE, "targets (B, S)");
    o.blank = C;
    assert_refused(loss_of(x, input_lengths, o), CHOIR_ERR_ARGUMENT, "a blank from 0 to 3");
    o.blank = 0;
    o.reduction = CHOIR_LOSS_BATCH_MEAN;
    assert_refused(loss_of(x, input_lengths, o), CHOIR_ERR_ARGUMENT, "unknown reduction 4");
}

static void bad_data(choir_tensor *y, const char *words)
{
    float value[B];
    assert_fails(choir_read(y, value, sizeof *value), CHOIR_ERR_RANGE, words);
    choir_scope_clear(step);
}

static void lengths_and_labels(void **state)
{
    static const int64_t beyond[B] = {6, 7, 1}, many[B] = {3, 1, -1};
    choir_ctc_loss_opts o = choir_ctc_loss_defaults();
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(T, B, C), -1);
    bad_data(
        loss_of(x, beyond, o), "expected an input length from 0 to 6, got 7 in sequence 1");
    o.blank = 2;
    bad_data(loss_of(x, input_lengths, o),
        "expected a target other than the blank from 0 to 3, got 2 in sequence");
    bad_data(choir_ctc_loss(x, ids(step, choir_dims(B, S), labels),
                 ids(step, choir_dims(B), input_lengths), ids(step, choir_dims(B), many)),
        "expected a target length from 0 to 3, got -1 in sequence 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(gradients),
        IN_SCOPES(reductions),
        IN_SCOPES(no_path),
        IN_SCOPES(sixteen_bits),
        IN_SCOPES(per_label),
        IN_SCOPES(refusals),
        IN_SCOPES(lengths_and_labels),
    };
    return cmocka_run_group_tests_name("ctc", tests, NULL, NULL);
}
