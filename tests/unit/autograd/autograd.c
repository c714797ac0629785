/* Backward over whole graphs: gradients of tensors that are used twice, hooks, values that must
 * not change before backward, and the tree over micro-batches, bit for bit. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "scopes_fixture.h"
#include "base/tree.h"
#include "nn/module.h"

static choir_tensor *vector(const float *values, int64_t n)
{
    return choir_require_grad(choir_from(step, CHOIR_F32, choir_dims(n), values));
}

static void assert_values(choir_tensor *t, const float *want, int n, double tolerance)
{
    float got[64];
    assert_non_null(t);
    ok(choir_read(t, got, (size_t)n * sizeof(float)));
    for (int i = 0; i < n; i++)
        assert_true(fabs((double)got[i] - (double)want[i]) <= tolerance);
}

/* --- graphs --- */

static void test_used_twice(void **state)
{
    choir_tensor *x = vector((float[]){1, 2, 3}, 3);
    ok(choir_backward(choir_sum(choir_mul(x, x))));
    assert_values(choir_grad(x), (float[]){2, 4, 6}, 3, 0);
    choir_tensor *y = vector((float[]){1, 2, 3}, 3);
    ok(choir_backward(choir_sum(choir_add(choir_add(y, y), y))));
    assert_values(choir_grad(y), (float[]){3, 3, 3}, 3, 0);
}

static void test_diamond(void **state)
{
    choir_tensor *x = vector((float[]){1, 2, 3}, 3), *c = vector((float[]){5, 6, 7}, 3);
    choir_tensor *h = choir_square(x), *left = choir_scale(h, 2), *right = choir_mul(h, c);
    ok(choir_backward(choir_sum(choir_sub(choir_add(left, right), h))));
    assert_values(choir_grad(x), (float[]){12, 28, 48}, 3, 0); /* 2x (2 + c - 1) */
    assert_values(choir_grad(c), (float[]){1, 4, 9}, 3, 0);
}

static void test_layouts_meet(void **state)
{
    choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(2, 3, 4, 4), "x"));
    choir_tensor *w = choir_from(step, CHOIR_F32, choir_dims(3, 3, 1, 1),
        (float[]){1, 0, 0, 0, 1, 0, 0, 0, 1}); /* convolution by the identity */
    choir_tensor *m = choir_randn(step, choir_dims(2, 3, 4, 4), "m");
    choir_tensor *mt = choir_transpose(m, 0, 1);
    float g[96], ms[96];
    choir_tensor *conv = choir_mul(choir_conv2d(x, w, NULL, choir_conv_defaults()), m);
    choir_tensor *turned = choir_mul(choir_transpose(x, 0, 1), mt), *plain = choir_mul(x, m);
    choir_tensor *loss =
        choir_add(choir_add(choir_sum(conv), choir_sum(turned)), choir_sum(plain));
    ok(choir_backward(loss));
    ok(choir_read(choir_grad(x), g, sizeof g));
    ok(choir_read(m, ms, sizeof ms));
    for (int i = 0; i < 96; i++)
        assert_true(fabsf(g[i] - 3 * ms[i]) < 1e-5f);
}

static void test_no_grad(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2);
    assert_true(choir_set_grad(step, false));
    choir_tensor *y = choir_sum(choir_exp(x));
    assert_false(choir_set_grad(step, true));
    assert_int_equal(choir_backward(y), CHOIR_ERR_STATE);
    choir_scope_clear(step);
    choir_scope *quiet = choir_no_grad(step);
    choir_tensor *z = choir_sum(choir_in(quiet, x));
    assert_true(choir_item(z) == 3);
    assert_int_equal(choir_backward(z), CHOIR_ERR_STATE);
    choir_scope_close(quiet);
}

static void test_loss_must_be_one_value(void **state)
{
    choir_tensor *x = choir_reshape(vector((float[]){1, 2}, 2), choir_dims(2, 1));
    assert_int_equal(choir_backward(choir_exp(x)), CHOIR_ERR_SHAPE);
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
}

/* A vector of three losses counts as three micro-batches: parameters get the mean's gradient.
 */
static void test_losses_of_several_micro_batches(void **state)
{
    choir_module *net = choir_nn_linear(run, 1, 1);
    choir_tensor *x = choir_from(step, CHOIR_F32, choir_dims(3, 1), (float[]){1, 2, 6});
    choir_tensor *y = choir_reshape(choir_forward(net, x), choir_dims(3));
    ok(choir_backward(y));
    assert_values(choir_grad(choir_module_find(net, "weight")), (float[]){3}, 1, 0);
    assert_values(choir_grad(choir_module_find(net, "bias")), (float[]){1}, 1, 0);
}

/* --- changed in place --- */

static void change(choir_tensor *t, choir_tensor *loss)
{
    float other[2] = {7, 8};
    choir_status written = choir_write(t, other, sizeof other);
    choir_status status = choir_backward(loss);
    assert_true(written == CHOIR_ERR_STATE || status == CHOIR_ERR_STATE);
}

static void test_changed_input(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2), *y = vector((float[]){1, 2}, 2);
    change(y, choir_sum(choir_mul(x, y)));
}

static void test_changed_where_nobody_reads(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2), *y = choir_sum(choir_add(x, x));
    ok(choir_write(x, (float[]){7, 8}, 8));
    ok(choir_backward(y));
}

static void test_changed_output(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2), *y = choir_exp(x), *loss = choir_sum(y);
    change(y, loss); /* exp's backward reads its result */
}

static void test_changed_target(void **state)
{
    int64_t one[2] = {0, 1}, other[2] = {1, 1};
    choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(2, 2), "x"));
    choir_tensor *y = choir_from(step, CHOIR_I64, choir_dims(2), one);
    choir_tensor *loss = choir_cross_entropy(x, y);
    choir_status written = choir_write(y, other, sizeof other);
    assert_true(written == CHOIR_ERR_STATE || choir_backward(loss) == CHOIR_ERR_STATE);
}

/* --- hooks --- */

static struct {
    int calls;
    int order[8];
    float value[8];
} seen;

static void hook(choir_tensor *t, choir_tensor *grad, void *arg)
{
    float g[2] = {NAN};
    assert_int_equal(choir_tensor_count(t), 2);
    ok(choir_read(grad, g, sizeof g));
    seen.order[seen.calls] = (int)(intptr_t)arg;
    seen.value[seen.calls++] = g[0];
}

static void test_hooks(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2), *h = choir_scale(x, 3),
                 *y = choir_scale(h, 5);
    seen.calls = 0;
    choir_on_grad(h, hook, (void *)2);
    choir_on_grad(h, hook, (void *)3);
    choir_on_grad(y, hook, (void *)1);
    ok(choir_backward(choir_sum(choir_add(y, h))));
    assert_int_equal(seen.calls, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(seen.order[i], i + 1);
    assert_true(seen.value[0] == 1 && seen.value[1] == 6 && seen.value[2] == 6);
}

static void test_hook_of_a_leaf(void **state)
{
    choir_tensor *x = vector((float[]){1, 2}, 2);
    seen.calls = 0;
    choir_on_grad(x, hook, (void *)1);
    ok(choir_backward(choir_sum(choir_add(choir_scale(x, 3), x))));
    assert_int_equal(seen.calls, 1);
    assert_true(seen.value[0] == 4);
}

/* --- parameters --- */

enum { IN = 3, OUT = 2, ROWS = 4 };

static choir_tensor *batch(choir_scope *scope, int index)
{
    float x[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = sinf((float)(i + 100 * index)) * (float)(1 + index);
    return choir_from(scope, CHOIR_F32, choir_dims(ROWS, IN), x);
}

static void micro_backward(choir_module *net, int index)
{
    choir_scope *m = choir_micro_open(step, index);
    choir_tensor *loss = choir_mean(choir_square(choir_forward(net, batch(m, index))));
    ok(choir_backward(loss));
    ok(choir_scope_close(m));
}

static void test_accumulation_is_the_tree(void **state)
{
    float alone[9][IN * OUT], leaves[9], got[IN * OUT];
    for (int i = 0; i < 9; i++) {
        choir_module *net = choir_nn_linear(run, IN, OUT);
        micro_backward(net, i);
        choir_tensor *g = choir_grad(choir_module_find(net, "weight"));
        ok(choir_read(g, alone[i], sizeof alone[i]));
    }
    for (int m = 1; m <= 9; m++) {
        choir_module *net = choir_nn_linear(run, IN, OUT);
        choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
        for (int i = 0; i < m; i++)
            micro_backward(net, i);
        choir_tensor *g = choir_grad(choir_module_find(net, "weight"));
        ok(choir_read(g, got, sizeof got));
        for (int e = 0; e < IN * OUT; e++) {
            for (int i = 0; i < m; i++)
                leaves[i] = alone[i][e];
            float want = choir__tree_sum(leaves, m, 1.0f / (float)m);
            assert_memory_equal(&want, &got[e], sizeof want);
        }
        ok(choir_optim_step(opt));
    }
}

static void test_looking_completes_the_gradient(void **state)
{
    float first[IN * OUT], late[IN * OUT];
    choir_module *net = choir_nn_linear(run, IN, OUT);
    choir_tensor *w = choir_module_find(net, "weight");
    micro_backward(net, 0);
    ok(choir_read(choir_grad(w), first, sizeof first));
    micro_backward(net, 1);
    ok(choir_read(choir_grad(w), late, sizeof late));
    assert_memory_not_equal(first, late, sizeof late);
    micro_backward(net, 0); /* starts again: nothing of the earlier micro-batches is left */
    ok(choir_read(choir_grad(w), late, sizeof late));
    assert_memory_equal(first, late, sizeof late);
}

static void test_frozen(void **state)
{
    choir_module *a = choir_nn_linear(run, IN, IN), *b = choir_nn_linear(run, IN, OUT);
    choir_module *net = choir_nn_sequential(run, a, b);
    choir_module_freeze(a, true);
    micro_backward(net, 0);
    assert_null(choir_grad(choir_module_find(net, "0.weight")));
    assert_non_null(choir_grad(choir_module_find(net, "1.weight")));
    choir_module_freeze(a, false);
    choir_scope_close(step);
    step = choir_step_open(run, 1);
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    ok(choir_optim_step(opt));
    micro_backward(net, 0);
    assert_non_null(choir_grad(choir_module_find(net, "0.weight")));
}

/* --- tables --- */

static choir_tensor *lookup(choir_module *table, int index)
{
    int64_t ids[4] = {index % 5, (index + 2) % 5, index % 5, 4};
    return choir_forward(table, choir_from(step, CHOIR_I64, choir_dims(4), ids));
}

static void test_rows_equal_dense(void **state)
{
    float rows[5 * 4], dense[5 * 4];
    int64_t ids[4] = {1, 3, 1, 4};
    choir_module *table = choir_nn_embedding(run, 5, 4, choir_init_normal(0, 1));
    choir_module *linear = choir_nn_linear(run, 2, 2); /* so that there is a bucket, too */
    choir_module *net = choir_nn_sequential(run, table, linear);
    choir_tensor *w = choir_module_find(net, "0.weight");
    choir_tensor *leaf = choir_require_grad(
        choir_add(choir_zeros(step, CHOIR_F32, choir_dims(5, 4)), choir_keep(step, w)));
    choir_tensor *y = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    choir_tensor *again = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    ok(choir_backward(choir_sum(choir_square(choir_embedding(w, y)))));
    ok(choir_backward(choir_sum(choir_square(choir_embedding(leaf, again)))));
    ok(choir_read(choir_grad(w), rows, sizeof rows));
    ok(choir_read(choir_grad(leaf), dense, sizeof dense));
    assert_memory_equal(rows, dense, sizeof rows);
}

static void test_nothing_but_tables(void **state)
{
    choir_module *table = choir_nn_embedding(run, 5, 4, choir_init_normal(0, 1));
    float want[20] = {0};
    for (int i = 0; i < 5; i++) { /* five micro-batches: ids 4, i, i, i + 2 */
        ok(choir_backward(choir_sum(lookup(table, i))));
        for (int c = 0; c < 4; c++) {
            want[4 * (i % 5) + c] += 2;
            want[4 * ((i + 2) % 5) + c] += 1;
            want[4 * 4 + c] += 1;
        }
    }
    for (int i = 0; i < 20; i++)
        want[i] /= 5;
    assert_values(choir_grad(choir_module_find(table, "weight")), want, 20, 1e-6);
}

static void test_a_table_used_otherwise(void **state)
{
    choir_module *table = choir_nn_embedding(run, 5, 4, choir_init_normal(0, 1));
    choir_module *linear = choir_nn_linear_with(run, 4, 5, false, choir_init_normal(0, 1));
    choir_module *net = choir_nn_sequential(run, table, linear);
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_tensor *w = choir_module_find(net, "0.weight"),
                 *v = choir_module_find(net, "1.weight");
    float ones[20], zeros[20] = {0};
    for (int i = 0; i < 20; i++)
        ones[i] = 1;
    choir_tensor *both = choir_add(choir_sum(lookup(table, 0)), choir_sum(choir_in(step, v)));
    ok(choir_backward(both));
    assert_values(choir_grad(v), ones, 20, 0);
    ok(choir_optim_step(opt));
    choir_tensor *x =
        choir_zeros(step, CHOIR_F32, choir_dims(1, 4)); /* now as a linear's weight */
    both = choir_add(choir_sum(choir_linear(x, w, NULL)), choir_sum(choir_in(step, v)));
    ok(choir_backward(both));
    assert_values(choir_grad(v), ones, 20, 0);
    assert_values(choir_grad(w), zeros, 20, 0);
}

/* Attention without queries gives its keys gradients of zeros, not old memory. */
static void test_nobody_asks(void **state)
{
    float zeros[24] = {0};
    for (int way = 0; way < 2; way++) { /* no queries, no heads */
        choir_scope *dirty = choir_micro_open(step, 0);
        for (int i = 0; i < 16; i++)
            choir_full(dirty, CHOIR_F32, choir_dims(24), 77);
        ok(choir_scope_close(dirty));
        choir_tensor *q = choir_zeros(step, CHOIR_F32, choir_dims(1, 2 - 2 * way, 2 * way, 4));
        choir_tensor *k = choir_require_grad(choir_randn(step, choir_dims(1, 2, 3, 4), "k"));
        choir_tensor *v = choir_require_grad(choir_randn(step, choir_dims(1, 2, 3, 4), "v"));
        choir_tensor *y = choir_attention(q, k, v, false);
        ok(choir_backward(choir_sum(y)));
        assert_values(choir_grad(k), zeros, 24, 0);
        assert_values(choir_grad(v), zeros, 24, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(test_used_twice),
        IN_SCOPES(test_diamond),
        IN_SCOPES(test_layouts_meet),
        IN_SCOPES(test_no_grad),
        IN_SCOPES(test_loss_must_be_one_value),
        IN_SCOPES(test_losses_of_several_micro_batches),
        IN_SCOPES(test_changed_input),
        IN_SCOPES(test_changed_where_nobody_reads),
        IN_SCOPES(test_changed_output),
        IN_SCOPES(test_changed_target),
        IN_SCOPES(test_hooks),
        IN_SCOPES(test_hook_of_a_leaf),
        IN_SCOPES(test_accumulation_is_the_tree),
        IN_SCOPES(test_looking_completes_the_gradient),
        IN_SCOPES(test_frozen),
        IN_SCOPES(test_rows_equal_dense),
        IN_SCOPES(test_nothing_but_tables),
        IN_SCOPES(test_a_table_used_otherwise),
        IN_SCOPES(test_nobody_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
