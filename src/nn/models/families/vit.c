/* ViT (Dosovitskiy et al., 2020) and DeiT without distillation in their published form. */
#include <stdlib.h>
#include <string.h>

#include "nn/models/config.h"
#include "nn/models/models.h"
#include "nn/models/published.h"
#include "nn/models/vit.h"

#define CLASSIFIER "ViTForImageClassification"

static const choir__config_key keys[] = {
    {"num_hidden_layers", .option = "layers", .absent = "12"},
    {"num_attention_heads", .option = "heads", .absent = "12"},
    {"hidden_size", .option = "width", .absent = "768"},
    {"intermediate_size", .option = "hidden", .absent = "3072"},
    {"patch_size", .option = "patch", .absent = "16"},
    {"num_channels", .option = "channels", .absent = "3"},
    {"hidden_dropout_prob", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0"},
    {"layer_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-12"},
    {"qkv_bias", .option = "qkv_bias", .type = CHOIR__FLAG, .absent = "1"},
    {"hidden_act", .values = "gelu"},
    {"attention_probs_dropout_prob", .values = "0.0",
        .note = "attention dropout is not implemented and is ignored"},
    {"initializer_range", .values = "0.02",
        .note = "new weights start with a deviation of 0.02 here"},
    {NULL}};

/* Reads image_size: the side of a square, or [height, width]. */
static choir_status read_size(choir__config *c)
{
    const json_t *size = json_object_get(c->root, "image_size");
    const json_t *h = json_is_array(size) ? json_array_get(size, 0) : size;
    const json_t *w = json_is_array(size) ? json_array_get(size, 1) : size;
    if (size && (!json_is_integer(h) || !json_is_integer(w) || json_array_size(size) > 2))
        return choir__config_bad(
            c, "image_size", "expected the side of a square, or [height, width]");
    choir__config_set(c, "image", "%lld", size ? (long long)json_integer_value(h) : 224);
    if (json_integer_value(w) != json_integer_value(h))
        choir__config_set(c, "image_width", "%lld", (long long)json_integer_value(w));
    return CHOIR_OK;
}

/* A file without a head leaves the number of classes to the data. */
static choir_status read_config(choir__config *c)
{
    int64_t classes;
    const char *problem = json_string_value(json_object_get(c->root, "problem_type"));
    choir_status status = read_size(c);
    if (status != CHOIR_OK || strcmp(choir__config_architecture(c), CLASSIFIER) != 0)
        return status;
    if (problem && strcmp(problem, "single_label_classification") != 0)
        return choir__config_bad(
            c, "problem_type", "expected single_label_classification, a class for each image");
    return choir__config_read_classes(c, 2, &classes);
}

static int64_t number_of(const char *text, const char *option)
{
    char *value = choir__config_option(text, option);
    int64_t number = value ? strtoll(value, NULL, 10) : 0;
    free(value);
    return number;
}

static void write_config(const char *text, json_t *root)
{
    int64_t h = number_of(text, "image"), w = number_of(text, "image_width");
    json_object_set_new(root, "image_size",
        w && w != h ? json_pack("[I, I]", (json_int_t)h, (json_int_t)w) : json_integer(h));
    choir__config_set_classes(root, number_of(text, "classes"), NULL);
}

static const choir__published published = {
    .type = "vit",
    .architectures =
        (const char *[]){CLASSIFIER, "ViTModel", "ViTForMaskedImageModeling", NULL},
    .keys = keys,
    .inert = (const char *[]){"encoder_stride", "pooler_act", "pooler_output_size", NULL},
    .read = read_config,
    .write = write_config,
    .written = (const char *[]){"image_size", NULL},
    .prefix = "vit.",
    .ignored = (const char *[]){"*pooler.dense.*", "*embeddings.mask_token", "decoder.*", NULL},
    .fresh = (const char *[]){"classifier.*", NULL},
    .fit = choir__vit_fit,
};

const choir__model_spec choir__model_vit = {
    .name = "vit",
    .help =
        "ViT: layers=12,heads=12,width=768,hidden=(4 width),patch=16,image=224 (the height),"
        "image_width=(image),channels=3,classes=1000,dropout=0,eps=1e-12,qkv_bias=1",
    .describe = choir__vit_describe,
    .build = choir__vit_build,
    .published = &published,
};
