/* Mixed precision: casts of parameters, gradients that come back in f32, which 16-bit copies
 * are kept and which are released, 16-bit convolutions and norms, kernels that read 16 bits;
 * the scaler's states and errors, recorded steps, and 16-bit parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "run_fixture.h"
#include "base/half.h"
#include "autograd/book.h"
#include "tensor/autocast.h"
#include "tensor/scope.h"

static void collect(const char *name, choir_tensor *t, void *arg)
{
    choir_tensor ***next = arg;
    *(*next)++ = t;
}

/* Collects a module's parameters in order; returns their number. */
static int params_of(choir_module *m, choir_tensor **out)
{
    choir_tensor **next = out;
    choir_module_visit(m, false, collect, &next);
    return (int)(next - out);
}

static float *values(choir_tensor *t)
{
    float *v = malloc((size_t)t->count * sizeof *v);
    choir_check(choir_read(t, v, (size_t)t->count * sizeof *v));
    return v;
}

static float rounded(float x, choir_dtype dtype)
{
    return dtype == CHOIR_BF16 ? choir__f32_from_bf16(choir__bf16_from_f32(x))
                               : choir__f32_from_f16(choir__f16_from_f32(x));
}

/* y = x w^T of rounded operands is rounded once; the gradient of w is f32 and not rounded. */
static void linear_rounds_where_it_should(void **state)
{
    static const choir_dtype dtypes[] = {CHOIR_BF16, CHOIR_F16};
    for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
        choir_module *layer = choir_nn_linear(run, 7, 3);
        choir_tensor *p[2];
        assert_int_equal(params_of(layer, p), 2);
        choir_scope *s = choir_step_open(run, 0);
        choir_autocast(s, dtypes[d]);
        choir_tensor *x = choir_randn(s, choir_dims(5, 7), "x"), *y = choir_forward(layer, x);
        assert_int_equal(y->dtype, dtypes[d]);
        float *vx = values(x), *vw = values(p[0]), *vb = values(p[1]);
        float *vy = values(choir_cast(y, CHOIR_F32));
        choir_tensor *loss = choir_sum(y);
        assert_int_equal(loss->dtype, CHOIR_F32);
        for (int i = 0; i < 5; i++)
            for (int o = 0; o < 3; o++) {
                double sum = (double)vb[o];
                for (int k = 0; k < 7; k++)
                    sum += (double)rounded(vx[i * 7 + k], dtypes[d]) *
                           (double)rounded(vw[o * 7 + k], dtypes[d]);
                assert_true(fabs((double)vy[i * 3 + o] - sum) <= fabs(sum) / 128 + 1e-6);
            }
        choir_check(choir_backward(loss));
        choir_tensor *g = choir_grad(p[0]);
        assert_int_equal(g->dtype, CHOIR_F32);
        float *vg = values(g);
        for (int k = 0; k < 7; k++) {
            float sum = 0;
            for (int i = 0; i < 5; i++)
                sum += rounded(vx[i * 7 + k], dtypes[d]);
            assert_true(fabsf(vg[k] - sum) < 1e-5f); /* 16 bits would be off by 1e-3 */
        }
        free(vx), free(vw), free(vb), free(vy), free(vg);
        choir_check(choir_scope_close(s));
    }
}

/* A parameter is cast once per micro-batch, whichever ops use it; the copy is released after
 * backward. */
static void a_parameter_is_cast_once(void **state)
{
    choir_module *layer = choir_nn_linear(run, 64, 64);
    choir_device_stats before, within, after;
    choir_scope *s = choir_step_open(run, 0);
    choir_autocast(s, CHOIR_BF16);
    choir_tensor *x = choir_randn(s, choir_dims(1, 64), "x");
    choir_tensor *y = choir_forward(layer, x);
    choir_device_get_stats(run->device, &before);
    y = choir_forward(layer, y);
    choir_device_get_stats(run->device, &within);
    assert_true(within.bytes_now - before.bytes_now < 64 * 64); /* no 2 x 64 x 64 again */
    int casts = 0;
    for (choir_tensor *t = s->casts; t; t = t->cast->next, casts++)
        assert_int_equal(t->cast->readers, 2);
    assert_int_equal(casts, run->device->half ? 2 : 1); /* GPUs take the bias in 16 bits */
    choir_check(choir_backward(choir_sum(y)));
    choir_device_get_stats(run->device, &after);
    assert_null(s->casts->storage);
    choir_check(choir_scope_close(s));
}

/* Autocast can be off inside a part: that part stays f32. */
static void it_can_be_off_inside(void **state)
{
    choir_scope *s = choir_step_open(run, 0);
    choir_autocast(s, CHOIR_BF16);
    choir_scope *inner = choir_micro_open(s, 0);
    choir_tensor *x = choir_randn(inner, choir_dims(4, 4), "x");
    assert_int_equal(choir_matmul(x, x)->dtype, CHOIR_BF16);
    choir_autocast_off(inner);
    assert_int_equal(choir_matmul(x, x)->dtype, CHOIR_F32);
    choir_check(choir_scope_close(inner));
    choir_autocast(s, CHOIR_F32);
    assert_fails(choir_scope_status(s), CHOIR_ERR_ARGUMENT, "bf16 or f16");
    choir_scope_clear(s);
    choir_scope_close(s);
}

/* Convolution, norm, ReLU, pooling on 16-bit images: near the f32 ones, gradients too. */
static choir_tensor *pictures(choir_scope *s, choir_module *net, double *loss)
{
    choir_tensor *x = choir_randn(s, choir_dims(4, 3, 12, 12), "x");
    choir_tensor *y = choir_forward(net, x);
    y = choir_mean(choir_square(choir_cast(y, CHOIR_F32)));
    *loss = choir_item(y);
    choir_check(choir_backward(y));
    return y;
}

static void images_in_16_bits(void **state)
{
    choir_module *net =
        choir_nn_sequential(run, choir_nn_conv2d(run, 3, 8, 3, choir_conv_defaults()),
            choir_nn_batch_norm(run, 8), choir_nn_relu(run), choir_nn_max_pool2d(run, 2, 2),
            choir_nn_conv2d(run, 8, 6, 3, choir_conv_defaults()));
    choir_tensor *p[8];
    float *wide[8], *half;
    int count = params_of(net, p);
    double loss[2];
    choir_check(choir_scope_status(run));
    for (int i = 0; i < 3; i++) {
        choir_scope *s = choir_step_open(run, 7);
        if (i)
            choir_autocast(s, i == 1 ? CHOIR_BF16 : CHOIR_F16);
        pictures(s, net, &loss[i > 0]);
        if (i)
            assert_true(fabs(loss[1] - loss[0]) < 0.02 * loss[0]);
        for (int j = 0; j < count; j++) {
            choir_tensor *g = choir_grad(p[j]);
            half = values(g);
            double error = 0, size = 1e-4;
            for (int64_t k = 0; k < g->count && i; k++) {
                error += pow((double)half[k] - (double)wide[j][k], 2);
                size += pow((double)wide[j][k], 2);
            }
            assert_true(sqrt(error / size) < 0.1);
            if (i)
                free(half);
            else
                wide[j] = half;
        }
        choir_check(choir_scope_close(s));
        for (choir__book *b = choir__run_of(run)->books; b; b = b->next)
            choir__book_consume(b);
    }
    for (int j = 0; j < count; j++)
        free(wide[j]);
}

/* --- kernels that read 16 bits --- */

enum { READERS = 6, MOVES = 4 }; /* MOVES: the first whose operands are made or moved here */

/* x: (2, 6, 24) */
static choir_tensor *read_by(int reader, choir_tensor *x)
{
    choir_tensor *mean = choir_zeros(run, CHOIR_F32, choir_dims(6));
    choir_tensor *var = choir_zeros(run, CHOIR_F32, choir_dims(6));
    choir_tensor *k = NULL;
    if (reader == 4)
        k = choir_cast(
            choir_sign(choir_randn(x->scope, choir_dims(2, 1, 6, 24), "k")), x->dtype);
    switch (reader) {
    case 0: return choir_gelu_tanh(x);
    case 1: return choir_silu(x);
    case 2: return choir_relu(x);
    case 3: return choir_self_attention(x, 2, true);
    case 4: return choir_attention(choir_reshape(x, choir_dims(2, 1, 6, 24)), k, k, false);
    default: return choir_batch_norm(x, NULL, NULL, mean, var, true, 0.1f, 1e-5f);
    }
}

/* Returns the number of copies by which a reader's operands and result change their dtype. */
static int64_t copies_of(int reader, choir_tensor *x)
{
    int count;
    int64_t copies = 0;
    choir_check(choir_device_sync(run->device));
    choir_trace *trace = choir_trace_new(1);
    choir_trace_device(trace, run->device);
    read_by(reader, x);
    choir_check(choir_device_sync(run->device));
    const choir_trace_line *line = choir_trace_profile(trace, &count);
    for (int i = 0; i < count; i++)
        copies += strcmp(line[i].name, "copy") ? 0 : (int64_t)line[i].calls;
    choir_trace_free(trace);
    return copies;
}

/* The results and gradients have the bits of f32 kernels whose results are rounded once, and no
 * copy is made. */
static void kernels_read_16_bits(void **state)
{
    static const choir_dtype dtypes[] = {CHOIR_BF16, CHOIR_F16};
    for (int i = 0; i < 2 * READERS && !run->device->half; i++) {
        float *y[2], *g[2];
        choir_dtype dtype = dtypes[i % 2];
        for (int wide = 0; wide < 2; wide++) {
            choir_scope *s = choir_step_open(run, 3);
            choir_tensor *x = choir_require_grad(choir_randn(s, choir_dims(2, 6, 24), "x"));
            choir_tensor *h = choir_cast(x, dtype);
            choir_tensor *to = read_by(i / 2, wide ? choir_cast(h, CHOIR_F32) : h);
            assert_int_equal(to->dtype, wide ? CHOIR_F32 : dtype);
            y[wide] = values(choir_cast(choir_cast(to, dtype), CHOIR_F32));
            if (i / 2 < MOVES && !wide)
                assert_int_equal(copies_of(i / 2, h), 0);
            choir_check(choir_backward(choir_sum(choir_square(choir_cast(to, dtype)))));
            g[wide] = values(choir_grad(x));
            choir_check(choir_scope_close(s));
        }
        int n = i / 2 == 3 ? 2 * 6 * 8 : 2 * 6 * 24;
        assert_memory_equal(y[0], y[1], (size_t)n * sizeof **y);
        assert_memory_equal(g[0], g[1], 2 * 6 * 24 * sizeof **g);
        for (int wide = 0; wide < 2; wide++)
            free(y[wide]), free(g[wide]);
    }
}

/* --- the scaler --- */

typedef struct job {
    choir_module *net;
    choir_optim *optim;
    choir_scaler *scaler;
    choir_tensor *x, *loss; /* x: of the run, written before each step */
} job;

static job make_job(int64_t interval, int64_t patience)
{
    job j = {.net = choir_nn_linear(run, 4, 2)};
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 0.01f;
    j.optim = choir_adamw(run, j.net, hp);
    choir_scaler_opts opts = choir_scaler_defaults();
    opts.interval = interval;
    opts.patience = patience;
    j.scaler = choir_scaler_new(run, opts);
    j.x = choir_zeros(run, CHOIR_F32, choir_dims(3, 4));
    choir_check(choir_scope_status(run));
    return j;
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_tensor *y = choir_forward(j->net, choir_in(step, j->x));
    choir_tensor *loss = choir_scaler_scale(j->scaler, choir_mean(y));
    choir_status status = choir_backward(loss);
    j->loss = choir_keep(run, loss);
    if (status == CHOIR_OK)
        status = choir_scaler_step(j->scaler, j->optim);
    return status == CHOIR_OK ? choir_scaler_update(j->scaler) : status;
}

static choir_status step(job *j, float value, bool recorded)
{
    float x[12];
    for (int i = 0; i < 12; i++)
        x[i] = value * (1 + 0.1f * (float)i);
    choir_check(choir_write(j->x, x, sizeof x));
    if (recorded)
        return choir_step(run, body, j);
    choir_scope *s = choir_step_open(run, 0);
    choir_status status = body(s, j), closed = choir_scope_close(s);
    return status == CHOIR_OK ? closed : status;
}

static const float OVERFLOWING = 3e37f; /* times 65536 and a third: infinite */

/* Skipped steps change no bit of training, recorded or not. */
static void skipped_steps_change_nothing(void **state)
{
    float weights[3][8];
    for (int how = 0; how < 3; how++) { /* without overflow; with; with, recorded */
        choir_scope *outer = run;
        run = choir_scope_open(NULL, 5);
        job j = make_job(2000, 40);
        choir_tensor *p[2];
        params_of(j.net, p);
        for (int i = 0; i < 12; i++) {
            bool over = i == 0 || i == 5 || i == 6;
            if (over && how == 0)
                continue;
            choir_check(step(&j, over ? OVERFLOWING : 1, how == 2));
        }
        choir_scaler_state s;
        choir_check(choir_scaler_get(j.scaler, &s));
        assert_true(s.scale == (how ? 8192 : 65536));
        assert_int_equal(s.skipped[0], how ? 3 : 0);
        assert_int_equal(s.in_a_row, 0);
        assert_int_equal(choir_optim_steps(j.optim), how ? 12 : 9);
        choir_check(choir_read(p[0], weights[how], sizeof weights[how]));
        choir_check(choir_scope_close(run));
        run = outer;
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_memory_equal(weights[0], weights[2], sizeof weights[0]);
}

/* The loss that the caller sees is not scaled, and the norm is that of unscaled gradients. */
static void the_loss_is_not_scaled(void **state)
{
    job j = make_job(2000, 40);
    choir_tensor *p[2];
    params_of(j.net, p);
    float w[8], b[2];
    choir_check(choir_read(p[0], w, sizeof w));
    choir_check(choir_read(p[1], b, sizeof b));
    choir_check(step(&j, 1, false));
    double want = 0, norm = 0;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 3; i++)
            want += (double)(w[k] + w[4 + k]) * (1 + 0.1 * (4 * i + k)) / 6;
    want += (double)(b[0] + b[1]) / 2;
    assert_true(fabs(choir_item(j.loss) - want) < 1e-5);
    for (int k = 0; k < 4; k++)
        norm += 2 * pow((3 + 0.1 * (12 + 3 * k)) / 6, 2);
    norm = sqrt(norm + 2 * 0.25);
    assert_true(fabs(choir_item(choir_optim_grad_norm(j.optim)) - norm) < 1e-5);
}

static void infinities_for_long_are_an_error(void **state)
{
    job j = make_job(2000, 6);
    choir_status status = CHOIR_OK;
    int steps = 0;
    while (status == CHOIR_OK && steps < 20) {
        status = step(&j, INFINITY, false);
        if (status == CHOIR_OK)
            status = choir_device_sync(run->device);
        steps++;
    }
    assert_int_equal(status, CHOIR_ERR_NONFINITE);
    assert_int_equal(steps, 6);
    assert_says("6 steps in a row");
}

static void assert_refused(choir_status status, choir_status want, const char *word)
{
    assert_int_equal(status, want);
    assert_says(word);
    choir_scope_clear(run);
}

static void out_of_order_is_an_error(void **state)
{
    job j = make_job(2000, 40);
    assert_refused(choir_scaler_update(j.scaler), CHOIR_ERR_STATE, "no step");
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *loss = choir_mean(choir_forward(j.net, choir_in(s, j.x)));
    choir_check(choir_backward(choir_scaler_scale(j.scaler, loss)));
    choir_check(choir_scaler_unscale(j.scaler, j.optim));
    assert_refused(choir_scaler_unscale(j.scaler, j.optim), CHOIR_ERR_STATE, "unscaled");
    choir_check(choir_scaler_step(j.scaler, j.optim));
    assert_refused(choir_scaler_step(j.scaler, j.optim), CHOIR_ERR_STATE, "update");
    assert_refused(choir_scaler_unscale(j.scaler, j.optim), CHOIR_ERR_STATE, "after the step");
    choir_check(choir_scaler_update(j.scaler));
    choir_check(choir_scope_close(s));
    choir_scaler_opts opts = choir_scaler_defaults();
    opts.scale = -1;
    choir_scaler_new(run, opts);
    assert_refused(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "scale -1");
}

static void state_goes_on(void **state)
{
    job j = make_job(4, 40);
    choir_check(step(&j, OVERFLOWING, false));
    choir_check(step(&j, 1, false));
    choir_scaler_state saved, s;
    choir_check(choir_scaler_get(j.scaler, &saved));
    job k = make_job(4, 40);
    choir_check(choir_scaler_set(k.scaler, k.optim, saved));
    for (int i = 0; i < 3; i++)
        choir_check(step(&k, 1, false));
    choir_check(choir_scaler_get(k.scaler, &s));
    assert_true(s.scale == 65536); /* 32768, and the fourth clean step doubles it */
    assert_int_equal(s.skipped[0], 1);
    saved.scale = NAN;
    assert_int_equal(choir_scaler_set(k.scaler, k.optim, saved), CHOIR_ERR_ARGUMENT);
}

/* --- 16-bit parameters --- */

static void half_parameters_train(void **state)
{
    choir_module *net = choir_nn_linear(run, 4, 2);
    ok(choir_module_cast(net, CHOIR_F16));
    choir_tensor *p[2];
    params_of(net, p);
    assert_int_equal(p[0]->dtype, CHOIR_F16);
    choir_amp_level(run, 3);
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    double first = 0, last = 0;
    for (int i = 0; i < 30; i++) {
        choir_scope *s = choir_step_open(run, 1);
        choir_tensor *x = choir_randn(s, choir_dims(8, 4), "x");
        choir_tensor *loss =
            choir_mse_loss(choir_forward(net, x), choir_zeros(s, CHOIR_F32, choir_dims(8, 2)));
        last = choir_item(loss);
        first = i ? first : last;
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(optim));
        choir_check(choir_scope_close(s));
    }
    assert_true(last < first);
    choir_scaler *scaler = choir_scaler_new(run, choir_scaler_defaults());
    assert_refused(choir_scaler_step(scaler, optim), CHOIR_ERR_DTYPE, "f32 weights");
    assert_refused(choir_scaler_unscale(scaler, optim), CHOIR_ERR_DTYPE, "f16");
    assert_refused(choir_module_cast(net, CHOIR_I64), CHOIR_ERR_DTYPE, "i64");
    choir_amp_level(run, 4);
    assert_refused(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "O4");
}

/* The gradient of a cast has the memory order of the gradient that it converts. */
static void casts_keep_the_order(void **state)
{
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *x = choir_require_grad(choir_randn(s, choir_dims(2, 3, 4, 4), "x"));
    choir_tensor *y = choir_permute(choir_cast(x, CHOIR_BF16), choir_dims(0, 2, 3, 1));
    choir_check(choir_backward(choir_sum(choir_square(choir_contiguous(y)))));
    choir_tensor *g = choir_grad(x);
    assert_int_equal(g->stride[1], 1);
    float *was = values(x), *is = values(g);
    for (int i = 0; i < 2 * 3 * 4 * 4; i++)
        assert_true(fabs((double)(is[i] - 2 * was[i])) < 0.02 * fabs((double)was[i]));
    free(was);
    free(is);
    choir_check(choir_scope_close(s));
}

/* Backward of group norm has its offsets of 16 bits, whose wide copies nothing else keeps. */
static void group_norm_of_16_bits(void **state)
{
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *in[3], *half[3];
    for (int i = 0; i < 3; i++) {
        in[i] = choir_require_grad(
            choir_randn(s, i ? choir_dims(4) : choir_dims(2, 4, 3, 3), i ? "g" : "x"));
        half[i] = choir_cast(in[i], CHOIR_BF16);
    }
    choir_tensor *y = choir_group_norm(half[0], 2, half[1], half[2], 1e-5f);
    choir_check(choir_backward(choir_sum(choir_cast(y, CHOIR_F32))));
    float *g = values(choir_grad(in[2]));
    for (int c = 0; c < 4; c++)
        assert_true(g[c] == 2 * 3 * 3); /* one per pixel */
    free(g);
    choir_check(choir_scope_close(s));
}

/* A table of 16 bits that is no parameter gets its gradient in 16 bits, summed in f32. */
static void tables_of_16_bits(void **state)
{
    static const int64_t ids[] = {1, 3, 1};
    for (int64_t cols = 5; cols < 7; cols++) { /* even rows are copied as words */
        choir_scope *s = choir_step_open(run, 0);
        choir_tensor *x = choir_require_grad(choir_randn(s, choir_dims(4, cols), "x"));
        choir_tensor *table = choir_cast(x, CHOIR_BF16);
        choir_tensor *y = choir_embedding(table, choir_from(s, CHOIR_I64, choir_dims(3), ids));
        assert_int_equal(y->dtype, CHOIR_BF16);
        choir_check(choir_backward(choir_sum(y)));
        float *g = values(choir_grad(x));
        for (int i = 0; i < 4 * cols; i++)
            assert_true(g[i] == (i / cols == 1 ? 2 : i / cols == 3));
        free(g);
        choir_check(choir_scope_close(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {IN_RUN(linear_rounds_where_it_should),
        IN_RUN(a_parameter_is_cast_once), IN_RUN(it_can_be_off_inside),
        IN_RUN(images_in_16_bits), IN_RUN(kernels_read_16_bits),
        IN_RUN(skipped_steps_change_nothing), IN_RUN(the_loss_is_not_scaled),
        IN_RUN(infinities_for_long_are_an_error), IN_RUN(out_of_order_is_an_error),
        IN_RUN(state_goes_on), IN_RUN(half_parameters_train), IN_RUN(casts_keep_the_order),
        IN_RUN(group_norm_of_16_bits), IN_RUN(tables_of_16_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
