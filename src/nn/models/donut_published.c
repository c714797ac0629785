/* Donut in its published form: a VisionEncoderDecoderModel. Its config.json has one object for
 * the Swin encoder and one for the MBart decoder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/models/published.h"
#include "nn/models/donut.h"

/* --- reading --- */

/* Adds [2, 2, 14, 2] to the text as 2-2-14-2, or `absent`. */
static choir_status take_stages(
    choir__config *c, const char *key, const char *option, const char *absent)
{
    const json_t *list = json_object_get(json_object_get(c->root, "encoder"), key);
    char text[64] = "";
    size_t count = json_array_size(list);
    if (!list) {
        choir__config_set(c, option, "%s", absent);
        return CHOIR_OK;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *n = json_array_get(list, i);
        if (!json_is_integer(n) || strlen(text) > sizeof text - 24)
            count = 0;
        else
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? "-" : "",
                (long long)json_integer_value(n));
    }
    if (!count)
        return choir__config_bad(c, "encoder", "expected a list of numbers as its '%s'", key);
    choir__config_set(c, option, "%s", text);
    return CHOIR_OK;
}

/* Adds the image's size: [height, width], or the side of a square. */
static choir_status take_size(choir__config *c)
{
    const json_t *size = json_object_get(json_object_get(c->root, "encoder"), "image_size");
    const json_t *h = json_is_array(size) ? json_array_get(size, 0) : size;
    const json_t *w = json_is_array(size) ? json_array_get(size, 1) : size;
    if (!json_is_integer(h) || !json_is_integer(w))
        return choir__config_bad(c, "encoder", "expected [height, width] as its 'image_size'");
    choir__config_set(c, "height", "%lld", (long long)json_integer_value(h));
    choir__config_set(c, "image_width", "%lld", (long long)json_integer_value(w));
    return CHOIR_OK;
}

#define IGNORED(what) .values = "0.0", .note = what " is not implemented and is ignored"

static const choir__config_key encoder_keys[] = {
    {"model_type", .values = "donut-swin"},
    {"patch_size", .option = "patch", .absent = "4"},
    {"window_size", .option = "window", .absent = "7"},
    {"embed_dim", .option = "embed", .absent = "96"},
    {"hidden_dropout_prob", .option = "encoder_dropout", .type = CHOIR__FLOAT, .absent = "0"},
    {"layer_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-05"},
    {"num_channels", .values = "3"},
    {"mlp_ratio", .values = "4.0"},
    {"qkv_bias", .values = "true"},
    {"hidden_act", .values = "gelu"},
    {"use_absolute_embeddings", .values = "false"},
    {"attention_probs_dropout_prob", IGNORED("attention dropout")},
    {"drop_path_rate", IGNORED("skipping blocks at random")},
    {"initializer_range", .values = "0.02",
        .note = "new weights start with a deviation of 0.02 here"},
    {NULL},
};

/* Keys of parts that follow from others, or belong to what these parts lack. */
static const char *const encoder_inert[] = {"image_size", "depths",
    "num_heads", /* for read_donut */
    "hidden_size", "num_layers", "num_hidden_layers", "num_attention_heads", "path_norm",
    "encoder_stride", "out_features", "out_indices", "stage_names", NULL};

static const choir__config_key decoder_keys[] = {
    {"model_type", .values = "mbart"},
    {"decoder_layers", .option = "layers", .absent = "12"},
    {"decoder_attention_heads", .option = "decoder_heads", .absent = "16"},
    {"d_model", .option = "width", .absent = "1024"},
    {"decoder_ffn_dim", .option = "hidden", .absent = "4096"},
    {"max_position_embeddings", .option = "context", .absent = "1024"},
    {"vocab_size", .option = "vocab", .absent = "50265"},
    {"dropout", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},
    {"activation_function", .values = "gelu"},
    {"scale_embedding", .values = "true", .absent = "false"},
    {"add_final_layer_norm", .values = "true"},
    {"tie_word_embeddings", .values = "true"},
    {"is_decoder", .values = "true|false"}, /* this one and the next change nothing */
    {"add_cross_attention", .values = "true|false"},
    {"is_encoder_decoder", .values = "false|true"},
    {"cross_attention_hidden_size", .values = "null"},
    {"attention_dropout", IGNORED("attention dropout")},
    {"activation_dropout", IGNORED("dropout behind activations")},
    {"decoder_layerdrop", IGNORED("skipping layers at random")},
    {"init_std", .values = "0.02", .note = "new weights start with a deviation of 0.02 here"},
    {NULL},
};

static const char *const decoder_inert[] = {"hidden_size", "num_hidden_layers",
    "num_attention_heads", "encoder_layers", "encoder_ffn_dim", "encoder_attention_heads",
    "encoder_layerdrop", "classifier_dropout", NULL};

/* Adds the id of padding, which training does without, too. */
static choir_status take_pad(choir__config *c)
{
    const json_t *pad = json_object_get(json_object_get(c->root, "decoder"), "pad_token_id");
    if (pad && (!json_is_integer(pad) || json_integer_value(pad) < 0))
        return choir__config_bad(c, "decoder", "expected a whole number as its 'pad_token_id'");
    choir__config_set(c, "pad", "%lld", (long long)(pad ? json_integer_value(pad) : 1));
    return CHOIR_OK;
}

static choir_status read_donut(choir__config *c)
{
    choir_status status = choir__config_part(c, "encoder", encoder_keys, encoder_inert);
    if (status == CHOIR_OK)
        status = choir__config_part(c, "decoder", decoder_keys, decoder_inert);
    if (status == CHOIR_OK)
        status = take_size(c);
    if (status == CHOIR_OK)
        status = take_stages(c, "depths", "depths", "2-2-6-2");
    if (status == CHOIR_OK)
        status = take_stages(c, "num_heads", "heads", "3-6-12-24");
    if (status == CHOIR_OK)
        status = take_pad(c);
    choir__config_set(
        c, "start", "%lld", (long long)choir__config_int(c, "decoder_start_token_id", 0));
    return status;
}

/* --- writing --- */

static json_t *number_of(const char *text, const char *option)
{
    char *value = choir__config_option(text, option);
    json_t *number = json_integer(value ? strtoll(value, NULL, 10) : 0);
    free(value);
    return number;
}

static json_t *stages_of(const char *text, const char *option)
{
    char *value = choir__config_option(text, option);
    json_t *list = json_array();
    for (char *at = value; at && *at; at += *at == '-')
        json_array_append_new(list, json_integer(strtoll(at, &at, 10)));
    free(value);
    return list;
}

static void write_donut(const char *text, json_t *root)
{
    json_t *encoder = choir__config_part_json(text, encoder_keys);
    json_t *decoder = choir__config_part_json(text, decoder_keys);
    json_object_set_new(encoder, "image_size",
        json_pack("[o, o]", number_of(text, "height"), number_of(text, "image_width")));
    json_object_set_new(encoder, "depths", stages_of(text, "depths"));
    json_object_set_new(encoder, "num_heads", stages_of(text, "heads"));
    json_object_set_new(decoder, "pad_token_id", number_of(text, "pad"));
    json_object_set_new(root, "encoder", encoder);
    json_object_set_new(root, "decoder", decoder);
    json_object_set_new(root, "decoder_start_token_id", number_of(text, "start"));
}

const choir__published choir__donut_published = {
    .type = "vision-encoder-decoder",
    .architectures = (const char *const[]){"VisionEncoderDecoderModel", NULL},
    .keys = (const choir__config_key[]){{"is_encoder_decoder", .values = "true"}, {NULL}},
    .inert = (const char *const[]){"tie_word_embeddings", NULL},
    .read = read_donut,
    .write = write_donut,
    .written = (const char *const[]){"encoder", "decoder", "decoder_start_token_id", NULL},
    .parts = (const choir__config_part_keys[]){{"encoder", encoder_keys},
        {"decoder", decoder_keys}, {NULL}},
    .ignored = (const char *const[]){"*.relative_position_index", "encoder.pooler.*", NULL},
};
