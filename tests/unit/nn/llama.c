/* Llama and its relatives as models by name: parameter names, options that do and do not fit
 * together, and which positions each position attends to. */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "scopes_fixture.h"

#define SMALL "layers=2,heads=4,kv_heads=2,width=16,hidden=24,vocab=30"

static choir_status describe(const char *text, int64_t classes, choir_model_info *info)
{
    *info = (choir_model_info){.classes = classes};
    return choir_model_describe(text, info);
}

static choir_module *build(const char *text)
{
    choir_model_info info;
    choir_check(describe(text, 0, &info));
    return choir_model_build(run, &info);
}

/* --- names --- */

static void list(const char *name, choir_tensor *t, void *arg)
{
    strcat(strcat(arg, name), " ");
}

static void names(void **state)
{
#define LAYER "model.layers.0."
    char text[2048] = "";
    choir_module_visit(build("llama:layers=1,heads=4,kv_heads=2,width=16,vocab=9,"
                             "attention_bias=1"),
        true, list, text);
    assert_string_equal(text,
        "model.embed_tokens.weight " LAYER "self_attn.q_proj.weight " LAYER
        "self_attn.q_proj.bias " LAYER "self_attn.k_proj.weight " LAYER
        "self_attn.k_proj.bias " LAYER "self_attn.v_proj.weight " LAYER
        "self_attn.v_proj.bias " LAYER "self_attn.o_proj.weight " LAYER
        "self_attn.o_proj.bias " LAYER "mlp.gate_proj.weight " LAYER "mlp.up_proj.weight " LAYER
        "mlp.down_proj.weight " LAYER "input_layernorm.weight " LAYER
        "post_attention_layernorm.weight model.norm.weight lm_head.weight ");
    choir_module *tied = build("mistral:layers=1,heads=4,head_dim=6,width=16,vocab=9,tied=1");
    assert_null(choir_module_find(tied, "lm_head.weight"));
    choir_tensor *k = choir_module_find(tied, LAYER "self_attn.k_proj.weight");
    assert_int_equal(choir_tensor_size(k, 0), 2 * 6);
    assert_int_equal(choir_tensor_size(k, 1), 16);
    choir_tensor *o = choir_module_find(tied, LAYER "self_attn.o_proj.weight");
    assert_int_equal(choir_tensor_size(o, 1), 4 * 6);
}

/* --- options --- */

static void options(void **state)
{
    static const char *const texts[] = {"llama", "mistral", "llama:size=7b", "llama:size=8b",
        "llama:size=1b", "mistral:size=7b", "llama:size=1b,layers=3,rope=llama3,factor=8",
        "llama:" SMALL ",rope=linear,factor=2.5", "llama:heads=3,head_dim=2,width=7",
        "mistral:window=0,theta=1e6,eps=1e-6,tied=1", "qwen2",
        "qwen2:" SMALL ",window=4,pattern=fs", "qwen3:" SMALL, "gemma:" SMALL, "gemma2:" SMALL,
        "gemma2:" SMALL ",pattern=s,softcap=0",
        "gemma3:" SMALL ",window=0,pattern=f,local_theta=0", "phi3:" SMALL ",partial=0.5",
        "phi3:" SMALL ",rope=longrope,original=64,factor=4,short=1/1.5,long=1.1/3.25",
        "smollm3:" SMALL, "llama:" SMALL ",rope=dynamic,factor=2,original=64",
        "llama:" SMALL ",rope=yarn,factor=4,low_freq=1,high_freq=32,original=64,unrounded=1,"
        "attention_factor=0.75"};
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++) { /* the config in full is one of its own */
        choir_model_info info, again;
        choir_check(describe(texts[i], 0, &info));
        assert_true(strlen(info.config) < sizeof info.config - 1);
        choir_check(describe(info.config, 0, &again));
        assert_string_equal(info.config, again.config);
        assert_int_equal(info.classes, strstr(texts[i], "vocab=30") ? 30 : 32000);
        assert_int_equal(info.items, info.input.dim[0]);
    }
    choir_model_info info;
    choir_check(describe("llama:size=1b,layers=3", 128256, &info));
    assert_non_null(strstr(info.config,
        "layers=3,heads=32,kv_heads=8,head_dim=64,width=2048,hidden=8192,context=131072,"
        "vocab=128256,window=0,theta=500000,eps=1e-05,tied=1,attention_bias=0,mlp_bias=0,"
        "rope=llama3,factor=32,low_freq=1,high_freq=4,original=8192"));
}

static void bad(const char *text, int64_t classes, const char *what)
{
    choir_model_info info;
    choir_status status = describe(text, classes, &info);
    if (status != CHOIR_ERR_ARGUMENT || !strstr(choir_error_message(), what))
        fail_msg("%s: status %d, '%s', not '%s'", text, status, choir_error_message(), what);
}

static void bad_options(void **state)
{
    bad("llama:heads=3,width=16", 0, "heads=3 does not divide width=16");
    bad("llama:heads=4,kv_heads=3,width=16", 0, "kv_heads=3 does not divide heads=4");
    bad("llama:heads=4,kv_heads=8,width=16", 0, "kv_heads=8 does not divide heads=4");
    bad("mistral:heads=4,width=12", 0, "model mistral: expected heads of an even number");
    bad("llama:heads=4,head_dim=5,width=16", 0, "turn pairs, got 5");
    bad("llama:vocab=10", 11, "resize_token_embeddings(11)");
    bad("llama:rope=ntk", 0,
        "unknown rope 'ntk': choose one of plain, linear, llama3, dynamic, yarn, longrope");
    bad("llama:rope=yarn", 0, "expected rope=yarn with factor, original, low_freq");
    bad("llama:rope=dynamic,factor=2", 0, "expected rope=dynamic with factor and original");
    bad("phi3:" SMALL ",rope=longrope,original=9,short=1/2,long=1", 0, "long= and as many");
    bad("phi3:" SMALL ",rope=longrope,original=9,short=1/0,long=1/2", 0, "short= and as many");
    bad("phi3:" SMALL ",partial=0.3", 0, "got partial=0.3 of head_dim=4");
    bad("llama:softcap=3", 0, "unknown option 'softcap'");
    bad("qwen2:attention_bias=1", 0, "unknown option 'attention_bias'");
    bad("gemma2:pattern=fx", 0, "pattern=fx: expected a letter for each kind of layer");
    bad("gemma2:pattern=sf,window=0", 0, "expected a window for its layers s and w");
    bad("qwen3:size=8b", 0, "unknown size '8b'");
    bad("llama:factor=2", 0, "rope is plain");
    bad("llama:original=2048", 0, "rope is plain");
    bad("llama:rope=linear", 0, "expected rope=linear with factor");
    bad("llama:rope=linear,factor=2,low_freq=1", 0, "nothing else");
    bad("llama:rope=llama3,factor=8,low_freq=1,high_freq=4", 0, "original");
    bad("llama:rope=llama3,factor=8,low_freq=4,high_freq=4,original=64", 0, "high_freq");
    bad("llama:size=70b", 0, "unknown size '70b': choose one of 7b, 8b, 1b");
    bad("mistral:size=1b", 0, "choose one of 7b");
    bad("llama:window=-1", 0, "window=-1");
    bad("llama:tied=perhaps", 0, "tied=perhaps");
    bad("llama:dropout=0.1", 0, "unknown option 'dropout'");
    bad("llamas", 0, "unknown model 'llamas'");
}

/* --- who sees whom --- */

enum { T = 20, V = 30 };

/* Computes the scores (t, V) of t positions; the id of one of them may be changed. */
static void scores(choir_module *net, int64_t t, int64_t changed, float *to)
{
    int64_t ids[512];
    for (int64_t i = 0; i < t; i++)
        ids[i] = i * 7 % V;
    if (changed >= 0)
        ids[changed] = (ids[changed] + 11) % V;
    choir_scope *s = choir_no_grad(run);
    choir_tensor *y = choir_forward(net, choir_from(s, CHOIR_I64, choir_dims(1, t), ids));
    choir_check(choir_read(y, to, (size_t)(t * V) * sizeof *to));
    choir_check(choir_scope_close(s));
}

static bool same_row(const float *a, const float *b, int64_t t)
{
    return !memcmp(a + t * V, b + t * V, V * sizeof *a);
}

static void sight(void **state)
{
    static float before[T * V], after[T * V];
    choir_module *net = build("llama:context=20," SMALL);
    scores(net, T, -1, before);
    scores(net, T, 5, after);
    for (int64_t t = 0; t < T; t++) /* only this position and later ones see the change */
        assert_true(same_row(before, after, t) == (t < 5));
    net = build("mistral:context=20,window=3," SMALL);
    scores(net, T, -1, before);
    scores(net, T, 5, after);
    for (int64_t t = 0; t < T; t++) /* two layers reach back 2 * (3 - 1) positions */
        assert_true(same_row(before, after, t) == (t < 5 || t > 9));
    static float wide[T * V];
    scores(build("mistral:context=20,window=20," SMALL), T, -1, wide);
    scores(build("llama:context=20," SMALL), T, -1, before);
    assert_memory_equal(wide, before, sizeof wide);
}

/* The table of positions grows when a longer text comes, and earlier entries keep their
 * values. */
static void growing(void **state)
{
    static float few[10 * V], many[300 * V];
    choir_module *net = build("llama:context=300," SMALL);
    scores(net, 10, -1, few);
    scores(net, 300, -1, many);
    for (int i = 0; i < 10 * V; i++) /* products of other sizes may have other bits */
        assert_true(fabsf(few[i] - many[i]) < 1e-5f);
    scores(net, 10, -1, many);
    assert_memory_equal(few, many, sizeof few);
}

static void too_long(void **state)
{
    choir_module *net = build("llama:context=4," SMALL);
    static const int64_t ids[5];
    choir_forward(net, choir_from(step, CHOIR_I64, choir_dims(1, 5), ids));
    assert_fails(choir_scope_status(step), CHOIR_ERR_SHAPE, "context of 4, got (1, 5)");
    choir_scope_clear(step);
    choir_forward(net, choir_from(step, CHOIR_I64, choir_dims(4), ids));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define X(f) cmocka_unit_test_setup_teardown(f, open_scopes, close_scopes)
        X(names),
        X(options),
        X(bad_options),
        X(sight),
        X(growing),
        X(too_long),
#undef X
    };
    return cmocka_run_group_tests_name("Llama and Mistral", tests, NULL, NULL);
}
