/* Objects that a program has not filled in, or has put together wrongly: each use is an error
 * with a sentence. (unit.misuse has NULL and closed handles, unit.defaults options.) */

#include <choir/choir.h>

#include "check.h"

static choir_scope *run, *step;

static int open_scopes(void **state)
{
    run = choir_scope_open(NULL, 1);
    step = choir_step_open(run, 0);
    return 0;
}

static int close_scopes(void **state)
{
    (void)!choir_scope_close(step);
    (void)!choir_scope_close(run);
    return 0;
}

static void assert_step_says(choir_status status, const char *part)
{
    assert_int_equal(choir_scope_status(step), status);
    assert_says(part);
}

static choir_tensor *nothing(choir_module *self, choir_tensor *const *in, int count)
{
    return NULL;
}

static void test_module_without_result(void **state)
{
    static const choir_module_class class = {"empty", sizeof(choir_module), nothing, 0};
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(2));
    (void)choir_forward(choir_module_new(run, &class), x);
    assert_step_says(CHOIR_ERR_ARGUMENT, "expected a result of a module 'empty', got NULL");
}

static void test_class_without_forward(void **state)
{
    static const choir_module_class holder = {"holder", sizeof(choir_module), NULL, 0},
                                    small = {"small", 8, nothing, 0};
    choir_module *m = choir_module_new(run, &holder); /* for its parts alone */
    ok(choir_scope_status(run));
    (void)choir_forward(m, choir_zeros(step, CHOIR_F32, choir_dims(2)));
    assert_step_says(CHOIR_ERR_ARGUMENT, "a module 'holder' has no forward function");
    (void)choir_module_new(run, &small);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "got 'small' of 8 bytes");
}

static void test_module_in_itself(void **state)
{
    choir_module *a = choir_nn_sequential(run, choir_nn_relu(run)), *field = NULL;
    choir_module_child(a, "x", &field, a);
    assert_fails(
        choir_scope_status(run), CHOIR_ERR_ARGUMENT, "cannot be a part of itself, as 'x'");
    choir_module_train(a, true);
}

static choir_tensor *no_result(choir_tensor *const *in, int count, const void *arg)
{
    return NULL;
}

static void test_custom_op(void **state)
{
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(2));
    (void)choir_custom(&(choir_custom_op){.name = "none"}, &x, 1, NULL);
    assert_step_says(CHOIR_ERR_ARGUMENT, "none: expected an op with a forward function");
    (void)!choir_scope_close(step);
    step = choir_step_open(run, 1);
    x = choir_zeros(step, CHOIR_F32, choir_dims(2));
    (void)choir_custom(&(choir_custom_op){.forward = no_result}, &x, 1, NULL);
    assert_step_says(
        CHOIR_ERR_ARGUMENT, "custom: expected a result of the op's forward, got NULL");
}

static void test_env(void **state)
{
    choir_env env = {0};
    int64_t first = 7, count = 7;
    choir_tensor *loss = choir_zeros(step, CHOIR_F32, CHOIR_SCALAR);
    double mean;
    choir_env_micro(&env, &first, &count);
    assert_fails(choir_env_loss(&env, &loss, &mean), CHOIR_ERR_ARGUMENT,
        "expected an env that choir_env_init has");
    choir_scope *other = choir_run_open(&env, 1);
    assert_int_equal(choir_scope_status(other), CHOIR_ERR_ARGUMENT);
    (void)!choir_scope_close(other);
}

static void test_dataset(void **state)
{
    choir_dataset d = {0};
    int64_t x, y;
    assert_int_equal(choir_dataset_length(&d), 0);
    assert_int_equal(choir_dataset_get(&d, 0, &x, &y), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_dataset_get_epoch(&d, 0, 0, &x, &y), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_dataset_class_of(&d, 0), -1);
    assert_null(choir_dataset_sample_name(&d, 0));
    assert_false(choir_dataset_ignores(&d));
    choir_dataset_free(&d);
}

static void test_restart_of_no_hogwild(void **state)
{
    choir_group *alone;
    ok(choir_group_init(NULL, choir_group_defaults(), &alone));
    assert_int_equal(
        choir_hogwild_restart(choir_nn_linear(run, 2, 2), alone), CHOIR_ERR_ARGUMENT);
    choir_group_free(alone);
}

static void test_optim_without_visitor(void **state)
{
    choir_module *net = choir_nn_linear(run, 2, 2);
    choir_optim *o = choir_adamw(run, net, choir_adamw_defaults());
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(1, 2));
    ok(choir_backward(choir_sum(choir_forward(net, x))));
    ok(choir_optim_step(o));
    choir_optim_visit(o, NULL, NULL);
}

/* Shapes with more entries than 64 bits can count. */
static void test_shapes(void **state)
{
    const int64_t huge = (int64_t)1 << 62, far[] = {0, huge}, both[] = {-huge - huge, huge};
    for (int i = 0; i < 6; i++) {
        choir_scope *s = choir_step_open(run, 10 + i);
        choir_tensor *x = choir_zeros(s, CHOIR_F32, choir_dims(1, 4, 2)), *y = NULL;
        choir_tensor *ids = choir_zeros(s, CHOIR_I64, choir_dims(4));
        choir_tensor *row = choir_expand(choir_zeros(s, CHOIR_F32, choir_dims(1, 1)),
                         choir_dims((int64_t)1 << 40, 1)),
                     *column = choir_expand(choir_zeros(s, CHOIR_F32, choir_dims(1, 1)),
                         choir_dims(1, (int64_t)1 << 40));
        switch (i) {
        case 0: y = choir_pad(x, far, 2, 0); break;
        case 1: y = choir_pad(x, both, 2, 0); break;
        case 2: y = choir_interpolate(x, &far[1], 1, CHOIR_NEAREST, false); break;
        case 3: y = choir_one_hot(ids, huge + 1); break;
        case 4: y = choir_add(row, column); break;
        default: y = choir_matmul(row, column);
        }
        assert_int_not_equal(choir_scope_status(s), CHOIR_OK);
        (void)choir_item(choir_sum(y));
        (void)!choir_scope_close(s);
    }
    choir_module *m = choir_nn_relu(run);
    choir_tensor *field = NULL;
    choir_module_param(
        m, "w", &field, choir_dims((int64_t)1 << 40, (int64_t)1 << 40), choir_init_constant(0));
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_SHAPE);
}

/* A tensor that a module keeps must live as long as its run. */
static void test_short_lived_parts(void **state)
{
    choir_module *m = choir_nn_relu(run);
    choir_tensor *field[3] = {NULL};
    choir_scope *s = choir_step_open(run, 0);
    choir_module_constant(m, "mask", &field[0], choir_zeros(s, CHOIR_F32, choir_dims(1, 2)));
    assert_fails(choir_scope_status(run), CHOIR_ERR_SCOPE,
        "expected 'mask' to be a tensor of the module");
    choir_module_tie(m, "head", &field[1], choir_zeros(run, CHOIR_F32, choir_dims(1, 2)));
    assert_says("expected 'head' to be a parameter");
    choir_module_constant(m, "none", &field[2], NULL);
    assert_says("choir_module_constant: missing");
    for (int i = 0; i < 3; i++)
        assert_int_equal(choir_tensor_ndim(field[i]), 0); /* poisoned, and safe to use */
    (void)!choir_scope_close(s);
}

/* A module of a closed run fails the step that would use it. */
static void test_module_of_closed_run(void **state)
{
    choir_scope *other = choir_scope_open(NULL, 1);
    choir_module *m = choir_nn_linear(other, 4, 2);
    ok(choir_scope_close(other));
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *y = choir_forward(m, choir_zeros(s, CHOIR_F32, choir_dims(3, 4)));
    assert_fails(choir_scope_status(s), CHOIR_ERR_SCOPE,
        "the module belongs to the run, which is closed");
    choir_mean(y);
    assert_int_equal(choir_scope_close(s), CHOIR_ERR_SCOPE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scopes, close_scopes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_module_without_result),
        TEST(test_class_without_forward),
        TEST(test_module_in_itself),
        TEST(test_custom_op),
        TEST(test_env),
        TEST(test_dataset),
        TEST(test_restart_of_no_hogwild),
        TEST(test_optim_without_visitor),
        TEST(test_shapes),
        TEST(test_short_lived_parts),
        TEST(test_module_of_closed_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
