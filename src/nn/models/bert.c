/* BERT (Devlin et al., 2019): embeddings of tokens, positions and token types, an encoder of
 * post-norm layers, and a head. With `classes` the head classifies whole sequences (a pooler
 * over the first position, and a linear layer) or, with `words`, each position (a linear
 * layer). Without, it predicts the token behind each mask, and its last product is tied to the
 * token embedding. Names are the published ones.
 *
 * models.h documents the inputs of its forward. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "nn/models/bert.h"
#include "nn/models/config.h"
#include "nn/models/published.h"
#include "tensor/sequence.h"

enum { MAX_LAYERS = 256, MAX_IN = 3 };

typedef struct bert {
    choir_module base;
    choir_module *words, *places, *types, *norm, *dropout;
    choir_module *dense, *dense_norm;        /* layers of the head over tokens */
    choir_tensor *bias, *table, *bias_again; /* (V), (V, C), (V) */
    choir_module *pooler, *last_dropout,
        *classifier; /* layers of the head over classes; words have no pooler */
    choir_module *layers[MAX_LAYERS];
    choir__bert_sizes n;
} bert;

/* --- forward --- */

/* Returns the ids of type 0: one for all tokens, whose gradient is summed over them; or one
 * each, where they are cut into chunks, so that the sum goes through the tree of rows. */
static choir_tensor *type_zero(choir_scope *scope, int64_t tokens)
{
    return scope->sequence ? choir_zeros(scope, CHOIR_I64, choir_dims(tokens))
                           : choir__model_positions(scope, 1);
}

/* Returns the embeddings of all positions; types NULL: 0. */
static choir_tensor *embed(bert *b, choir_tensor *ids, choir_tensor *types)
{
    choir_scope *scope = choir_tensor_scope(ids);
    int64_t t = choir_tensor_size(ids, 1);
    choir_tensor *where =
        choir_forward(b->places, choir__model_positions(scope, t)); /* (T, C) */
    choir_tensor *type = choir_forward(
        b->types, types ? types : type_zero(scope, t)); /* (B, T, C), (T, C) or (1, C) */
    choir_tensor *x = types ? choir_add(choir_add(choir_forward(b->words, ids), type), where)
                            : choir_add(choir_forward(b->words, ids), choir_add(type, where));
    return choir_forward(b->dropout, choir_forward(b->norm, x)); /* (B, T, C) */
}

/* Returns 0 where the mask is 1, and nearly minus infinity where it is 0, for the keys of all
 * ranks. */
static choir_tensor *bias_of(choir_tensor *mask) /* (B, T) -> (B, 1, 1, T) */
{
    mask = choir__sequence_whole(choir_tensor_scope(mask), mask, 1);
    int64_t rows = choir_tensor_size(mask, 0), t = choir_tensor_size(mask, 1);
    choir_tensor *x = choir_affine(choir_cast(mask, CHOIR_F32), 1e30, -1e30);
    return choir_reshape(x, choir_dims(rows, 1, 1, t));
}

static choir_tensor *token_scores(bert *b, choir_tensor *x) /* (B, T, C) -> (B, T, V) */
{
    x = choir_forward(b->dense_norm, choir_gelu(choir_forward(b->dense, x)));
    choir_tensor *scores = choir_linear(x, b->table, b->bias);
    choir__done_with(x);
    return scores;
}

/* (B, T, C) -> (B, classes), or of words (B, T, classes) */
static choir_tensor *class_scores(bert *b, choir_tensor *x)
{
    if (b->n.words)
        return choir_forward(b->classifier, choir_forward(b->last_dropout, x));
    choir_tensor *first = choir_reshape(
        choir_narrow(x, 1, 0, 1), choir_dims(choir_tensor_size(x, 0), b->n.width));
    first = choir_tanh(choir_forward(b->pooler, first));
    return choir_forward(b->classifier, choir_forward(b->last_dropout, first));
}

static choir_tensor *bert_forward(choir_module *self, choir_tensor *const *in, int count)
{
    bert *b = (bert *)self;
    choir_scope *scope = choir_tensor_scope(in[0]);
    choir_shape shape = choir_tensor_shape(in[0]); /* (B, T) */
    if (shape.ndim != 2 || shape.dim[1] < 1 || shape.dim[1] > b->n.context)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "bert: expected ids (B, T) with T up to its context of %lld, got %s",
            (long long)b->n.context, choir__shape_text(shape));
    for (int i = 1; i < count; i++)
        if (in[i] && !choir__same_shape(choir_tensor_shape(in[i]), shape))
            return choir__poison(scope, CHOIR_ERR_SHAPE,
                "bert: expected token types and a mask of the ids' shape, %s, got %s",
                choir__shape_text(shape), choir__shape_text(choir_tensor_shape(in[i])));
    choir_tensor *x = embed(b, in[0], count > 1 ? in[1] : NULL);
    choir_tensor *bias = count > 2 && in[2] ? bias_of(in[2]) : NULL;
    for (int64_t i = 0; i < b->n.layers; i++) {
        choir_tensor *y =
            bias ? choir_forward(b->layers[i], x, bias) : choir_forward(b->layers[i], x);
        choir__done_with(x);
        x = y;
    }
    return b->n.classes ? class_scores(b, x) : token_scores(b, x);
}

static const choir_module_class bert_class = {"bert", sizeof(bert), bert_forward, MAX_IN};

/* --- building --- */

static void add_head(bert *b, choir_scope *run)
{
    const choir__bert_sizes *n = &b->n;
    if (n->classes) {
        if (!n->words)
            choir_module_child(&b->base, "bert.pooler.dense", &b->pooler,
                choir__bert_linear(run, n->width, n->width));
        choir_module_child(
            &b->base, "dropout", &b->last_dropout, choir_nn_dropout(run, (float)n->dropout));
        choir_module_child(&b->base, "classifier", &b->classifier,
            choir__bert_linear(run, n->width, n->classes));
        return;
    }
    choir_module_child(&b->base, "cls.predictions.transform.dense", &b->dense,
        choir__bert_linear(run, n->width, n->width));
    choir_module_child(&b->base, "cls.predictions.transform.LayerNorm", &b->dense_norm,
        choir_nn_layer_norm_with(run, n->width, (float)n->eps));
    choir_module_tie(&b->base, "cls.predictions.decoder.weight", &b->table,
        choir__embedding_table(b->words));
    choir_module_param(&b->base, "cls.predictions.bias", &b->bias, choir_dims(n->vocab),
        choir_init_constant(0));
    choir_module_tie(&b->base, "cls.predictions.decoder.bias", &b->bias_again, b->bias);
}

static choir_module *new_bert(choir_scope *run, const choir__bert_sizes *n)
{
    bert *b = choir_module_new(run, &bert_class);
    choir_init init = choir_init_normal(0, 0.02);
    b->n = *n;
    choir_module_child(&b->base, "bert.embeddings.word_embeddings", &b->words,
        choir_nn_embedding_with(run, n->vocab, n->width, init, n->pad));
    choir_module_child(&b->base, "bert.embeddings.position_embeddings", &b->places,
        choir_nn_embedding(run, n->context, n->width, init));
    choir_module_child(&b->base, "bert.embeddings.token_type_embeddings", &b->types,
        choir_nn_embedding(run, n->types, n->width, init));
    choir_module_child(&b->base, "bert.embeddings.LayerNorm", &b->norm,
        choir_nn_layer_norm_with(run, n->width, (float)n->eps));
    choir_module_child(&b->base, "bert.embeddings.dropout", &b->dropout,
        choir_nn_dropout(run, (float)n->dropout));
    for (int64_t i = 0; i < n->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "bert.encoder.layer.%d", (int)i);
        choir_module_child(&b->base, name, &b->layers[i], choir__bert_layer(run, n));
    }
    add_head(b, run);
    return &b->base;
}

/* --- by name --- */

static choir_status parse(const char *text, choir__bert_sizes *n)
{
    *n = (choir__bert_sizes){12, 12, 768, 0, 128, 0, 2, 0, 0, 1e-12, -1, false, 0};
    choir__option known[] = {{"layers", CHOIR__INT, &n->layers, 1, MAX_LAYERS},
        {"heads", CHOIR__INT, &n->heads, 1, 1024}, {"width", CHOIR__INT, &n->width, 1, 1 << 20},
        {"hidden", CHOIR__INT, &n->hidden, 1, 1 << 22},
        {"context", CHOIR__INT, &n->context, 1, 1 << 20},
        {"vocab", CHOIR__INT, &n->vocab, 1, 1 << 24},
        {"types", CHOIR__INT, &n->types, 1, 1 << 20},
        {"classes", CHOIR__INT, &n->classes, 0, 1 << 24},
        {"dropout", CHOIR__FLOAT, &n->dropout, 0, 0.99}, {"eps", CHOIR__FLOAT, &n->eps, 0, 0.1},
        {"pad", CHOIR__INT, &n->pad, 0, 1 << 24}, {"words", CHOIR__FLAG, &n->words, 0, 0},
        {"length", CHOIR__INT, &n->length, 0, 1 << 20}, {NULL}};
    choir_status status = choir__options_parse(text, "model bert", known);
    if (!n->hidden)
        n->hidden = 4 * n->width;
    if (status == CHOIR_OK && n->width % n->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model bert: heads=%lld does not divide width=%lld", (long long)n->heads,
            (long long)n->width);
    if (status == CHOIR_OK && n->words && !n->classes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model bert: words=1 gives each word one of the classes: name classes=N, too");
    if (status == CHOIR_OK && n->length > n->context)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model bert: length=%lld: expected at most the %lld positions of context",
            (long long)n->length, (long long)n->context);
    return status;
}

/* Writes all sizes as the model's text. */
static void write_text(const choir__bert_sizes *n, char *text, size_t room)
{
    int used = snprintf(text, room,
        "bert:layers=%lld,heads=%lld,width=%lld,hidden=%lld,context=%lld,vocab=%lld,types=%lld,"
        "classes=%lld,dropout=%g,eps=%g",
        (long long)n->layers, (long long)n->heads, (long long)n->width, (long long)n->hidden,
        (long long)n->context, (long long)n->vocab, (long long)n->types, (long long)n->classes,
        n->dropout, n->eps);
    if (n->pad >= 0)
        used += snprintf(text + used, room - (size_t)used, ",pad=%lld", (long long)n->pad);
    if (n->words)
        used += snprintf(text + used, room - (size_t)used, ",words=1");
    if (n->length)
        snprintf(text + used, room - (size_t)used, ",length=%lld", (long long)n->length);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    choir__bert_sizes n;
    choir_status status = parse(text, &n);
    if (status != CHOIR_OK)
        return status;
    int64_t tokens = n.classes ? info->vocab : info->classes;
    if (n.vocab && tokens > n.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model bert: vocab=%lld is too small for the data's %lld tokens, the mask included",
            (long long)n.vocab, (long long)tokens);
    if (!n.vocab)
        n.vocab = tokens ? tokens : 30522;
    info->classes = n.classes ? n.classes : n.vocab;
    info->vocab = n.vocab;
    info->masked = !n.classes;
    info->task = n.classes ? CHOIR_CLASSIFICATION : CHOIR_LANGUAGE;
    int64_t length = n.length ? n.length : n.context;
    info->input = choir_dims(length);
    info->output = n.words ? choir_dims(length) : CHOIR_SCALAR;
    info->padded = n.words;
    info->items = n.classes ? 1 : length;
    if (n.pad >= n.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model bert: pad=%lld is no token of a vocabulary of %lld", (long long)n.pad,
            (long long)n.vocab);
    write_text(&n, info->config, sizeof info->config);
    return CHOIR_OK;
}

static choir_status build(
    const char *text, choir_scope *run, choir_model_info *info, choir_module **module)
{
    choir__bert_sizes n;
    choir_status status = parse(text, &n);
    if (status != CHOIR_OK)
        return status;
    if (!n.vocab)
        n.vocab = info->vocab;
    *module = new_bert(run, &n);
    return choir__scope_status(run);
}

/* --- published form --- */

static const choir__config_key keys[] = {
    {"num_hidden_layers", .option = "layers", .absent = "12"},
    {"num_attention_heads", .option = "heads", .absent = "12"},
    {"hidden_size", .option = "width", .absent = "768"},
    {"intermediate_size", .option = "hidden", .absent = "3072"},
    {"max_position_embeddings", .option = "context", .absent = "512"},
    {"vocab_size", .option = "vocab", .absent = "30522"},
    {"type_vocab_size", .option = "types", .absent = "2"},
    {"hidden_dropout_prob", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},
    {"layer_norm_eps", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-12"},
    {"hidden_act", .values = "gelu"},
    {"position_embedding_type", .values = "absolute"},
    {"tie_word_embeddings", .values = "true"},
    {"attention_probs_dropout_prob", .values = "0.0",
        .note = "attention dropout is not implemented and is ignored"},
    {"initializer_range", .values = "0.02",
        .note = "new weights start with a deviation of 0.02 here"},
    {NULL},
};

#define CLASSIFIER "BertForSequenceClassification"
#define TAGGER     "BertForTokenClassification"

static choir_status read_config(choir__config *c)
{
    int64_t width = choir__config_int(c, "hidden_size", 768);
    int64_t heads = choir__config_int(c, "num_attention_heads", 12);
    if (width % heads)
        return choir__config_bad(c, "hidden_size",
            "expected a multiple of num_attention_heads, %lld", (long long)heads);
    if (json_is_true(json_object_get(c->root, "is_decoder")))
        return choir__config_bad(c, "is_decoder", "this model sees all positions");
    choir_status status = choir__config_read_pad(c, "vocab_size", 30522, 0);
    if (status != CHOIR_OK)
        return status;
    const char *name =
        json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    bool words = name && !strcmp(name, TAGGER);
    if (!words && (!name || strcmp(name, CLASSIFIER) != 0))
        return CHOIR_OK;
    const char *problem = json_string_value(json_object_get(c->root, "problem_type"));
    if (problem && !words && strcmp(problem, "single_label_classification") != 0)
        return choir__config_bad(c, "problem_type",
            "classifiers are trained by cross entropy: expected single_label_classification");
    const json_t *labels = json_object_get(c->root, "id2label");
    int64_t named = json_is_object(labels) ? (int64_t)json_object_size(labels) : 2;
    int64_t classes = choir__config_int(c, "num_labels", named);
    if (classes < 2 || (json_is_object(labels) && classes != named))
        return choir__config_bad(c, json_is_object(labels) ? "id2label" : "num_labels",
            "a classifier has two classes or more, as many as num_labels if that is there");
    choir__config_set(c, "classes", "%lld", (long long)classes);
    if (words)
        choir__config_set(c, "words", "1");
    return CHOIR_OK;
}

static void write_config(const char *text, json_t *root)
{
    choir__config_write_pad(text, root);
    char *classes = choir__config_option(text, "classes");
    char *words = choir__config_option(text, "words");
    int64_t count = classes ? strtoll(classes, NULL, 10) : 0;
    if (count) {
        json_object_set_new(
            root, "architectures", json_pack("[s]", words ? TAGGER : CLASSIFIER));
        choir__config_set_classes(root, count, NULL);
    }
    free(words);
    free(classes);
}

static const choir__published published = {
    .type = "bert",
    .architectures = (const char *[]){"BertForMaskedLM", CLASSIFIER, TAGGER,
        "BertForPreTraining", "BertModel", NULL},
    .keys = keys,
    .inert = (const char *[]){"classifier_dropout", "directionality", "pooler_fc_size",
        "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
        "pooler_type", NULL},
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

const choir__model_spec choir__model_bert = {
    .name = "bert",
    .help =
        "BERT: layers=12,heads=12,width=768,hidden=(4 width),context=128,types=2,"
        "vocab=(the data's),dropout=0,eps=1e-12,pad=(none),classes=0 (of a sequence; 0: says "
        "what is behind masks),words=0 (1: a class for each word),length=(context; "
        "tokens of a sample)",
    .describe = describe,
    .build = build,
    .published = &published,
};
