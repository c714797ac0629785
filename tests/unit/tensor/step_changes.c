/* A recorded step follows what a program changes between its calls (modes, frozen parameters,
 * hooks, autocast, modules), as the step run eagerly does. */
#include "unit/tensor/small_step.h"

enum { CHANGE = 5 };

/* --- changes --- */

static void leave_training(struct job *j)
{
    choir_module_train(j->net, false);
}

static void freeze(struct job *j)
{
    choir_module_freeze(choir_module_at(j->net, "3"), true);
}

static void freeze_matching(struct job *j)
{
    assert_int_equal(choir_module_freeze_matching(j->net, "0.*", true), 2);
}

static choir_tensor *twice(
    choir_module *m, choir_tensor *const *in, int count, choir_tensor *out, void *arg)
{
    return choir_scale(out, 2);
}

static choir_tensor *tenfold(choir_module *m, choir_tensor *grad_out, void *arg)
{
    return choir_scale(grad_out, 10);
}

static void add_hook(struct job *j)
{
    choir_module_hook(choir_module_at(j->net, "3"),
        (choir_module_hooks){.change_output = twice, .change_gradient = tenfold}, NULL);
}

static int gradients;

static void count(choir_tensor *t, choir_tensor *grad, void *arg)
{
    gradients++;
}

static void add_gradient_hook(struct job *j)
{
    choir_on_grad(choir_module_find(j->net, "0.weight"), count, NULL);
}

static void autocast(struct job *j)
{
    choir_autocast(j->run, CHOIR_BF16);
}

static void test_changed_between(void **state)
{
    void (*const changes[])(struct job *) = {
        leave_training, freeze, freeze_matching, add_hook, add_gradient_hook, autocast};
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        struct job a, b;
        float wa[HIDDEN * WIDTH], wb[HIDDEN * WIDTH];
        open_job(&a);
        open_job(&b);
        for (int i = 0; i < STEPS; i++) {
            if (i == CHANGE) {
                changes[c](&a);
                changes[c](&b);
            }
            ok(eager(&a, (uint64_t)i));
            ok(choir_step(b.run, train, &b));
            assert_true(choir_item(a.loss) == choir_item(b.loss));
        }
        weights_of(&a, wa);
        weights_of(&b, wb);
        assert_memory_equal(wa, wb, sizeof wa);
        assert_int_equal(b.calls, 6); /* twice two calls and a recording */
        ok(choir_scope_close(a.run));
        ok(choir_scope_close(b.run));
    }
    assert_int_equal(gradients, STEPS - CHANGE + 3);
}

static void test_replaced_between(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 11);
    float ones[BATCH * WIDTH];
    for (int i = 0; i < BATCH * WIDTH; i++)
        ones[i] = 1;
    struct job j = {.run = run,
        .net = choir_nn_sequential(run, choir_nn_linear(run, WIDTH, 2), choir_nn_relu(run)),
        .x = choir_from(run, CHOIR_F32, choir_dims(BATCH, WIDTH), ones)};
    for (int i = 0; i < CHANGE; i++)
        ok(choir_step(run, other, &j));
    assert_true(choir_item(j.loss) < 2 * BATCH * WIDTH);
    ok(choir_module_replace(
        j.net, "0", choir_nn_linear_with(run, WIDTH, 2, false, choir_init_constant(1)), NULL));
    ok(choir_step(run, other, &j));
    assert_true(choir_item(j.loss) == 2 * BATCH * WIDTH);
    ok(choir_scope_close(run));
}

/* A mode that has come back needs no new recording: a validation between two steps. */
static void test_changed_and_back(void **state)
{
    struct job j;
    open_job(&j);
    for (int i = 0; i < STEPS; i++) {
        ok(choir_step(j.run, train, &j));
        choir_module_train(j.net, false);
        choir_module_freeze(j.net, true);
        choir_module_freeze(j.net, false);
        choir_module_train(j.net, true);
    }
    assert_int_equal(j.calls, 3);
    ok(choir_scope_close(j.run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_between),
        cmocka_unit_test(test_replaced_between),
        cmocka_unit_test(test_changed_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
