/* Scopes and their first error: joining, poison, clearing; and for every op, operands of every
 * wrong shape and dtype, which must give an error and do no other harm. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "scopes_fixture.h"
#include "tensor/tensor.h"

static choir_tensor *zeros(choir_scope *scope, choir_shape shape)
{
    return choir_zeros(scope, CHOIR_F32, shape);
}

/* --- joining --- */

static void test_innermost(void **state)
{
    choir_scope *micro = choir_micro_open(step, 0);
    choir_tensor *a = zeros(run, choir_dims(2)), *b = zeros(step, choir_dims(2));
    choir_tensor *c = zeros(micro, choir_dims(2));
    assert_ptr_equal(choir_tensor_scope(choir_add(a, b)), step);
    assert_ptr_equal(choir_tensor_scope(choir_add(b, a)), step);
    assert_ptr_equal(choir_tensor_scope(choir_add(choir_add(a, c), b)), micro);
    assert_ptr_equal(choir_tensor_scope(choir_add(a, a)), run);
    ok(choir_scope_close(micro));
}

static void test_unrelated(void **state)
{
    choir_scope *other = choir_scope_open(NULL, 6), *sibling = choir_step_open(run, 1);
    choir_tensor *a = zeros(step, choir_dims(2));
    choir_tensor *bad = choir_add(a, zeros(sibling, choir_dims(2)));
    assert_true(isnan(choir_item(choir_sum(bad))));
    assert_fails(choir_scope_status(step), CHOIR_ERR_SCOPE, "choir_keep");
    choir_scope_clear(step);
    choir_add(a, zeros(other, choir_dims(2)));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SCOPE);
    choir_scope_clear(step);
    choir_scope_clear(sibling);
    choir_scope_clear(other);
    choir_tensor *kept = choir_keep(step, zeros(sibling, choir_dims(2)));
    assert_true(choir_item(choir_sum(choir_add(a, kept))) == 0);
    ok(choir_scope_close(sibling));
    ok(choir_scope_close(other));
}

static void test_unrelated_and_deeper(void **state)
{
    choir_scope *sibling = choir_step_open(run, 1), *micro = choir_micro_open(sibling, 0);
    choir_tensor *a = choir_require_grad(zeros(step, choir_dims(2)));
    choir_tensor *bad = choir_sum(choir_add(a, zeros(micro, choir_dims(2))));
    assert_ptr_equal(choir_tensor_scope(bad), step);
    assert_int_equal(choir_backward(bad), CHOIR_ERR_SCOPE); /* where the result lives, too */
    choir_scope_close(micro);
    choir_scope_close(sibling);
}

static void test_parameters_alone(void **state)
{
    choir_module *net = choir_nn_linear(run, 2, 2);
    choir_tensor *w = choir_module_find(net, "weight");
    choir_square(w);
    assert_fails(choir_scope_status(run), CHOIR_ERR_SCOPE, "choir_in");
    choir_scope_clear(run);
    choir_tensor *norm = choir_sum(choir_square(choir_in(step, w)));
    ok(choir_backward(norm));
    assert_non_null(choir_grad(w));
    choir_in(run, zeros(step, choir_dims(1)));
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_SCOPE);
}

/* --- the first error --- */

static void test_first_error_stays(void **state)
{
    choir_tensor *a = zeros(step, choir_dims(2, 3)), *b = zeros(step, choir_dims(4, 5));
    choir_tensor *bad = choir_matmul(a, b);
    choir_tensor *later = choir_relu(choir_add(bad, bad));
    choir_add(a, b);
    assert_true(isnan(choir_item(choir_sum(later))));
    assert_int_equal(choir_backward(choir_sum(later)), CHOIR_ERR_SHAPE);
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
    for (int i = 0; i < 2; i++) { /* op, shapes, device, whichever thread reports */
        assert_says("matmul");
        assert_says("(2, 3)");
        assert_says("(4, 5)");
        assert_says("cpu:0");
        choir_relu(zeros(run, choir_dims(1)));
        ok(choir_scope_status(run));
        assert_int_equal(choir_scope_close(choir_micro_open(step, 0)), CHOIR_ERR_SHAPE);
        assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
    }
    assert_fails(choir_scope_close(step), CHOIR_ERR_SHAPE, "matmul");
    step = choir_step_open(run, 1);
    ok(choir_scope_status(step));
}

static void test_clear(void **state)
{
    choir_tensor *bad = choir_reshape(zeros(step, choir_dims(2, 3)), choir_dims(7));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
    choir_scope_clear(step);
    ok(choir_scope_status(step));
    assert_true(choir_item(choir_sum(choir_full(step, CHOIR_F32, choir_dims(3), 2))) == 6);
    choir_tensor *kept = choir_keep(run, bad); /* poison stays poison */
    float v;
    assert_int_not_equal(choir_read(kept, &v, sizeof v), CHOIR_OK);
}

static void test_execution_error(void **state)
{
    int64_t ids[2] = {1, 12};
    choir_tensor *table = zeros(step, choir_dims(4, 2));
    choir_tensor *y = choir_embedding(table, choir_from(step, CHOIR_I64, choir_dims(2), ids));
    float v[4];
    assert_fails(choir_read(y, v, sizeof v), CHOIR_ERR_RANGE, "12");
    assert_int_equal(choir_scope_close(step), CHOIR_ERR_RANGE);
    choir_scope_clear(run); /* the device's, too */
    step = choir_step_open(run, 1);
    assert_true(choir_item(choir_sum(zeros(step, choir_dims(4)))) == 0);
    ok(choir_scope_status(step));
}

static void test_execution_error_at_close(void **state)
{
    int64_t ids[2] = {1, 12};
    choir_scope *mine = choir_scope_open(NULL, 1), *s = choir_step_open(mine, 0);
    choir_embedding(zeros(s, choir_dims(4, 2)), choir_from(s, CHOIR_I64, choir_dims(2), ids));
    choir_scope_close(s); /* which may come before the kernel has run */
    assert_fails(choir_scope_close(mine), CHOIR_ERR_RANGE, "12");
    mine = choir_scope_open(NULL, 1); /* the device goes on without the error */
    s = choir_step_open(mine, 0);
    assert_true(choir_item(choir_sum(zeros(s, choir_dims(4)))) == 0);
    ok(choir_scope_close(s));
    ok(choir_scope_close(mine));
}

static void test_reading(void **state)
{
    choir_tensor *t = zeros(step, choir_dims(2, 2));
    float v[5];
    assert_int_equal(choir_read(t, v, sizeof v), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_write(t, v, 4), CHOIR_ERR_ARGUMENT);
    assert_true(isnan(choir_item(t)));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
    choir_scope_clear(step);
    choir_require_grad(choir_zeros(step, CHOIR_I64, choir_dims(2)));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_ARGUMENT);
    ok(choir_scope_close(NULL));
}

/* --- wrong operands --- */

#define T(dtype, ...) choir_zeros(step, CHOIR_##dtype, choir_dims(__VA_ARGS__))
#define F(...)        T(F32, __VA_ARGS__)

/* The expression must report an error in step, and the device must still work. */
#define BAD(expression)                                                                        \
    do {                                                                                       \
        choir_tensor *made = (expression);                                                     \
        assert_non_null(made);                                                                 \
        choir_status status = choir_scope_status(step);                                        \
        if (status >= 0 || status <= CHOIR_ERR_PEER_LOST || !made->poisoned)                   \
            fail_msg("%s: %s", #expression, choir_status_name(status));                        \
        choir_scope_clear(step);                                                               \
    } while (0)

static void test_bad_shapes(void **state)
{
    choir_conv_opts c = choir_conv_defaults(), zero = {0};
    BAD(choir_zeros(step, CHOIR_F32, choir_dims(-1)));
    BAD(choir_zeros(step, CHOIR_F32, choir_dims(1LL << 40, 1LL << 40)));
    BAD(choir_zeros(step, CHOIR_F32, ((choir_shape){.ndim = 7})));
    BAD(choir_add(F(2, 3), F(2, 2)));
    BAD(choir_mul(F(2, 3), F(4)));
    BAD(choir_sum_dim(F(2, 3), 2));
    BAD(choir_mean_dim(F(2, 3), -3));
    BAD(choir_argmax(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR)));
    BAD(choir_matmul(F(3), F(3)));
    BAD(choir_matmul(F(2, 3), F(2, 3)));
    BAD(choir_matmul(F(2, 2, 3), F(3, 3, 2)));
    BAD(choir_linear(F(2, 3), F(4, 2), NULL));
    BAD(choir_linear(F(2, 3), F(4, 3), F(3)));
    BAD(choir_softmax(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR)));
    BAD(choir_attention(F(1, 2, 3, 4), F(1, 2, 3, 5), F(1, 2, 3, 5), false));
    BAD(choir_attention(F(1, 2, 3, 4), F(1, 2, 5, 4), F(1, 2, 5, 4), true));
    choir_attention_opts o = choir_attention_defaults();
    BAD(choir_attention_with(F(1, 3, 4, 2), F(1, 2, 4, 2), F(1, 2, 4, 2), o));
    BAD(choir_attention_with(F(1, 2, 4, 2), F(1, 2, 0, 2), F(1, 2, 0, 2), o));
    o.window = 2;
    BAD(choir_attention_with(F(1, 2, 4, 2), F(1, 2, 4, 2), F(1, 2, 4, 2), o));
    o = (choir_attention_opts){.bias = F(2, 1, 1, 3)};
    BAD(choir_attention_with(F(2, 2, 4, 2), F(2, 2, 4, 2), F(2, 2, 4, 2), o));
    o.bias = F(3, 2, 4, 4);
    BAD(choir_attention_with(F(2, 2, 4, 2), F(2, 2, 4, 2), F(2, 2, 4, 2), o));
    BAD(choir_self_attention(F(2, 3, 7), 1, true));
    BAD(choir_self_attention(F(2, 3, 6), 0, true));
    BAD(choir_layer_norm(F(2, 3), F(2), NULL, 1e-5f));
    BAD(choir_batch_norm(F(2, 3), F(2), F(3), F(3), F(3), true, 0.1f, 1e-5f));
    BAD(choir_batch_norm(F(2, 3), F(3), F(3), NULL, NULL, true, 0.1f, 1e-5f));
    BAD(choir_embedding(F(3), T(I64, 2)));
    BAD(choir_dropout(F(3), 1.0f, "d"));
    BAD(choir_dropout(F(3), NAN, "d"));
    BAD(choir_conv2d(F(1, 3, 4, 4), F(2, 2, 3, 3), NULL, c));
    BAD(choir_conv2d(F(1, 3, 4, 4), F(2, 3, 5, 5), NULL, c));
    BAD(choir_conv2d(F(1, 3, 4, 4), F(2, 3, 3, 3), F(3), c));
    assert_false(choir_conv2d(F(1, 3, 4, 4), F(2, 3, 3, 3), NULL, zero)->poisoned);
    BAD(choir_max_pool2d(F(1, 3, 4, 4), 5, 1, 0));
    BAD(choir_avg_pool2d(F(1, 3, 4, 4), 2, 0, 0));
    BAD(choir_max_pool2d(F(3, 4, 4), 2, 2, 0));
    BAD(choir_cross_entropy(F(4, 3), T(I64, 3)));
    BAD(choir_cross_entropy(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR), T(I64, 1)));
    BAD(choir_nll_loss(F(4, 3), T(I64, 2, 2)));
    BAD(choir_mse_loss(F(4), F(3)));
    BAD(choir_reshape(F(4), choir_dims(-1, -1)));
    BAD(choir_reshape(F(4), choir_dims(3)));
    BAD(choir_transpose(F(4, 2), 0, 2));
    BAD(choir_permute(F(4, 2), choir_dims(0, 0)));
    BAD(choir_narrow(F(4, 2), 0, 3, 2));
    BAD(choir_narrow(F(4, 2), 0, -1, 2));
    BAD(choir_narrow(F(4, 2), 0, INT64_MAX, 2));
    BAD(choir_expand(F(4, 2), choir_dims(4, 3)));
    BAD(choir_expand(F(4, 2), choir_dims(2)));
    BAD(choir_cat((choir_tensor *[]){F(4, 2), F(4, 3)}, 2, 0));
    BAD(choir_cat((choir_tensor *[]){F(4, 2), F(4, 3)}, 2, 2));
}

static void test_bad_dtypes(void **state)
{
    BAD(choir_add(F(2), T(F64, 2)));
    BAD(choir_add(T(I64, 2), T(I64, 2)));
    BAD(choir_relu(T(I64, 2)));
    BAD(choir_sum(T(U8, 2)));
    BAD(choir_softmax(T(I32, 2)));
    BAD(choir_linear(F(2, 3), T(F64, 2, 3), NULL));
    BAD(choir_matmul(F(2, 3), T(F64, 3, 2)));
    BAD(choir_embedding(F(3, 2), F(2)));
    BAD(choir_embedding(F(3, 2), T(I32, 2)));
    BAD(choir_cross_entropy(F(2, 3), F(2)));
    assert_says("i64 class ids (...), or probabilities (..., C), got f32 (2, 3), f32 (2)");
    BAD(choir_conv2d(F(1, 1, 2, 2), T(F64, 1, 1, 1, 1), NULL, choir_conv_defaults()));
    BAD(choir_cat((choir_tensor *[]){F(4, 2), T(I64, 4, 2)}, 2, 0));
}

/* Options of cross entropy that are wrong, of class ids and of distributions. */
static void test_bad_cross_entropies(void **state)
{
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    choir_reduction none[] = {CHOIR_LOSS_BATCH_MEAN, (choir_reduction)9, (choir_reduction)-1};
    for (int soft = 0; soft < 2; soft++) {
        choir_tensor *y = soft ? F(4, 3) : T(I64, 4);
        choir_tensor *weights[] = {F(4), F(1), F(1, 3), T(F64, 3), T(I64, 3), F(0)};
        for (size_t i = 0; i < CHOIR_COUNT(none); i++) {
            o.reduction = none[i];
            BAD(choir_cross_entropy_with(F(4, 3), y, o));
        }
        o.reduction = CHOIR_LOSS_NONE;
        for (size_t i = 0; i < CHOIR_COUNT(weights); i++) {
            o.weight = weights[i];
            BAD(choir_cross_entropy_with(F(4, 3), y, o));
        }
        o.weight = F(1);
        BAD(choir_cross_entropy_with(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR), y, o));
        o.weight = NULL;
        BAD(choir_cross_entropy_with(F(4, 2), soft ? y : T(I64, 5), o));
    }
}

static void test_worse_dtypes(void **state)
{
    choir_conv_opts c = choir_conv_defaults();
    BAD(choir_matmul(T(U8, 30, 30), T(U8, 30, 30)));
    BAD(choir_linear(T(I64, 2, 3), T(I64, 2, 3), NULL));
    BAD(choir_layer_norm(T(U8, 20, 30), NULL, NULL, 1e-5f));
    BAD(choir_batch_norm(T(U8, 2, 3), NULL, NULL, T(U8, 3), T(U8, 3), true, 0.1f, 1e-5f));
    BAD(choir_conv2d(T(U8, 1, 1, 8, 8), T(U8, 1, 1, 3, 3), NULL, c));
    BAD(choir_conv2d(F(1, 1, 2, 2), F(1, 1, 1, 1), T(F64, 1), c));
    BAD(choir_max_pool2d(T(U8, 1, 1, 8, 8), 2, 2, 0));
    BAD(choir_cross_entropy(T(U8, 20, 30), T(I64, 20)));
    BAD(choir_nll_loss(T(I32, 20, 30), T(I64, 20)));
    BAD(choir_argmax(T(U8, 20, 30)));
    BAD(choir_dropout(T(U8, 20, 30), 0.5f, "d"));
    BAD(choir_attention(T(U8, 1, 1, 8, 8), T(U8, 1, 1, 8, 8), T(U8, 1, 1, 8, 8), true));
    BAD(choir_self_attention(T(U8, 2, 3, 6), 1, true));
    BAD(choir_embedding(T(U8, 3, 2), T(I64, 2)));
}

static void test_worse_shapes(void **state)
{
    BAD(choir_flatten(F(4, 2), -5));
    BAD(choir_reshape(F(4), choir_dims(4611686018427387905, 4)));
    BAD(choir_reshape(F(4), ((choir_shape){.ndim = 7})));
    BAD(choir_conv2d(F(1, 1, 2, 2), F(1, 1, 0, 0), NULL, choir_conv_defaults()));
    BAD(choir_expand(F(1, 1), choir_dims(1LL << 40, 1LL << 40)));
}

/* CHOIR_DEVICE names no device: the run has failed from its start, and can still be used
 * without harm. */
static void test_no_such_device(void **state)
{
    const char *set = getenv("CHOIR_DEVICE");
    char *was = set ? strdup(set) : NULL;
    setenv("CHOIR_DEVICE", "nowhere:7", 1);
    choir_scope *lost = choir_scope_open(NULL, 6);
    choir_module *net = choir_nn_linear(lost, 2, 3);
    choir_forward(net, zeros(lost, choir_dims(4, 2)));
    assert_fails(choir_scope_status(lost), CHOIR_ERR_DEVICE, "no devices of kind 'nowhere'");
    assert_int_equal(choir_scope_close(lost), CHOIR_ERR_DEVICE);
    unsetenv("CHOIR_DEVICE");
    if (was)
        setenv("CHOIR_DEVICE", was, 1);
    free(was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(test_innermost),
        IN_SCOPES(test_unrelated),
        IN_SCOPES(test_unrelated_and_deeper),
        IN_SCOPES(test_parameters_alone),
        IN_SCOPES(test_first_error_stays),
        IN_SCOPES(test_clear),
        IN_SCOPES(test_execution_error),
        IN_SCOPES(test_execution_error_at_close),
        IN_SCOPES(test_reading),
        IN_SCOPES(test_bad_shapes),
        IN_SCOPES(test_bad_dtypes),
        IN_SCOPES(test_bad_cross_entropies),
        IN_SCOPES(test_worse_dtypes),
        IN_SCOPES(test_worse_shapes),
        IN_SCOPES(test_no_such_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
