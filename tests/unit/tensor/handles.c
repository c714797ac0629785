/* Handles of closed scopes and runs, scopes that close twice or in the wrong order, and errors
 * that are never read: each is reported by a sentence, and none does harm. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

#include "scopes_fixture.h"
#include "tensor/handle.h"

/* Returns a tensor of step `number`, whose scope is closed. */
static choir_tensor *closed_tensor(uint64_t number)
{
    choir_scope *s = choir_step_open(run, number);
    choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(1), (double)number);
    ok(choir_scope_close(s));
    return t;
}

/* Opens and closes a step with as many tensors as closed_tensor's. */
static void another_step(uint64_t number)
{
    closed_tensor(number);
}

/* --- tensors --- */

static void test_each_use(void **state)
{
    choir_tensor *old = closed_tensor(41), *mine = choir_zeros(step, CHOIR_F32, choir_dims(1));
    float value;
    assert_fails(
        choir_read(old, &value, sizeof value), CHOIR_ERR_SCOPE, "step 41, which is closed");
    assert_int_equal(choir_write(old, &value, sizeof value), CHOIR_ERR_SCOPE);
    assert_true(isnan(choir_item(old)));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SCOPE);
    choir_scope_clear(step);
    assert_int_equal(choir_backward(old), CHOIR_ERR_SCOPE);
    assert_int_equal(choir_tensor_ndim(old), 0);
    choir_scope_clear(step);

    choir_tensor *alone = choir_relu(old), *first = choir_add(old, mine);
    choir_tensor *second = choir_add(mine, old), *kept = choir_keep(step, old);
    choir_tensor *joined = choir_cat((choir_tensor *[]){mine, old}, 2, 0);
    choir_tensor *bad[] = {alone, first, second, kept, joined, choir_sum(old),
        choir_reshape(old, choir_dims(1, 1)), choir_in(step, old)};
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++)
        assert_true(bad[i]->poisoned);
    assert_int_equal(choir_backward(second), CHOIR_ERR_SCOPE);
    assert_fails(choir_scope_status(step), CHOIR_ERR_SCOPE, "step 41, which is closed");
}

/* A handle is recognised until as many scopes as tensor/handle.h says have closed after its
 * own. */
static void test_remembered(void **state)
{
    choir_tensor *old = closed_tensor(7);
    for (uint64_t i = 0; i < CHOIR__REMEMBERED - 1; i++) {
        another_step(100 + i);
        assert_true(isnan(choir_item(old)));
        assert_fails(choir_scope_status(step), CHOIR_ERR_SCOPE, "step 7");
        choir_scope_clear(step);
    }
}

/* Returns whether the third scope of a run has the memory of its first one again. */
static bool reuses_the_first(int remembered)
{
    choir_scope *of = choir_scope_open(NULL, 1), *scopes[3];
    if (remembered)
        choir__run_remember(of, remembered);
    for (uint64_t i = 0; i < 3; i++) {
        scopes[i] = choir_step_open(of, i);
        ok(choir_scope_close(scopes[i]));
    }
    ok(choir_scope_close(of));
    return scopes[2] == scopes[0];
}

/* Where one process has many runs, closed scopes are reused earlier. */
static void test_remembers_fewer(void **state)
{
    assert_false(reuses_the_first(0));
    assert_true(reuses_the_first(2));
}

static void test_of_a_run(void **state)
{
    choir_scope *other = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_linear(other, 2, 2);
    choir_optim *optim = choir_sgd(other, net, choir_sgd_defaults());
    choir_tensor *weight = choir_module_find(net, "weight");
    ok(choir_scope_close(other));
    assert_fails(choir_scope_close(other), CHOIR_ERR_SCOPE, "the run, which is closed");
    assert_int_equal(choir_scope_status(other), CHOIR_ERR_SCOPE);
    assert_true(
        choir_linear(choir_zeros(step, CHOIR_F32, choir_dims(1, 2)), weight, NULL)->poisoned);
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SCOPE);
    choir_scope_clear(step);
    assert_true(choir_forward(net, choir_zeros(step, CHOIR_F32, choir_dims(1, 2)))->poisoned);
    assert_fails(
        choir_save(net, "/tmp/nowhere"), CHOIR_ERR_SCOPE, "the module belongs to the run");
    assert_fails(choir_optim_step(optim), CHOIR_ERR_SCOPE, "the optimizer belongs to the run");
    assert_non_null(choir_step_open(other, 0));
}

/* --- scopes --- */

static void test_closed_twice(void **state)
{
    choir_scope *s = choir_step_open(run, 3);
    ok(choir_scope_close(s));
    assert_fails(choir_scope_close(s), CHOIR_ERR_SCOPE, "step 3, which is closed");
    choir_tensor *t = choir_zeros(s, CHOIR_F32, choir_dims(2)); /* has no scope to belong to */
    assert_non_null(t);
    assert_int_equal(choir_backward(choir_sum(t)), CHOIR_ERR_SCOPE);
    ok(choir_scope_status(step));
}

static void test_wrong_order(void **state)
{
    choir_scope *outer = choir_step_open(run, 3), *inner = choir_micro_open(outer, 0);
    choir_scope *innermost = choir_no_grad(inner);
    choir_tensor *t = choir_zeros(innermost, CHOIR_F32, choir_dims(2));
    assert_fails(
        choir_scope_close(outer), CHOIR_ERR_SCOPE, "step 3 closed before a scope inside it");
    assert_int_equal(choir_scope_close(inner), CHOIR_ERR_SCOPE);
    assert_int_equal(choir_scope_close(innermost), CHOIR_ERR_SCOPE);
    assert_true(choir_relu(t)->poisoned);
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SCOPE);
}

static void test_run_before_step(void **state)
{
    choir_scope *other = choir_scope_open(NULL, 1), *s = choir_step_open(other, 0);
    assert_int_equal(choir_scope_close(other), CHOIR_ERR_SCOPE);
    assert_fails(choir_scope_close(s), CHOIR_ERR_SCOPE, "step 0, which is closed");
}

/* A mistyped name has no parameter; the op says so, and the step has the error. */
static void test_typo(void **state)
{
    choir_module *net = choir_nn_linear(run, 2, 2);
    choir_tensor *w = choir_module_find(net, "wieght");
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(1, 2));
    assert_null(w);
    assert_fails(choir_backward(choir_sum(choir_linear(x, w, NULL))), CHOIR_ERR_ARGUMENT,
        "linear: missing tensor (NULL)");
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_ARGUMENT);
    choir_scope_clear(step);
    choir_mul(x, NULL);
    assert_fails(choir_scope_status(step), CHOIR_ERR_ARGUMENT, "mul: operand 1");
}

/* A message about a dimension says the number that the program gave. */
static void test_missing_dimension(void **state)
{
    choir_scope *s = choir_scope_open(NULL, 1);
    choir_tensor *t = choir_randn(s, choir_dims(2, 3), "t");
    choir_cumsum(t, -9);
    assert_fails(choir_scope_status(s), CHOIR_ERR_SHAPE, "cumsum: (2, 3) has no dimension -9");
    assert_int_equal(choir_scope_close(s), CHOIR_ERR_SHAPE);
}

/* A device that choir_device_find did not find is not cpu:0. */
static void test_missing_device(void **state)
{
    choir_scope *lost = choir_scope_open(choir_device_find("cuda:99"), 1);
    assert_fails(choir_scope_status(lost), CHOIR_ERR_DEVICE, "cuda");
    assert_int_equal(choir_scope_close(lost), CHOIR_ERR_DEVICE);
    choir_device_find("cuda:99");
    assert_says("cuda"); /* the program knows */
    choir_scope *known = choir_scope_open(NULL, 1);
    ok(choir_scope_status(known));
    ok(choir_scope_close(known));
}

/* --- sentences --- */

static void test_memory_comes_first(void **state)
{
    choir_device_set_limit(choir_scope_device(run), 1 << 20);
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(1000, 1000));
    assert_true(isnan(choir_item(x)));
    choir_device_set_limit(choir_scope_device(run), 0);
    assert_fails(choir_scope_status(step), CHOIR_ERR_MEMORY, "out of memory");
    choir_scope_clear(step);
    choir_zeros(step, CHOIR_F32, ((choir_shape){.ndim = 7}));
    assert_fails(choir_scope_status(step), CHOIR_ERR_SHAPE, "at most 6 dimensions, got 7");
}

/* Returns what the function writes to file descriptor `to`, run in a child that exits. */
static char *output_of(int to, void (*fn)(void))
{
    static char text[8192];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], to);
        fn();
        fflush(stdout);
        exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n = 1; n > 0; used += n > 0 ? (size_t)n : 0)
        n = read(ends[0], text + used, sizeof text - 1 - used);
    text[used] = '\0';
    close(ends[0]);
    int end = 0;
    waitpid(child, &end, 0);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 0);
    return text;
}

static void print_long(void)
{
    choir_scope *own = choir_scope_open(NULL, 1);
    float v[20];
    for (int i = 0; i < 20; i++)
        v[i] = (float)i;
    choir_tensor *x = choir_from(own, CHOIR_F32, choir_dims(20, 1), v);
    choir_print(choir_transpose(x, 0, 1));
    choir_print(choir_expand(x, choir_dims(1LL << 30, 20, 4))); /* 640 GB, were it copied */
    ok(choir_scope_close(own));
}

static void test_print(void **state)
{
    char *text = output_of(STDOUT_FILENO, print_long);
    assert_non_null(strstr(text,
        "[[  0.0000,   1.0000,   2.0000, ...,  17.0000,  18.0000,  19.0000]]  f32 (1, 20)"));
    assert_non_null(strstr(text, "f32 (1073741824, 20, 4)"));
    assert_non_null(strstr(text, "...,"));
}

/* --- unread errors --- */

static choir_tensor *mistake(choir_scope *s)
{
    return choir_add(
        choir_zeros(s, CHOIR_F32, choir_dims(2)), choir_zeros(s, CHOIR_F32, choir_dims(3)));
}

#define IGNORE(call) (void)(call)

static void read_nothing(void)
{
    choir_scope *own = choir_scope_open(NULL, 1);
    for (uint64_t i = 0; i < 3; i++) {
        choir_scope *s = choir_step_open(own, i);
        IGNORE(choir_backward(choir_sum(mistake(s))));
        IGNORE(choir_scope_close(s));
    }
    IGNORE(choir_scope_close(own));
}

static void read_status(void)
{
    choir_scope *own = choir_scope_open(NULL, 1), *s = choir_step_open(own, 0);
    mistake(s);
    IGNORE(choir_scope_status(s));
    IGNORE(choir_scope_close(s));
    s = choir_step_open(own, 1);
    IGNORE(choir_scope_close(s));
    IGNORE(choir_scope_close(own));
}

static void read_message_after_close(void)
{
    choir_scope *own = choir_scope_open(NULL, 1), *s = choir_step_open(own, 0);
    mistake(s);
    if (choir_scope_close(s) != CHOIR_OK)
        choir_error_message();
    IGNORE(choir_scope_close(own));
}

static void clear(void)
{
    choir_scope *own = choir_scope_open(NULL, 1), *s = choir_step_open(own, 0);
    mistake(s);
    choir_scope_clear(s);
    IGNORE(choir_scope_close(s));
    IGNORE(choir_scope_close(own));
}

static void use_null(void)
{
    choir_relu(NULL);
}

static void test_unread(void **state)
{
    char *text = output_of(STDERR_FILENO, read_nothing);
    const char *line = strstr(text, "choir: step 0 failed, and the error was not read: add:");
    assert_non_null(line);
    assert_null(strstr(line + 1, "choir:")); /* once */
    assert_string_equal(output_of(STDERR_FILENO, read_status), "");
    assert_string_equal(output_of(STDERR_FILENO, read_message_after_close), "");
    assert_string_equal(output_of(STDERR_FILENO, clear), "");
    assert_non_null(strstr(output_of(STDERR_FILENO, use_null), "relu: missing tensor (NULL)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unread), /* first: the children begin without a device */
        cmocka_unit_test(test_print),
        IN_SCOPES(test_each_use),
        IN_SCOPES(test_remembered),
        cmocka_unit_test(test_remembers_fewer),
        IN_SCOPES(test_of_a_run),
        IN_SCOPES(test_closed_twice),
        IN_SCOPES(test_wrong_order),
        IN_SCOPES(test_run_before_step),
        IN_SCOPES(test_typo),
        cmocka_unit_test(test_missing_dimension),
        IN_SCOPES(test_missing_device),
        IN_SCOPES(test_memory_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
