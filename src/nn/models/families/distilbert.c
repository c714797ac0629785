/* DistilBERT (Sanh et al., 2019): BERT without types of tokens, and with names of its own. */
#include "nn/models/families/encoder.h"

#include <stdlib.h>

#include "base/number.h"

static const choir__bert_layer_names layer = {"attention.q_lin", "attention.k_lin",
    "attention.v_lin", "attention.out_lin", NULL, "sa_layer_norm", "ffn.lin1", "ffn.lin2",
    "ffn.dropout", "output_layer_norm"};

static const choir__bert_family distilbert = {.name = "distilbert",
    .body = "distilbert.",
    .layers = "transformer.layer",
    .layer = &layer,
    .dense = "vocab_transform",
    .dense_norm = "vocab_layer_norm",
    .table = "vocab_projector.weight",
    .bias = "vocab_projector.bias",
    .pooler = "pre_classifier",
    .pooler_dropout = "dropout",
    .scores = "classifier",
    .pooler_relu = true,
    .eps = 1e-12,
    .eps_fixed = true,
    .pad = -1};

/* --- the published form --- */

static const choir__encoder_form form = {.classifier = "DistilBertForSequenceClassification",
    .tagger = "DistilBertForTokenClassification",
    .width = "dim",
    .heads = "n_heads",
    .width_absent = 768,
    .heads_absent = 12,
    .vocab_absent = 30522};

static const choir__config_key keys[] = {{"n_layers", .option = "layers", .absent = "6"},
    {"n_heads", .option = "heads", .absent = "12"}, {"dim", .option = "width", .absent = "768"},
    {"hidden_dim", .option = "hidden", .absent = "3072"},
    {"max_position_embeddings", .option = "context", .absent = "512"},
    {"vocab_size", .option = "vocab", .absent = "30522"},
    {"dropout", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},
    {"activation", .values = "gelu"},
    {"sinusoidal_pos_embds", .values = "false", .note = "positions are trained here"},
    {"attention_dropout", .values = "0.0", .note = CHOIR__NO_ATTENTION_DROPOUT},
    CHOIR__ENCODER_KEYS, {NULL}};

/* The file has a dropout of its own for the head over texts, not for the one over words. */
static choir_status read_config(choir__config *c)
{
    const json_t *value = json_object_get(c->root, "seq_classif_dropout");
    choir_status status = choir__encoder_read(c, &form);
    if (status != CHOIR_OK)
        return status;
    if (value && (!json_is_number(value) || json_number_value(value) < 0))
        return choir__config_bad(c, "seq_classif_dropout", "expected a number of 0 or more");
    if (!choir__encoder_tags(c, &form))
        choir__config_set(c, "head_dropout", "%.15g", value ? json_number_value(value) : 0.2);
    return CHOIR_OK;
}

static void write_config(const char *text, json_t *root)
{
    char *head = choir__config_option(text, "head_dropout");
    char *all = head ? NULL : choir__config_option(text, "dropout");
    const char *value = head ? head : all ? all : "0";
    json_object_set_new(
        root, "seq_classif_dropout", json_real(choir__number_read(value, NULL)));
    choir__encoder_write(text, root, &form);
    free(all);
    free(head);
}

static const choir__published published = {
    .type = "distilbert",
    .architectures =
        (const char *[]){"DistilBertForMaskedLM", "DistilBertForSequenceClassification",
            "DistilBertForTokenClassification", "DistilBertModel", NULL},
    .keys = keys,
    .inert = (const char *[]){"qa_dropout", "tie_weights_", NULL},
    .read = read_config,
    .write = write_config,
    .written = (const char *[]){"seq_classif_dropout", NULL},
    .prefix = "distilbert.",
    .ignored = (const char *[]){"*embeddings.position_ids", NULL},
    .fresh = (const char *[]){"vocab_*", "pre_classifier.*", "classifier.*", NULL},
};

/* --- the model --- */

static choir_status describe(const char *text, choir_model_info *info)
{
    return choir__bert_describe(&distilbert, text, info);
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__bert_build(&distilbert, text, run, info);
}

const choir__model_spec choir__model_distilbert = {
    .name = "distilbert",
    .help = "DistilBERT: as bert, without types and eps",
    .describe = describe,
    .build = build,
    .published = &published,
};
