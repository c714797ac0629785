/* Gemma (2024), Gemma 2 and the text models of Gemma 3 (2025): gates of GELU, norms that
 * multiply by 1 + weight, embeddings times the root of their width, a tied head. Gemma 2 and 3
 * norm what layers add, too, and some of their layers have a window; Gemma 2 bends scores, and
 * Gemma 3 norms heads, and has other rates in layers with a window. */
#include <stdlib.h>
#include <string.h>

#include "nn/models/families/family.h"

enum { GEMMA = CHOIR__TRAIT_ONE_MORE | CHOIR__TRAIT_GELU | CHOIR__TRAIT_SCALED };

#define DEFAULTS(theta_)                                                                       \
    .layers = 8, .heads = 8, .width = 512, .context = 512, .eps = 1e-6, .pad = -1,             \
    .head_dim = 256, .tied = true, .rotary = {.theta = theta_}

static const choir__model_family gemma = {.name = "gemma",
    .options = (const char *[]){"attention_bias", NULL},
    .defaults = {DEFAULTS(10000), .traits = GEMMA},
    .absent = {.heads = 16,
        .kv_heads = 16,
        .width = 3072,
        .vocab = 256000,
        .pad = 0,
        .context = 8192}};

#define LATER "attention_bias", "window", "pattern", "query_scale", "softcap", "final_softcap"

static const choir__model_family gemma2 = {.name = "gemma2",
    .options = (const char *[]){LATER, NULL},
    .defaults = {DEFAULTS(10000), .window = 256, .pattern = "sf", .query_scale = 256,
        .softcap = 50, .final_softcap = 30, .traits = GEMMA | CHOIR__TRAIT_POST_NORMS},
    .absent = {
        .heads = 8, .kv_heads = 4, .width = 2304, .vocab = 256000, .pad = 0, .context = 8192}};

static const choir__model_family gemma3 = {.name = "gemma3",
    .options = (const char *[]){LATER, "local_theta", NULL},
    .defaults = {DEFAULTS(1000000), .window = 256, .pattern = "sssssf", .query_scale = 256,
        .local_theta = 10000, .traits = GEMMA | CHOIR__TRAIT_POST_NORMS | CHOIR__TRAIT_QK_NORM},
    .absent = {.heads = 8,
        .kv_heads = 4,
        .width = 2304,
        .vocab = 262208,
        .pad = 0,
        .context = 131072}};

/* --- the published form --- */

#define ALL                                                                                    \
    {"head_dim", .option = "head_dim", .absent = "256"},                                       \
        {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-06"},            \
        {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "true"},      \
        {"attention_bias", .option = "attention_bias", .type = CHOIR__FLAG},                   \
        {"use_bidirectional_attention", .values = "false"}, CHOIR__FAMILY_TURNS,               \
        CHOIR__FAMILY_KEYS

/* Keys of both newer ones. Scores without a bound have null, which is option 0. */
#define NEWER                                                                                  \
    {"sliding_window", .option = "window", .absent = "4096"},                                  \
        {"query_pre_attn_scalar", .option = "query_scale", .type = CHOIR__FLOAT,               \
            .absent = "256"},                                                                  \
    {                                                                                          \
        "hidden_activation", .values = "gelu_pytorch_tanh"                                     \
    }

/* "gelu" meant the tanh form when these models were published. */
static const choir__config_key gemma_keys[] = {
    CHOIR__FAMILY_SIZES("3072", "24576", "28", "16", "8192", "256000"),
    {"hidden_act", .values = "gelu_pytorch_tanh|gelu"},
    {"hidden_activation", .values = "gelu_pytorch_tanh"}, ALL, {NULL}};

static const choir__config_key gemma2_keys[] = {
    CHOIR__FAMILY_SIZES("2304", "9216", "26", "8", "8192", "256000"),
    {"attn_logit_softcapping", .option = "softcap", .type = CHOIR__FLOAT, .absent = "50"},
    {"final_logit_softcapping", .option = "final_softcap", .type = CHOIR__FLOAT,
        .absent = "30"},
    NEWER, ALL, {NULL}};

static const choir__config_key gemma3_keys[] = {
    CHOIR__FAMILY_SIZES("2304", "9216", "26", "8", "131072", "262208"),
    {"attn_logit_softcapping", .option = "softcap", .type = CHOIR__FLOAT},
    {"final_logit_softcapping", .option = "final_softcap", .type = CHOIR__FLOAT},
    {"rope_local_base_freq", .option = "local_theta", .type = CHOIR__FLOAT}, NEWER, ALL,
    {NULL}};

static choir_status read_gemma(choir__config *c)
{
    return choir__family_read(c, &gemma);
}

/* Reads the kinds of layers: all but each `period`-th have the window. */
static choir_status read_window(choir__config *c, int64_t period)
{
    char kinds[CHOIR__LLAMA_LAYERS + 1];
    const int64_t layers = choir__family_layers(c, 26);
    for (int64_t i = 0; i < layers; i++)
        kinds[i] = (i + 1) % period ? 's' : 'f';
    return choir__family_read_kinds(c, kinds, layers);
}

/* A cap of null is 0; the family's defaults have caps. */
static void read_caps(choir__config *c)
{
    static const char *const keys[][2] = {
        {"attn_logit_softcapping", "softcap"}, {"final_logit_softcapping", "final_softcap"}};
    for (size_t i = 0; i < CHOIR_COUNT(keys); i++)
        if (json_is_null(json_object_get(c->root, keys[i][0])))
            choir__config_set(c, keys[i][1], "0");
}

static choir_status read_gemma2(choir__config *c)
{
    read_caps(c);
    choir_status status = choir__family_read(c, &gemma2);
    return status == CHOIR_OK ? read_window(c, 2) : status;
}

/* Reads "rope_parameters" with an object for each kind of layer. */
static choir_status read_rope_by_kind(choir__config *c, const json_t *rope)
{
    static const char where[] = "rope_parameters";
    const json_t *local = json_object_get(rope, "sliding_attention"),
                 *global = json_object_get(rope, "full_attention");
    const char *type = json_string_value(json_object_get(local, "rope_type"));
    if (local && type && strcmp(type, "default") != 0)
        return choir__config_bad(c, where,
            "expected rope_type default for sliding_attention, as nothing else is built there");
    if (json_is_number(json_object_get(local, "rope_theta")))
        choir__config_set(
            c, "local_theta", "%.17g", json_number_value(json_object_get(local, "rope_theta")));
    return global ? choir__family_read_rope(c, &gemma3, where, global) : CHOIR_OK;
}

static choir_status read_gemma3(choir__config *c)
{
    json_t *rope = json_incref(json_object_get(c->root, "rope_parameters"));
    bool by_kind =
        json_object_get(rope, "sliding_attention") || json_object_get(rope, "full_attention");
    int64_t period = choir__config_int(c, "sliding_window_pattern", 0);
    if (!period)
        period = choir__config_int(c, "_sliding_window_pattern", 6);
    if (!json_object_get(c->root, "rope_theta"))
        choir__config_set(c, "theta", "1000000");
    if (by_kind) /* the rest is read as in other families */
        json_object_del(c->root, "rope_parameters");
    choir_status status = choir__family_read(c, &gemma3);
    if (status == CHOIR_OK && by_kind)
        status = read_rope_by_kind(c, rope);
    json_decref(rope);
    return status == CHOIR_OK ? read_window(c, choir__max(period, 1)) : status;
}

static void write_newer(const char *text, json_t *root)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    choir__family_write(text, root);
    choir__family_write_kinds(text, root);
    double scale = json_number_value(json_object_get(root, "query_pre_attn_scalar"));
    if (scale == (double)(int64_t)scale) /* readers expect a whole number */
        json_object_set_new(root, "query_pre_attn_scalar", json_integer((int64_t)scale));
    for (size_t i = 0; i < CHOIR_COUNT(caps); i++)
        if (!(json_number_value(json_object_get(root, caps[i])) > 0))
            json_object_set_new(root, caps[i], json_null());
}

static const choir__published gemma_published = {
    .type = "gemma",
    .architectures = (const char *[]){"GemmaForCausalLM", "GemmaModel", NULL},
    .keys = gemma_keys,
    .read = read_gemma,
    .write = choir__family_write,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    CHOIR__FAMILY_PARTS,
};

static const choir__published gemma2_published = {
    .type = "gemma2",
    .architectures = (const char *[]){"Gemma2ForCausalLM", "Gemma2Model", NULL},
    .keys = gemma2_keys,
    .read = read_gemma2,
    .write = write_newer,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    .inert = (const char *[]){"cache_implementation", "hidden_act", NULL},
    CHOIR__FAMILY_PARTS,
};

static const choir__published gemma3_published = {
    .type = "gemma3_text",
    .architectures = (const char *[]){"Gemma3ForCausalLM", "Gemma3TextModel", NULL},
    .keys = gemma3_keys,
    .read = read_gemma3,
    .write = write_newer,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, "sliding_window_pattern",
        "_sliding_window_pattern", NULL},
    .inert = (const char *[]){"cache_implementation", "hidden_act", NULL},
    CHOIR__FAMILY_PARTS,
};

/* --- the models --- */

static choir_status describe_gemma(const char *text, choir_model_info *info)
{
    return choir__family_describe(&gemma, text, info);
}

static choir_module *build_gemma(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&gemma, text, run, info);
}

const choir__model_spec choir__model_gemma = {.name = "gemma",
    .help = "Gemma: gates of GELU, norms by 1 + weight: head_dim=256,eps=1e-6,tied=1,"
            "attention_bias=0, the rest as llama's",
    .describe = describe_gemma,
    .build = build_gemma,
    .published = &gemma_published};

static choir_status describe_gemma2(const char *text, choir_model_info *info)
{
    return choir__family_describe(&gemma2, text, info);
}

static choir_module *build_gemma2(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&gemma2, text, run, info);
}

const choir__model_spec choir__model_gemma2 = {.name = "gemma2",
    .help = "Gemma 2: window=256,pattern=sf (kinds of layers),query_scale=256,softcap=50,"
            "final_softcap=30, the rest as gemma's",
    .describe = describe_gemma2,
    .build = build_gemma2,
    .published = &gemma2_published};

static choir_status describe_gemma3(const char *text, choir_model_info *info)
{
    return choir__family_describe(&gemma3, text, info);
}

static choir_module *build_gemma3(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&gemma3, text, run, info);
}

const choir__model_spec choir__model_gemma3 = {.name = "gemma3",
    .help = "Gemma 3 (text): window=256,pattern=sssssf,query_scale=256,local_theta=10000 (of "
            "layers with a window), the rest as gemma's",
    .describe = describe_gemma3,
    .build = build_gemma3,
    .published = &gemma3_published};
