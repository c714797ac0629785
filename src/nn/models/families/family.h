/* The published form of a family of decoders: what the files of families share. A family's file
 * has a choir__model_family, its table of keys, and two functions that read and write the keys
 * whose meaning depends on others, with the functions below. */
#ifndef CHOIR_MODELS_FAMILY_H
#define CHOIR_MODELS_FAMILY_H

#include "nn/models/llama.h"
#include "nn/models/published.h"

/* Rows that all families have. The keys before them in a table differ in what their absence
 * means. */
#define CHOIR__FAMILY_KEYS                                                                     \
    {"num_key_value_heads", .option = "kv_heads"},                                             \
        {"rope_theta", .option = "theta", .type = CHOIR__FLOAT},                               \
        {"attention_dropout", .values = "0.0",                                                 \
            .note = "attention dropout is not implemented and is ignored"},                    \
    {                                                                                          \
        "initializer_range", .values = "0.02",                                                 \
                             .note = "new weights start with a deviation of 0.02 here"         \
    }

/* The row of families whose heads turn as a whole. */
#define CHOIR__FAMILY_TURNS                                                                    \
    {                                                                                          \
        "partial_rotary_factor", .values = "1.0"                                               \
    }

/* Sizes by their usual keys, with the values that they have where a file lacks them. */
#define CHOIR__FAMILY_SIZES(width_, hidden_, layers_, heads_, context_, vocab_)                \
    {"hidden_size", .option = "width", .absent = width_},                                      \
        {"intermediate_size", .option = "hidden", .absent = hidden_},                          \
        {"num_hidden_layers", .option = "layers", .absent = layers_},                          \
        {"num_attention_heads", .option = "heads", .absent = heads_},                          \
        {"max_position_embeddings", .option = "context", .absent = context_},                  \
    {                                                                                          \
        "vocab_size", .option = "vocab", .absent = vocab_                                      \
    }

/* Keys for `read` that are never copied from a folder. */
#define CHOIR__FAMILY_WRITTEN                                                                  \
    "rope_scaling", "rope_parameters", "original_max_position_embeddings", "layer_types",      \
        "use_sliding_window", "max_window_layers"

/* Other parts of a choir__published. */
#define CHOIR__FAMILY_PARTS                                                                    \
    .has_ends = true, .prefix = "model.",                                                      \
    .ignored = (const char *[]){"*rotary_emb.inv_freq", NULL}, .fresh = (const char *[])       \
    {                                                                                          \
        "lm_head.*", NULL                                                                      \
    }

/* Reads heads, padding and rotary positions. */
choir_status choir__family_read(choir__config *c, const choir__model_family *family);
/* Reads rotary positions from an object of the file; where: its key, for messages. */
choir_status choir__family_read_rope(
    choir__config *c, const choir__model_family *family, const char *where, const json_t *rope);
/* Writes padding and rotary positions, the latter in the form that transformers of each version
 * reads. */
void choir__family_write(const char *text, json_t *root);

/* Reads the kinds of layers: kinds[0, layers) have the letters that older keys mean, and
 * "layer_types" says better. */
choir_status choir__family_read_kinds(choir__config *c, char *kinds, int64_t layers);
/* Writes "layer_types", and null as the window of a model without one. */
void choir__family_write_kinds(const char *text, json_t *root);

/* Returns the layers of a config.json, at most CHOIR__LLAMA_LAYERS. */
int64_t choir__family_layers(const choir__config *c, int64_t absent);
/* Returns the model's text as numbers: 0 if an option is not there. */
int64_t choir__family_number(const char *text, const char *option);

#endif
