/* SmolLM3 (2025): Llama, but some layers, usually each fourth, have no rotary positions.
 * SmolLM and SmolLM2 are published as Llama. */
#include <stdlib.h>
#include <string.h>

#include "nn/models/families/family.h"

static const choir__model_family smollm3 = {.name = "smollm3",
    .options = (const char *[]){"window", "pattern", "attention_bias", "mlp_bias", NULL},
    .defaults = {.layers = 8,
        .heads = 8,
        .width = 512,
        .context = 512,
        .eps = 1e-6,
        .pad = -1,
        .tied = true,
        .pattern = "fffn",
        .rotary = {.theta = 2000000}},
    .absent = {.heads = 16,
        .kv_heads = 4,
        .width = 2048,
        .vocab = 128256,
        .pad = 128004,
        .context = 32768}};

/* --- the published form --- */

static const choir__config_key smollm3_keys[] = {
    CHOIR__FAMILY_SIZES("2048", "11008", "36", "16", "32768", "128256"),
    {"sliding_window", .option = "window"},
    {"attention_bias", .option = "attention_bias", .type = CHOIR__FLAG},
    {"mlp_bias", .option = "mlp_bias", .type = CHOIR__FLAG}, {"head_dim", .option = "head_dim"},
    {"pretraining_tp", .values = "1|2"},
    {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-06"},
    {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "true"},
    {"hidden_act", .values = "silu|swish"}, CHOIR__FAMILY_TURNS, CHOIR__FAMILY_KEYS, {NULL}};

/* Reads the kinds of layers: who turns, and who has the window. */
static choir_status read_kinds(choir__config *c)
{
    char kinds[CHOIR__LLAMA_LAYERS + 1];
    const int64_t layers = choir__family_layers(c, 36),
                  each = choir__max(1, choir__config_int(c, "no_rope_layer_interval", 4));
    const json_t *list = json_object_get(c->root, "no_rope_layers");
    bool slides = json_is_true(json_object_get(c->root, "use_sliding_window")) &&
                  choir__config_int(c, "sliding_window", 0) > 0;
    if (list && !json_is_null(list) && (int64_t)json_array_size(list) != layers)
        return choir__config_bad(c, "no_rope_layers",
            "expected a list of num_hidden_layers, %lld, numbers", (long long)layers);
    for (int64_t i = 0; i < layers; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        bool turns = one ? json_integer_value(one) != 0 : (i + 1) % each != 0;
        kinds[i] = turns ? 'f' : slides ? 'w' : 'n';
    }
    return choir__family_read_kinds(c, kinds, layers);
}

static choir_status read_smollm3(choir__config *c)
{
    choir_status status = choir__family_read(c, &smollm3);
    return status == CHOIR_OK ? read_kinds(c) : status;
}

static void write_smollm3(const char *text, json_t *root)
{
    char *pattern = choir__config_option(text, "pattern");
    const int64_t layers = choir__family_number(text, "layers");
    const char *kinds = pattern ? pattern : "f";
    json_t *list = json_array();
    for (int64_t i = 0; i < layers; i++) {
        char kind = kinds[i % (int64_t)strlen(kinds)];
        json_array_append_new(list, json_integer(kind == 'f' || kind == 's'));
    }
    choir__family_write(text, root);
    choir__family_write_kinds(text, root);
    json_object_set_new(root, "no_rope_layers", list);
    json_object_set_new(
        root, "use_sliding_window", json_boolean(choir__family_number(text, "window") > 0));
    free(pattern);
}

static const choir__published smollm3_published = {
    .type = "smollm3",
    .architectures = (const char *[]){"SmolLM3ForCausalLM", "SmolLM3Model", NULL},
    .keys = smollm3_keys,
    .read = read_smollm3,
    .write = write_smollm3,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, "no_rope_layers",
        "no_rope_layer_interval", NULL},
    CHOIR__FAMILY_PARTS,
};

/* --- the model --- */

static choir_status describe_smollm3(const char *text, choir_model_info *info)
{
    return choir__family_describe(&smollm3, text, info);
}

static choir_module *build_smollm3(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&smollm3, text, run, info);
}

const choir__model_spec choir__model_smollm3 = {.name = "smollm3",
    .help = "SmolLM3: Llama with pattern=fffn (n: layers without rotary positions),"
            "theta=2e6,eps=1e-6,tied=1, the rest as llama's",
    .describe = describe_smollm3,
    .build = build_smollm3,
    .published = &smollm3_published};
