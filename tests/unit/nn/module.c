/* Modules: names, order, ties, modes, hooks, initial values; a user's own module as choir/nn.h
 * shows it; and half-precision operands of the ops that layers are made of. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "scopes_fixture.h"

/* --- a user's own --- */

typedef struct net {
    choir_module base;
    choir_module *fc1, *fc2, *more;
    choir_tensor *scale, *tied, *steps;
} net;

static choir_tensor *net_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = choir_mul(choir_forward(n->fc1, in[0]), n->scale);
    if (count == 2)
        x = choir_add(x, in[1]);
    return choir_forward(n->fc2, choir_relu(x));
}

static const choir_module_class net_class = {"net", sizeof(net), net_forward, 0};

static net *new_net(choir_scope *scope)
{
    net *n = choir_module_new(scope, &net_class);
    choir_module_param(&n->base, "scale", &n->scale, choir_dims(4), choir_init_constant(2));
    choir_module_child(&n->base, "fc1", &n->fc1, choir_nn_linear(scope, 3, 4));
    choir_module_child(&n->base, "fc2", &n->fc2,
        choir_nn_sequential(scope, choir_nn_linear(scope, 4, 4), choir_nn_relu(scope),
            choir_nn_batch_norm(scope, 4)));
    choir_module_buffer(&n->base, "steps", &n->steps, choir_dims(1), 9);
    choir_module_tie(&n->base, "also", &n->tied, n->scale);
    return n;
}

struct names {
    char text[1024];
    int count;
};

static void list(const char *name, choir_tensor *t, void *arg)
{
    struct names *names = arg;
    assert_non_null(t);
    strcat(strcat(names->text, name), " ");
    names->count++;
}

static void test_names_and_order(void **state)
{
    net *n = new_net(run);
    struct names params = {{0}, 0}, all = {{0}, 0};
    choir_module_visit(&n->base, false, list, &params);
    assert_string_equal(params.text,
        "scale fc1.weight fc1.bias fc2.0.weight fc2.0.bias fc2.2.weight fc2.2.bias ");
    choir_module_visit(&n->base, true, list, &all); /* tied once, buffers in their places */
    assert_string_equal(all.text,
        "scale fc1.weight fc1.bias fc2.0.weight fc2.0.bias fc2.2.weight "
        "fc2.2.bias fc2.2.running_mean fc2.2.running_var fc2.2.num_batches_tracked steps ");
    assert_string_equal(n->fc2->path, "fc2");
    assert_ptr_equal(choir_module_find(&n->base, "scale"), n->scale);
    assert_ptr_equal(n->tied, n->scale);
    assert_true(choir_item(choir_module_find(&n->base, "steps")) == 9);
    assert_null(choir_module_find(&n->base, "fc3.weight"));
    assert_null(choir_module_find(&n->base, ""));
    assert_int_equal(choir_module_param_count(&n->base), 4 + 12 + 4 + 16 + 4 + 4 + 4);
}

static void test_forward(void **state)
{
    net *n = new_net(run);
    choir_tensor *x = choir_randn(step, choir_dims(6, 3), "x");
    choir_tensor *y = choir_forward(&n->base, x);
    assert_int_equal(choir_tensor_size(y, 0), 6);
    assert_int_equal(choir_tensor_size(y, -1), 4);
    choir_tensor *z = choir_forward(&n->base, x, choir_zeros(step, CHOIR_F32, choir_dims(4)));
    ok(choir_backward(choir_sum(choir_add(y, z))));
    assert_non_null(choir_grad(n->scale));
}

/* --- initial values --- */

static void test_initial_values(void **state)
{
    float a[16], b[16], c[16];
    choir_scope *same = choir_scope_open(NULL, 5), *another = choir_scope_open(NULL, 6);
    choir_nn_linear(same, 9, 9); /* other things made before change nothing */
    choir_module *other =
        choir_nn_sequential(same, choir_nn_linear(same, 4, 4), choir_nn_linear(same, 7, 7));
    net *x = new_net(run), *z = new_net(another), *wrapped = new_net(same);
    choir_module_child(&wrapped->base, "more", &wrapped->more, other);
    ok(choir_read(choir_module_find(&x->base, "fc2.0.weight"), a, sizeof a));
    ok(choir_read(choir_module_find(&z->base, "fc2.0.weight"), b, sizeof b));
    assert_memory_not_equal(a, b, sizeof a);
    choir_tensor *t = choir_module_find(&wrapped->base, "fc2.0.weight");
    ok(choir_read(t, b, sizeof b));
    assert_memory_equal(a, b, sizeof a);
    t = choir_module_find(&wrapped->base, "more.0.weight");
    ok(choir_read(t, c, sizeof c));
    assert_memory_not_equal(a, c, sizeof a);
    for (int i = 0; i < 16; i++)
        assert_true(fabsf(a[i]) <= 0.5f); /* 1/sqrt(4) */
    ok(choir_scope_close(same));
    ok(choir_scope_close(another));
}

static void test_bad_layers(void **state)
{
    for (int i = 0; i < 5; i++) {
        choir_module *m = i == 0   ? choir_nn_linear(run, 0, 4)
                          : i == 1 ? choir_nn_embedding(run, 4, -1, choir_init_constant(0))
                          : i == 2 ? choir_nn_dropout(run, 1.5f)
                          : i == 3 ? choir_nn_conv2d(run, 3, 4, 0, choir_conv_defaults())
                                   : choir_nn_transformer_block(run, 10, 3, true, 0, 0.02);
        assert_non_null(m);
        assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
        choir_scope_clear(run);
    }
}

static choir_tensor *clumsy_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = choir_forward(n->fc1, in[count - 1]);
    return choir_forward(n->fc2, choir_matmul(x, x)); /* (5, 4) by (5, 4) */
}

static const choir_module_class clumsy_class = {"clumsy", sizeof(net), clumsy_forward, 0};

/* An error names the module in which an op failed, not a later one. */
static void test_who_is_to_blame(void **state)
{
    net *n = choir_module_new(run, &clumsy_class);
    choir_module_child(&n->base, "fc1", &n->fc1, choir_nn_linear(run, 3, 4));
    choir_module_child(&n->base, "fc2", &n->fc2, choir_nn_linear(run, 4, 2));
    choir_module *all = choir_nn_sequential(run, &n->base, choir_nn_relu(run));
    choir_forward(all, choir_zeros(step, CHOIR_F32, choir_dims(5, 3)));
    assert_fails(choir_scope_status(step), CHOIR_ERR_SHAPE, "in module '0'");
    choir_scope_clear(step);
    choir_forward(all, choir_zeros(step, CHOIR_F32, choir_dims(5, 7)));
    assert_fails(choir_scope_status(step), CHOIR_ERR_SHAPE, "in module '0.fc1'");
    choir_scope_clear(step);
}

/* --- modes --- */

static void test_train_and_eval(void **state)
{
    choir_module *m =
        choir_nn_sequential(run, choir_nn_flatten(run), choir_nn_dropout(run, 0.5f));
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(10, 10, 10), 1);
    assert_true(m->training);
    double sum = choir_item(choir_sum(choir_forward(m, x)));
    assert_true(sum > 800 && sum < 1200 && sum != 1000);
    choir_module_train(m, false);
    assert_true(choir_item(choir_sum(choir_forward(m, x))) == 1000);
    choir_module_train(m, true);
    assert_true(choir_item(choir_sum(choir_forward(m, x))) != 1000);
}

static void test_freeze(void **state)
{
    net *n = new_net(run);
    choir_module_freeze(n->fc1, true);
    assert_int_equal(choir_module_param_count(&n->base), 4 + 16 + 4 + 4 + 4);
    choir_tensor *y = choir_forward(&n->base, choir_randn(step, choir_dims(6, 3), "x"));
    ok(choir_backward(choir_mean(choir_square(y))));
    assert_null(choir_grad(choir_module_find(&n->base, "fc1.weight")));
    assert_non_null(choir_grad(n->scale));
    choir_module_freeze(&n->base, false);
    assert_int_equal(choir_module_param_count(&n->base), 48);
}

static void next_step(void)
{
    choir_scope_clear(step);
    choir_scope_close(step);
    step = choir_step_open(run, 1);
}

/* PyTorch's padding_idx: the row starts with zeros and has no gradient from lookups, whether
 * they are the table's only use or the head shares it. */
static void test_padding(void **state)
{
    const int64_t ids[] = {2, 0, 2, 3, 2, 1};
    for (int tied = 0; tied < 2; tied++) {
        choir_module *table = choir_nn_embedding_with(run, 4, 3, choir_init_normal(0, 1), 2);
        choir_tensor *weight = choir_module_find(table, "weight");
        float w[12], g[12];
        ok(choir_read(weight, w, sizeof w));
        for (int i = 0; i < 12; i++)
            assert_int_equal(w[i] == 0, i / 3 == 2);
        choir_tensor *rows =
            choir_forward(table, choir_from(step, CHOIR_I64, choir_dims(6), ids));
        choir_tensor *loss = choir_sum(choir_affine(rows, 2, 1));
        if (tied)
            loss = choir_add(loss, choir_sum(choir_in(step, weight)));
        ok(choir_backward(loss));
        ok(choir_read(choir_grad(weight), g, sizeof g));
        for (int i = 0; i < 12; i++)
            assert_true(g[i] == (i / 3 == 2 ? 0 : 2) + tied);
        ok(choir_module_init_torch(table, 3));
        ok(choir_read(weight, w, sizeof w));
        for (int i = 0; i < 12; i++)
            assert_int_equal(w[i] == 0, i / 3 == 2);
        next_step();
    }
    choir_nn_embedding_with(run, 4, 3, choir_init_normal(0, 1), 4);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "a row of padding below 4");
}

/* A module refuses inputs that it would not look at. */
static void test_too_many_inputs(void **state)
{
    choir_module *linear = choir_nn_linear(run, 3, 4);
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(2, 3));
    ok(choir_scope_status(choir_tensor_scope(choir_forward(linear, x))));
    choir_forward(linear, x, x);
    assert_fails(choir_scope_status(step), CHOIR_ERR_ARGUMENT, "'linear' takes 1 input, got 2");
    next_step();
    x = choir_zeros(step, CHOIR_F32, choir_dims(2, 3));
    choir_forward(choir_nn_sequential(run, linear, choir_nn_relu(run)), x, x);
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_ARGUMENT);
}

/* Files keep entries by name, so two of a module cannot share one, whatever they are. */
static void test_names_once(void **state)
{
    net *n = choir_module_new(run, &net_class);
    choir_module_child(&n->base, "fc1", &n->fc1, choir_nn_linear(run, 3, 4));
    ok(choir_scope_status(run));
    choir_module_child(&n->base, "fc1", &n->fc2, choir_nn_linear(run, 4, 2));
    assert_null(n->fc2);
    assert_fails(
        choir_scope_status(run), CHOIR_ERR_ARGUMENT, "'net' already has an entry 'fc1'");
    choir_scope_clear(run);
    choir_tensor *weight = NULL;
    choir_module_param(&n->base, "fc1", &weight, choir_dims(2), choir_init_constant(0));
    assert_null(weight);
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
}

static void test_a_module_used_twice(void **state)
{
    choir_module *shared = choir_nn_linear(run, 4, 4);
    choir_module *m = choir_nn_sequential(run, shared, choir_nn_tanh(run), shared);
    struct names params = {{0}, 0};
    if (choir_scope_status(run) != CHOIR_OK)
        return;                                  /* refused: as good */
    choir_module_visit(m, false, list, &params); /* "once each": an optimizer steps them once */
    assert_int_equal(params.count, 2);
}

/* --- hooks --- */

static char trace[64];

static void before(choir_module *m, choir_tensor *const *in, int count, void *arg)
{
    assert_true(m && in[0] && count == 1);
    strcat(strcat(trace, arg), "< ");
}

static void after(choir_module *m, choir_tensor *out, void *arg)
{
    assert_true(m && out);
    strcat(strcat(trace, arg), "> ");
}

static void grad_out(choir_module *m, choir_tensor *g, void *arg)
{
    assert_true(m && choir_tensor_size(g, 1) == 4);
    strcat(strcat(trace, arg), "<< ");
}

static void grad_in(choir_module *m, choir_tensor *g, void *arg)
{
    assert_true(m && choir_tensor_size(g, 1) == 4);
    strcat(strcat(trace, arg), ">> ");
}

static void test_hooks(void **state)
{
    choir_module *a = choir_nn_linear(run, 4, 4), *b = choir_nn_linear(run, 4, 4);
    choir_module *m = choir_nn_sequential(run, a, b);
    choir_module_hooks all = {.before_forward = before,
                           .after_forward = after,
                           .before_backward = grad_out,
                           .after_backward = grad_in},
                       some = {.after_forward = after};
    trace[0] = '\0';
    choir_module_hook(a, all, "a");
    choir_module_hook(b, all, "b");
    choir_module_hook(b, some, "c");
    choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(2, 4), "x"));
    ok(choir_backward(choir_sum(choir_forward(m, x))));
    assert_string_equal(trace, "a< a> b< b> c> b<< b>> a<< a>> ");
}

/* --- hooks that change what passes --- */

static void double_inputs(choir_module *m, choir_tensor **in, int count, void *arg)
{
    in[count - 1] = choir_scale(in[count - 1], 2);
}

static choir_tensor *add_input(
    choir_module *m, choir_tensor *const *in, int count, choir_tensor *out, void *arg)
{
    return choir_add(out, in[count - 1]);
}

static choir_tensor *triple_gradient(choir_module *m, choir_tensor *grad, void *arg)
{
    return arg ? NULL : choir_scale(grad, 3);
}

static void test_changing_hooks(void **state)
{
    choir_module *m = choir_nn_relu(run);
    choir_module_hooks h = {.change_inputs = double_inputs,
        .change_output = add_input,
        .change_gradient = triple_gradient};
    choir_module_hook(m, h, NULL);
    choir_tensor *x = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2), 1.5));
    choir_tensor *y = choir_forward(m, x); /* relu(2x) + 2x = 6, whose gradient is 4 */
    assert_true(choir_item(choir_narrow(y, 0, 0, 1)) == 6);
    ok(choir_backward(choir_sum(y)));
    assert_true(choir_item(choir_narrow(choir_grad(x), 0, 1, 1)) == 12);
    choir_module *bad = choir_nn_relu(run);
    choir_module_hook(bad, (choir_module_hooks){.change_gradient = triple_gradient}, "nothing");
    choir_tensor *z = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2), 1));
    assert_fails(choir_backward(choir_sum(choir_forward(bad, z))), CHOIR_ERR_ARGUMENT,
        "expected a tensor from a module's change_gradient");
    choir_scope_clear(step);
}

/* Hooks of one module run in the order in which they were added, in backward, too. */

static void note_gradient(choir_module *m, choir_tensor *grad, void *arg)
{
    *(float *)arg = choir_item(choir_narrow(grad, 0, 0, 1));
}

static choir_tensor *triple(choir_module *m, choir_tensor *grad, void *arg)
{
    return choir_scale(grad, 3);
}

static void test_order_of_hooks(void **state)
{
    choir_module *m = choir_nn_linear(run, 4, 4);
    choir_module_hooks all = {.before_forward = before,
        .after_forward = after,
        .before_backward = grad_out,
        .after_backward = grad_in};
    trace[0] = '\0';
    choir_module_hook(m, all, "a");
    choir_module_hook(m, all, "b");
    choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(2, 4), "x"));
    ok(choir_backward(choir_sum(choir_forward(m, x))));
    assert_string_equal(trace, "a< b< a> b> a<< b<< a>> b>> ");

    float first = 0, second = 0; /* the second one sees what the first one has changed */
    choir_module *r = choir_nn_relu(run);
    choir_module_hook(r,
        (choir_module_hooks){.before_backward = note_gradient, .change_gradient = triple},
        &first);
    choir_module_hook(r, (choir_module_hooks){.before_backward = note_gradient}, &second);
    choir_tensor *z = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2), 1));
    ok(choir_backward(choir_sum(choir_forward(r, z))));
    assert_true(first == 1 && second == 3);
    assert_true(choir_item(choir_narrow(choir_grad(z), 0, 1, 1)) == 3);
}

/* --- a module in the place of another --- */

typedef struct adapter {
    choir_module base;
    choir_module *inner;
    choir_tensor *gain;
} adapter;

static choir_tensor *adapter_forward(choir_module *self, choir_tensor *const *in, int count)
{
    adapter *a = (adapter *)self;
    return choir_mul(choir_forward(a->inner, in[count - 1]), a->gain);
}

static const choir_module_class adapter_class = {
    "adapter", sizeof(adapter), adapter_forward, 1};

static void test_replace(void **state)
{
    net *n = new_net(run);
    struct names names = {{0}, 0};
    choir_tensor *x = choir_randn(step, choir_dims(6, 3), "x");
    double before = choir_item(choir_sum(choir_forward(n->fc1, x)));
    adapter *a = choir_module_new(run, &adapter_class);
    choir_module *old;
    ok(choir_module_replace(&n->base, "fc1", &a->base, &old));
    assert_ptr_equal(n->fc1, &a->base);
    choir_module_child(&a->base, "inner", &a->inner, old);
    choir_module_param(&a->base, "gain", &a->gain, choir_dims(1), choir_init_constant(2));
    ok(choir_module_replace(&n->base, "fc2.1", choir_nn_tanh(run), NULL));
    choir_module_visit(&n->base, false, list, &names);
    assert_string_equal(names.text,
        "scale fc1.inner.weight fc1.inner.bias fc1.gain fc2.0.weight "
        "fc2.0.bias fc2.2.weight fc2.2.bias ");
    double after = choir_item(choir_sum(choir_forward(n->fc1, x)));
    assert_true(
        fabs(after - 2 * before) <= 1e-5 * fabs(before) + 1e-6); /* it kept its values */
    ok(choir_backward(choir_sum(choir_forward(&n->base, x))));
    assert_non_null(choir_grad(a->gain));

    assert_fails(choir_module_replace(&n->base, "fc9", choir_nn_relu(run), NULL),
        CHOIR_ERR_ARGUMENT, "'net' has no module at 'fc9'");
    assert_fails(choir_module_replace(&n->base, "fc2", n->fc1, NULL), CHOIR_ERR_ARGUMENT,
        "is already a part of another, as 'fc1'");
    assert_fails(choir_module_replace(&n->base, "fc2", choir_nn_relu(run), NULL),
        CHOIR_ERR_STATE, "replace modules before an optimizer");
}

/* Values that follow from the shape; torch's distributions are compared in interop/layers.py.
 */
static void test_inits(void **state)
{
    net *n = new_net(run);
    assert_int_equal(choir_module_init(&n->base, "*.weight", choir_init_orthogonal(1)), 3);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT,
        "parameter 'fc2.2.weight': expected two dimensions or more"); /* a norm's */
    choir_scope_clear(run);
    assert_int_equal(choir_module_init(&n->base, "fc?.0.weight", choir_init_orthogonal(1)), 1);
    choir_tensor *w = choir_in(step, choir_module_find(&n->base, "fc2.0.weight")); /* (4, 4) */
    choir_tensor *one = choir_matmul(w, choir_transpose(w, 0, 1));
    assert_true(fabs(choir_item(choir_sum(choir_square(one))) - 4) < 1e-5);
    assert_int_equal(choir_module_init(&n->base, "fc1.weight", choir_init_xavier_normal(1)), 1);
    assert_fails(choir_scope_status(run), CHOIR_ERR_STATE, "'fc1.weight' has its values");
    choir_scope_clear(run);
    assert_true(isnan(choir_init_gain("swish", 0)));
    assert_says("unknown nonlinearity 'swish': choose one of linear");
}

/* --- half precision --- */

static void assert_near(choir_tensor *half, choir_tensor *full, double relative)
{
    float a[64], b[64];
    size_t bytes = (size_t)choir_tensor_count(full) * sizeof *a;
    ok(choir_read(choir_cast(half, CHOIR_F32), a, bytes));
    ok(choir_read(full, b, bytes));
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        assert_true(
            fabs((double)a[i] - (double)b[i]) <= relative * fmax(fabs((double)b[i]), 0.5));
}

static void test_half(void **state)
{
    static const choir_dtype dtypes[] = {CHOIR_BF16, CHOIR_F16};
    for (int i = 0; i < 2; i++) {
        double tolerance = i ? 1.0 / 512 : 1.0 / 64;
        choir_tensor *x = choir_rand(step, choir_dims(4, 6), "x", -1, 1),
                     *xh = choir_cast(x, dtypes[i]);
        choir_tensor *w = choir_rand(step, choir_dims(5, 6), "w", -1, 1),
                     *wh = choir_cast(w, dtypes[i]);
        assert_int_equal(choir_tensor_dtype(choir_linear(xh, wh, NULL)), dtypes[i]);
        assert_near(choir_add(xh, xh), choir_add(x, x), tolerance);
        assert_near(choir_linear(xh, wh, NULL), choir_linear(x, w, NULL), 4 * tolerance);
        assert_near(choir_matmul(xh, choir_transpose(wh, 0, 1)),
            choir_matmul(x, choir_transpose(w, 0, 1)), 4 * tolerance);
        assert_near(choir_softmax(xh), choir_softmax(x), tolerance);
        choir_tensor *leaf = choir_require_grad(choir_rand(step, choir_dims(4, 6), "l", -1, 1));
        choir_tensor *loss = choir_sum(choir_softmax(choir_cast(leaf, dtypes[i])));
        ok(choir_backward(choir_cast(loss, CHOIR_F32)));
        assert_int_equal(choir_tensor_dtype(choir_grad(leaf)), CHOIR_F32);
    }
}

/* A contraction is between two linear layers that fit. */
static void test_contraction(void **state)
{
    net *n = new_net(run);
    choir_module *wide = choir_nn_linear(run, 3, 8), *next = choir_nn_linear(run, 4, 2);
    choir_module_contraction(&n->base, n->fc1, 0, next);
    choir_module_contraction(&n->base, wide, 2, next);
    ok(choir_scope_status(run));
    choir_module_contraction(&n->base, wide, 1, next);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT,
        "8 outputs in 1 matrices, and the layer after it 4 inputs");
    choir_scope_clear(run);
    choir_module_contraction(&n->base, wide, 1, choir_nn_relu(run));
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT,
        "expected two linear layers, got 'linear' and 'relu'");
    choir_scope_clear(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(test_contraction),
        IN_SCOPES(test_names_and_order),
        IN_SCOPES(test_forward),
        IN_SCOPES(test_initial_values),
        IN_SCOPES(test_bad_layers),
        IN_SCOPES(test_who_is_to_blame),
        IN_SCOPES(test_train_and_eval),
        IN_SCOPES(test_freeze),
        IN_SCOPES(test_padding),
        IN_SCOPES(test_too_many_inputs),
        IN_SCOPES(test_names_once),
        IN_SCOPES(test_a_module_used_twice),
        IN_SCOPES(test_hooks),
        IN_SCOPES(test_changing_hooks),
        IN_SCOPES(test_order_of_hooks),
        IN_SCOPES(test_replace),
        IN_SCOPES(test_inits),
        IN_SCOPES(test_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
