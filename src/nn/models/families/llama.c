/* Llama (Touvron et al., 2023) and Mistral (Jiang et al., 2023): Llama with a window.
 * Models that their makers publish as one of both, as SmolLM and SmolLM2, are read by it. */
#include "nn/models/families/family.h"

/* Llama is published without a window, and written as Mistral if it has one; Mistral is
 * published without biases: nothing else could read such weights. */
static choir_status check(const char *model, const choir__llama_sizes *s, bool has_biases)
{
    if (has_biases || (!s->attention_bias && !s->mlp_bias))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s: %s=1 is for llama without a window; Mistral, the published form of models with "
        "a window, has no biases",
        model, s->attention_bias ? "attention_bias" : "mlp_bias");
}

static choir_status check_llama(const choir__llama_sizes *s)
{
    return check("llama", s, !s->window);
}

static choir_status check_mistral(const choir__llama_sizes *s)
{
    return check("mistral", s, false);
}

#define DEFAULTS                                                                               \
    .layers = 8, .heads = 8, .width = 512, .context = 512, .eps = 1e-5, .pad = -1,             \
    .rotary = {.theta = 10000}

static const char *const options[] = {"window", "attention_bias", "mlp_bias", NULL};

static const choir__model_family llama = {.name = "llama",
    .options = options,
    .defaults = {DEFAULTS},
    .check = check_llama,
    .sizes = (const choir__family_size[]){{"7b", {.layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 32,
                                                     .width = 4096,
                                                     .hidden = 11008,
                                                     .context = 4096,
                                                     .eps = 1e-5,
                                                     .rotary = {.theta = 10000}}}, /* Llama 2 */
        {"8b", {.layers = 32,
                   .heads = 32,
                   .kv_heads = 8,
                   .width = 4096,
                   .hidden = 14336,
                   .context = 8192,
                   .eps = 1e-5,
                   .rotary = {.theta = 500000}}}, /* Llama 3 */
        {"1b", {.layers = 16,
                   .heads = 32,
                   .kv_heads = 8,
                   .width = 2048,
                   .hidden = 8192,
                   .context = 131072,
                   .eps = 1e-5,
                   .tied = true,
                   .rotary = {500000, CHOIR_ROTARY_LLAMA3, 32, 1, 4, 8192}}}, /* 3.2 */
        {NULL}},
    .absent = {.heads = 32, .width = 4096, .vocab = 32000, .pad = -1, .context = 2048}};

static const choir__model_family mistral = {.name = "mistral",
    .options = options,
    .defaults = {DEFAULTS, .window = 256},
    .check = check_mistral,
    .sizes = (const choir__family_size[]){{"7b", {.layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .width = 4096,
                                                     .hidden = 14336,
                                                     .context = 32768,
                                                     .window = 4096,
                                                     .eps = 1e-5,
                                                     .rotary = {.theta = 10000}}},
        {NULL}},
    .absent = {.heads = 32,
        .kv_heads = 8,
        .width = 4096,
        .vocab = 32000,
        .pad = -1,
        .context = 131072}};

/* --- the published form --- */

#define BOTH                                                                                   \
    {"head_dim", .option = "head_dim"},                                                        \
        {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-06"},            \
        {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "false"},     \
        {"hidden_act", .values = "silu|swish"}, CHOIR__FAMILY_TURNS, CHOIR__FAMILY_KEYS,       \
    {                                                                                          \
        NULL                                                                                   \
    }

static const choir__config_key llama_keys[] = {
    CHOIR__FAMILY_SIZES("4096", "11008", "32", "32", "2048", "32000"),
    {"attention_bias", .option = "attention_bias", .type = CHOIR__FLAG},
    {"mlp_bias", .option = "mlp_bias", .type = CHOIR__FLAG}, {"pretraining_tp", .values = "1"},
    BOTH};

static const choir__config_key mistral_keys[] = {
    CHOIR__FAMILY_SIZES("4096", "14336", "32", "32", "131072", "32000"),
    {"sliding_window", .option = "window", .absent = "4096"}, BOTH};

static choir_status read_llama(choir__config *c)
{
    return choir__family_read(c, &llama);
}

static choir_status read_mistral(choir__config *c)
{
    if (json_is_null(json_object_get(c->root, "sliding_window"))) /* attends to all positions */
        choir__config_set(c, "window", "0");
    return choir__family_read(c, &mistral);
}

/* Llama's published form has no window: with one, it is written as Mistral, which has no
 * biases. */
static void write_llama(const char *text, json_t *root)
{
    static const char *const of_llama[] = {"attention_bias", "mlp_bias", "pretraining_tp"};
    const int64_t window = choir__family_number(text, "window");
    choir__family_write(text, root);
    if (!window)
        return;
    for (size_t i = 0; i < CHOIR_COUNT(of_llama); i++)
        json_object_del(root, of_llama[i]);
    json_object_set_new(root, "architectures", json_pack("[s]", "MistralForCausalLM"));
    json_object_set_new(root, "model_type", json_string("mistral"));
    json_object_set_new(root, "sliding_window", json_integer(window));
}

static void write_mistral(const char *text, json_t *root)
{
    choir__family_write(text, root);
    if (!choir__family_number(text, "window"))
        json_object_set_new(root, "sliding_window", json_null());
}

static const choir__published llama_published = {
    .type = "llama",
    /* the last as converters wrote it before the library had this model */
    .architectures =
        (const char *[]){"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM", NULL},
    .keys = llama_keys,
    .read = read_llama,
    .write = write_llama,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    CHOIR__FAMILY_PARTS,
};

static const choir__published mistral_published = {
    .type = "mistral",
    .architectures = (const char *[]){"MistralForCausalLM", "MistralModel", NULL},
    .keys = mistral_keys,
    .read = read_mistral,
    .write = write_mistral,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    CHOIR__FAMILY_PARTS,
};

/* --- the models --- */

static choir_status describe_llama(const char *text, choir_model_info *info)
{
    return choir__family_describe(&llama, text, info);
}

static choir_module *build_llama(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&llama, text, run, info);
}

const choir__model_spec choir__model_llama = {.name = "llama",
    .help = "Llama: layers=8,heads=8,kv_heads=(half),width=512,hidden=(8/3 width),context=512,"
            "vocab=(the data's),head_dim,theta=10000,eps=1e-5,window=0,tied=0,attention_bias=0,"
            "mlp_bias=0,rope=plain|linear|llama3|dynamic|yarn|longrope,pad=(none); or "
            "size=1b|7b|8b",
    .describe = describe_llama,
    .build = build_llama,
    .published = &llama_published};

static choir_status describe_mistral(const char *text, choir_model_info *info)
{
    return choir__family_describe(&mistral, text, info);
}

static choir_module *build_mistral(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&mistral, text, run, info);
}

const choir__model_spec choir__model_mistral = {.name = "mistral",
    .help = "Mistral: Llama that sees the last `window` positions: window=256, the rest as "
            "llama's; or size=7b",
    .describe = describe_mistral,
    .build = build_mistral,
    .published = &mistral_published};
