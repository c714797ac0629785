/* Backward releases its results as it goes. It must keep tensors that others still need, return
 * the memory of all others, and report graphs that were walked before. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "scopes_fixture.h"
#include "device/device.h"
#include "nn/module.h"

static choir_tensor *leaf(choir_scope *scope, int64_t n, const char *name)
{
    return choir_require_grad(choir_randn(scope, choir_dims(n), name));
}

static size_t live(void)
{
    choir_device_stats stats;
    choir_device_get_stats(
        choir_tensor_device(choir_zeros(step, CHOIR_F32, CHOIR_SCALAR)), &stats);
    return stats.bytes_now;
}

/* --- memory --- */

static void test_activations_are_freed(void **state)
{
    choir_tensor *x = leaf(step, 1 << 16, "x"), *y = x;
    size_t before = live();
    for (int i = 0; i < 10; i++)
        y = choir_tanh(y);
    choir_tensor *loss = choir_sum(y);
    assert_true(live() >= before + 10 * (4 << 16));
    ok(choir_backward(loss));
    assert_true(live() <= before + 2 * (4 << 16)); /* x's gradient is there */
    float g[1 << 4];
    assert_fails(choir_read(y, g, sizeof g), CHOIR_ERR_STATE, "choir_keep");
    assert_true(isfinite(choir_item(loss))); /* the loss stays */
    ok(choir_scope_status(step));
    assert_true(choir_item(choir_sum(choir_add(x, choir_grad(x)))) < 1e9);
}

static void test_freed_operand_is_an_error(void **state)
{
    choir_tensor *x = leaf(step, 8, "x"), *y = choir_tanh(x);
    ok(choir_backward(choir_sum(y)));
    choir_relu(y);
    assert_fails(choir_scope_status(step), CHOIR_ERR_STATE, "relu");
}

static void test_keep_survives(void **state)
{
    choir_tensor *x = leaf(step, 8, "x"), *y = choir_square(x);
    choir_tensor *kept = choir_keep(run, y);
    float a[8], b[8];
    ok(choir_read(y, a, sizeof a));
    ok(choir_backward(choir_sum(y)));
    ok(choir_read(kept, b, sizeof b));
    assert_memory_equal(a, b, sizeof a);
}

static void test_no_growth(void **state)
{
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 16, 32),
        choir_nn_relu(run), choir_nn_layer_norm(run, 32), choir_nn_linear(run, 32, 4));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    choir_device_stats stats[2];
    choir_device *device = choir_device_find("cpu:0");
    for (int i = 0; i < 1000; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        int64_t ids[8] = {0, 1, 2, 3, 0, 1, 2, 3};
        choir_tensor *y = choir_from(s, CHOIR_I64, choir_dims(8), ids);
        choir_tensor *x = choir_randn(s, choir_dims(8, 16), "x");
        ok(choir_backward(choir_cross_entropy(choir_forward(net, x), y)));
        ok(choir_optim_step(opt));
        ok(choir_scope_close(s));
        if (i == 10)
            choir_device_get_stats(device, &stats[0]);
    }
    choir_device_get_stats(device, &stats[1]);
    assert_int_equal(stats[0].bytes_now, stats[1].bytes_now);
    assert_int_equal(stats[0].bytes_reserved, stats[1].bytes_reserved);
}

/* --- what others still need --- */

static void test_targets_and_ids_stay(void **state)
{
    int64_t ids[4] = {0, 1, 2, 1}, back[4];
    choir_tensor *y = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    choir_tensor *table = choir_require_grad(choir_randn(step, choir_dims(3, 3), "t"));
    choir_tensor *logits = choir_embedding(table, y);
    ok(choir_backward(choir_cross_entropy(logits, y)));
    ok(choir_read(y, back, sizeof back)); /* for the accuracy, say */
    assert_memory_equal(ids, back, sizeof ids);
}

static void test_two_losses_of_one_target(void **state)
{
    int64_t ids[4] = {0, 1, 2, 1};
    choir_tensor *y = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    choir_tensor *a = choir_require_grad(choir_randn(step, choir_dims(4, 3), "a"));
    choir_tensor *b = choir_require_grad(choir_randn(step, choir_dims(4, 3), "b"));
    choir_tensor *nll = choir_nll_loss(choir_log_softmax(b), y);
    ok(choir_backward(choir_add(choir_cross_entropy(a, y), nll)));
    assert_non_null(choir_grad(a));
    assert_non_null(choir_grad(b));
}

static void test_two_tables_of_one_id(void **state)
{
    int64_t ids[4] = {0, 1, 2, 1};
    choir_tensor *y = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    choir_tensor *a = choir_require_grad(choir_randn(step, choir_dims(3, 2), "a"));
    choir_tensor *b = choir_require_grad(choir_randn(step, choir_dims(3, 2), "b"));
    float g[6], want[6] = {1, 1, 2, 2, 1, 1};
    choir_tensor *sum = choir_sum(choir_add(choir_embedding(a, y), choir_embedding(b, y)));
    ok(choir_backward(sum));
    ok(choir_read(choir_grad(a), g, sizeof g));
    assert_memory_equal(g, want, sizeof g);
    ok(choir_read(choir_grad(b), g, sizeof g));
    assert_memory_equal(g, want, sizeof g);
}

/* --- walked before --- */

static void test_second_backward(void **state)
{
    choir_tensor *loss = choir_sum(choir_exp(leaf(step, 4, "x")));
    ok(choir_backward(loss));
    assert_fails(choir_backward(loss), CHOIR_ERR_STATE, "walked before");
}

static void test_shared_part_walked_before(void **state)
{
    choir_tensor *x = leaf(step, 4, "x"), *w = leaf(step, 4, "w"), *h = choir_tanh(x);
    choir_tensor *first = choir_sum(h), *second = choir_sum(choir_add(h, w));
    ok(choir_backward(first));
    assert_int_equal(choir_backward(second), CHOIR_ERR_STATE); /* h's way to x is gone */
}

static void test_shared_values_walked_before(void **state)
{
    choir_tensor *x = leaf(step, 4, "x"), *w = leaf(step, 4, "w"), *h = choir_tanh(x);
    choir_tensor *first = choir_sum(h), *second = choir_sum(choir_mul(h, w));
    ok(choir_backward(first));
    assert_int_equal(choir_backward(second), CHOIR_ERR_STATE); /* h is gone, and mul needs it */
}

static void test_lifting_what_is_freed(void **state)
{
    choir_tensor *x = leaf(step, 4, "x"), *h = choir_tanh(x);
    ok(choir_backward(choir_sum(h)));
    choir_scope *micro = choir_micro_open(step, 0);
    choir_relu(choir_in(micro, h));
    assert_int_equal(choir_scope_status(micro), CHOIR_ERR_STATE);
    choir_scope_close(micro);
}

/* --- leaves that outlive the scope --- */

static void test_leaf_of_the_run(void **state)
{
    choir_tensor *x = leaf(run, 4, "x");
    float g[4], want[4] = {3, 3, 3, 3};
    for (int i = 0; i < 3; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *y = choir_scale(choir_in(s, x), 3);
        ok(choir_backward(choir_sum(y)));
        ok(choir_scope_close(s));
        s = choir_step_open(run, 50); /* its tensors reuse the step's memory */
        choir_full(s, CHOIR_F32, choir_dims(4), 77);
        choir_full(s, CHOIR_F32, choir_dims(4), 78);
        ok(choir_scope_close(s));
        if (i == 0) {
            ok(choir_read(choir_grad(x), g, sizeof g));
            assert_memory_equal(g, want, sizeof g);
        }
    }
    ok(choir_read(choir_grad(x), g, sizeof g));
}

static void test_leaf_of_the_step_under_micros(void **state)
{
    choir_tensor *x = leaf(step, 4, "x");
    float g[4];
    for (int i = 0; i < 2; i++) {
        choir_scope *m = choir_micro_open(step, i);
        ok(choir_backward(choir_sum(choir_scale(choir_in(m, x), 3))));
        ok(choir_scope_close(m));
    }
    ok(choir_read(choir_grad(x), g, sizeof g));
    assert_true(g[0] == 6 || g[0] == 3); /* the sum, or the mean as of parameters */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(test_activations_are_freed),
        IN_SCOPES(test_freed_operand_is_an_error),
        IN_SCOPES(test_keep_survives),
        IN_SCOPES(test_no_growth),
        IN_SCOPES(test_targets_and_ids_stay),
        IN_SCOPES(test_two_losses_of_one_target),
        IN_SCOPES(test_two_tables_of_one_id),
        IN_SCOPES(test_second_backward),
        IN_SCOPES(test_shared_part_walked_before),
        IN_SCOPES(test_shared_values_walked_before),
        IN_SCOPES(test_lifting_what_is_freed),
        IN_SCOPES(test_leaf_of_the_run),
        IN_SCOPES(test_leaf_of_the_step_under_micros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
