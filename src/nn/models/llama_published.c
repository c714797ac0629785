/* Llama and Mistral in their published form: the keys of their config.json, and their
 * differences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/models/published.h"
#include "base/number.h"
#include "nn/models/llama.h"

/* The rows that both have. The rows before them differ in the meaning of an absent key. */
#define SHARED                                                                                 \
    {"num_attention_heads", .option = "heads", .absent = "32"},                                \
        {"num_key_value_heads", .option = "kv_heads"}, {"head_dim", .option = "head_dim"},     \
        {"hidden_size", .option = "width", .absent = "4096"},                                  \
        {"num_hidden_layers", .option = "layers", .absent = "32"},                             \
        {"vocab_size", .option = "vocab", .absent = "32000"},                                  \
        {"rope_theta", .option = "theta", .type = CHOIR__FLOAT},                               \
        {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-06"},            \
        {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "false"},     \
        {"hidden_act", .values = "silu|swish"}, {"partial_rotary_factor", .values = "1.0"},    \
        {"attention_dropout", .values = "0.0",                                                 \
            .note = "attention dropout is not implemented and is ignored"},                    \
    {                                                                                          \
        "initializer_range", .values = "0.02",                                                 \
                             .note = "new weights start with a deviation of 0.02 here"         \
    }

static const choir__config_key llama_keys[] = {
    {"intermediate_size", .option = "hidden", .absent = "11008"},
    {"max_position_embeddings", .option = "context", .absent = "2048"},
    {"attention_bias", .option = "attention_bias", .type = CHOIR__FLAG},
    {"mlp_bias", .option = "mlp_bias", .type = CHOIR__FLAG},
    {"pretraining_tp", .values = "1"},
    SHARED,
    {NULL},
};

static const choir__config_key mistral_keys[] = {
    {"intermediate_size", .option = "hidden", .absent = "14336"},
    {"max_position_embeddings", .option = "context", .absent = "131072"},
    {"sliding_window", .option = "window", .absent = "4096"},
    SHARED,
    {NULL},
};

/* --- reading --- */

static choir_status read_heads(choir__config *c, const char *absent)
{
    int64_t heads = choir__config_int(c, "num_attention_heads", 32);
    int64_t kv = choir__config_int(c, "num_key_value_heads", 0);
    int64_t width = choir__config_int(c, "hidden_size", 4096);
    const json_t *given = json_object_get(c->root, "num_key_value_heads");
    if (!given) /* absent and null differ */
        choir__config_set(c, "kv_heads", "%s", absent);
    if (json_is_null(given))
        choir__config_set(c, "kv_heads", "%lld", (long long)heads);
    if (kv && heads % kv)
        return choir__config_bad(c, "num_key_value_heads",
            "expected a divisor of num_attention_heads, %lld", (long long)heads);
    if (!choir__config_int(c, "head_dim", 0) && width % heads)
        return choir__config_bad(c, "hidden_size",
            "expected a multiple of num_attention_heads, %lld, as head_dim is missing",
            (long long)heads);
    return CHOIR_OK;
}

static choir_status read_number(choir__config *c, const char *where, const json_t *rope,
    const char *key, const char *option)
{
    const json_t *value = json_object_get(rope, key);
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return choir__config_bad(c, where, "expected a number above 0 as its '%s'", key);
    choir__config_set(c, option, "%.17g", json_number_value(value));
    return CHOIR_OK;
}

/* Reads the context of pre-training, which some files have beside the object. */
static choir_status read_original(choir__config *c, const char *where, const json_t *rope)
{
    static const char key[] = "original_max_position_embeddings";
    bool beside = json_is_number(json_object_get(c->root, key));
    return read_number(c, where, beside ? c->root : rope, key, "original");
}

static bool is_named(const char *type, const char *name)
{
    return type && !strcmp(type, name);
}

/* Reads the object of a type; without one it is "default". */
static choir_status read_rope_object(choir__config *c, const char *where, const json_t *rope)
{
    const json_t *named = json_object_get(rope, "rope_type");
    if (!named)
        named = json_object_get(rope, "type");
    const char *type = named ? json_string_value(named) : "default";
    bool llama3 = is_named(type, "llama3"), linear = is_named(type, "linear");
    if (!llama3 && !linear && !is_named(type, "default"))
        return choir__config_bad(
            c, where, "unknown rope_type: choose one of default, linear, llama3");
    choir_status status = CHOIR_OK;
    if (json_object_get(rope, "rope_theta"))
        status = read_number(c, where, rope, "rope_theta", "theta");
    if (llama3 || linear) {
        choir__config_set(c, "rope", "%s", type);
        if (status == CHOIR_OK)
            status = read_number(c, where, rope, "factor", "factor");
    }
    if (llama3 && status == CHOIR_OK)
        status = read_number(c, where, rope, "low_freq_factor", "low_freq");
    if (llama3 && status == CHOIR_OK)
        status = read_number(c, where, rope, "high_freq_factor", "high_freq");
    if (llama3 && status == CHOIR_OK)
        status = read_original(c, where, rope);
    return status;
}

/* Reads "rope_scaling", or "rope_parameters" as it is called since it includes theta. With
 * both, transformers takes the first as a whole (`rope_scaling or rope_parameters`), and theta
 * beside it. */
static choir_status read_rope(choir__config *c)
{
    const json_t *scaling = json_object_get(c->root, "rope_scaling");
    const json_t *parameters = json_object_get(c->root, "rope_parameters");
    bool both = json_object_size(scaling) && json_object_size(parameters);
    const char *where = "rope_scaling";
    if (json_is_null(scaling) || (json_is_object(scaling) && !json_object_size(scaling)))
        scaling = NULL;
    if (!scaling)
        where = "rope_parameters";
    const json_t *rope = scaling ? scaling : parameters;
    if (!rope || json_is_null(rope))
        return CHOIR_OK;
    if (!json_is_object(rope))
        return choir__config_bad(c, where, "expected an object {...}");
    if (both && !json_equal(scaling, parameters))
        choir__config_note(c,
            "%s: key 'rope_parameters' has no effect, as 'rope_scaling' is there as well",
            c->path);
    return read_rope_object(c, where, rope);
}

static choir_status read_both(choir__config *c, const char *kv_heads)
{
    choir_status status = read_heads(c, kv_heads);
    if (status == CHOIR_OK)
        status = choir__config_read_pad(c, "vocab_size", 32000, -1);
    return status == CHOIR_OK ? read_rope(c) : status;
}

static choir_status read_llama(choir__config *c)
{
    char heads[24];
    snprintf(heads, sizeof heads, "%lld",
        (long long)choir__config_int(c, "num_attention_heads", 32));
    return read_both(c, heads);
}

static choir_status read_mistral(choir__config *c)
{
    if (json_is_null(json_object_get(c->root, "sliding_window"))) /* attends to all positions */
        choir__config_set(c, "window", "0");
    return read_both(c, "8");
}

/* --- writing --- */

static void write_rope(const char *text, json_t *root)
{
    static const char *const names[][2] = {{"factor", "factor"},
        {"low_freq", "low_freq_factor"}, {"high_freq", "high_freq_factor"},
        {"original", "original_max_position_embeddings"}};
    char *type = choir__config_option(text, "rope");
    json_t *rope = type ? json_pack("{s:s}", "rope_type", type) : json_null();
    for (size_t i = 0; type && i < CHOIR_COUNT(names); i++) {
        char *value = choir__config_option(text, names[i][0]);
        if (value)
            json_object_set_new(rope, names[i][1],
                i == 3 ? json_integer(strtoll(value, NULL, 10))
                       : json_real(choir__number_read(value, NULL)));
        free(value);
    }
    json_object_set_new(root, "rope_scaling", rope);
    free(type);
}

static bool has_window(const char *text)
{
    char *window = choir__config_option(text, "window");
    bool has = window && strcmp(window, "0") != 0;
    free(window);
    return has;
}

/* Llama's published form has no window: with one, it is written as Mistral, which has no
 * biases. */
static void write_llama(const char *text, json_t *root)
{
    static const char *const of_llama[] = {"attention_bias", "mlp_bias", "pretraining_tp"};
    write_rope(text, root);
    choir__config_write_pad(text, root);
    if (!has_window(text))
        return;
    for (size_t i = 0; i < CHOIR_COUNT(of_llama); i++)
        json_object_del(root, of_llama[i]);
    char *window = choir__config_option(text, "window");
    json_object_set_new(root, "architectures", json_pack("[s]", "MistralForCausalLM"));
    json_object_set_new(root, "model_type", json_string("mistral"));
    json_object_set_new(root, "sliding_window", json_integer(strtoll(window, NULL, 10)));
    free(window);
}

static void write_mistral(const char *text, json_t *root)
{
    write_rope(text, root);
    choir__config_write_pad(text, root);
    if (!has_window(text))
        json_object_set_new(root, "sliding_window", json_null());
}

static const char *const rope_keys[] = {
    "rope_scaling", "rope_parameters", "original_max_position_embeddings", NULL};

const choir__published choir__llama_published = {
    .type = "llama",
    /* the last as converters wrote it before the library had this model */
    .architectures =
        (const char *[]){"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM", NULL},
    .keys = llama_keys,
    .read = read_llama,
    .write = write_llama,
    .written = rope_keys,
    .has_ends = true,
    .prefix = "model.",
    .ignored = (const char *[]){"*rotary_emb.inv_freq", NULL},
    .fresh = (const char *[]){"lm_head.*", NULL},
};

const choir__published choir__mistral_published = {
    .type = "mistral",
    .architectures = (const char *[]){"MistralForCausalLM", "MistralModel", NULL},
    .keys = mistral_keys,
    .read = read_mistral,
    .write = write_mistral,
    .written = rope_keys,
    .has_ends = true,
    .prefix = "model.",
    .ignored = (const char *[]){"*rotary_emb.inv_freq", NULL},
    .fresh = (const char *[]){"lm_head.*", NULL},
};
