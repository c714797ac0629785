/* BERT (Devlin et al., 2019): the published names, config.json, and the model. */
#include "nn/models/families/encoder.h"

static const choir__bert_layer_names layer = {"attention.self.query", "attention.self.key",
    "attention.self.value", "attention.output.dense", "attention.output.dropout",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.dropout",
    "output.LayerNorm"};

static const choir__bert_family bert = {.name = "bert",
    .body = "bert.",
    .layers = "encoder.layer",
    .layer = &layer,
    .dense = "cls.predictions.transform.dense",
    .dense_norm = "cls.predictions.transform.LayerNorm",
    .table = "cls.predictions.decoder.weight",
    .bias = "cls.predictions.bias",
    .again = "cls.predictions.decoder.bias",
    .pooler = "bert.pooler.dense",
    .pooler_dropout = "dropout",
    .scores = "classifier",
    .types = true,
    .eps = 1e-12,
    .pad = -1,
    .types_here = 2};

/* --- the published form --- */

static const choir__encoder_form form = {.classifier = "BertForSequenceClassification",
    .tagger = "BertForTokenClassification",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .width_absent = 768,
    .heads_absent = 12,
    .vocab_absent = 30522};

static const choir__config_key keys[] = {
    {"num_hidden_layers", .option = "layers", .absent = "12"},
    {"num_attention_heads", .option = "heads", .absent = "12"},
    {"hidden_size", .option = "width", .absent = "768"},
    {"intermediate_size", .option = "hidden", .absent = "3072"},
    {"max_position_embeddings", .option = "context", .absent = "512"},
    {"vocab_size", .option = "vocab", .absent = "30522"},
    {"type_vocab_size", .option = "types", .absent = "2"},
    {"hidden_dropout_prob", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},
    {"classifier_dropout", .option = "head_dropout", .type = CHOIR__FLOAT},
    {"layer_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-12"},
    {"hidden_act", .values = "gelu"}, {"position_embedding_type", .values = "absolute"},
    {"attention_probs_dropout_prob", .values = "0.0", .note = CHOIR__NO_ATTENTION_DROPOUT},
    CHOIR__ENCODER_KEYS, {NULL}};

static choir_status read_config(choir__config *c)
{
    return choir__encoder_read(c, &form);
}

static void write_config(const char *text, json_t *root)
{
    choir__encoder_write(text, root, &form);
}

static const choir__published published = {
    .type = "bert",
    .architectures = (const char *[]){"BertForMaskedLM", "BertForSequenceClassification",
        "BertForTokenClassification", "BertForPreTraining", "BertModel", NULL},
    .keys = keys,
    .inert = (const char *[]){"directionality", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", NULL},
    .read = read_config,
    .write = write_config,
    .prefix = "bert.",
    .ignored = (const char *[]){"*embeddings.position_ids", "*embeddings.token_type_ids",
        "cls.seq_relationship.*", NULL},
    /* as TensorFlow named a norm's numbers when these models were published */
    .older = (const choir__older_name[]){{"LayerNorm.gamma", "LayerNorm.weight"},
        {"LayerNorm.beta", "LayerNorm.bias"}, {NULL, NULL}},
    .fresh = (const char *[]){"cls.*", "classifier.*", "*pooler.dense.*", NULL},
};

/* --- the model --- */

static choir_status describe(const char *text, choir_model_info *info)
{
    return choir__bert_describe(&bert, text, info);
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    return choir__bert_build(&bert, text, run, info);
}

const choir__model_spec choir__model_bert = {
    .name = "bert",
    .help =
        "BERT: layers=12,heads=12,width=768,hidden=(4 width),context=128,types=2,"
        "vocab=(the data's),dropout=0,head_dropout=(dropout),eps=1e-12,pad=(none),classes=0 "
        "(classes of a sequence; 0 predicts masked tokens),words=0 (1 gives each word a class),"
        "problem=one|regression|multi_label,length=(context; tokens of a sample)",
    .describe = describe,
    .build = build,
    .published = &published,
};
