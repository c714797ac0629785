/* Sampler and trainer are one program: tokens that are written with a cache, in a batch, equal
 * the tokens of a forward over each whole text, and their log-probabilities are minus the
 * losses that training computes, bit for bit, in each class of bits. Nothing here has a
 * tolerance. */
#include <stdio.h>

#include <choir/generate.h>
#include <choir/hold.h>
#include <choir/lora.h>

#include "device/cpu/multiplier.h"
#include "run_fixture.h"

enum { NO_BASE = -1, VOCAB = 61, PROMPTS = 4, MOST = 24, CONTEXT = 64 };

static const char *const models[] = {
    "gpt2:layers=2,heads=3,width=48,context=64,vocab=61",
    "llama:layers=2,heads=4,kv_heads=2,width=48,hidden=80,context=64,vocab=61",
    ("mistral:layers=2,heads=4,kv_heads=1,head_dim=10,width=40,hidden=56,context=64,vocab=61,"
     "window=7"),
    ("gemma2:layers=2,heads=4,kv_heads=2,head_dim=8,width=40,hidden=56,context=64,vocab=61,"
     "window=7,softcap=2,final_softcap=3"),
    ("gemma3:layers=2,heads=4,kv_heads=1,head_dim=8,width=40,hidden=56,context=64,vocab=61,"
     "window=7,pattern=sf"),
    "phi3:layers=2,heads=4,kv_heads=2,width=48,hidden=80,context=64,vocab=61,partial=0.5",
    "lstm:layers=2,hidden=40,in=24,context=64,vocab=61",
    "lstm:cell=gru,layers=1,hidden=40,in=24,context=64,vocab=61",
    "lstm:cell=rnn,layers=2,hidden=24,in=24,context=64,vocab=61",
};

static const int64_t lengths[PROMPTS] = {1, 17, 21, 22};

static void make_prompts(int64_t ids[PROMPTS][CONTEXT], choir_prompt prompts[PROMPTS])
{
    for (int64_t p = 0; p < PROMPTS; p++) {
        for (int64_t i = 0; i < CONTEXT; i++)
            ids[p][i] = (7 * i * i + 13 * p + i + 1) % VOCAB;
        prompts[p] = (choir_prompt){ids[p], lengths[p]};
    }
}

static choir_generate_opts sampled(void)
{
    choir_generate_opts opts = choir_generate_defaults();
    opts.tokens = MOST;
    opts.temperature = 3;
    opts.repetition_penalty = 1.2;
    opts.seed = 9;
    return opts;
}

static void same(const choir_generated *a, const choir_generated *b)
{
    assert_int_equal(a->stopped, b->stopped);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->count * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs);
}

/* Compares the log-probabilities with the losses of one batch, in training, of all texts. */
static void trained_alike(choir_module *net, const choir_model_info *info,
    const choir_prompt *prompts, const choir_generated *written)
{
    int64_t x[PROMPTS][CONTEXT], y[PROMPTS][CONTEXT];
    float loss[PROMPTS][CONTEXT];
    choir_scope *step = choir_step_open(run, 0);
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    opts.reduction = CHOIR_LOSS_NONE;
    for (int64_t p = 0; p < PROMPTS; p++)
        for (int64_t i = 0; i < CONTEXT; i++) {
            int64_t at = i - prompts[p].count, end = prompts[p].count + written[p].count;
            x[p][i] = at < 0 ? prompts[p].ids[i] : i < end ? written[p].tokens[at] : 3;
            if (i)
                y[p][i - 1] = x[p][i];
            y[p][i] = 0;
        }
    choir_shape shape = choir_dims(PROMPTS, CONTEXT);
    choir_tensor *out =
        choir_model_forward(info, net, choir_from(step, CHOIR_I64, shape, x), NULL);
    ok(choir_read(choir_cross_entropy_with(out, choir_from(step, CHOIR_I64, shape, y), opts),
        loss, sizeof loss));
    for (int64_t p = 0; p < PROMPTS; p++)
        for (int64_t i = 0; i < written[p].count; i++) {
            float bits = -loss[p][prompts[p].count + i - 1];
            assert_memory_equal(&bits, &written[p].logprobs[i], sizeof bits);
        }
    ok(choir_scope_close(step));
}

/* Compares with texts that share rows, where no document sees another. */
static void packed_alike(
    choir_module *net, const choir_prompt *prompts, const choir_generated *written)
{
    enum { ROWS = 2, FEW = 10 };
    int64_t x[ROWS][CONTEXT] = {{0}}, of[ROWS][CONTEXT] = {{0}}, at[ROWS][CONTEXT] = {{0}};
    int64_t y[ROWS][CONTEXT] = {{0}}, begins[PROMPTS], used[ROWS] = {3, 1};
    float loss[ROWS][CONTEXT];
    choir_scope *step = choir_step_open(run, 0);
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    opts.reduction = CHOIR_LOSS_NONE;
    for (int64_t p = 0; p < PROMPTS; p++) {
        const int64_t r = p % ROWS, length = prompts[p].count + FEW;
        begins[p] = used[r];
        for (int64_t i = 0; i < length && used[r] < CONTEXT; i++, used[r]++) {
            const int64_t k = i - prompts[p].count;
            x[r][used[r]] = k < 0 ? prompts[p].ids[i] : written[p].tokens[k];
            of[r][used[r]] = p + 1;
            at[r][used[r]] = i;
            if (i)
                y[r][used[r] - 1] = x[r][used[r]];
        }
    }
    choir_shape shape = choir_dims(ROWS, CONTEXT);
    choir_tensor *in[] = {choir_from(step, CHOIR_I64, shape, x),
        choir_from(step, CHOIR_I64, shape, of), choir_from(step, CHOIR_I64, shape, at)};
    choir_tensor *out = choir_forward_n(net, in, 3);
    ok(choir_read(choir_cross_entropy_with(out, choir_from(step, CHOIR_I64, shape, y), opts),
        loss, sizeof loss));
    for (int64_t p = 0; p < PROMPTS; p++)
        for (int64_t i = 0; i < FEW; i++) {
            float bits = -loss[p % ROWS][begins[p] + prompts[p].count + i - 1];
            assert_memory_equal(&bits, &written[p].logprobs[i], sizeof bits);
        }
    ok(choir_scope_close(step));
}

static void raise_adapter(const char *name, choir_tensor *t, void *arg)
{
    float values[4096];
    const int64_t n = choir_tensor_count(t);
    if (!strstr(name, "lora_B"))
        return;
    assert_true(n <= (int64_t)CHOIR_COUNT(values));
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((i * 7 + n) % 11) / 32 - 0.15f;
    ok(choir_write(t, values, (size_t)n * sizeof *values));
}

/* Gives a model adapters, which change its scores, beside frozen weights in few bits. */
static void adapt(choir_module *net, choir_hold base)
{
    choir_lora_opts opts = choir_lora_defaults();
    opts.rank = 4;
    opts.targets = "all-linear";
    ok(choir_lora(net, opts));
    ok(choir_module_hold(net, base, true));
    assert_true(choir_module_held_bytes(net) > 0);
    choir_module_visit(net, false, raise_adapter, NULL);
}

/* Checks a model in a dtype. long_texts: its positions depend on the length of a text, and
 * differ in a whole row. base: a type of frozen weights beside adapters, or NO_BASE. */
static void check(const char *text, choir_dtype dtype, bool long_texts, int base)
{
    int64_t ids[PROMPTS][CONTEXT];
    choir_prompt prompts[PROMPTS];
    choir_generated all[PROMPTS], one;
    choir_model_info info = {0};
    void *state = NULL;
    make_prompts(ids, prompts);
    open_run(&state);
    if (dtype != CHOIR_F32)
        choir_autocast(run, dtype);
    ok(choir_model_describe(text, &info));
    choir_module *net = choir_model_build(run, &info);
    if (base != NO_BASE)
        adapt(net, (choir_hold)base);
    ok(choir_scope_status(run));
    ok(choir_generate(run, net, &info, NULL, prompts, PROMPTS, sampled(), all));
    for (int p = 0; p < PROMPTS; p++) { /* alone, and each token from the whole text */
        choir_generate_opts opts = sampled();
        assert_int_equal(all[p].count, MOST);
        assert_int_equal(all[p].stopped, CHOIR_STOPPED_LENGTH);
        ok(choir_generate(run, net, &info, NULL, &prompts[p], 1, opts, &one));
        same(&all[p], &one);
        choir_generated_free(&one, 1);
        opts.uncached = true;
        ok(choir_generate(run, net, &info, NULL, &prompts[p], 1, opts, &one));
        same(&all[p], &one);
        choir_generated_free(&one, 1);
    }
    if (!long_texts)
        trained_alike(net, &info, prompts, all);
    if (info.packs && !long_texts)
        packed_alike(net, prompts, all);
    choir_generated_free(all, PROMPTS);
    close_run(&state);
}

static void one_program(void **state)
{
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
    static const choir__multiplier classes[] = {CHOIR__BY_CHAIN, CHOIR__BY_AMX};
    for (size_t c = 0; c < CHOIR_COUNT(classes); c++) {
        if (!choir__multiplier_is_here(classes[c]))
            continue;
        ok(choir__multiplier_take(classes[c]));
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++)
            for (size_t m = 0; m < CHOIR_COUNT(models); m++)
                check(models[m], dtypes[d], false, NO_BASE);
        choir__multiplier_drop();
    }
}

/* Texts that outgrow the context before a stretch, while others in the batch do not: their keys
 * turn at other rates from then on, and the cache forgets them. */
static void outgrown(void **state)
{
    check("llama:layers=2,heads=4,kv_heads=2,width=48,hidden=80,context=64,vocab=61,"
          "rope=dynamic,factor=2,original=30",
        CHOIR_F32, true, NO_BASE);
    check("phi3:layers=2,heads=4,kv_heads=2,head_dim=4,width=48,hidden=80,context=64,vocab=61,"
          "rope=longrope,factor=2,original=32,short=1/1.5,long=2/3",
        CHOIR_F32, true, NO_BASE);
}

/* Adapters beside a base in few bits give the same log-probabilities; the base's products have
 * other kernels for one token than for many. */
static void adapters_beside_blocks(void **state)
{
    static const struct {
        const char *model;
        choir_hold base;
    } cases[] = {
        {"llama:layers=2,heads=4,kv_heads=2,width=64,hidden=96,context=64,vocab=61",
            CHOIR_HOLD_Q4_0},
        {"gemma3:layers=2,heads=4,kv_heads=1,head_dim=16,width=64,hidden=96,context=64,vocab=61,"
         "window=7,pattern=sf",
            CHOIR_HOLD_Q8_0},
        {"gpt2:layers=1,heads=4,width=256,context=64,vocab=61", CHOIR_HOLD_Q4_K},
        {"phi3:layers=1,heads=4,kv_heads=2,width=256,hidden=256,context=64,vocab=61",
            CHOIR_HOLD_Q4_K},
        {"llama:layers=1,heads=2,width=32,hidden=64,context=64,vocab=61", CHOIR_HOLD_BF16},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            check(cases[i].model, bf16 ? CHOIR_BF16 : CHOIR_F32, false, cases[i].base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_program),
        cmocka_unit_test(outgrown),
        cmocka_unit_test(adapters_beside_blocks),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
