/* Qwen2 and Qwen2.5 (Yang et al., 2024), and Qwen3 (2025): Llama whose queries, keys and values
 * have biases, or whose heads of queries and keys are normed. Layers behind the first
 * max_window_layers may have a window. */
#include <stdlib.h>
#include <string.h>

#include "nn/models/families/family.h"

#define DEFAULTS                                                                               \
    .layers = 8, .heads = 8, .width = 512, .context = 512, .eps = 1e-6, .pad = -1,             \
    .rotary = {.theta = 1000000}

static const choir__model_family qwen2 = {.name = "qwen2",
    .options = (const char *[]){"window", "pattern", NULL},
    .defaults = {DEFAULTS, .traits = CHOIR__TRAIT_QKV_BIAS},
    .absent = {.heads = 32,
        .kv_heads = 32,
        .width = 4096,
        .vocab = 151936,
        .pad = -1,
        .context = 32768}};

static const choir__model_family qwen3 = {.name = "qwen3",
    .options = (const char *[]){"window", "pattern", "attention_bias", NULL},
    .defaults = {DEFAULTS, .head_dim = 128, .traits = CHOIR__TRAIT_QK_NORM},
    .absent = {.heads = 32,
        .kv_heads = 32,
        .width = 4096,
        .vocab = 151936,
        .pad = -1,
        .context = 32768}};

/* --- the published form --- */

#define BOTH                                                                                   \
    CHOIR__FAMILY_SIZES("4096", "22016", "32", "32", "32768", "151936"),                       \
        {"sliding_window", .option = "window", .absent = "4096"},                              \
        {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-06"},            \
        {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "false"},     \
        {"hidden_act", .values = "silu|swish"}, CHOIR__FAMILY_TURNS, CHOIR__FAMILY_KEYS,       \
    {                                                                                          \
        NULL                                                                                   \
    }

static const choir__config_key qwen2_keys[] = {BOTH};

static const choir__config_key qwen3_keys[] = {
    {"head_dim", .option = "head_dim", .absent = "128"},
    {"attention_bias", .option = "attention_bias", .type = CHOIR__FLAG}, BOTH};

/* Reads the kinds of layers: no window unless use_sliding_window says so. */
static choir_status read_window(choir__config *c)
{
    char kinds[CHOIR__LLAMA_LAYERS + 1];
    const int64_t layers = choir__family_layers(c, 32),
                  whole = choir__config_int(c, "max_window_layers", 28);
    const json_t *window = json_object_get(c->root, "sliding_window");
    bool slides =
        json_is_true(json_object_get(c->root, "use_sliding_window")) && !json_is_null(window);
    for (int64_t i = 0; i < layers; i++)
        kinds[i] = slides && i >= whole ? 's' : 'f';
    return choir__family_read_kinds(c, kinds, layers);
}

static choir_status read_qwen(choir__config *c, const choir__model_family *family)
{
    if (!json_object_get(c->root, "rope_theta")) /* perhaps it is in an object */
        choir__config_set(c, "theta", "10000");
    choir_status status = choir__family_read(c, family);
    return status == CHOIR_OK ? read_window(c) : status;
}

static choir_status read_qwen2(choir__config *c)
{
    return read_qwen(c, &qwen2);
}

static choir_status read_qwen3(choir__config *c)
{
    return read_qwen(c, &qwen3);
}

/* Older readers know the window by its first layer. */
static void write_qwen(const char *text, json_t *root)
{
    char *pattern = choir__config_option(text, "pattern");
    const int64_t layers = choir__family_number(text, "layers");
    bool slides = choir__family_number(text, "window") > 0;
    choir__family_write(text, root);
    choir__family_write_kinds(text, root);
    json_object_set_new(root, "use_sliding_window", json_boolean(slides));
    json_object_set_new(root, "max_window_layers",
        json_integer(!slides   ? layers
                     : pattern ? (int64_t)strspn(pattern, "f")
                               : 0));
    free(pattern);
}

static const choir__published qwen2_published = {
    .type = "qwen2",
    .architectures = (const char *[]){"Qwen2ForCausalLM", "Qwen2Model", NULL},
    .keys = qwen2_keys,
    .read = read_qwen2,
    .write = write_qwen,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    .inert = (const char *[]){"use_mrope", NULL},
    CHOIR__FAMILY_PARTS,
};

static const choir__published qwen3_published = {
    .type = "qwen3",
    .architectures = (const char *[]){"Qwen3ForCausalLM", "Qwen3Model", NULL},
    .keys = qwen3_keys,
    .read = read_qwen3,
    .write = write_qwen,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    CHOIR__FAMILY_PARTS,
};

/* --- the models --- */

static choir_status describe_qwen2(const char *text, choir_model_info *info)
{
    return choir__family_describe(&qwen2, text, info);
}

static choir_module *build_qwen2(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&qwen2, text, run, info);
}

const choir__model_spec choir__model_qwen2 = {.name = "qwen2",
    .help = "Qwen2 and Qwen2.5: Llama with biases of queries, keys and values: theta=1e6,"
            "eps=1e-6,window=0,pattern=(fffs: kinds of layers), the rest as llama's",
    .describe = describe_qwen2,
    .build = build_qwen2,
    .published = &qwen2_published};

static choir_status describe_qwen3(const char *text, choir_model_info *info)
{
    return choir__family_describe(&qwen3, text, info);
}

static choir_module *build_qwen3(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&qwen3, text, run, info);
}

const choir__model_spec choir__model_qwen3 = {.name = "qwen3",
    .help = "Qwen3: Llama with norms of single heads: head_dim=128,theta=1e6,eps=1e-6,"
            "attention_bias=0,window=0,pattern, the rest as llama's",
    .describe = describe_qwen3,
    .build = build_qwen3,
    .published = &qwen3_published};
