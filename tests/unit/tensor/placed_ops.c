/* Ops whose operands are replaced when they begin: each op computes from the replacements, on
 * their device, and never from the operands that the caller passed. Here the replacements
 * reside on another device and have twice the values. */
#include <stdlib.h>

#include <choir/choir.h>

#include "shapes.h"
#include "check.h"
#include "tensor/launch.h"
#include "tensor/op.h"
#include "tensor/strategy.h"

enum { MOST_IN = 8, MOST = 2048 };

static choir_device *here, *there;

/* --- a strategy that places --- */

typedef struct doubler {
    choir__placement base; /* first */
    bool busy;
    int placed; /* ops */
    choir_tensor *from[64], *to[64];
    int count;
} doubler;

static choir_tensor *doubled(choir_tensor *x)
{
    choir_tensor *y = choir_to(x, there);
    return choir__is_float(y->dtype) ? choir_scale(y, 2) : y;
}

static choir_tensor *replacement(doubler *d, choir_tensor *x)
{
    for (int i = 0; i < d->count; i++)
        if (d->from[i] == x)
            return d->to[i];
    assert_in_range(d->count, 0, 63);
    d->from[d->count] = x;
    return d->to[d->count++] = doubled(x);
}

static bool place(
    choir__placement *p, choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    doubler *d = (doubler *)p;
    if (d->busy)
        return true;
    d->busy = true;
    d->placed++;
    for (int i = 0; i < count; i++)
        if (in[i] && choir__device_of(in[i]) == here)
            in[i] = replacement(d, in[i]);
    d->busy = false;
    return true;
}

/* --- ops --- */

typedef choir_tensor *apply_fn(choir_tensor **in);

static choir_tensor *unary(choir_tensor **in)
{
    return choir_gelu(choir_tanh(in[0]));
}

static choir_tensor *unary_turned(choir_tensor **in)
{
    return choir_relu(choir_transpose(in[0], 0, 1));
}

static choir_tensor *unary_strided(choir_tensor **in)
{
    return choir_relu(in[1] ? choir_narrow(in[0], 1, 1, 2) : in[0]);
}

static choir_tensor *bent(choir_tensor **in)
{
    choir_tensor *y = choir_leaky_relu(choir_elu(choir_softplus(in[0], 1, 20), 1), 0.01);
    return choir_add(choir_maximum(y, in[1]), choir_minimum(choir_erf(y), in[1]));
}

static choir_tensor *binary(choir_tensor **in)
{
    return choir_div(choir_sub(choir_add(in[0], in[1]), in[2]), choir_exp(in[2]));
}

static choir_tensor *product(choir_tensor **in)
{
    return choir_mul(in[0], in[1]);
}

static choir_tensor *half(choir_tensor **in)
{
    choir_tensor *a = choir_cast(in[0], CHOIR_BF16), *b = choir_cast(in[1], CHOIR_BF16);
    return choir_cast(choir_softmax(choir_matmul(choir_add(a, a), b)), CHOIR_F32);
}

static choir_tensor *sums(choir_tensor **in)
{
    return choir_add(choir_sum_dim(in[0], 0), choir_mean(in[0]));
}

static choir_tensor *argmax(choir_tensor **in)
{
    return choir_cast(choir_argmax(in[0]), CHOIR_F32);
}

static choir_tensor *matmul(choir_tensor **in)
{
    return choir_matmul(in[0], in[1]);
}

static choir_tensor *linear(choir_tensor **in)
{
    return choir_linear(in[0], in[1], in[2]);
}

static choir_tensor *linear_in_out(choir_tensor **in)
{
    return choir__linear_in_out(in[0], in[1], in[2]);
}

static choir_tensor *softmax(choir_tensor **in)
{
    return choir_softmax(in[0]);
}

static choir_tensor *log_softmax(choir_tensor **in)
{
    return choir_log_softmax(in[0]);
}

static choir_tensor *attention(choir_tensor **in)
{
    choir_attention_opts o = choir_attention_defaults();
    o.bias = in[3];
    return choir_attention_with(in[0], in[1], in[2], o);
}

static choir_tensor *self_attention(choir_tensor **in)
{
    return choir_self_attention(in[0], 2, true);
}

static choir_tensor *layer_norm(choir_tensor **in)
{
    return choir_layer_norm(in[0], in[1], in[2], 1e-5f);
}

static choir_tensor *rms_norm(choir_tensor **in)
{
    return choir_rms_norm(in[0], in[1], 1e-5f);
}

static choir_tensor *sum_norm(choir_tensor **in)
{
    choir_tensor *sum, *y = choir_add_layer_norm(in[0], in[1], in[2], NULL, 1e-5f, &sum);
    return choir_add_rms_norm(y, sum, in[2], 1e-5f, &sum);
}

static choir_tensor *swiglu(choir_tensor **in)
{
    return choir_swiglu(in[0], in[1]);
}

static choir_tensor *rotary(choir_tensor **in)
{
    return choir_rotary(in[0], in[1], 1);
}

static choir_tensor *embedding(choir_tensor **in)
{
    return choir_embedding(in[0], in[1]);
}

static choir_tensor *dropout(choir_tensor **in)
{
    return choir_dropout(in[0], 0.4f, "drop");
}

static choir_tensor *cross_entropy(choir_tensor **in)
{
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    o.weight = in[2];
    return choir_cross_entropy_with(in[0], in[1], o);
}

static choir_tensor *nll(choir_tensor **in)
{
    return choir_nll_loss(in[0], in[1]);
}

static choir_tensor *pair_losses(choir_tensor **in)
{
    choir_tensor *b = choir_bce_with_logits_loss(in[0], in[1], in[2], CHOIR_LOSS_NONE);
    return choir_add(b, choir_huber_loss(in[0], in[1], 0.3f, CHOIR_LOSS_NONE));
}

/* The ids 3, 0, 5, 1, 1, 2 are two targets; the sequences have 3 and 0 steps and labels. */
static choir_tensor *ctc(choir_tensor **in)
{
    return choir_ctc_loss_with(in[0], in[1], in[2], in[3],
        (choir_ctc_loss_opts){.blank = 4, .reduction = CHOIR_LOSS_MEAN});
}

static choir_tensor *mse(choir_tensor **in)
{
    return choir_mse_loss(in[0], in[1]);
}

static choir_tensor *conv(choir_tensor **in)
{
    return choir_conv2d(in[0], in[1], in[2], choir_conv_defaults());
}

static choir_tensor *conv_transposed(choir_tensor **in)
{
    return choir_conv_transpose2d(in[0], in[1], in[2], choir_conv_defaults());
}

static choir_tensor *pools(choir_tensor **in)
{
    choir_tensor *a = choir_max_pool2d(in[0], 2, 1, 0), *b = choir_avg_pool2d(in[0], 2, 1, 0);
    return choir_add(choir_adaptive_avg_pool2d(a, 2, 2), choir_adaptive_max_pool2d(b, 2, 2));
}

static choir_tensor *statistic(choir_scope *s)
{
    choir_tensor *t = choir__tensor_new(s, there, CHOIR_F32, choir_dims(4));
    choir__launch_fill(t, 1);
    return t;
}

static choir_tensor *batch_norm(choir_tensor **in)
{
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_tensor *mean = statistic(s), *var = statistic(s);
    choir_batch_norm_opts o = choir_batch_norm_defaults();
    o.residual = in[3];
    o.relu = true;
    return choir_batch_norm_with(in[0], in[1], in[2], mean, var, o);
}

static choir_tensor *group_norm(choir_tensor **in)
{
    return choir_group_norm(in[0], 2, in[1], in[2], 1e-5f);
}

static choir_tensor *lstm(choir_tensor **in)
{
    choir_cell_weights w = {in[3], in[4], in[5], in[6]};
    choir_cell_state last, first = {in[1], in[2]};
    choir_tensor *y = choir_recurrent(CHOIR_LSTM, in[0], &w, 1, first, &last);
    return choir_cat((choir_tensor *[]){y, last.h, last.c}, 3, 0);
}

static choir_tensor *views(choir_tensor **in)
{
    choir_tensor *parts[3],
        *x = choir_permute(choir_reshape(in[0], choir_dims(3, -1)), (choir_shape){2, {1, 0}});
    int n = choir_chunk(choir_flatten(choir_expand(x, choir_dims(2, 8, 3)), 1), 3, 1, parts);
    return choir_cat(parts, n, 0);
}

static choir_tensor *joined(choir_tensor **in)
{
    choir_tensor *both = choir_cat(in, 2, 1);
    return choir_mul(both, choir_reshape(choir_stack(in, 2, 1), choir_dims(3, 8)));
}

static choir_tensor *cube(choir_tensor *const *in, int count, const void *arg)
{
    return choir_mul(in[0], choir_square(in[0]));
}

static void cube_backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    grad_in[0] = choir_scale(choir_mul(grad_out, choir_square(in[0])), 3);
}

static choir_tensor *custom(choir_tensor **in)
{
    static const choir_custom_op op = {"cube", cube, cube_backward};
    doubler *d = (doubler *)choir_tensor_scope(in[0])->placement;
    int before = d ? d->placed : 0;
    choir_tensor *y = choir_custom(&op, in, 1, NULL);
    if (d) /* the ops inside it are not placed again */
        assert_int_equal(d->placed, before + 1);
    return y;
}

static choir_tensor *chosen(choir_tensor **in)
{
    choir_tensor *low = choir_masked_fill(in[0], choir_compare(in[0], CHOIR_LT, 0.4), 2);
    return choir_where(choir_ge(in[0], in[1]), choir_clamp(low, 0, 0.8), choir_sin(in[1]));
}

static choir_tensor *along(choir_tensor **in)
{
    choir_tensor *index, *most = choir_max_dim(in[0], 1, true, &index);
    most = choir_mul(most, choir_gather_dim(choir_cumsum(in[0], 0), 1, index));
    choir_tensor *norm = choir_norm_dim(in[0], 2, 1, true);
    return choir_add(choir_var_dim(in[0], 0, 1, true), choir_mul(most, norm));
}

static choir_tensor *looked_up(choir_tensor **in)
{
    static const int64_t widths[] = {1, 2};
    choir_tensor *rows = choir_index_select(in[0], 0, in[1]), *y;
    y = choir_scatter_add(
        in[0], 0, choir_reshape(in[1], choir_dims(3, 1)), choir_narrow(rows, 1, 0, 1));
    y = choir_index_select(y, 0, in[1]);
    return choir_mul(
        choir_pad(y, widths, 2, 0.5), choir_cast(choir_one_hot(in[1], 6), CHOIR_F32));
}

static choir_tensor *in_order(choir_tensor **in)
{
    choir_tensor *index, *y = choir_sort(in[0], 1, true, &index);
    y = choir_mul(y, choir_cast(index, CHOIR_F32));
    return choir_einsum(
        "ij,kj->ik", (choir_tensor *[]){y, choir_topk(in[0], 4, 1, false, NULL)}, 2);
}

static choir_tensor *powers(choir_tensor **in)
{
    choir_tensor *cosine = choir_cosine_similarity(in[0], in[1], -1, 1e-8);
    return choir_pow_tensor(choir_reshape(cosine, choir_dims(3, 1)), in[1]);
}

static choir_tensor *factors(choir_tensor **in)
{
    choir_tensor *u, *vt, *s = choir_svd(in[0], &u, &vt);
    choir_tensor *x = choir_matmul(choir_mul(u, s), choir_sin(vt));
    choir_tensor *l = choir_cholesky(choir_matmul(choir_transpose(in[0], 0, 1), in[0]));
    return choir_solve_triangular(l, choir_transpose(x, 0, 1), false);
}

static choir_tensor *volumes(choir_tensor **in)
{
    choir_tensor *y = choir_conv3d(in[0], in[1], in[2], choir_conv3d_defaults());
    y = choir_reshape(y, choir_dims(2, 4, -1));
    y = choir_conv1d(y, in[3], NULL, choir_conv_defaults());
    return choir_interpolate(y, (int64_t[]){5}, 1, CHOIR_LINEAR, false);
}

/* f: requires a gradient; c: a constant; i: ids 0, 1, ... */
typedef struct op_case {
    const char *name;
    apply_fn *apply;
    struct {
        char kind;
        choir_shape shape;
    } in[MOST_IN];
} op_case;

static const op_case cases[] = {
    {"unary", unary, {{'f', S2(3, 4)}}},
    {"unary, turned", unary_turned, {{'f', S2(3, 4)}}},
    {"unary, strided", unary_strided, {{'f', S2(3, 4)}, {'c', S1(1)}}},
    {"bent", bent, {{'f', S2(3, 4)}, {'f', S1(4)}}},
    {"binary", binary, {{'f', S2(3, 4)}, {'f', S1(4)}, {'f', S2(3, 1)}}},
    {"mul", product, {{'f', S2(3, 4)}, {'f', S2(3, 4)}}},
    {"half", half, {{'f', S2(3, 4)}, {'f', S2(4, 5)}}},
    {"sums", sums, {{'f', S2(3, 4)}}},
    {"argmax", argmax, {{'c', S2(3, 4)}}},
    {"matmul", matmul, {{'f', S3(2, 3, 4)}, {'f', S2(4, 5)}}},
    {"linear", linear, {{'f', S3(2, 3, 4)}, {'f', S2(5, 4)}, {'f', S1(5)}}},
    {"linear (in, out)", linear_in_out, {{'f', S2(3, 4)}, {'f', S2(4, 5)}, {'f', S1(5)}}},
    {"softmax", softmax, {{'f', S2(3, 4)}}},
    {"log softmax", log_softmax, {{'f', S2(3, 4)}}},
    {"attention", attention,
        {{'f', S4(2, 4, 3, 5)}, {'f', S4(2, 2, 6, 5)}, {'f', S4(2, 2, 6, 5)},
            {'f', S4(2, 1, 3, 6)}}},
    {"self attention", self_attention, {{'f', S3(2, 3, 12)}}},
    {"layer norm", layer_norm, {{'f', S2(3, 8)}, {'f', S1(8)}, {'f', S1(8)}}},
    {"rms norm", rms_norm, {{'f', S2(3, 8)}, {'f', S1(8)}}},
    {"norms of sums", sum_norm, {{'f', S2(3, 8)}, {'f', S2(3, 8)}, {'f', S1(8)}}},
    {"swiglu", swiglu, {{'f', S2(3, 8)}, {'f', S2(3, 8)}}},
    {"swiglu of halves", swiglu, {{'f', S2(3, 8)}}},
    {"rotary", rotary, {{'f', S4(2, 3, 2, 4)}, {'c', S2(5, 4)}}},
    {"embedding", embedding, {{'f', S2(7, 3)}, {'i', S2(2, 3)}}},
    {"dropout", dropout, {{'f', S2(3, 8)}}},
    {"cross entropy", cross_entropy, {{'f', S2(4, 6)}, {'i', S1(4)}}},
    {"cross entropy, weighted", cross_entropy, {{'f', S2(4, 6)}, {'i', S1(4)}, {'c', S1(6)}}},
    {"cross entropy, soft", cross_entropy, {{'f', S2(4, 6)}, {'f', S2(4, 6)}, {'c', S1(6)}}},
    {"nll", nll, {{'f', S2(4, 6)}, {'i', S1(4)}}},
    {"pair losses", pair_losses, {{'f', S2(4, 6)}, {'f', S2(4, 6)}, {'c', S1(6)}}},
    {"ctc", ctc, {{'f', S3(4, 2, 6)}, {'i', S2(2, 3)}, {'i', S1(2)}, {'i', S1(2)}}},
    {"mse", mse, {{'f', S2(4, 6)}, {'f', S2(4, 6)}}},
    {"conv", conv, {{'f', S4(2, 3, 5, 5)}, {'f', S4(4, 3, 3, 3)}, {'f', S1(4)}}},
    {"transposed conv", conv_transposed,
        {{'f', S4(2, 3, 4, 4)}, {'f', S4(3, 4, 3, 3)}, {'f', S1(4)}}},
    {"pools", pools, {{'f', S4(2, 3, 5, 5)}}},
    {"batch norm", batch_norm,
        {{'f', S4(2, 4, 3, 3)}, {'f', S1(4)}, {'f', S1(4)}, {'f', S4(2, 4, 3, 3)}}},
    {"group norm", group_norm, {{'f', S4(2, 4, 3, 3)}, {'f', S1(4)}, {'f', S1(4)}}},
    {"lstm", lstm,
        {{'f', S3(4, 2, 5)}, {'f', S3(1, 2, 3)}, {'f', S3(1, 2, 3)}, {'f', S2(12, 5)},
            {'f', S2(12, 3)}, {'f', S1(12)}, {'f', S1(12)}}},
    {"chosen", chosen, {{'f', S2(3, 4)}, {'f', S1(4)}}},
    {"along a dimension", along, {{'f', S2(3, 4)}}},
    {"looked up", looked_up, {{'f', S2(6, 3)}, {'i', S1(3)}}},
    {"in order", in_order, {{'f', S2(3, 4)}}},
    {"powers", powers, {{'f', S2(3, 4)}, {'f', S2(3, 4)}}},
    {"factors", factors, {{'f', S2(4, 3)}}},
    {"volumes", volumes,
        {{'f', S5(2, 2, 2, 3, 3)}, {'f', S5(4, 2, 2, 2, 2)}, {'f', S1(4)}, {'f', S3(3, 4, 1)}}},
    {"views", views, {{'f', S2(4, 6)}}},
    {"cat and stack", joined, {{'f', S2(3, 4)}, {'f', S2(3, 4)}}},
    {"custom", custom, {{'f', S2(3, 4)}}},
};

/* --- both ways --- */

struct outcome {
    float y[MOST], g[MOST_IN][MOST];
};

static void make_inputs(choir_scope *s, const op_case *c, choir_tensor *in[MOST_IN])
{
    static const int64_t ids[] = {3, 0, 5, 1, 1, 2};
    char name[8] = "in 0";
    for (int i = 0; i < MOST_IN; i++, name[3]++) {
        in[i] = NULL;
        if (!c->in[i].kind)
            continue;
        in[i] = c->in[i].kind == 'i' ? choir_from(s, CHOIR_I64, c->in[i].shape, ids)
                                     : choir_rand(s, c->in[i].shape, name, 0.1, 1);
        if (c->in[i].kind == 'f')
            choir_require_grad(in[i]);
    }
}

static uint64_t issued_to(choir_device *d)
{
    choir_device_stats stats;
    choir_device_get_stats(d, &stats);
    return (uint64_t)stats.tasks + (uint64_t)stats.queue_depth;
}

static void read_all(choir_tensor *t, float *to)
{
    assert_in_range(t->count, 1, MOST);
    t = choir_contiguous(t);
    choir_check(choir_read(t, to, (size_t)t->count * sizeof *to));
}

static choir__strategy doubling = {
    .ops = &(const choir__strategy_ops){.name = "doubling", .place = place}};

static void outcome_of(const op_case *c, bool placed, struct outcome *o)
{
    choir_scope *run = choir_scope_open(here, 9), *step = choir_step_open(run, 0);
    choir_scope *micro = choir_micro_open(step, 0);
    doubler d = {.base = {.by = &doubling}};
    choir_tensor *in[MOST_IN], *used[MOST_IN];
    make_inputs(micro, c, in);
    for (int i = 0; i < MOST_IN; i++)
        used[i] = in[i] && !placed ? doubled(in[i]) : in[i];
    micro->placement = placed ? &d.base : NULL;
    choir_device_sync(here);
    uint64_t before = issued_to(here);
    choir_tensor *y = c->apply(used);
    if (choir_scope_status(micro) != CHOIR_OK)
        fail_msg("%s: %s", c->name, choir_error_message());
    assert_ptr_equal(choir_tensor_device(y), there);
    if (issued_to(here) != before)
        fail_msg("%s: work for the device of the operands it was called with", c->name);
    choir_tensor *loss = choir_sum(choir_tanh(y));
    micro->placement = NULL;
    read_all(y, o->y);
    if (y->requires_grad)
        choir_check(choir_backward(loss));
    for (int i = 0; i < MOST_IN; i++)
        if (in[i] && in[i]->requires_grad)
            read_all(choir_grad(in[i]), o->g[i]);
    choir_check(choir_scope_close(micro));
    choir_check(choir_scope_close(step));
    choir_check(choir_scope_close(run));
}

static void operands_are_the_replaced_ones(void **state)
{
    static struct outcome called, replaced;
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        memset(&called, 0, sizeof called);
        memset(&replaced, 0, sizeof replaced);
        outcome_of(&cases[i], false, &called);
        outcome_of(&cases[i], true, &replaced);
        if (memcmp(&called, &replaced, sizeof called) != 0)
            fail_msg("%s: not computed from the operands it was left with", cases[i].name);
    }
}

/* Backward places nothing: neither a hook's ops nor a custom op's gradient. */
static void look(choir_tensor *t, choir_tensor *grad, void *arg)
{
    *(choir_tensor **)arg = choir_mul(grad, grad);
    assert_ptr_equal(choir_tensor_device(*(choir_tensor **)arg), choir_tensor_device(t));
}

static void backward_is_not_placed(void **state)
{
    choir_scope *run = choir_scope_open(here, 9), *step = choir_step_open(run, 0);
    choir_scope *micro = choir_micro_open(step, 0);
    doubler d = {.base = {.by = &doubling}};
    choir_tensor *seen[2] = {NULL};
    choir_tensor *x = choir_require_grad(choir_rand(micro, choir_dims(3), "x", 0.1, 1));
    micro->placement = &d.base;
    choir_tensor *in[1] = {x}, *y = custom(in), *loss = choir_sum(y);
    choir_on_grad(x, look, &seen[0]);
    choir_on_grad(y, look, &seen[1]);
    int placed = d.placed;
    choir_check(choir_backward(loss));
    assert_true(seen[0] && seen[1]);
    assert_int_equal(d.placed, placed);
    assert_ptr_equal(micro->placement, &d.base);
    micro->placement = NULL;
    choir_check(choir_scope_close(micro));
    choir_check(choir_scope_close(step));
    choir_check(choir_scope_close(run));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "2", 1); /* however few the cores */
    here = choir_device_find("cpu:0");
    there = choir_device_find("cpu:1");
    const struct CMUnitTest tests[] = {cmocka_unit_test(operands_are_the_replaced_ones),
        cmocka_unit_test(backward_is_not_placed)};
    return cmocka_run_group_tests_name("placed ops", tests, NULL, NULL);
}
