/* config.json as Choir writes it: which keys of the folder's own file go on, and whose ids the
 * special tokens have. */
#include "helpers.h"

#include "nn/models/config.h"

#define LLAMA                                                                                  \
    "llama:layers=1,heads=2,kv_heads=2,head_dim=4,width=8,hidden=16,context=8,vocab=10"
#define GPT2 "gpt2:layers=1,heads=1,width=8,hidden=32,context=4,vocab=61"

/* Returns a model's file, written after the two others. */
static json_t *written(const char *text, const char *model, const char *tokens, int64_t end)
{
    json_t *of_model = model ? json_loads(model, 0, NULL) : NULL;
    json_t *of_tokens = tokens ? json_loads(tokens, 0, NULL) : NULL;
    assert_true((!model || of_model) && (!tokens || of_tokens));
    choir__config_origin origin = {of_model, of_tokens, {end, -1}};
    char *json = choir__config_json(text, NULL, &origin);
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    free(json);
    json_decref(of_model);
    json_decref(of_tokens);
    return root;
}

/* Checks a key by its value as text; NULL: the file has no such key. */
static void has(const json_t *object, const char *key, const char *expected)
{
    const json_t *value = json_object_get(object, key);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (!text != !expected || (text && strcmp(text, expected) != 0))
        fail_msg(
            "%s: expected %s, got %s", key, expected ? expected : "none", text ? text : "none");
    free(text);
}

static void keys_are_kept(void **state)
{
    json_t *root = written(LLAMA,
        "{\"_name_or_path\":\"x/y\",\"use_cache\":true,"
        "\"of_others\":{\"a\":[1,{\"b\":null}]},"
        "\"transformers_version\":\"4.1\",\"torch_dtype\":\"bfloat16\",\"dtype\":\"bfloat16\","
        "\"auto_map\":{\"AutoModel\":\"code.Model\"},"
        "\"rope_parameters\":{\"rope_type\":\"linear\"},"
        "\"attention_bias\":true,\"num_labels\":3,\"problem_type\":\"regression\","
        "\"vocab_size\":99,\"model_type\":\"other\"}",
        NULL, -1);
    has(root, "_name_or_path", "\"x/y\"");
    has(root, "use_cache", "true");
    has(root, "of_others", "{\"a\":[1,{\"b\":null}]}");
    has(root, "transformers_version", "\"4.1\"");
    has(root, "torch_dtype", "\"float32\""); /* from here on, Choir's own */
    has(root, "dtype", NULL);
    has(root, "auto_map", NULL);
    has(root, "rope_scaling", "null");
    has(root, "rope_parameters", NULL);
    has(root, "attention_bias", NULL);
    has(root, "num_labels", NULL);
    has(root, "problem_type", NULL);
    has(root, "vocab_size", "10");
    has(root, "model_type", "\"llama\"");
    json_decref(root);
}

static void keys_of_parts_are_kept(void **state)
{
    choir_model_info info = {0};
    ok(choir_model_describe("donut", &info));
    json_t *root = written(info.config,
        "{\"encoder\":{\"finetuning_task\":\"x\",\"torch_dtype\":\"float16\",\"embed_dim\":3},"
        "\"decoder\":{\"of_others\":1,\"eos_token_id\":2,\"d_model\":5},\"processor_class\":\"P\"}",
        NULL, -1);
    const json_t *encoder = json_object_get(root, "encoder");
    const json_t *decoder = json_object_get(root, "decoder");
    has(root, "processor_class", "\"P\"");
    has(encoder, "finetuning_task", "\"x\"");
    has(encoder, "torch_dtype", NULL);
    has(encoder, "embed_dim", "128");
    has(decoder, "of_others", "1");
    has(decoder, "eos_token_id", "2");
    has(decoder, "d_model", "1024");
    has(root, "bos_token_id", NULL); /* the library assumes none */
    json_decref(root);
}

static void tokens_are_the_tokenizers(void **state)
{
    static const struct {
        const char *text, *model, *tokens;
        int64_t end;
        const char *bos, *eos, *pad;
    } cases[] = {
        {LLAMA, NULL, NULL, -1, "null", "null", "null"},
        {LLAMA, NULL, NULL, 7, "null", "7", "null"},
        {LLAMA, NULL, NULL, 10, "null", "null", "null"}, /* beyond the vocabulary */
        {LLAMA ",pad=4", NULL, "{\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":3}", 2,
            "1", "2", "4"},
        {LLAMA, "{\"bos_token_id\":5,\"eos_token_id\":6}",
            "{\"bos_token_id\":1,\"eos_token_id\":[2,3]}", 3, "1", "[2,3]", "null"},
        {LLAMA, "{\"bos_token_id\":5,\"eos_token_id\":6}", NULL, 7, "null", "7", "null"},
        {LLAMA, NULL, "{\"eos_token_id\":[2,300]}", 7, NULL, "[2,7]", "null"},
        {LLAMA, NULL, "{\"eos_token_id\":2}", 7, NULL, "[2,7]", "null"},
        {LLAMA, NULL, "{\"eos_token_id\":[]}", 7, NULL, "7", "null"},
        {LLAMA, NULL, "{\"eos_token_id\":\"x\"}", 7, NULL, "7", "null"},
        {LLAMA, NULL, "{\"eos_token_id\":[300]}", -1, NULL, "null", "null"},
        {GPT2, NULL, "{\"bos_token_id\":50256,\"eos_token_id\":50256,\"pad_token_id\":9}", -1,
            "null", "null", "9"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        json_t *root = written(cases[i].text, cases[i].model, cases[i].tokens, cases[i].end);
        has(root, "bos_token_id", cases[i].bos);
        has(root, "eos_token_id", cases[i].eos);
        has(root, "pad_token_id", cases[i].pad);
        json_decref(root);
    }
}

static void generation_stops_at_the_end(void **state)
{
    static const struct {
        const char *text, *before;
        int64_t end, turn;
        const char *after; /* NULL: as before */
    } cases[] = {
        {LLAMA, "{\"temperature\":0.6,\"eos_token_id\":2}", 7, -1,
            "{\"temperature\":0.6,\"eos_token_id\":[2,7]}"},
        {LLAMA, "{\"eos_token_id\":[300,7],\"pad_token_id\":300}", 7, -1,
            "{\"eos_token_id\":7,\"pad_token_id\":null}"},
        {LLAMA, "{}", 7, -1, "{\"eos_token_id\":7}"},
        {LLAMA, "{}", 7, 7, "{\"eos_token_id\":7}"},
        {LLAMA, "{\"eos_token_id\":[3,7]}", 7, -1, NULL},
        {LLAMA, "{\"eos_token_id\":3}", 7, 5, "{\"eos_token_id\":[3,7,5]}"},
        {LLAMA, "{\"eos_token_id\":3}", -1, -1, NULL},
        {"bert:layers=1,heads=1,width=8,context=4,vocab=61", "{\"eos_token_id\":3}", 7, -1,
            NULL},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        json_t *before = json_loads(cases[i].before, 0, NULL);
        const choir__config_ends ends = {cases[i].end, cases[i].turn};
        char *json = choir__config_generation(cases[i].text, before, ends);
        json_t *after = json ? json_loads(json, 0, NULL) : NULL;
        json_t *expected = cases[i].after ? json_loads(cases[i].after, 0, NULL) : NULL;
        if (!expected != !after || (expected && !json_equal(expected, after)))
            fail_msg("case %zu: %s", i, json);
        json_decref(expected);
        json_decref(after);
        json_decref(before);
        free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_are_kept),
        cmocka_unit_test(keys_of_parts_are_kept), cmocka_unit_test(tokens_are_the_tokenizers),
        cmocka_unit_test(generation_stops_at_the_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
