/* Recurrent layers against plain loops in f64 and central differences: both orders of
 * sequences, parts of sequences, both directions; names; wrong operands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "again_fixture.h"
#include "tensor/tensor.h"

enum { CELLS = 4 };

static choir_module *new_module(
    choir_cell cell, int64_t in, int64_t hidden, choir_recurrent_opts opts)
{
    opts.relu = cell == CHOIR_RNN_RELU;
    return cell == CHOIR_LSTM  ? choir_nn_lstm(run, in, hidden, opts)
           : cell == CHOIR_GRU ? choir_nn_gru(run, in, hidden, opts)
                               : choir_nn_rnn(run, in, hidden, opts);
}

static choir_tensor *numbers(choir_shape shape)
{
    static int count;
    char name[32];
    snprintf(name, sizeof name, "numbers %d", count++);
    return choir_randn(step, shape, name);
}

static float *values(choir_tensor *t)
{
    size_t bytes = (size_t)choir_tensor_count(t) * sizeof(float);
    float *v = malloc(bytes + 1);
    t = choir_contiguous(t);
    ok(choir_read(t, v, bytes));
    return v;
}

static void assert_same_values(choir_tensor *a, choir_tensor *b)
{
    assert_true(choir__same_shape(choir_tensor_shape(a), choir_tensor_shape(b)));
    float *x = values(a), *y = values(b);
    assert_memory_equal(x, y, (size_t)choir_tensor_count(a) * sizeof *x);
    free(x);
    free(y);
}

/* Asserts that values agree up to the order of sums: a product of fewer rows may add in another
 * order. */
static void assert_near(choir_tensor *a, choir_tensor *b)
{
    assert_true(choir__same_shape(choir_tensor_shape(a), choir_tensor_shape(b)));
    float *x = values(a), *y = values(b);
    for (int64_t i = 0; i < choir_tensor_count(a); i++)
        assert_true(fabs((double)x[i] - (double)y[i]) < 2e-6);
    free(x);
    free(y);
}

/* --- plain loops --- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Runs one step of one sample by the definitions; h and c (hidden) of the previous step are
 * updated. */
static void plain_step(choir_cell cell, const float *x, int64_t in, int64_t hidden,
    const float *w_ih, const float *w_hh, const float *b_ih, const float *b_hh, double *h,
    double *c)
{
    double a[4][8], u[4][8], next[8];
    int gates = cell == CHOIR_LSTM ? 4 : cell == CHOIR_GRU ? 3 : 1;
    for (int g = 0; g < gates; g++)
        for (int64_t j = 0; j < hidden; j++) {
            int64_t row = g * hidden + j;
            a[g][j] = (double)b_ih[row];
            u[g][j] = (double)b_hh[row];
            for (int64_t i = 0; i < in; i++)
                a[g][j] += (double)w_ih[row * in + i] * (double)x[i];
            for (int64_t i = 0; i < hidden; i++)
                u[g][j] += (double)w_hh[row * hidden + i] * h[i];
        }
    for (int64_t j = 0; j < hidden; j++) {
        double s = a[0][j] + u[0][j];
        if (cell == CHOIR_LSTM) {
            c[j] = sigmoid(a[1][j] + u[1][j]) * c[j] + sigmoid(s) * tanh(a[2][j] + u[2][j]);
            next[j] = sigmoid(a[3][j] + u[3][j]) * tanh(c[j]);
        } else if (cell == CHOIR_GRU) {
            double z = sigmoid(a[1][j] + u[1][j]), n = tanh(a[2][j] + sigmoid(s) * u[2][j]);
            next[j] = (1 - z) * n + z * h[j];
        } else {
            next[j] = cell == CHOIR_RNN_TANH ? tanh(s) : fmax(0, s);
        }
    }
    memcpy(h, next, (size_t)hidden * sizeof *h);
}

/* Both directions of a layer of every cell. */
static void plain_loops(void **state)
{
    enum { T = 5, B = 3, I = 4, H = 6 };
    for (int cell = 0; cell < CELLS; cell++) {
        choir_recurrent_opts opts = choir_recurrent_defaults();
        opts.bidirectional = true;
        choir_module *m = new_module((choir_cell)cell, I, H, opts);
        choir_tensor *x = numbers(choir_dims(T, B, I));
        choir_cell_state s = {numbers(choir_dims(2, B, H)), NULL};
        s.c = cell == CHOIR_LSTM ? numbers(choir_dims(2, B, H)) : NULL;
        float *xs = values(x), *h0 = values(s.h), *c0 = s.c ? values(s.c) : NULL, *w[4];
        float *y = values(choir_forward_state(m, x, &s)), *hn = values(s.h);
        float *cn = s.c ? values(s.c) : NULL;
        for (int d = 0; d < 2; d++) {
            static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
            for (int i = 0; i < 4; i++) {
                char name[40];
                snprintf(name, sizeof name, "%s_l0%s", names[i], d ? "_reverse" : "");
                assert_non_null(choir_module_find(m, name));
                w[i] = values(choir_in(step, choir_module_find(m, name)));
            }
            for (int b = 0; b < B; b++) {
                double h[H], c[H] = {0};
                for (int j = 0; j < H; j++) {
                    h[j] = (double)h0[(d * B + b) * H + j];
                    c[j] = c0 ? (double)c0[(d * B + b) * H + j] : 0;
                }
                for (int i = 0; i < T; i++) {
                    int t = d ? T - 1 - i : i;
                    plain_step((choir_cell)cell, xs + (t * B + b) * I, I, H, w[0], w[1], w[2],
                        w[3], h, c);
                    for (int j = 0; j < H; j++)
                        assert_true(
                            fabs((double)y[(t * B + b) * 2 * H + d * H + j] - h[j]) < 2e-6);
                }
                for (int j = 0; j < H; j++) {
                    assert_true(fabs((double)hn[(d * B + b) * H + j] - h[j]) < 2e-6);
                    assert_true(!cn || fabs((double)cn[(d * B + b) * H + j] - c[j]) < 2e-6);
                }
            }
            for (int i = 0; i < 4; i++)
                free(w[i]);
        }
        float *all[] = {xs, h0, c0, y, hn, cn};
        for (size_t i = 0; i < CHOIR_COUNT(all); i++)
            free(all[i]);
    }
}

/* --- central differences --- */

static choir_tensor *leaf(choir_shape shape)
{
    bool grad = choir_set_grad(step, false);
    choir_tensor *t = choir_cast(choir_scale(numbers(shape), 0.5), CHOIR_F64);
    choir_set_grad(step, grad);
    return choir_require_grad(t);
}

/* Returns a sum with a different weight for every element, so that no two gradients are
 * equal. */
static choir_tensor *weigh(choir_tensor *y)
{
    double w[512];
    int64_t n = choir_tensor_count(y);
    for (int64_t i = 0; i < n; i++)
        w[i] = 0.3 + 0.1 * (double)(i * 7 % 11);
    return choir_sum(
        choir_mul(y, choir_from(choir_tensor_scope(y), CHOIR_F64, choir_tensor_shape(y), w)));
}

struct variant {
    choir_cell cell;
    int directions;
    bool initial, last, bias;
};

/* in: x, then each direction's weights, then h0, c0. */
static choir_tensor *apply(choir_tensor *const *in, int count, void *arg)
{
    const struct variant *v = arg;
    choir_cell_weights w[2] = {{NULL}};
    choir_cell_state first = {NULL, NULL}, last;
    int at = 1;
    for (int d = 0; d < v->directions; d++) {
        w[d].w_ih = in[at++], w[d].w_hh = in[at++];
        if (v->bias)
            w[d].b_ih = in[at++], w[d].b_hh = in[at++];
    }
    if (v->initial) {
        first.h = in[at++];
        first.c = v->cell == CHOIR_LSTM ? in[at++] : NULL;
    }
    choir_tensor *y =
        choir_recurrent(v->cell, in[0], w, v->directions, first, v->last ? &last : NULL);
    choir_tensor *loss = weigh(y);
    if (v->last)
        loss = choir_add(loss, choir_scale(weigh(last.h), -2));
    if (v->last && v->cell == CHOIR_LSTM)
        loss = choir_add(loss, weigh(last.c));
    return loss;
}

static void differences(void **state)
{
    static const int64_t steps[] = {1, 3};
    for (int i = 0; i < CELLS * 32; i++) {
        struct variant v = {
            (choir_cell)(i % CELLS), 1 + (i / 4 & 1), i / 8 & 1, i / 16 & 1, i / 32 & 1};
        int64_t t = steps[i / 64], b = 2, in = 3, h = 2;
        int64_t g = h * choir__recurrent_cell_gates((choir__recurrent_cell)v.cell);
        choir_tensor *leaves[16] = {leaf(choir_dims(t, b, in))};
        int count = 1;
        for (int d = 0; d < v.directions; d++) {
            leaves[count++] = leaf(choir_dims(g, in));
            leaves[count++] = leaf(choir_dims(g, h));
            for (int j = 0; j < 2 && v.bias; j++)
                leaves[count++] = leaf(choir_dims(g));
        }
        for (int j = 0; j < (v.cell == CHOIR_LSTM ? 2 : 1) && v.initial; j++)
            leaves[count++] = leaf(choir_dims(v.directions, b, h));
        choir_status status = choir_gradcheck(apply, leaves, count, &v, 1e-6);
        if (status != CHOIR_OK)
            print_error("cell %d, %d directions, initial %d, last %d, bias %d: %s\n",
                (int)v.cell, v.directions, v.initial, v.last, v.bias, choir_error_message());
        ok(status);
        check_again(apply, leaves, count, &v);
    }
}

/* --- the modules --- */

static void batch_first(void **state)
{
    for (int cell = 0; cell < CELLS; cell++) {
        choir_recurrent_opts opts = choir_recurrent_defaults();
        opts.layers = 2;
        opts.bidirectional = true;
        choir_module *by_step = new_module((choir_cell)cell, 5, 7, opts);
        opts.batch_first = true;
        choir_module *by_sample = new_module((choir_cell)cell, 5, 7, opts);
        choir_tensor *x = numbers(choir_dims(6, 4, 5)), *turned = choir_transpose(x, 0, 1);
        choir_tensor *y = choir_forward(by_step, x), *z = choir_forward(by_sample, turned);
        assert_int_equal(choir_tensor_size(z, 0), 4);
        assert_int_equal(choir_tensor_size(z, 1), 6);
        assert_same_values(y, choir_transpose(z, 0, 1));
    }
}

/* Started from the first half's state, the second half gives the results of the whole. */
static void in_parts(void **state)
{
    for (int cell = 0; cell < CELLS; cell++) {
        choir_recurrent_opts opts = choir_recurrent_defaults();
        opts.layers = 3;
        choir_module *m = new_module((choir_cell)cell, 5, 17, opts);
        choir_tensor *x = numbers(choir_dims(9, 4, 5));
        choir_cell_state whole = {NULL, NULL}, s = {NULL, NULL};
        choir_tensor *y = choir_forward_state(m, x, &whole);
        choir_tensor *a = choir_forward_state(m, choir_narrow(x, 0, 0, 4), &s);
        choir_tensor *b = choir_forward_state(m, choir_narrow(x, 0, 4, 5), &s);
        assert_near(y, choir_cat((choir_tensor *[]){a, b}, 2, 0));
        assert_same_values(y, choir_forward(m, x));
        assert_near(whole.h, s.h);
        assert_int_equal(choir_tensor_size(s.h, 0), 3);
        assert_true((s.c != NULL) == (cell == CHOIR_LSTM));
        if (s.c)
            assert_near(whole.c, s.c);
    }
}

/* A sample's numbers do not depend on its neighbours' values. */
static void samples_apart(void **state)
{
    for (int cell = 0; cell < CELLS; cell++) {
        choir_module *m = new_module((choir_cell)cell, 5, 33, choir_recurrent_defaults());
        choir_tensor *x = numbers(choir_dims(4, 3, 5)), *other = numbers(choir_dims(4, 3, 5));
        choir_tensor *mixed = choir_cat(
            (choir_tensor *[]){choir_narrow(x, 1, 0, 1), choir_narrow(other, 1, 1, 2)}, 2, 1);
        assert_same_values(choir_narrow(choir_forward(m, x), 1, 0, 1),
            choir_narrow(choir_forward(m, mixed), 1, 0, 1));
    }
}

static void dropout(void **state)
{
    choir_recurrent_opts opts = choir_recurrent_defaults();
    opts.layers = 2;
    choir_module *plain = choir_nn_lstm(run, 5, 9, opts);
    opts.dropout = 0.5f;
    choir_module *m = choir_nn_lstm(run, 5, 9, opts);
    choir_tensor *x = numbers(choir_dims(4, 3, 5));
    float *trained = values(choir_forward(m, x)), *again = values(choir_forward(plain, x));
    assert_memory_not_equal(trained, again, 4 * 3 * 9 * sizeof *again);
    free(trained);
    free(again);
    choir_module_train(m, false);
    assert_same_values(choir_forward(m, x), choir_forward(plain, x));
}

static void names(void **state)
{
    choir_recurrent_opts opts = choir_recurrent_defaults();
    opts.layers = 2;
    opts.bidirectional = true;
    choir_module *m = choir_nn_gru(run, 5, 8, opts);
    choir_tensor *w = choir_module_find(m, "weight_ih_l1_reverse");
    assert_non_null(w);
    assert_int_equal(choir_tensor_size(w, 0), 24);
    assert_int_equal(choir_tensor_size(w, 1), 16);
    assert_non_null(choir_module_find(m, "bias_hh_l0"));
    assert_int_equal(
        choir_module_param_count(m), 2 * (24 * 5 + 24 * 8 + 48) + 2 * (24 * 16 + 24 * 8 + 48));
    opts.bias = false;
    assert_null(choir_module_find(choir_nn_rnn(run, 5, 8, opts), "bias_ih_l0"));
}

/* bf16 is computed in f32 and rounded once. */
static void halves(void **state)
{
    choir_tensor *x = choir_cast(numbers(choir_dims(3, 2, 4)), CHOIR_BF16);
    choir_tensor *w[4] = {choir_cast(numbers(choir_dims(20, 4)), CHOIR_BF16),
        choir_cast(numbers(choir_dims(20, 5)), CHOIR_BF16),
        choir_cast(numbers(choir_dims(20)), CHOIR_BF16),
        choir_cast(numbers(choir_dims(20)), CHOIR_BF16)};
    choir_cell_weights half = {w[0], w[1], w[2], w[3]};
    choir_cell_weights wide = {choir_cast(w[0], CHOIR_F32), choir_cast(w[1], CHOIR_F32),
        choir_cast(w[2], CHOIR_F32), choir_cast(w[3], CHOIR_F32)};
    choir_cell_state none = {NULL, NULL};
    choir_tensor *y = choir_recurrent(CHOIR_LSTM, x, &half, 1, none, NULL);
    choir_tensor *z =
        choir_recurrent(CHOIR_LSTM, choir_cast(x, CHOIR_F32), &wide, 1, none, NULL);
    assert_int_equal(choir_tensor_dtype(y), CHOIR_BF16);
    assert_same_values(
        choir_cast(y, CHOIR_F32), choir_cast(choir_cast(z, CHOIR_BF16), CHOIR_F32));
}

/* --- wrong operands --- */

static void expect(choir_scope *scope, choir_status status, const char *words)
{
    assert_int_equal(choir_scope_status(scope), status);
    assert_says(words);
    choir_scope_clear(scope);
}

static void wrong_operands(void **state)
{
    choir_cell_weights w = {numbers(choir_dims(12, 5)), numbers(choir_dims(12, 3)),
        numbers(choir_dims(12)), numbers(choir_dims(12))};
    choir_tensor *x = numbers(choir_dims(4, 2, 5)), *h = numbers(choir_dims(1, 2, 3));
    choir_cell_state none = {NULL, NULL}, last, two = {numbers(choir_dims(2, 2, 3)), NULL};
    assert_false(choir_recurrent(CHOIR_LSTM, x, &w, 1, none, &last)->poisoned);
    choir_recurrent(CHOIR_LSTM, numbers(choir_dims(4, 2, 6)), &w, 1, none, &last);
    assert_true(last.h->poisoned && last.c->poisoned);
    expect(step, CHOIR_ERR_SHAPE, "(4, 2, 6)");
    choir_recurrent(CHOIR_LSTM, numbers(choir_dims(2, 5)), &w, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "(T, B, I)");
    choir_recurrent(CHOIR_LSTM, numbers(choir_dims(0, 2, 5)), &w, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "at least a step");
    choir_recurrent(CHOIR_LSTM, x, &w, 1, two, NULL);
    expect(step, CHOIR_ERR_SHAPE, "(2, 2, 3)");
    choir_recurrent(CHOIR_GRU, x, &w, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "(G H, I)");
    choir_recurrent(CHOIR_LSTM, x, &w, 3, none, NULL);
    expect(step, CHOIR_ERR_ARGUMENT, "got 3 of cell 0");
    choir_recurrent((choir_cell)9, x, &w, 1, none, NULL);
    expect(step, CHOIR_ERR_ARGUMENT, "cell 9");
    choir_recurrent(CHOIR_LSTM, choir_cast(x, CHOIR_F64), &w, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "one floating dtype");
    choir_cell_weights half = w, plain = {numbers(choir_dims(3, 5)), numbers(choir_dims(3, 3)),
                                     NULL, NULL};
    half.b_hh = NULL;
    choir_recurrent(CHOIR_LSTM, x, &half, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "or neither");
    half.w_hh = NULL;
    choir_recurrent(CHOIR_LSTM, x, &half, 1, none, NULL);
    expect(step, CHOIR_ERR_SHAPE, "w_hh");
    choir_recurrent(CHOIR_RNN_TANH, x, &plain, 1, (choir_cell_state){h, h}, NULL);
    expect(step, CHOIR_ERR_SHAPE, "of an LSTM alone");
}

static void wrong_modules(void **state)
{
    choir_recurrent_opts opts = choir_recurrent_defaults();
    choir_nn_lstm(run, 5, -3, opts);
    expect(run, CHOIR_ERR_ARGUMENT, "-3");
    choir_nn_gru(run, 0, 3, opts);
    expect(run, CHOIR_ERR_ARGUMENT, "got 0 and 3");
    opts.layers = 0;
    choir_nn_rnn(run, 5, 3, opts);
    expect(run, CHOIR_ERR_ARGUMENT, "got 5 and 3, 0 and 0");
    opts.layers = 2;
    opts.dropout = 1.5f;
    choir_nn_rnn(run, 5, 3, opts);
    expect(run, CHOIR_ERR_ARGUMENT, "1.5");
    opts.dropout = 0;
    choir_module *m = choir_nn_lstm(run, 5, 3, opts);
    choir_forward(m, numbers(choir_dims(4, 5)));
    expect(step, CHOIR_ERR_SHAPE, "(4, 5)");
    choir_forward(m, numbers(choir_dims(4, 2, 6)));
    expect(step, CHOIR_ERR_SHAPE, "(4, 2, 6)");
    choir_forward(m, numbers(choir_dims(4, 2, 5)), numbers(choir_dims(3, 2, 3)));
    expect(step, CHOIR_ERR_SHAPE, "(3, 2, 3)");
    choir_cell_state s = {NULL, numbers(choir_dims(2, 2, 4))};
    assert_true(choir_forward_state(m, numbers(choir_dims(4, 2, 5)), &s)->poisoned);
    expect(step, CHOIR_ERR_SHAPE, "initial states");
    s = (choir_cell_state){NULL, NULL};
    choir_forward_state(choir_nn_relu(run), numbers(choir_dims(4, 2, 5)), &s);
    expect(step, CHOIR_ERR_ARGUMENT, "has no state");
}

/* A hook also receives operands that are absent (NULL). */
static void hooked_without_h(void **state)
{
    choir_module *m = choir_nn_lstm(run, 5, 3, choir_recurrent_defaults());
    choir_module_hook(m, (choir_module_hooks){NULL}, NULL);
    choir_cell_state s = {NULL, numbers(choir_dims(1, 2, 3))};
    choir_tensor *y =
        choir_forward_state(m, choir_require_grad(numbers(choir_dims(4, 2, 5))), &s);
    ok(choir_backward(choir_sum(y)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(plain_loops),
        IN_SCOPES(differences),
        IN_SCOPES(batch_first),
        IN_SCOPES(in_parts),
        IN_SCOPES(samples_apart),
        IN_SCOPES(dropout),
        IN_SCOPES(names),
        IN_SCOPES(halves),
        IN_SCOPES(wrong_operands),
        IN_SCOPES(wrong_modules),
        IN_SCOPES(hooked_without_h),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
