/* Backward in two parts: for each op that has weights, first the gradients that earlier stages
 * wait for, of all micro-batches, then the gradients of parameters, from memory that was kept
 * for them. The gradients have the bits of the whole backward. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "shapes.h"
#include "check.h"
#include "autograd/sink.h"
#include "nn/module.h"
#include "tensor/op.h"

enum { PARAMS = 8, MICROS = 3, MOST = 4096 };

/* --- a module of nothing but parameters --- */

typedef struct holder {
    choir_module base;
    choir_tensor *p[PARAMS];
} holder;

typedef struct op_case {
    const char *name;
    choir_shape x;
    choir_tensor *(*apply)(choir_tensor *x, choir_tensor **p);
    int early; /* gradients of parameters that a split walk does not put off, a micro-batch */
    choir_shape p[PARAMS]; /* up to the first of no dimensions */
} op_case;

static const choir_module_class holder_class = {"holder", sizeof(holder), NULL, 0};

static holder *new_holder(choir_scope *run, const op_case *c)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    holder *h = choir_module_new(run, &holder_class);
    for (int i = 0; i < PARAMS && c->p[i].ndim; i++)
        choir_module_param(&h->base, names[i], &h->p[i], c->p[i], choir_init_normal(0.2, 0.5));
    choir__module_ready(&h->base);
    return h;
}

/* --- ops --- */

static choir_tensor *linear(choir_tensor *x, choir_tensor **p)
{
    return choir_linear(x, p[0], p[1]);
}

static choir_tensor *linear_twice(choir_tensor *x, choir_tensor **p)
{
    return choir_linear(choir_gelu(choir_linear(x, p[0], p[1])), p[0], p[1]);
}

static choir_tensor *linear_in_out(choir_tensor *x, choir_tensor **p)
{
    return choir__linear_in_out(x, p[0], p[1]);
}

/* The weight is a result, and an earlier op waits for its gradient; the bias is a parameter. */
static choir_tensor *linear_of_view(choir_tensor *x, choir_tensor **p)
{
    choir_tensor *w = choir_transpose(choir_in(choir_tensor_scope(x), p[0]), 0, 1);
    return choir_linear(x, w, p[1]);
}

static choir_tensor *matmul(choir_tensor *x, choir_tensor **p)
{
    return choir_matmul(x, p[0]);
}

static choir_tensor *matmul_left(choir_tensor *x, choir_tensor **p)
{
    return choir_matmul(p[0], x);
}

static choir_tensor *conv(choir_tensor *x, choir_tensor **p)
{
    choir_conv_opts o = choir_conv_defaults();
    o.padding = 1;
    return choir_conv2d(x, p[0], p[1], o);
}

static choir_tensor *conv_transposed(choir_tensor *x, choir_tensor **p)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = 2;
    return choir_conv_transpose2d(x, p[0], p[1], o);
}

static choir_tensor *layer_norm(choir_tensor *x, choir_tensor **p)
{
    return choir_layer_norm(x, p[0], p[1], 1e-5f);
}

static choir_tensor *residual_norm(choir_tensor *x, choir_tensor **p)
{
    choir_tensor *sum, *y = choir_add_rms_norm(x, choir_tanh(x), p[0], 1e-5f, &sum);
    return choir_add_layer_norm(sum, y, p[0], NULL, 1e-5f, &sum);
}

static choir_tensor *group_norm(choir_tensor *x, choir_tensor **p)
{
    return choir_group_norm(x, 2, p[0], p[1], 1e-5f);
}

static choir_tensor *batch_norm(choir_tensor *x, choir_tensor **p)
{
    choir_scope *s = choir_tensor_scope(x);
    choir_tensor *mean = choir_zeros(s, CHOIR_F32, choir_dims(4)),
                 *var = choir_full(s, CHOIR_F32, choir_dims(4), 1);
    return choir_batch_norm(x, p[0], p[1], mean, var, true, 0.1f, 1e-5f);
}

static choir_tensor *rows(choir_tensor *x, choir_tensor *table)
{
    static const int64_t ids[] = {4, 0, 2, 4, 1, 4};
    return choir_embedding(
        table, choir_from(choir_tensor_scope(x), CHOIR_I64, choir_dims(6), ids));
}

static choir_tensor *embedding(choir_tensor *x, choir_tensor **p)
{
    return choir_mul(x, rows(x, p[0]));
}

/* The table is also the last layer's weight. */
static choir_tensor *tied(choir_tensor *x, choir_tensor **p)
{
    return choir_linear(choir_layer_norm(embedding(x, p), p[1], NULL, 1e-5f), p[0], NULL);
}

static choir_tensor *recurrent(choir_tensor *x, choir_tensor **p, choir_cell cell, bool both)
{
    choir_cell_weights w[2] = {{p[0], p[1], p[2], p[3]}, {p[4], p[5], p[6], p[7]}};
    choir_cell_state last, none = {NULL, NULL};
    choir_tensor *y = choir_recurrent(cell, x, w, both ? 2 : 1, none, &last);
    return choir_cat((choir_tensor *[]){y, choir_narrow(last.h, 0, 0, 1)}, both ? 1 : 2, 0);
}

static choir_tensor *lstm(choir_tensor *x, choir_tensor **p)
{
    choir_cell_weights w[2] = {{p[0], p[1], p[2], p[3]}, {p[4], p[5], p[6], p[7]}};
    return choir_recurrent(CHOIR_LSTM, x, w, 2, (choir_cell_state){NULL, NULL}, NULL);
}

static choir_tensor *gru(choir_tensor *x, choir_tensor **p)
{
    return recurrent(x, p, CHOIR_GRU, false);
}

static choir_tensor *scaled(choir_tensor *x, choir_tensor **p)
{
    return choir_add(choir_mul(x, p[0]), p[1]);
}

/* A block as networks have it: ops in place, recomputed results, released results. */
static choir_tensor *block(choir_tensor *x, choir_tensor **p)
{
    choir_tensor *sum, *h = choir_layer_norm(x, p[0], p[1], 1e-5f);
    choir_tensor *a = choir_self_attention(choir_linear(h, p[2], NULL), 2, true);
    choir__done_with(h);
    h = choir_add_layer_norm(choir_linear(a, p[3], NULL), x, p[0], p[1], 1e-5f, &sum);
    choir_tensor *up = choir_gelu(choir_linear(h, p[4], NULL));
    choir__done_with(h);
    return choir_add(choir_linear(up, p[5], NULL), sum);
}

static const op_case cases[] = {
    {"linear", S3(2, 3, 8), linear, 0, {S2(5, 8), S1(5)}},
    {"linear twice", S2(6, 8), linear_twice, 0, {S2(8, 8), S1(8)}},
    {"linear (in, out)", S2(6, 8), linear_in_out, 0, {S2(8, 5), S1(5)}},
    {"linear of a view", S2(6, 8), linear_of_view, 2, {S2(8, 5), S1(5)}},
    {"matmul", S2(6, 8), matmul, 0, {S2(8, 5)}},
    {"matmul, shared", S3(2, 3, 8), matmul, 0, {S2(8, 5)}},
    {"matmul, batched", S3(2, 3, 8), matmul, 0, {S3(2, 8, 5)}},
    {"matmul from the left", S2(6, 8), matmul_left, 1, {S2(5, 6)}},
    {"conv", S4(2, 4, 5, 5), conv, 0, {S4(6, 4, 3, 3), S1(6)}},
    {"transposed conv", S4(2, 4, 3, 3), conv_transposed, 0, {S4(4, 3, 3, 3), S1(3)}},
    {"layer norm", S2(6, 16), layer_norm, 0, {S1(16), S1(16)}},
    {"norms of sums", S2(6, 16), residual_norm, 0, {S1(16)}},
    {"group norm", S4(2, 4, 3, 3), group_norm, 2, {S1(4), S1(4)}},
    {"batch norm", S4(2, 4, 3, 3), batch_norm, 2, {S1(4), S1(4)}},
    {"embedding", S2(6, 8), embedding, 0, {S2(5, 8)}},
    {"tied table", S2(6, 8), tied, 0, {S2(5, 8), S1(8)}},
    {"lstm, both ways", S3(4, 2, 5), lstm, 0,
        {S2(12, 5), S2(12, 3), S1(12), S1(12), S2(12, 5), S2(12, 3), S1(12), S1(12)}},
    {"gru", S3(4, 2, 5), gru, 0, {S2(9, 5), S2(9, 3), S1(9), S1(9)}},
    {"scale and shift", S2(6, 8), scaled, 2, {S1(8), S1(8)}},
    {"block", S3(2, 3, 8), block, 0, {S1(8), S1(8), S2(24, 8), S2(8, 8), S2(16, 8), S2(8, 16)}},
};

/* --- both ways --- */

struct gradients {
    float x[MICROS][MOST], p[PARAMS][MOST];
};

static void read_grad(choir_tensor *t, float *to)
{
    choir_tensor *g = choir_grad(t);
    assert_non_null(g);
    assert_in_range(g->count, 1, MOST);
    choir_check(choir_read(g, to, (size_t)g->count * sizeof *to));
}

/* Fills released memory with values that must not be read. */
static void trash(choir_scope *step)
{
    choir_scope *s = choir_no_grad(step);
    for (int64_t n = 16; n < 16384; n += n / 4)
        for (int i = 0; i < 16; i++)
            choir_full(s, CHOIR_F32, choir_dims(n), NAN);
    choir_check(choir_scope_close(s));
}

static int early_gradients(const choir__walk *w)
{
    int n = 0;
    for (choir__late *late = w->late; late; late = late->next)
        n += late->input >= 0 && !late->ids;
    return n;
}

static void backward(
    choir_scope *step, const op_case *c, choir_tensor **loss, bool split, bool also_x)
{
    choir__walk w[MICROS];
    for (int m = 0; m < MICROS && !split; m++)
        choir_check(choir_backward(loss[m]));
    for (int m = 0; m < MICROS && split; m++) {
        choir_check(choir__walk_open(&w[m], loss[m], NULL, 1, 0));
        choir_check(choir__walk_stage(&w[m], 0, true));
        if (also_x)
            assert_int_equal(early_gradients(&w[m]), c->early);
    }
    trash(step);
    for (int m = 0; m < MICROS && split; m++) {
        choir_check(choir__walk_weights(&w[m], 0));
        choir__walk_close(&w[m]);
    }
}

/* also_x: the input also requires a gradient. */
static void gradients(const op_case *c, bool split, bool also_x, struct gradients *g)
{
    choir_scope *run = choir_scope_open(NULL, 11), *step = choir_step_open(run, 0);
    choir_scope *micro[MICROS];
    choir_tensor *x[MICROS], *loss[MICROS];
    holder *h = new_holder(run, c);
    memset(g, 0, sizeof *g);
    for (int m = 0; m < MICROS; m++) {
        micro[m] = choir_micro_open(step, m);
        x[m] = choir_randn(micro[m], c->x, "x");
        if (also_x)
            choir_require_grad(x[m]);
        choir_tensor *y = c->apply(choir_scale(x[m], 0.7), h->p);
        loss[m] = choir_sum(choir_sigmoid(choir_add(y, y)));
    }
    backward(step, c, loss, split, also_x);
    for (int i = 0; i < PARAMS && h->p[i]; i++)
        read_grad(h->p[i], g->p[i]);
    for (int m = 0; m < MICROS; m++) {
        if (also_x)
            read_grad(x[m], g->x[m]);
        choir_check(choir_scope_close(micro[m]));
    }
    choir_check(choir_scope_close(step));
    choir_check(choir_scope_close(run));
}

static void same_bits_in_two_parts(void **state)
{
    static struct gradients whole, split;
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++)
        for (int also_x = 0; also_x < 2; also_x++) {
            gradients(&cases[i], false, also_x, &whole);
            gradients(&cases[i], true, also_x, &split);
            if (memcmp(&whole, &split, sizeof whole) != 0)
                fail_msg("%s%s: other gradients in two parts", cases[i].name,
                    also_x ? "" : ", of parameters alone");
            assert_true(whole.p[0][0] != 0 && (!also_x || whole.x[0][0] != 0));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_in_two_parts)};
    return cmocka_run_group_tests_name("split backward", tests, NULL, NULL);
}
