/* choir_loss_divisor: where targets are ignored or classes have weights, the number of
 * micro-batches changes rounding and nothing else. Losses and gradients of a layer at M = 1, 2,
 * 4 and 8 are compared with the formula over the whole batch in f64. */
#include <math.h>

#include "job_fixture.h"

enum { ROWS = 16, FEATURES = 6, CLASSES = 5, X = -100, MOST = 8, STEPS = 6 };

/* At M = 8 the micro-batches have 1, 0, 1, 2, 2, 0, 1 and 2 targets that count. */
static const int64_t uneven[ROWS] = {1, X, X, X, X, 0, 4, 2, 3, 3, X, X, X, 1, 0, 4};
static const int64_t even[ROWS] = {1, X, X, 2, 4, X, 0, X, 3, X, X, 3, X, 1, 0, X};
static const int64_t none[ROWS] = {X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X};
static const float class_weights[CLASSES] = {0.3f, 1.7f, 2.2f, 0.01f, 1.1f};

typedef struct job {
    const int64_t *targets;
    int64_t micro_count;
    bool weighted, own_means, recorded;
    float smoothing;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_tensor *x, *y, *class_weight, *losses[MOST];
} job;

typedef struct outcome {
    double loss; /* of the first step */
    float losses[STEPS][MOST];
    float weight[CLASSES * FEATURES], bias[CLASSES];      /* initial */
    float slope[CLASSES * FEATURES], bias_slope[CLASSES]; /* of the first step */
} outcome;

/* --- a job --- */

static float feature(int64_t row, int64_t i)
{
    return (float)((row * 37 + i * 61 + 11) % 101) / 40 - 1;
}

static void open_job(job *j)
{
    float x[ROWS * FEATURES];
    for (int64_t i = 0; i < ROWS * FEATURES; i++)
        x[i] = feature(i / FEATURES, i % FEATURES);
    j->run = choir_scope_open(NULL, 5);
    j->net = choir_nn_linear(j->run, FEATURES, CLASSES);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.5f;
    j->optim = choir_sgd(j->run, j->net, hp);
    j->x = choir_from(j->run, CHOIR_F32, choir_dims(ROWS, FEATURES), x);
    j->y = choir_from(j->run, CHOIR_I64, choir_dims(ROWS), j->targets);
    j->class_weight = choir_from(j->run, CHOIR_F32, choir_dims(CLASSES), class_weights);
}

/* Computes the loss of micro-batch m, and makes the divisor before the first one. */
static choir_tensor *loss_of(
    job *j, choir_scope *micro, int64_t m, choir_cross_entropy_opts o, choir_tensor *divisor)
{
    int64_t rows = ROWS / j->micro_count;
    choir_tensor *x = choir_narrow(choir_in(micro, j->x), 0, m * rows, rows);
    choir_tensor *y = choir_narrow(choir_in(micro, j->y), 0, m * rows, rows);
    o.reduction = divisor ? CHOIR_LOSS_SUM : CHOIR_LOSS_MEAN;
    choir_tensor *loss = choir_cross_entropy_with(choir_forward(j->net, x), y, o);
    return divisor ? choir_div(loss, divisor) : loss;
}

static choir_tensor *divisor_of(job *j, choir_scope *step, choir_cross_entropy_opts o)
{
    choir_tensor *y[MOST];
    int64_t rows = ROWS / j->micro_count;
    for (int64_t m = 0; m < j->micro_count; m++)
        y[m] = choir_narrow(choir_in(step, j->y), 0, m * rows, rows);
    return j->own_means ? NULL : choir_loss_divisor(y, (int)j->micro_count, o);
}

static choir_status backwards(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    o.weight = j->weighted ? j->class_weight : NULL;
    o.label_smoothing = j->smoothing;
    choir_tensor *divisor = divisor_of(j, step, o);
    for (int64_t m = 0; m < j->micro_count; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_tensor *loss = loss_of(j, micro, m, o, divisor);
        choir_status status = choir_backward(loss);
        if (status != CHOIR_OK)
            return status;
        j->losses[m] = choir_keep(j->run, loss);
        choir_check(choir_scope_close(micro));
    }
    return CHOIR_OK;
}

static choir_status body(choir_scope *step, void *arg)
{
    choir_status status = backwards(step, arg);
    return status == CHOIR_OK ? choir_optim_step(((job *)arg)->optim) : status;
}

static void read_param(const char *name, choir_tensor *t, void *arg)
{
    outcome *out = arg;
    bool weight = !strcmp(name, "weight");
    choir_check(choir_read(
        t, weight ? out->weight : out->bias, weight ? sizeof out->weight : sizeof out->bias));
    choir_check(choir_read(choir_grad(t), weight ? out->slope : out->bias_slope,
        weight ? sizeof out->slope : sizeof out->bias_slope));
}

static void note_losses(const job *j, float *losses)
{
    for (int64_t m = 0; m < j->micro_count; m++)
        choir_check(choir_read(j->losses[m], &losses[m], sizeof *losses));
}

static outcome run(job j)
{
    outcome out = {0};
    open_job(&j);
    choir_scope *step = choir_step_open(j.run, 0);
    choir_check(backwards(step, &j));
    note_losses(&j, out.losses[0]);
    choir_module_visit(j.net, false, read_param, &out);
    choir_check(choir_optim_step(j.optim));
    choir_check(choir_scope_close(step));
    for (int64_t m = 0; m < j.micro_count; m++)
        out.loss += (double)out.losses[0][m] / (double)j.micro_count;
    choir_run_seek(j.run, 1);
    for (int s = 1; s < STEPS; s++) {
        choir_check(run_step(j.run, j.recorded, s, body, &j));
        note_losses(&j, out.losses[s]);
    }
    choir_check(choir_scope_close(j.run));
    return out;
}

/* --- the formula over the whole batch --- */

typedef struct expected {
    double loss, slope[CLASSES * FEATURES], bias_slope[CLASSES];
} expected;

static void softmax(const outcome *o, int64_t row, double p[CLASSES])
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        p[c] = (double)o->bias[c];
        for (int i = 0; i < FEATURES; i++)
            p[c] += (double)o->weight[c * FEATURES + i] * (double)feature(row, i);
        sum += p[c] = exp(p[c]);
    }
    for (int c = 0; c < CLASSES; c++)
        p[c] /= sum;
}

static expected whole_batch(const job *j, const outcome *o)
{
    expected e = {0};
    double divisor = 0, p[CLASSES], s = (double)j->smoothing;
    for (int64_t r = 0; r < ROWS; r++)
        if (j->targets[r] != X)
            divisor += j->weighted ? (double)class_weights[j->targets[r]] : 1;
    for (int64_t r = 0; r < ROWS && divisor != 0; r++) {
        if (j->targets[r] == X)
            continue;
        softmax(o, r, p);
        double share[CLASSES], all = 0; /* of -log p[c] in the row's loss */
        for (int c = 0; c < CLASSES; c++) {
            double w = j->weighted ? (double)class_weights[c] : 1;
            share[c] = w * (s / CLASSES + (c == j->targets[r] ? 1 - s : 0)) / divisor;
            all += share[c];
            e.loss -= share[c] * log(p[c]);
        }
        for (int c = 0; c < CLASSES; c++) {
            double g = all * p[c] - share[c];
            e.bias_slope[c] += g;
            for (int i = 0; i < FEATURES; i++)
                e.slope[c * FEATURES + i] += g * (double)feature(r, i);
        }
    }
    return e;
}

static double furthest(const float *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) { /* with fmax GCC 12 fails for aarch64 */
        double off = fabs((double)a[i] - b[i]);
        most = off > most ? off : most;
    }
    return most;
}

static double error_of(const job *j, const outcome *o)
{
    expected e = whole_batch(j, o);
    double slopes = fmax(furthest(o->slope, e.slope, CLASSES * FEATURES),
        furthest(o->bias_slope, e.bias_slope, CLASSES));
    return fmax(fabs(o->loss - e.loss), slopes);
}

/* --- tests --- */

static void the_cut_changes_rounding_alone(void **state)
{
    for (int v = 0; v < 4; v++)
        for (int64_t m = 1; m <= MOST; m *= 2) {
            job j = {.targets = uneven,
                .micro_count = m,
                .weighted = v % 2,
                .smoothing = v < 2 ? 0 : 0.1f};
            outcome o = run(j);
            assert_true(error_of(&j, &o) < 1e-6);
            j.own_means = true; /* the trial would show a mean of means */
            o = run(j);
            assert_true((error_of(&j, &o) < 1e-6) == (m == 1));
        }
}

/* With equal counts, a loss divided by choir_loss_divisor is the micro-batch's own mean. */
static void equal_counts_keep_their_bits(void **state)
{
    for (int64_t m = 1; m <= MOST; m *= 2) {
        job j = {.targets = even, .micro_count = m};
        outcome divided = run(j);
        j.own_means = true;
        outcome own = run(j);
        assert_memory_equal(divided.slope, own.slope, sizeof own.slope);
        assert_memory_equal(divided.bias_slope, own.bias_slope, sizeof own.bias_slope);
    }
}

static void no_target_is_no_loss(void **state)
{
    static const float zero[CLASSES * FEATURES];
    for (int v = 0; v < 4; v++) {
        job j = {.targets = none, .micro_count = v < 2 ? 1 : 8, .weighted = v % 2};
        outcome o = run(j);
        assert_true(o.loss == 0);
        for (int i = 0; i < CLASSES * FEATURES; i++)
            assert_true(o.slope[i] == zero[i]);
    }
}

/* The number of targets, or the sum of their weights, is that of all micro-batches. */
static void targets_are_counted(void **state)
{
    static const int64_t *const targets[] = {uneven, even, none};
    choir_scope *run = choir_scope_open(NULL, 1);
    for (int v = 0; v < 6; v++) {
        choir_scope *step = choir_step_open(run, v);
        choir_cross_entropy_opts o = choir_cross_entropy_defaults();
        double number = 0;
        if (v > 2)
            o.weight = choir_from(step, CHOIR_F32, choir_dims(CLASSES), class_weights);
        for (int64_t r = 0; r < ROWS; r++)
            if (targets[v % 3][r] != X)
                number += v > 2 ? (double)class_weights[targets[v % 3][r]] : 1;
        choir_tensor *y[4], *counted;
        for (int64_t m = 0; m < 4; m++)
            y[m] = choir_from(step, CHOIR_I64, choir_dims(4), targets[v % 3] + 4 * m);
        choir_tensor *divisor = choir_loss_divisor_counted(y, 4, o, &counted);
        assert_true(fabs(choir_item(counted) - number) < 1e-12);
        assert_true(choir_item(divisor) == choir_item(choir_loss_divisor(y, 4, o)));
        assert_true(
            choir_item(choir_loss_divisor_counted(y, 4, o, NULL)) == choir_item(divisor));
        ok(choir_scope_close(step));
    }
    choir_scope_close(run);
}

static void recorded_steps_keep_the_bits(void **state)
{
    job j = {.targets = uneven, .micro_count = 4, .weighted = true};
    outcome plain = run(j);
    j.recorded = true;
    outcome recorded = run(j);
    assert_memory_equal(plain.losses, recorded.losses, sizeof plain.losses);
    assert_true(plain.losses[1][0] != plain.losses[STEPS - 1][0]);
}

static void assert_refused(choir_scope *step, choir_tensor *const *y, int count,
    choir_cross_entropy_opts o, choir_status status, const char *words)
{
    choir_tensor *divisor = choir_loss_divisor(y, count, o);
    choir_div(choir_full(step, CHOIR_F32, CHOIR_SCALAR, 1), divisor);
    assert_int_equal(choir_scope_status(step), status);
    assert_says(words);
    choir_scope_clear(step);
}

static void misuse_is_an_error(void **state)
{
    choir_scope *scope = choir_scope_open(NULL, 1), *step = choir_step_open(scope, 0);
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    choir_tensor *y[2] = {choir_zeros(step, CHOIR_I64, choir_dims(4)),
        choir_zeros(step, CHOIR_F32, choir_dims(4))};
    assert_refused(
        step, y, 2, o, CHOIR_ERR_DTYPE, "expected i64 targets on one device, got f32");
    o.weight = choir_zeros(step, CHOIR_F32, choir_dims(2, 2));
    assert_refused(step, y, 1, o, CHOIR_ERR_SHAPE, "expected class weights (C)");
    choir_scope_close(step);
    choir_scope_close(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_changes_rounding_alone),
        cmocka_unit_test(equal_counts_keep_their_bits),
        cmocka_unit_test(no_target_is_no_loss),
        cmocka_unit_test(targets_are_counted),
        cmocka_unit_test(recorded_steps_keep_the_bits),
        cmocka_unit_test(misuse_is_an_error),
    };
    return cmocka_run_group_tests_name("the divisor of losses", tests, NULL, NULL);
}
