/* BERT (Devlin et al., 2019) and its relatives: embeddings of tokens, positions and token
 * types, an encoder of post-norm layers, and a head. With `classes` the head judges whole
 * sequences (a pooler over the first position, and a linear layer) or, with `words`, each
 * position (a linear layer). Without, it predicts the token behind each mask, and its last
 * product is tied to the token embedding. The family has the names, which are the published
 * ones, and says which parts it lacks.
 *
 * models.h documents the inputs of its forward. */
#include <stdio.h>

#include <choir/select.h>

#include "nn/models/bert.h"
#include "tensor/sequence.h"

enum { MAX_IN = 3 };

typedef struct bert {
    choir_module base;
    choir_module *words, *places, *types, *norm, *dropout;
    choir_module *dense, *dense_norm;        /* layers of the head over tokens */
    choir_tensor *bias, *table, *bias_again; /* (V), (V, C), (V) */
    choir_module *pooler, *last_dropout,
        *classifier; /* layers of the head over classes; words have no pooler */
    choir_module *layers[CHOIR__BERT_LAYERS];
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

/* Returns where tokens stand that count from the padding's id on, (B, T): padding stands there,
 * and each other token behind those before it. In a sequence that is cut, padding is taken to
 * be at the end, so that each token knows its place by itself. */
static choir_tensor *places_after_pad(const bert *b, choir_tensor *ids)
{
    choir_scope *scope = choir_tensor_scope(ids);
    double pad = (double)b->n.pad;
    choir_tensor *real = choir_cast(choir_compare(ids, CHOIR_NE, pad), CHOIR_F32);
    choir_tensor *count = /* tokens up to this one */
        scope->sequence
            ? choir_affine(choir_cast(choir__model_positions(scope, choir_tensor_size(ids, 1)),
                               CHOIR_F32),
                  1, 1)
            : choir_cumsum(real, 1);
    return choir_cast(choir_affine(choir_mul(real, count), 1, pad), CHOIR_I64);
}

/* Returns the embeddings of positions, (T, C) or, where they depend on the ids, (B, T, C). */
static choir_tensor *embed_places(bert *b, choir_tensor *ids)
{
    return choir_forward(b->places,
        b->n.family->after_pad
            ? places_after_pad(b, ids)
            : choir__model_positions(choir_tensor_scope(ids), choir_tensor_size(ids, 1)));
}

/* Returns the embeddings of all positions; types NULL: 0. */
static choir_tensor *embed(bert *b, choir_tensor *ids, choir_tensor *types)
{
    choir_scope *scope = choir_tensor_scope(ids);
    choir_tensor *where = embed_places(b, ids), *type = NULL;
    if (b->types)
        type = choir_forward(
            b->types, types ? types
                            : type_zero(scope,
                                  choir_tensor_size(ids, 1))); /* (B, T, C), (T, C) or (1, C) */
    choir_tensor *x = choir_forward(b->words, ids);
    x = !type   ? choir_add(x, where)
        : types ? choir_add(choir_add(x, type), where)
                : choir_add(x, choir_add(type, where));
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
    const choir__bert_family *f = b->n.family;
    choir_tensor *first = choir_reshape(
        choir_narrow(x, 1, 0, 1), choir_dims(choir_tensor_size(x, 0), b->n.width));
    if (f->pooler_drops)
        first = choir_forward(b->last_dropout, first);
    first = choir_forward(b->pooler, first);
    first = f->pooler_relu ? choir_relu(first) : choir_tanh(first);
    return choir_forward(b->classifier, choir_forward(b->last_dropout, first));
}

static choir_tensor *bert_forward(choir_module *self, choir_tensor *const *in, int count)
{
    bert *b = (bert *)self;
    choir_scope *scope = choir_tensor_scope(in[0]);
    choir_shape shape = choir_tensor_shape(in[0]); /* (B, T) */
    if (shape.ndim != 2 || shape.dim[1] < 1 || shape.dim[1] > b->n.context)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "%s: expected ids (B, T) with T up to its context of %lld, got %s",
            b->n.family->name, (long long)b->n.context, choir__shape_text(shape));
    for (int i = 1; i < count; i++)
        if (in[i] && !choir__same_shape(choir_tensor_shape(in[i]), shape))
            return choir__poison(scope, CHOIR_ERR_SHAPE,
                "%s: expected token types and a mask of the ids' shape, %s, got %s",
                b->n.family->name, choir__shape_text(shape),
                choir__shape_text(choir_tensor_shape(in[i])));
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

static void add_child(
    bert *b, const char *prefix, const char *name, choir_module **field, choir_module *made)
{
    char path[96];
    snprintf(path, sizeof path, "%s%s", prefix, name);
    choir_module_child(&b->base, path, field, made);
}

static void add_class_head(bert *b, choir_scope *run)
{
    const choir__bert_sizes *n = &b->n;
    const choir__bert_family *f = n->family;
    if (!n->words)
        choir_module_child(
            &b->base, f->pooler, &b->pooler, choir__bert_linear(run, n->width, n->width));
    choir_module_child(&b->base, f->pooler_dropout, &b->last_dropout,
        choir_nn_dropout(run, (float)n->head_dropout));
    choir_module_child(&b->base, n->words ? "classifier" : f->scores, &b->classifier,
        choir__bert_linear(run, n->width, n->classes));
}

static void add_token_head(bert *b, choir_scope *run)
{
    const choir__bert_sizes *n = &b->n;
    const choir__bert_family *f = n->family;
    choir_module_child(
        &b->base, f->dense, &b->dense, choir__bert_linear(run, n->width, n->width));
    choir_module_child(&b->base, f->dense_norm, &b->dense_norm,
        choir_nn_layer_norm_with(run, n->width, (float)n->eps));
    choir_module_tie(&b->base, f->table, &b->table, choir__embedding_table(b->words));
    choir_module_param(
        &b->base, f->bias, &b->bias, choir_dims(n->vocab), choir_init_constant(0));
    if (f->again)
        choir_module_tie(&b->base, f->again, &b->bias_again, b->bias);
}

/* Positions behind the padding's id need rows up to it, which are for no token. */
static choir_module *new_places(choir_scope *run, const choir__bert_sizes *n)
{
    choir_init init = choir_init_normal(0, 0.02);
    return n->family->after_pad
               ? choir_nn_embedding_with(run, n->context + n->pad + 1, n->width, init, n->pad)
               : choir_nn_embedding(run, n->context, n->width, init);
}

choir_module *choir__bert_new(choir_scope *run, const choir__bert_sizes *n)
{
    bert *b = choir_module_new(run, &bert_class);
    const char *body = n->family->body;
    choir_init init = choir_init_normal(0, 0.02);
    b->n = *n;
    add_child(b, body, "embeddings.word_embeddings", &b->words,
        choir_nn_embedding_with(run, n->vocab, n->width, init, n->pad));
    add_child(b, body, "embeddings.position_embeddings", &b->places, new_places(run, n));
    if (n->family->types)
        add_child(b, body, "embeddings.token_type_embeddings", &b->types,
            choir_nn_embedding(run, n->types, n->width, init));
    add_child(b, body, "embeddings.LayerNorm", &b->norm,
        choir_nn_layer_norm_with(run, n->width, (float)n->eps));
    add_child(
        b, body, "embeddings.dropout", &b->dropout, choir_nn_dropout(run, (float)n->dropout));
    for (int64_t i = 0; i < n->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s.%d", n->family->layers, (int)i);
        add_child(b, body, name, &b->layers[i], choir__bert_layer(run, n));
    }
    if (n->classes)
        add_class_head(b, run);
    else
        add_token_head(b, run);
    return &b->base;
}
