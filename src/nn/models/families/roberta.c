/* RoBERTa (Liu et al., 2019): BERT whose positions are counted from the padding's id on, and
 * whose classifier is a linear layer, tanh, and a linear layer. XLM-RoBERTa (Conneau et al.,
 * 2020) and CamemBERT (Martin et al., 2020) are the same model with other vocabularies. */
#include "nn/models/families/encoder.h"

#include <stdlib.h>

static const choir__bert_layer_names layer = {"attention.self.query", "attention.self.key",
    "attention.self.value", "attention.output.dense", "attention.output.dropout",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.dropout",
    "output.LayerNorm"};

#define PARTS                                                                                  \
    .body = "roberta.", .layers = "encoder.layer", .layer = &layer, .dense = "lm_head.dense",  \
    .dense_norm = "lm_head.layer_norm", .table = "lm_head.decoder.weight",                     \
    .bias = "lm_head.bias", .again = "lm_head.decoder.bias", .pooler = "classifier.dense",     \
    .pooler_dropout = "dropout", .scores = "classifier.out_proj", .pooler_drops = true,        \
    .types = true, .after_pad = true, .eps = 1e-5, .pad = 1, .types_here = 1

/* --- the published form --- */

enum { POSITIONS = 512 }; /* max_position_embeddings of a file without it */

#define SIZES                                                                                  \
    .width = "hidden_size", .heads = "num_attention_heads", .width_absent = 768,               \
    .heads_absent = 12, .pad_absent = 1

#define KEYS                                                                                   \
    {"num_hidden_layers", .option = "layers", .absent = "12"},                                 \
        {"num_attention_heads", .option = "heads", .absent = "12"},                            \
        {"hidden_size", .option = "width", .absent = "768"},                                   \
        {"intermediate_size", .option = "hidden", .absent = "3072"},                           \
        {"type_vocab_size", .option = "types", .absent = "2"},                                 \
        {"hidden_dropout_prob", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},   \
        {"classifier_dropout", .option = "head_dropout", .type = CHOIR__FLOAT},                \
        {"layer_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-12"},          \
        {"hidden_act", .values = "gelu"}, {"position_embedding_type", .values = "absolute"},   \
        {"attention_probs_dropout_prob", .values = "0.0",                                      \
            .note = CHOIR__NO_ATTENTION_DROPOUT},                                              \
        CHOIR__ENCODER_KEYS,                                                                   \
    {                                                                                          \
        NULL                                                                                   \
    }

/* The file's positions up to the padding's id are for no token. */
static choir_status read_config(choir__config *c, const choir__encoder_form *form)
{
    const json_t *given = json_object_get(c->root, "max_position_embeddings");
    int64_t pad = choir__config_int(c, "pad_token_id", form->pad_absent);
    int64_t positions = choir__config_int(c, "max_position_embeddings", POSITIONS);
    if (json_is_null(json_object_get(c->root, "pad_token_id")))
        return choir__config_bad(
            c, "pad_token_id", "expected a token's id, from which positions are counted");
    if ((given && !json_is_integer(given)) || positions < pad + 2 || positions > 1 << 24)
        return choir__config_bad(c, "max_position_embeddings",
            "expected a whole number of %lld or more: positions are counted from pad_token_id",
            (long long)pad + 2);
    choir__config_set(c, "context", "%lld", (long long)(positions - pad - 1));
    return choir__encoder_read(c, form);
}

static void write_config(const char *text, json_t *root, const choir__encoder_form *form)
{
    char *context = choir__config_option(text, "context");
    char *pad = choir__config_option(text, "pad");
    int64_t before = pad ? strtoll(pad, NULL, 10) + 1 : 0;
    json_object_set_new(root, "max_position_embeddings",
        json_integer((context ? strtoll(context, NULL, 10) : 0) + before));
    choir__encoder_write(text, root, form);
    free(pad);
    free(context);
}

static const char *const ignored[] = {
    "*embeddings.position_ids", "*embeddings.token_type_ids", "*pooler.dense.*", NULL};
static const char *const fresh[] = {"lm_head.*", "classifier.*", NULL};
static const char *const written[] = {"max_position_embeddings", NULL};

/* --- the models --- */

/* A model has a name in C, the name that is its model_type, the beginning of its architectures,
 * and the vocabulary of a file without vocab_size. */
#define MODEL(id, type_, prefix_, vocab_, help_)                                               \
    static const choir__bert_family id = {.name = type_, PARTS};                               \
    static const choir__encoder_form id##_form = {                                             \
        .classifier = prefix_ "ForSequenceClassification",                                     \
        .tagger = prefix_ "ForTokenClassification",                                            \
        .vocab_absent = vocab_,                                                                \
        SIZES};                                                                                \
    static const choir__config_key id##_keys[] = {                                             \
        {"vocab_size", .option = "vocab", .absent = #vocab_}, KEYS};                           \
    static choir_status id##_read(choir__config *c)                                            \
    {                                                                                          \
        return read_config(c, &id##_form);                                                     \
    }                                                                                          \
    static void id##_write(const char *text, json_t *root)                                     \
    {                                                                                          \
        write_config(text, root, &id##_form);                                                  \
    }                                                                                          \
    static choir_status id##_describe(const char *text, choir_model_info *info)                \
    {                                                                                          \
        return choir__bert_describe(&id, text, info);                                          \
    }                                                                                          \
    static choir_module *id##_build(                                                           \
        const char *text, choir_scope *run, const choir_model_info *info)                      \
    {                                                                                          \
        return choir__bert_build(&id, text, run, info);                                        \
    }                                                                                          \
    static const char *const id##_architectures[] = {prefix_ "ForMaskedLM",                    \
        prefix_ "ForSequenceClassification", prefix_ "ForTokenClassification",                 \
        prefix_ "Model", NULL};                                                                \
    static const choir__published id##_published = {.type = type_,                             \
        .architectures = id##_architectures,                                                   \
        .keys = id##_keys,                                                                     \
        .read = id##_read,                                                                     \
        .write = id##_write,                                                                   \
        .written = written,                                                                    \
        .has_ends = true,                                                                      \
        .prefix = "roberta.",                                                                  \
        .ignored = ignored,                                                                    \
        .fresh = fresh};                                                                       \
    const choir__model_spec choir__model_##id = {.name = type_,                                \
        .help = help_,                                                                         \
        .describe = id##_describe,                                                             \
        .build = id##_build,                                                                   \
        .published = &id##_published}

MODEL(roberta, "roberta", "Roberta", 50265,
    "RoBERTa: as bert, with types=1, eps=1e-5 and pad=1, from which positions are counted");
MODEL(xlm_roberta, "xlm-roberta", "XLMRoberta", 30522, "XLM-RoBERTa: as roberta");
MODEL(camembert, "camembert", "Camembert", 30522, "CamemBERT: as roberta");
