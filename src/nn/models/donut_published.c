/* Donut in its published form: a VisionEncoderDecoderModel. Its config.json has one object for
 * the Swin encoder and one for the MBart decoder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/models/published.h"
#include "nn/models/donut.h"

/* --- reading --- */

/* Adds a whole number of one of the two objects to the text, or `absent`. */
static choir_status take_int(
    choir__config *c, const char *part, const char *key, int64_t absent, const char *option)
{
    const json_t *value = json_object_get(json_object_get(c->root, part), key);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
        return choir__config_bad(c, part, "expected a whole number as its '%s'", key);
    choir__config_set(
        c, option, "%lld", (long long)(value ? (int64_t)json_integer_value(value) : absent));
    return CHOIR_OK;
}

/* Adds [2, 2, 14, 2] to the text as 2-2-14-2. */
static choir_status take_stages(choir__config *c, const char *key, const char *option)
{
    const json_t *list = json_object_get(json_object_get(c->root, "encoder"), key);
    char text[64] = "";
    size_t count = json_array_size(list);
    if (!list)
        return CHOIR_OK;
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

/* Checks the settings that have only one implementation here. Another value is an error, an
 * absent key is not. */
static choir_status check_fixed(choir__config *c)
{
    static const char *const fixed[][3] = {{"encoder", "model_type", "\"donut-swin\""},
        {"decoder", "model_type", "\"mbart\""}, {"encoder", "hidden_act", "\"gelu\""},
        {"encoder", "qkv_bias", "true"}, {"encoder", "use_absolute_embeddings", "false"},
        {"encoder", "num_channels", "3"}, {"encoder", "mlp_ratio", "4"},
        {"decoder", "activation_function", "\"gelu\""}, {"decoder", "scale_embedding", "true"}};
    for (size_t i = 0; i < CHOIR_COUNT(fixed); i++) {
        const json_t *part = json_object_get(c->root, fixed[i][0]);
        const json_t *value = json_object_get(part, fixed[i][1]);
        json_t *wanted = json_loads(fixed[i][2], JSON_DECODE_ANY, NULL);
        bool same = !value || json_equal(value, wanted) ||
                    (json_is_number(value) && json_is_number(wanted) &&
                        json_number_value(value) == json_number_value(wanted));
        json_decref(wanted);
        if (!json_is_object(part))
            return choir__config_bad(c, fixed[i][0], "expected an object");
        if (!same)
            return choir__config_bad(
                c, fixed[i][0], "expected %s as its '%s'", fixed[i][2], fixed[i][1]);
    }
    return CHOIR_OK;
}

static choir_status read_donut(choir__config *c)
{
    static const struct {
        const char *part, *key;
        int64_t absent;
        const char *option;
    } numbers[] = {{"encoder", "patch_size", 4, "patch"},
        {"encoder", "window_size", 7, "window"}, {"encoder", "embed_dim", 96, "embed"},
        {"decoder", "decoder_layers", 12, "layers"},
        {"decoder", "decoder_attention_heads", 16, "decoder_heads"},
        {"decoder", "d_model", 1024, "width"}, {"decoder", "decoder_ffn_dim", 4096, "hidden"},
        {"decoder", "max_position_embeddings", 1024, "context"},
        {"decoder", "vocab_size", 50265, "vocab"}, {"decoder", "pad_token_id", 1, "pad"}};
    choir_status status = check_fixed(c);
    if (status == CHOIR_OK)
        status = take_size(c);
    for (size_t i = 0; i < CHOIR_COUNT(numbers) && status == CHOIR_OK; i++)
        status =
            take_int(c, numbers[i].part, numbers[i].key, numbers[i].absent, numbers[i].option);
    if (status == CHOIR_OK)
        status = take_stages(c, "depths", "depths");
    if (status == CHOIR_OK)
        status = take_stages(c, "num_heads", "heads");
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
    json_t *encoder = json_pack(
        "{s:s, s:[o,o], s:o, s:i, s:o, s:o, s:o, s:o, s:f, s:b, s:s, s:b}", "model_type",
        "donut-swin", "image_size", number_of(text, "height"), number_of(text, "image_width"),
        "patch_size", number_of(text, "patch"), "num_channels", 3, "embed_dim",
        number_of(text, "embed"), "depths", stages_of(text, "depths"), "num_heads",
        stages_of(text, "heads"), "window_size", number_of(text, "window"), "mlp_ratio", 4.0,
        "qkv_bias", 1, "hidden_act", "gelu", "use_absolute_embeddings", 0);
    json_t *decoder = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b, s:b}",
        "model_type", "mbart", "decoder_layers", number_of(text, "layers"),
        "decoder_attention_heads", number_of(text, "decoder_heads"), "d_model",
        number_of(text, "width"), "decoder_ffn_dim", number_of(text, "hidden"),
        "max_position_embeddings", number_of(text, "context"), "vocab_size",
        number_of(text, "vocab"), "pad_token_id", number_of(text, "pad"), "activation_function",
        "gelu", "scale_embedding", 1, "is_decoder", 1, "add_cross_attention", 1);
    json_object_set_new(root, "encoder", encoder);
    json_object_set_new(root, "decoder", decoder);
    json_object_set_new(root, "decoder_start_token_id", number_of(text, "start"));
}

const choir__published choir__donut_published = {
    .type = "vision-encoder-decoder",
    .architectures = (const char *const[]){"VisionEncoderDecoderModel", NULL},
    .keys = (const choir__config_key[]){{"is_encoder_decoder", .values = "true"}, {NULL}},
    .inert = (const char *const[]){"encoder", "decoder", "decoder_start_token_id",
        "tie_word_embeddings", "pad_token_id", "eos_token_id", NULL},
    .read = read_donut,
    .write = write_donut,
    .ignored = (const char *const[]){"*.relative_position_index", "encoder.pooler.*", NULL},
};
