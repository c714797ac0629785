/* Optimizers against the formulas in double, parameter groups, clipping, schedules at their
 * limits, and errors. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "run_fixture.h"

enum { N = 12, STEPS = 5 };

/* --- the formulas, as PyTorch documents them --- */

struct formula {
    bool adam, decoupled, nesterov;
    double lr, momentum, dampening, decay, b1, b2, eps;
};

static void reference_step(
    const struct formula *f, int t, double *p, const double *grad, double *m, double *v)
{
    for (int i = 0; i < N; i++) {
        double g = grad[i];
        if (f->decoupled)
            p[i] -= f->lr * f->decay * p[i];
        else
            g += f->decay * p[i];
        if (f->adam) {
            m[i] = f->b1 * m[i] + (1 - f->b1) * g;
            v[i] = f->b2 * v[i] + (1 - f->b2) * g * g;
            double mh = m[i] / (1 - pow(f->b1, t)), vh = v[i] / (1 - pow(f->b2, t));
            p[i] -= f->lr * mh / (sqrt(vh) + f->eps);
            continue;
        }
        if (f->momentum != 0) {
            m[i] = t == 1 ? g : f->momentum * m[i] + (1 - f->dampening) * g;
            g = f->nesterov ? g + f->momentum * m[i] : m[i];
        }
        p[i] -= f->lr * g;
    }
}

/* Runs a step whose gradient for the weight is g, by loss = sum(w g). */
static choir_status step_with(choir_module *net, choir_optim *opt, int number, const float *g)
{
    choir_scope *s = choir_step_open(run, (uint64_t)number);
    choir_tensor *w = choir_module_find(net, "weight");
    choir_tensor *loss = choir_sum(choir_mul(w, choir_from(s, CHOIR_F32, choir_dims(3, 4), g)));
    choir_status status = choir_backward(loss);
    if (status == CHOIR_OK)
        status = choir_optim_step(opt);
    choir_scope_close(s);
    return status;
}

static void gradient(int step, float *g, double *exact)
{
    for (int i = 0; i < N; i++) {
        g[i] = cosf((float)(i * 7 + step * 3)) * (i == 5 ? 0 : 1);
        if (exact)
            exact[i] = (double)g[i];
    }
}

static choir_module *weight(void)
{
    return choir_nn_linear_with(run, 4, 3, false, choir_init_normal(0, 1));
}

static void read_weight(choir_module *net, float w[N])
{
    choir_tensor *t = choir_module_find(net, "weight");
    ok(choir_read(t, w, N * sizeof *w));
}

static void compare(const struct formula *f, choir_module *net, choir_optim *opt)
{
    float w[N], g[N];
    double p[N], exact[N], m[N] = {0}, v[N] = {0};
    read_weight(net, w);
    for (int i = 0; i < N; i++)
        p[i] = (double)w[i];
    for (int t = 0; t < STEPS; t++) {
        gradient(t, g, exact);
        ok(step_with(net, opt, t, g));
        reference_step(f, t + 1, p, exact, m, v);
        read_weight(net, w);
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)w[i] - p[i]) <= 1e-6 * fmax(1, fabs(p[i])));
    }
    assert_int_equal(choir_optim_steps(opt), STEPS);
}

static void test_sgd(void **state)
{
    static const choir_sgd_opts opts[] = {
        {.lr = 0.1f},
        {.lr = 0.1f, .weight_decay = 0.05f},
        {.lr = 0.1f, .momentum = 0.9f},
        {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.3f, .weight_decay = 0.01f},
        {.lr = 0.1f, .momentum = 0.8f, .nesterov = true, .weight_decay = 0.01f},
    };
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
        choir_module *net = weight();
        struct formula f = {.lr = (double)opts[i].lr,
            .momentum = (double)opts[i].momentum,
            .dampening = (double)opts[i].dampening,
            .decay = (double)opts[i].weight_decay,
            .nesterov = opts[i].nesterov};
        compare(&f, net, choir_sgd(run, net, opts[i]));
    }
}

static void test_adam(void **state)
{
    for (int decoupled = 0; decoupled < 2; decoupled++) {
        choir_module *net = weight();
        choir_adamw_opts o = decoupled ? choir_adamw_defaults() : choir_adam_defaults();
        o.lr = 0.02f;
        o.weight_decay = 0.1f;
        struct formula f = {.adam = true,
            .decoupled = decoupled,
            .lr = (double)o.lr,
            .decay = (double)o.weight_decay,
            .b1 = (double)o.beta1,
            .b2 = (double)o.beta2,
            .eps = (double)o.eps};
        compare(&f, net, decoupled ? choir_adamw(run, net, o) : choir_adam(run, net, o));
    }
}

static void test_bad_options(void **state)
{
    for (int i = 0; i < 4; i++) {
        choir_sgd_opts s = {.lr = i == 0 ? -1.0f : NAN};
        choir_sgd_opts nesterov = {.lr = 1, .nesterov = true};
        choir_adamw_opts a = choir_adam_defaults();
        a.beta2 = 1;
        choir_optim *o = i < 2    ? choir_sgd(run, weight(), s)
                         : i == 2 ? choir_sgd(run, weight(), nesterov)
                                  : choir_adam(run, weight(), a);
        assert_non_null(o);
        assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
        choir_scope_clear(run);
    }
}

static void test_before_any_backward(void **state)
{
    choir_optim *opt = choir_sgd(run, weight(), choir_sgd_defaults());
    assert_fails(choir_optim_step(opt), CHOIR_ERR_STATE, "backward");
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_STATE);
    assert_int_equal(choir_optim_steps(opt), 0);
}

static void test_two_steps_of_one_backward(void **state)
{
    choir_module *net = weight();
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    float g[N];
    gradient(0, g, NULL);
    ok(step_with(net, opt, 0, g));
    assert_int_equal(
        choir_optim_step(opt), CHOIR_ERR_STATE); /* "no backward since the last step" */
}

/* --- groups --- */

static bool is_bias(const char *name, const choir_tensor *t, void *arg)
{
    return strstr(name, arg) != NULL;
}

/* Measures the change of weight and bias in one SGD step whose gradients are all one. */
static void changes(
    choir_optim *opt, choir_module *net, int step, float *of_weight, float *of_bias)
{
    choir_tensor *w = choir_module_find(net, "weight"), *b = choir_module_find(net, "bias");
    float before[2][2], after[2][2];
    choir_read(w, before[0], 8), choir_read(b, before[1], 8);
    choir_scope *s = choir_step_open(run, (uint64_t)step);
    choir_tensor *loss = choir_add(choir_sum(choir_in(s, w)), choir_sum(choir_in(s, b)));
    ok(choir_backward(loss));
    ok(choir_optim_step(opt));
    choir_scope_close(s);
    choir_read(w, after[0], 8), choir_read(b, after[1], 8);
    *of_weight = before[0][0] - after[0][0];
    *of_bias = before[1][0] - after[1][0];
}

static void test_groups(void **state)
{
    for (int base_is_zero = 0; base_is_zero < 2; base_is_zero++) {
        float w, b;
        choir_module *net = choir_nn_linear_with(run, 1, 2, true, choir_init_constant(0));
        choir_sgd_opts o = {.lr = base_is_zero ? 0 : 0.5f};
        choir_optim *opt = choir_sgd(run, net, o);
        ok(choir_optim_group(opt, is_bias, "bias", 0.25f, 0));
        changes(opt, net, 0, &w, &b);
        assert_true(w == o.lr && b == 0.25f);
        if (base_is_zero)
            continue;
        choir_optim_set_lr(opt, 1); /* all in proportion */
        changes(opt, net, 1, &w, &b);
        assert_true(w == 1 && b == 0.5f);
        assert_true(choir_optim_lr(opt) == 1);
    }
}

/* --- clipping --- */

static void test_clip(void **state)
{
    float g[N], w[2][N];
    double norm = 0;
    gradient(3, g, NULL);
    for (int i = 0; i < N; i++)
        norm += (double)g[i] * (double)g[i];
    norm = sqrt(norm);
    for (int mode = 0; mode < 3; mode++) { /* clipped; below the cap; only measured */
        float cap = mode == 0 ? (float)norm / 2 : mode == 1 ? (float)norm * 2 : 0;
        choir_module *net = weight();
        choir_optim *opt = choir_sgd(run, net, (choir_sgd_opts){.lr = 1});
        assert_null(choir_optim_grad_norm(opt));
        choir_optim_clip(opt, cap);
        read_weight(net, w[0]);
        ok(step_with(net, opt, 0, g));
        assert_true(fabs(choir_item(choir_optim_grad_norm(opt)) - norm) < 1e-5);
        read_weight(net, w[1]);
        double scale = mode == 0 ? (double)cap / (norm + 1e-6) : 1;
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)(w[0][i] - w[1][i]) - scale * (double)g[i]) < 2e-6);
    }
}

static void test_norm_that_is_no_number(void **state)
{
    choir_module *net = weight();
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    float g[N] = {NAN};
    choir_optim_clip(opt, 1);
    ok(step_with(net, opt, 0, g));
    assert_true(isnan(choir_item(choir_optim_grad_norm(opt))));
}

/* --- state --- */

static void append(const char *name, choir_tensor *t, void *arg)
{
    assert_int_equal(choir_tensor_count(t), N);
    strcat(strcat(arg, name), " ");
}

static void test_state_names(void **state)
{
    char text[200] = "", none[10] = "";
    choir_optim *adam = choir_adamw(run, weight(), choir_adamw_defaults());
    choir_optim_visit(adam, append, text);
    assert_string_equal(text, "exp_avg.weight exp_avg_sq.weight ");
    choir_optim_visit(choir_sgd(run, weight(), choir_sgd_defaults()), append, none);
    assert_string_equal(none, "");
    text[0] = '\0';
    choir_sgd_opts o = {.lr = 1, .momentum = 0.5f};
    choir_optim_visit(choir_sgd(run, weight(), o), append, text);
    assert_string_equal(text, "momentum_buffer.weight ");
    choir_optim_restore(adam, 17);
    assert_int_equal(choir_optim_steps(adam), 17);
}

/* --- schedules --- */

static void at(choir_schedule s, int64_t t, double want)
{
    double got = (double)choir_schedule_at(&s, 0.5f, t);
    if (fabs(got - want) > 1e-7)
        fail_msg("step %d: %.9g, not %.9g", (int)t, got, want);
}

static void test_schedules(void **state)
{
    choir_schedule cosine = choir_schedule_cosine(4, 14, 0.1f);
    choir_schedule linear = choir_schedule_linear(0, 10, 0),
                   step = choir_schedule_step(3, 0.5f);
    double min = (double)0.1f;
    at(choir_schedule_constant(), 0, 0.5);
    at(choir_schedule_constant(), 1000000, 0.5);
    at(cosine, 0, 0.1); /* lr (t+1)/(warmup+1) */
    at(cosine, 3, 0.4);
    at(cosine, 4, 0.5);
    at(cosine, 9, min + (0.5 - min) / 2);
    at(cosine, 14, min);
    at(cosine, 1000, min);
    at(linear, 0, 0.5);
    at(linear, 5, 0.25);
    at(linear, 10, 0);
    at(linear, 11, 0);
    at(step, 0, 0.5);
    at(step, 2, 0.5);
    at(step, 3, 0.25);
    at(step, 6, 0.125);
    at(choir_schedule_step(0, 0.5f), 1, 0.25); /* nonsense is no crash */
    at(choir_schedule_cosine(5, 5, 0), 5, 0.5);
    at(choir_schedule_cosine(5, 3, 0), 7, 0);
    choir_module *net = weight();
    choir_optim *opt = choir_sgd(run, net, (choir_sgd_opts){.lr = 0.5f});
    choir_optim_schedule(opt, linear);
    float g[N] = {1}, w[2][N];
    for (int t = 0; t < 12; t++) {
        at(linear, t, (double)choir_optim_lr(opt));
        read_weight(net, w[0]);
        ok(step_with(net, opt, t, g));
        read_weight(net, w[1]);
        double moved = (double)(w[0][0] - w[1][0]);
        assert_true(fabs(moved - (t < 10 ? 0.5 - 0.05 * t : 0)) < 1e-6);
    }
}

/* A weight without moments has its average also when it is frozen later. */
static void test_average_of_frozen(void **state)
{
    choir_module *net = weight();
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_average_opts opts = choir_average_defaults();
    float g[N], first[N], last[N], average[N];
    opts.decay = 0.5f;
    ok(choir_optim_average(opt, opts));
    for (int t = 1; t <= 2; t++) {
        gradient(t, g, NULL);
        ok(step_with(net, opt, t, g));
        read_weight(net, t == 1 ? first : last);
    }
    choir_module_freeze(net, true);
    ok(choir_optim_swap(opt));
    read_weight(net, average);
    for (int i = 0; i < N; i++)
        assert_true(fabsf(average[i] - (first[i] + last[i]) / 2) < 1e-6f);
    ok(choir_optim_swap(opt));
    read_weight(net, average);
    assert_memory_equal(average, last, sizeof last);
}

/* Settings that no step could use are errors when they are made, and so is a change of the type
 * in which a stepped optimizer keeps its state. */
static void test_bad_settings(void **state)
{
    choir_module *net = weight();
    choir_optim *opt = choir_adam(run, net, choir_adam_defaults());
    choir_optim_set_lr(opt, NAN);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "finite and at least 0, got nan");
    choir_scope_clear(run);
    choir_optim_clip(opt, -1);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "a norm of at least 0, got -1");
    choir_scope_clear(run);
    float g[N];
    gradient(0, g, NULL);
    ok(step_with(net, opt, 1, g));
    choir_status status = choir_module_cast(net, CHOIR_F64);
    assert_fails(status, CHOIR_ERR_STATE, "an optimizer has stepped with 'weight' as f32");
}

static void test_module_of_another_run(void **state)
{
    choir_scope *another = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_linear(another, 3, 4);
    choir_adam(run, net, choir_adam_defaults());
    assert_fails(choir_scope_status(run), CHOIR_ERR_SCOPE, "'linear' of another run");
    choir_scope_clear(run);
    ok(choir_scope_close(another));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_RUN(test_sgd),
        IN_RUN(test_adam),
        IN_RUN(test_bad_options),
        IN_RUN(test_bad_settings),
        IN_RUN(test_module_of_another_run),
        IN_RUN(test_average_of_frozen),
        IN_RUN(test_before_any_backward),
        IN_RUN(test_two_steps_of_one_backward),
        IN_RUN(test_groups),
        IN_RUN(test_clip),
        IN_RUN(test_norm_that_is_no_number),
        IN_RUN(test_state_names),
        IN_RUN(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
