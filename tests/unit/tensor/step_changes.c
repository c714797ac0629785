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

static void clip(struct job *j)
{
    choir_optim_clip(j->opt, 0.01f);
}

static bool is_weight(const char *name, const choir_tensor *param, void *arg)
{
    return strstr(name, "weight");
}

static void group(struct job *j)
{
    ok(choir_optim_group(j->opt, is_weight, NULL, 1e-4f, 0));
}

/* A backward whose gradients no optimizer uses before the next step adds its own. */
static void leave_gradients(struct job *j)
{
    choir_scope *s = choir_step_open(j->run, 1000);
    choir_tensor *y = choir_forward(j->net, choir_in(s, j->x));
    ok(choir_backward(choir_sum(choir_square(y))));
    ok(choir_scope_close(s));
}

static void test_changed_between(void **state)
{
    void (*const changes[])(struct job *) = {leave_training, freeze, freeze_matching, add_hook,
        add_gradient_hook, autocast, clip, group};
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

/* Gradients that are left before the step that would be recorded, and before a replay. */
static void test_left_gradients(void **state)
{
    for (int before = 2; before <= CHANGE; before++) {
        struct job a, b;
        open_job(&a);
        open_job(&b);
        for (int i = 0; i < STEPS; i++) {
            if (i == before) {
                leave_gradients(&a);
                leave_gradients(&b);
            }
            ok(eager(&a, (uint64_t)i));
            ok(choir_step(b.run, train, &b));
            assert_true(choir_item(a.loss) == choir_item(b.loss));
        }
        assert_true(b.calls < STEPS); /* some are replays */
        ok(choir_scope_close(a.run));
        ok(choir_scope_close(b.run));
    }
}

/* --- steps that fail after a micro-batch --- */

enum { FAILING = 1 };
enum way { BAD_OP, GIVEN_UP, LEFT_OUT };

struct failing {
    struct job job;
    int step;
    enum way way;
};

/* The second micro-batch of step FAILING fails: in an op, or because the function gives up. */
static choir_status in_two(choir_scope *step, void *arg)
{
    struct failing *f = arg;
    for (int m = 0; m < 2; m++) {
        choir_scope *s = choir_micro_open(step, m);
        choir_tensor *y = choir_forward(f->job.net, choir_in(s, f->job.x));
        bool fails = f->step == FAILING && m == 1;
        if (fails && f->way == BAD_OP)
            y = choir_reshape(y, choir_dims(7));
        choir_status status = fails && f->way == GIVEN_UP
                                  ? choir__error(CHOIR_ERR_FORMAT, "no data")
                                  : choir_backward(choir_sum(y)),
                     closed = choir_scope_close(s);
        if (status != CHOIR_OK || closed != CHOIR_OK)
            return status != CHOIR_OK ? status : closed;
    }
    return choir_optim_step(f->job.opt);
}

/* Trains three steps, and the second one fails in a way, or is left out. */
static void train_three(enum way way, bool as_function, float w[HIDDEN * WIDTH])
{
    struct failing f = {.way = way};
    open_job(&f.job);
    choir_module_train(f.job.net, false);
    for (f.step = 0; f.step < 3; f.step++) {
        if (f.step == FAILING && way == LEFT_OUT)
            continue;
        choir_scope *s = as_function ? NULL : choir_step_open(f.job.run, (uint64_t)f.step);
        choir_status status = as_function ? choir_step(f.job.run, in_two, &f) : in_two(s, &f);
        assert_int_equal(status == CHOIR_OK, f.step != FAILING);
        choir_scope_close(s);
    }
    weights_of(&f.job, w);
    ok(choir_scope_close(f.job.run));
}

/* The gradients of its earlier micro-batches do not get into the next step. */
static void test_failed_step(void **state)
{
    float left_out[HIDDEN * WIDTH], w[HIDDEN * WIDTH];
    train_three(LEFT_OUT, false, left_out);
    train_three(BAD_OP, false, w);
    assert_memory_equal(left_out, w, sizeof w);
    train_three(BAD_OP, true, w);
    assert_memory_equal(left_out, w, sizeof w);
    train_three(GIVEN_UP, true, w);
    assert_memory_equal(left_out, w, sizeof w);
}

/* --- steps that fail within the backward of a micro-batch --- */

enum { ROWS = 8, LENGTH = 3 };

static void fail_here(choir_tensor *t, choir_tensor *grad, void *arg)
{
    choir_reshape(grad, choir_dims(7));
}

/* Looks two rows up in each table, from `row` on. */
static choir_status look_up(
    choir_scope *run, choir_module *const table[2], choir_optim *opt, int row, bool fails)
{
    const int64_t ids[] = {row, row + 1};
    choir_scope *s = choir_step_open(run, (uint64_t)row);
    choir_tensor *at = choir_from(s, CHOIR_I64, choir_dims(2), ids); /* (2) */
    choir_tensor *first = choir_forward(table[0], at);               /* (2, LENGTH) */
    if (fails)
        choir_on_grad(first, fail_here, NULL);
    first = choir_scale(first, 2);
    choir_status status =
        choir_backward(choir_sum(choir_mul(first, choir_forward(table[1], at))));
    if (status == CHOIR_OK)
        status = choir_optim_step(opt);
    choir_status closed = choir_scope_close(s);
    return status == CHOIR_OK ? closed : status;
}

/* The gradient of the second table's rows is there when the first micro-batch fails. */
static void test_failed_first_backward(void **state)
{
    float before[ROWS][LENGTH], after[ROWS][LENGTH];
    choir_scope *run = choir_scope_open(NULL, 11);
    choir_module *table[] = {choir_nn_embedding(run, ROWS, LENGTH, choir_init_normal(0, 1)),
        choir_nn_embedding(run, ROWS, LENGTH, choir_init_normal(0, 1))};
    choir_module *net = choir_nn_sequential(run, table[0], table[1]);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.1f;
    choir_optim *opt = choir_sgd(run, net, hp);
    const choir_tensor *w = choir_module_find(net, "1.weight");
    ok(choir_read(w, before, sizeof before));
    assert_int_not_equal(look_up(run, table, opt, 4, true), CHOIR_OK);
    ok(choir_read(w, after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    ok(look_up(run, table, opt, 0, false));
    ok(choir_read(w, after, sizeof after));
    assert_memory_not_equal(before, after, 2 * sizeof *before);
    assert_memory_equal(before[2], after[2], (ROWS - 2) * sizeof *before);
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_first_backward),
        cmocka_unit_test(test_changed_between),
        cmocka_unit_test(test_replaced_between),
        cmocka_unit_test(test_changed_and_back),
        cmocka_unit_test(test_left_gradients),
        cmocka_unit_test(test_failed_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
