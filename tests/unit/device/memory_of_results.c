/* Memory that backward saves: results that the forward pass no longer needs, results that are
 * recomputed, and gradients written over the values that they belong to. The gradients always
 * have the same bits as without these savings. */
#include <stdlib.h>

#include <choir/choir.h>

#include "nn/module.h"
#include "scopes_fixture.h"
#include "tensor/op.h"

enum { ROWS = 5, COLS = 12, N = ROWS * COLS };

static choir_scope *micro;
static choir_tensor *x, *w, *gamma_;

static void leaves(void)
{
    micro = choir_micro_open(step, 0);
    x = choir_require_grad(choir_randn(micro, choir_dims(ROWS, COLS), "x"));
    w = choir_require_grad(choir_randn(micro, choir_dims(COLS, COLS), "w"));
    gamma_ = choir_require_grad(choir_randn(micro, choir_dims(COLS), "gamma"));
}

struct gradients {
    float x[N], w[COLS * COLS], gamma[COLS];
};

static struct gradients backward(choir_tensor *loss)
{
    struct gradients g;
    memset(&g, 0, sizeof g);
    choir_check(choir_backward(loss));
    choir_check(choir_read(choir_grad(x), g.x, sizeof g.x));
    choir_check(choir_read(choir_grad(w), g.w, sizeof g.w));
    if (choir_grad(gamma_))
        choir_check(choir_read(choir_grad(gamma_), g.gamma, sizeof g.gamma));
    choir_check(choir_scope_close(micro));
    assert_true(g.x[0] != 0 && g.w[0] != 0);
    return g;
}

/* --- done with --- */

static struct gradients residual(bool done)
{
    leaves();
    choir_tensor *a = choir_linear(x, w, NULL), *y = choir_add(x, a);
    if (done) {
        choir__done_with(a);
        assert_null(a->storage);
        choir_tensor *again = choir_add(a, a); /* it is gone, and that is an error */
        assert_true(again->poisoned);
        choir_scope_clear(micro);
    }
    return backward(choir_sum(choir_tanh(y)));
}

static void unread(void **state)
{
    struct gradients with = residual(true), without = residual(false);
    assert_memory_equal(&with, &without, sizeof with);
}

/* A result that backward reads, an input, a parameter and a value that a hook received all
 * stay. */
static void needed(void **state)
{
    leaves();
    choir_tensor *a = choir_tanh(x), *b = choir_linear(x, w, NULL), *c = choir_mul(a, b);
    choir_tensor *hooked = choir_linear(x, w, NULL), *kept = choir_linear(x, w, NULL);
    hooked->watched = true;
    choir_tensor *copy = choir_keep(step, kept), *all[] = {a, b, x, hooked};
    choir_tensor *sum = choir_add(c, choir_add(hooked, kept));
    for (int i = 0; i < 4; i++) {
        choir__done_with(all[i]);
        assert_non_null(all[i]->storage);
    }
    choir__done_with(kept); /* the handle's memory goes, the copy's does not */
    assert_true(kept->freed && copy->storage);
    backward(choir_sum(sum));
    float value;
    choir_check(choir_read(choir_narrow(choir_flatten(copy, 0), 0, 0, 1), &value, 4));
}

/* The result of an op that is not recorded is released, as backward does not read it. A linear
 * op's input that needs no gradient stays, as the weight's gradient reads it. */
static void unrecorded(void **state)
{
    leaves();
    choir_tensor *plain = choir_exp(choir_randn(micro, choir_dims(ROWS, COLS), "plain"));
    choir_tensor *unused = choir_exp(plain), *y = choir_linear(plain, w, NULL);
    choir__done_with(plain);
    choir__done_with(unused);
    assert_true(plain->storage && !unused->storage);
    backward(choir_sum(choir_mul(y, x)));
    choir_scope *quiet = choir_no_grad(run);
    choir_tensor *a = choir_exp(choir_full(quiet, CHOIR_F32, choir_dims(3), 1));
    choir__done_with(a);
    assert_null(a->storage);
    choir_check(choir_scope_close(quiet));
}

/* A tensor that a hook received before forward still exists afterwards. */
static void note_input(choir_module *m, choir_tensor *const *in, int count, void *arg)
{
    assert_true(m && count == 1);
    *(choir_tensor **)arg = in[0];
}

static choir_module *part_of(choir_module *m, const char *name)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD && !strcmp(e->name, name))
            return e->child;
    return NULL;
}

static void shown(void **state)
{
    for (int way = 0; way < 6; way++) { /* recorded or not; three places in a block */
        choir_tensor *in = NULL;
        choir_module *block = choir_nn_transformer_block(run, 8, 2, true, 0, 0.02);
        choir_module *part = part_of(block, way % 3 ? "mlp" : "attn");
        if (way % 3 == 2)
            part = part_of(part, "c_proj");
        choir_module_hook(part, (choir_module_hooks){.before_forward = note_input}, &in);
        choir_scope *scope = way < 3 ? choir_micro_open(step, 0) : choir_no_grad(step);
        choir_forward(block, choir_randn(scope, choir_dims(2, 3, 8), "in"));
        assert_non_null(in->storage);
        choir_sum(in);
        choir_check(choir_scope_close(scope));
    }
}

/* --- made again --- */

/* A chain of results, each of which can be recomputed from the one before. */
static struct gradients chain(bool done)
{
    leaves();
    choir_tensor *h[5], *s;
    h[0] = choir_gelu_tanh(choir_linear(x, w, NULL));
    h[1] = choir_rms_norm(h[0], gamma_, 1e-5f);
    h[2] = choir_swiglu(h[1], h[0]);
    h[3] = choir_add_layer_norm(h[2], x, gamma_, NULL, 1e-5f, &s);
    h[4] = choir_silu(h[3]);
    choir_tensor *y = choir_linear(h[4], w, NULL);
    for (int i = 0; i < 5 && done; i++) {
        choir__done_with(h[i]);
        assert_null(h[i]->storage);
    }
    return backward(choir_sum(choir_add(choir_tanh(y), s)));
}

static void made_again(void **state)
{
    struct gradients with = chain(true), without = chain(false);
    assert_memory_equal(&with, &without, sizeof with);
}

/* A released result is not recomputed from values that have changed since. */
static void changed(void **state)
{
    leaves();
    choir_tensor *a = choir_linear(x, w, NULL), *h = choir_gelu(a);
    choir_tensor *y = choir_linear(h, w, NULL);
    choir__done_with(h);
    float zeros[N] = {0};
    choir_check(choir_write(a, zeros, sizeof zeros));
    assert_fails(choir_backward(choir_sum(y)), CHOIR_ERR_STATE, "changed in place");
    choir_scope_clear(micro);
    choir_scope_close(micro);
}

/* --- over the values --- */

static void *gradient_at;

static void note_place(choir_tensor *t, choir_tensor *grad, void *arg)
{
    gradient_at = choir__data(grad);
}

/* way 0: only the loss reads the scores; 1: they are also kept; 2: an op before the loss reads
 * them; 3: an op after it reads them, so that the loss is the last in the order of backward; 4:
 * another device has yet to read them. An addition passes its gradient on unchanged, so the
 * hook sees the gradient's address. */
static struct gradients scores(int way, bool *over)
{
    static const int64_t targets[ROWS] = {3, 0, 11, 5, 5};
    leaves();
    choir_tensor *a = choir_linear(x, w, NULL), *z = choir_add(a, x), *more = NULL;
    choir_tensor *y = choir_from(micro, CHOIR_I64, choir_dims(ROWS), targets);
    choir_tensor *copy = way == 1 ? choir_keep(step, z) : NULL;
    void *at = choir__data(z);
    float before[N], after[N];
    if (way == 2)
        more = choir_sum(choir_square(z));
    if (way == 4)
        choir_to(z, choir_device_find("cpu:1"));
    choir_tensor *loss = choir_cross_entropy(z, y);
    if (way == 3)
        more = choir_sum(choir_square(z));
    if (copy)
        choir_check(choir_read(copy, before, sizeof before));
    choir_on_grad(a, note_place, NULL);
    struct gradients g = backward(more ? choir_add(loss, more) : loss);
    if (copy) {
        choir_check(choir_read(copy, after, sizeof after));
        assert_memory_equal(before, after, sizeof before);
    }
    *over = gradient_at == at;
    return g;
}

static void over_the_scores(void **state)
{
    bool over[5];
    struct gradients g[5];
    for (int way = 0; way < 5; way++)
        g[way] = scores(way, &over[way]);
    assert_true(over[0]);
    assert_false(over[1] || over[2] || over[3] || over[4]);
    assert_memory_equal(&g[0], &g[1], sizeof g[0]);
    assert_memory_equal(&g[0], &g[4], sizeof g[0]);
    for (int i = 0; i < N; i++) /* the same two sums, in either order */
        assert_true(g[2].x[i] == g[3].x[i]);
    assert_true(g[0].x[0] != g[2].x[0]);
}

/* A 16-bit result does not need its f32 original to stay. Most devices write 16-bit results at
 * once, without an original. */
static void attention_of_16_bits(void **state)
{
    micro = choir_micro_open(step, 0);
    choir_tensor *all = choir_require_grad(choir_randn(micro, choir_dims(2, 3, 24), "all"));
    choir_tensor *heads = choir_require_grad(choir_randn(micro, choir_dims(2, 2, 3, 4), "h"));
    choir_tensor *near = choir_cast(heads, CHOIR_BF16);
    choir_tensor *y[] = {choir_self_attention(choir_cast(all, CHOIR_BF16), 2, true),
        choir_attention(near, near, near, true)};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "attention" : "self_attention";
        assert_int_equal(y[i]->dtype, CHOIR_BF16);
        if (strcmp(y[i]->producer->op->name, name) != 0) {
            const choir_tensor *wide = y[i]->producer->in[0];
            assert_string_equal(wide->producer->op->name, name);
            assert_null(wide->storage);
        }
    }
    choir_check(choir_backward(choir_add(
        choir_sum(choir_cast(y[0], CHOIR_F32)), choir_sum(choir_cast(y[1], CHOIR_F32)))));
    assert_true(choir_item(choir_sum(choir_abs(choir_grad(all)))) > 0);
    assert_true(choir_item(choir_sum(choir_abs(choir_grad(heads)))) > 0);
    choir_check(choir_scope_close(micro));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "2", 1); /* a second one, however few the cores */
    const struct CMUnitTest tests[] = {
        IN_SCOPES(unread),
        IN_SCOPES(needed),
        IN_SCOPES(unrecorded),
        IN_SCOPES(shown),
        IN_SCOPES(made_again),
        IN_SCOPES(changed),
        IN_SCOPES(over_the_scores),
        IN_SCOPES(attention_of_16_bits),
    };
    return cmocka_run_group_tests_name("memory of results", tests, NULL, NULL);
}
