/* Phi-3 (Abdin et al., 2024), Phi-3.5 and Phi-4 (published as Phi-3): Llama with one
 * matrix for queries, keys and values, and one for gate and up. A part of each head may turn,
 * and long texts may have rates of their own. */
#include "nn/models/families/family.h"

static const choir__model_family phi3 = {.name = "phi3",
    .options = (const char *[]){"window", "partial", NULL},
    .defaults = {.layers = 8,
        .heads = 8,
        .width = 512,
        .context = 512,
        .eps = 1e-5,
        .pad = -1,
        .rotary = {.theta = 10000},
        .traits = CHOIR__TRAIT_FUSED},
    .longropes = (const char *const[]){"su", "yarn"},
    .absent = {.heads = 32, .width = 3072, .vocab = 32064, .pad = 32000, .context = 4096}};

/* --- the published form --- */

static const choir__config_key phi3_keys[] = {
    {"partial_rotary_factor", .option = "partial", .type = CHOIR__FLOAT},
    CHOIR__FAMILY_SIZES("3072", "8192", "32", "32", "4096", "32064"),
    {"sliding_window", .option = "window"},
    {"rms_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-05"},
    {"tie_word_embeddings", .option = "tied", .type = CHOIR__FLAG, .absent = "false"},
    {"hidden_act", .values = "silu|swish"}, {"attention_bias", .values = "false"},
    {"resid_pdrop", .values = "0.0", .note = "dropout is not implemented and is ignored"},
    {"embd_pdrop", .values = "0.0", .note = "dropout is not implemented and is ignored"},
    CHOIR__FAMILY_KEYS, {NULL}};

static choir_status read_phi3(choir__config *c)
{
    return choir__family_read(c, &phi3);
}

static void write_phi3(const char *text, json_t *root)
{
    json_t *rope;
    choir__family_write(text, root);
    if (!choir__family_number(text, "window"))
        json_object_set_new(root, "sliding_window", json_null());
    if (!json_object_get(root, "partial_rotary_factor"))
        json_object_set_new(root, "partial_rotary_factor", json_real(1));
    rope = json_object_get(
        json_object_get(root, "rope_scaling"), "original_max_position_embeddings");
    json_object_set_new(root, "original_max_position_embeddings",
        rope ? json_incref(rope)
             : json_incref(json_object_get(root, "max_position_embeddings")));
}

static const choir__published phi3_published = {
    .type = "phi3",
    .architectures = (const char *[]){"Phi3ForCausalLM", "Phi3Model", NULL},
    .keys = phi3_keys,
    .read = read_phi3,
    .write = write_phi3,
    .written = (const char *[]){CHOIR__FAMILY_WRITTEN, NULL},
    CHOIR__FAMILY_PARTS,
};

/* --- the model --- */

static choir_status describe_phi3(const char *text, choir_model_info *info)
{
    return choir__family_describe(&phi3, text, info);
}

static choir_module *build_phi3(
    const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__family_build(&phi3, text, run, info);
}

const choir__model_spec choir__model_phi3 = {.name = "phi3",
    .help = "Phi-3 and Phi-4: Llama with joined matrices: window=0,partial=1 (of a head's "
            "dimensions that turn), the rest as llama's",
    .describe = describe_phi3,
    .build = build_phi3,
    .published = &phi3_published};
