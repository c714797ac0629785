/* Adapters: their numbers, the layers that get them, modules that are trained beside them, and
 * the memory of frozen weights. */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "nn/lora.h"
#include "run_fixture.h"

static const char llama[] =
    "llama:layers=2,heads=2,kv_heads=1,width=8,hidden=12,context=8,vocab=11";

static choir_module *model(const char *text)
{
    choir_module *net = choir_model(run, text, NULL);
    ok(choir_scope_status(run));
    return net;
}

static choir_lora_opts with_targets(const char *targets)
{
    choir_lora_opts o = choir_lora_defaults();
    o.rank = 2;
    o.targets = targets;
    return o;
}

/* --- numbers --- */

static void fill(choir_module *net, const char *name, float *values, int n)
{
    choir_tensor *t = choir_module_find(net, name);
    assert_non_null(t);
    assert_int_equal(choir_tensor_count(t), n);
    for (int i = 0; i < n; i++)
        values[i] = (float)((i * 7 + n) % 11) / 8 - 0.5f;
    ok(choir_write(t, values, (size_t)n * sizeof *values));
}

/* y = x W^T + b + alpha / r (x A^T) B^T, in numbers that f32 represents. */
static void adds_the_product(void **state)
{
    float w[12], b[3], a[8], up[6], x[4] = {1, -2, 0.5f, 4}, y[3];
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 4, 3));
    choir_lora_opts o = with_targets("0");
    o.alpha = 3;
    ok(choir_lora(net, o));
    fill(net, "0.weight", w, 12);
    fill(net, "0.bias", b, 3);
    fill(net, "0.lora_A.weight", a, 8);
    fill(net, "0.lora_B.weight", up, 6);
    choir_scope *step = choir_step_open(run, 0);
    choir_tensor *out = choir_forward(net, choir_from(step, CHOIR_F32, choir_dims(1, 4), x));
    ok(choir_read(out, y, sizeof y));
    for (int i = 0; i < 3; i++) {
        double sum = (double)b[i];
        for (int k = 0; k < 4; k++)
            sum += (double)w[i * 4 + k] * (double)x[k];
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < 4; k++)
                sum += 1.5 * (double)up[i * 2 + r] * (double)a[r * 4 + k] * (double)x[k];
        assert_float_equal(y[i], sum, 1e-6);
    }
    ok(choir_scope_close(step));
}

static choir_tensor *scores(choir_module *net, choir_scope *step)
{
    const int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    return choir_forward(net, choir_from(step, CHOIR_I64, choir_dims(1, 8), ids));
}

static void read_scores(choir_module *net, float out[88])
{
    choir_scope *step = choir_no_grad(run);
    ok(choir_read(scores(net, step), out, 88 * sizeof *out));
    ok(choir_scope_close(step));
}

/* B is zero, so that the model is as it was; A is uniform in +-1/sqrt(in), as its name says. */
static void starts_as_the_model_is(void **state)
{
    float before[88], after[88], a[16];
    choir_module *net = model(llama);
    read_scores(net, before);
    ok(choir_lora(net, with_targets("all-linear"))); /* the tree is in use */
    read_scores(net, after);
    assert_memory_equal(before, after, sizeof before);
    choir_tensor *t = choir_module_find(net, "model.layers.0.self_attn.q_proj.lora_A.weight");
    ok(choir_read(t, a, sizeof a));
    float largest = 0;
    for (int i = 0; i < 16; i++)
        largest = a[i] > largest ? a[i] : -a[i] > largest ? -a[i] : largest;
    assert_true(largest > 0.2f && largest <= 0.35356f); /* 1 / sqrt 8 */
}

/* --- which layers --- */

struct counted {
    int layers;
    char first[96], last[96];
};

static void count(choir_module *m, void *arg)
{
    struct counted *c = arg;
    bool in_out;
    const choir__linear *l = choir__linear_of_module(m, &in_out);
    if (!l || !l->adapter.a)
        return;
    if (!c->layers++)
        snprintf(c->first, sizeof c->first, "%s", m->path);
    snprintf(c->last, sizeof c->last, "%s", m->path);
}

static struct counted adapted(const char *text, const char *targets, const char *whole)
{
    struct counted c = {0};
    choir_module *net = model(text);
    choir_lora_opts o = with_targets(targets);
    o.modules_to_save = whole;
    ok(choir_lora(net, o));
    choir_module_each(net, count, &c);
    return c;
}

static void chooses_as_peft_does(void **state)
{
    const char gpt2[] = "gpt2:layers=2,heads=2,width=8,context=8,vocab=11",
               bert[] = "bert:layers=2,heads=2,width=8,context=8,vocab=11";
    const struct {
        const char *model, *targets, *whole;
        int layers;
        const char *first, *last;
    } cases[] = {
        {llama, NULL, NULL, 4, "model.layers.0.self_attn.q_proj",
            "model.layers.1.self_attn.v_proj"},
        {llama, "all-linear", NULL, 14, "model.layers.0.self_attn.q_proj",
            "model.layers.1.mlp.down_proj"},
        {llama, "lm_head", NULL, 1, "lm_head", "lm_head"},
        {llama, "layers.1.mlp.up_proj/o_proj", NULL, 3, "model.layers.0.self_attn.o_proj",
            "model.layers.1.mlp.up_proj"},
        {llama, NULL, "layers.0", 2, "model.layers.1.self_attn.q_proj",
            "model.layers.1.self_attn.v_proj"},
        {gpt2, NULL, NULL, 2, "transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"},
        {gpt2, "all-linear", NULL, 8, "transformer.h.0.attn.c_attn",
            "transformer.h.1.mlp.c_proj"},
        {bert, NULL, NULL, 4, "bert.encoder.layer.0.attention.self.query",
            "bert.encoder.layer.1.attention.self.value"},
        {"mlp:in=6,hidden=7,classes=4", "all-linear", NULL, 2, "0", "2"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        struct counted c = adapted(cases[i].model, cases[i].targets, cases[i].whole);
        assert_int_equal(c.layers, cases[i].layers);
        assert_string_equal(c.first, cases[i].first);
        assert_string_equal(c.last, cases[i].last);
    }
}

static void refuses(void **state)
{
    const struct {
        choir_lora_opts opts;
        const char *whole, *message;
    } cases[] = {
        {{.rank = 0}, NULL, "expected a rank of 1 or more, got r=0"},
        {{.rank = 9}, NULL,
            "r=9 is larger than the layer 'model.layers.0.self_attn.q_proj', which "
            "maps 8 numbers to 8"},
        {{.rank = 5}, NULL, "maps 8 numbers to 4: expected at most 4"},
        {{.rank = 2, .alpha = -1}, NULL, "an alpha of 0 or more, got alpha=-1"},
        {{.rank = 2, .dropout = 1}, NULL, "a probability in [0, 1), got dropout=1"},
        {{.rank = 2, .targets = "q_prj"}, NULL, "(did you mean 'q_proj'?)"},
        {{.rank = 2, .targets = "proj"}, NULL, "unknown LoRA target 'proj'"},
        {{.rank = 2, .targets = "norm"}, NULL, "'norm' is a module 'rms_norm'"},
        {{.rank = 2, .targets = "q_proj/"}, NULL, "names separated by '/'"},
        {{.rank = 2, .targets = "q_proj"}, "layers.1",
            "'model.layers.1.self_attn.q_proj' is a "
            "target, and in a module"},
        {{.rank = 2}, "head", "unknown module to save 'head'"},
    };
    choir_module *net = model(llama);
    int64_t all = choir_module_param_count(net);
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir_lora_opts o = cases[i].opts;
        o.modules_to_save = cases[i].whole;
        assert_fails(choir_lora(net, o), CHOIR_ERR_ARGUMENT, cases[i].message);
        assert_int_equal(choir_module_param_count(net), all); /* nothing is frozen */
    }
    assert_fails(choir_lora(model("mlp:in=6,hidden=7,classes=4"), choir_lora_defaults()),
        CHOIR_ERR_ARGUMENT, "no attention whose layers were the usual targets");
    ok(choir_lora(net, with_targets(NULL)));
    assert_fails(choir_lora(net, with_targets(NULL)), CHOIR_ERR_STATE, "has adapters already");
    choir_module *used = model(llama);
    choir_scope *step = choir_step_open(run, 0);
    ok(choir_backward(choir_mean(scores(used, step))));
    ok(choir_scope_close(step));
    assert_fails(
        choir_lora(used, with_targets(NULL)), CHOIR_ERR_STATE, "adapters come before them");
}

/* --- what frozen weights cost --- */

/* Gradients and state are as large as the adapters, and a module that is trained whole is among
 * them. */
static void frozen_weights_have_no_gradient(void **state)
{
    for (int whole = 0; whole < 2; whole++) {
        choir_module *net =
            model("llama:layers=2,heads=2,kv_heads=2,width=64,hidden=512,context=8,vocab=4096");
        choir_lora_opts o = with_targets("q_proj/v_proj");
        o.modules_to_save = whole ? "norm" : NULL;
        choir_device_stats before, after;
        choir_device *device = choir_device_find("cpu:0");
        choir_device_get_stats(device, &before);
        ok(choir_lora(net, o));
        choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
        int64_t trained = 4 * (64 * 2 + 2 * 64) + (whole ? 64 : 0);
        assert_int_equal(choir_module_param_count(net), trained);
        for (int i = 0; i < 2; i++) {
            choir_scope *step = choir_step_open(run, (uint64_t)i);
            ok(choir_backward(choir_mean(choir_square(scores(net, step)))));
            ok(choir_optim_step(opt));
            ok(choir_scope_close(step));
        }
        choir_device_get_stats(device, &after);
        size_t bytes = (size_t)trained * sizeof(float), slack = 16 * 64;
        assert_in_range(after.bytes_gradients - before.bytes_gradients, bytes, bytes + slack);
        assert_in_range(
            after.bytes_optimizer - before.bytes_optimizer, 2 * bytes, 2 * bytes + 4 * slack);
        assert_null(choir_grad(choir_module_find(net, "model.embed_tokens.weight")));
        assert_non_null(choir_grad(
            choir_module_find(net, "model.layers.0.self_attn.q_proj.lora_A.weight")));
        close_run(state);
        open_run(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_RUN(adds_the_product),
        IN_RUN(starts_as_the_model_is),
        IN_RUN(chooses_as_peft_does),
        IN_RUN(refuses),
        IN_RUN(frozen_weights_have_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
