/* BERT and its relatives: shared by their module (bert.c, bert_layer.c), their options
 * (bert_options.c) and the families, which say how they differ (families/). */
#ifndef CHOIR_BERT_H
#define CHOIR_BERT_H

#include "nn/models/spec.h"
#include "nn/module.h"

enum { CHOIR__BERT_LAYERS = 256 };

/* The targets of a head over whole sequences. */
typedef enum choir__bert_problem {
    CHOIR__ONE_CLASS,
    CHOIR__NUMBERS,        /* numbers, by mean squared error */
    CHOIR__SEVERAL_CLASSES /* any of the classes, each by itself */
} choir__bert_problem;

/* Names in a layer of the encoder. */
typedef struct choir__bert_layer_names {
    const char *query, *key, *value, *mix, *mix_dropout; /* mix_dropout: NULL: none */
    const char *mix_norm, *up, *down, *down_dropout, *down_norm;
} choir__bert_layer_names;

/* A family of encoders: its name in texts ("roberta") and messages, its published names, and
 * how it differs from BERT. */
typedef struct choir__bert_family {
    const char *name, *body; /* body: "roberta.", the prefix of all but the head */
    const char *layers;      /* "encoder.layer", which the body's prefix precedes */
    const choir__bert_layer_names *layer;
    /* the head over tokens; again: a second name of the bias, or NULL */
    const char *dense, *dense_norm, *table, *bias, *again;
    const char *pooler, *pooler_dropout, *scores; /* the head over sequences */
    bool pooler_drops;  /* what the pooler reads is dropped out as well */
    bool pooler_relu;   /* ReLU behind the pooler in place of tanh */
    bool types;         /* tokens have types */
    bool after_pad;     /* positions count tokens but padding, from the padding's id on */
    double eps;         /* the norms', unless the text says another */
    bool eps_fixed;     /* the text says none */
    int64_t pad;        /* the token of padding, unless the text says another; -1: none */
    int64_t types_here; /* types of tokens, unless the text says another number */
} choir__bert_family;

typedef struct choir__bert_sizes {
    const choir__bert_family *family;
    int64_t layers, heads, width, hidden, context, vocab, types;
    /* Classes of a sequence, or of a word. 0: the head predicts the masked tokens. */
    int64_t classes;
    double dropout, eps, head_dropout; /* the last one precedes the classifier */
    int64_t pad;    /* the token of padding, whose embedding is not trained; -1: none */
    bool words;     /* each position has a class, not the sequence */
    int64_t length; /* tokens of a sample, at most context; 0: context */
    choir__bert_problem problem;
} choir__bert_sizes;

/* Forward: ids (B, T), T up to the context, and optionally types of tokens and a mask: see
 * choir_model. */
choir_module *choir__bert_new(choir_scope *run, const choir__bert_sizes *sizes);

/* Creates one layer of the encoder. Forward: x (B, T, C), and optionally a bias of the scores
 * (B, 1, 1, T). */
choir_module *choir__bert_layer(choir_scope *run, const choir__bert_sizes *sizes);

/* Creates a linear layer with the published initial values: weights normal with deviation 0.02,
 * biases 0. */
choir_module *choir__bert_linear(choir_scope *run, int64_t in, int64_t out);

/* Describe and build a family's model (bert_options.c): see spec.h. */
choir_status choir__bert_describe(
    const choir__bert_family *family, const char *text, choir_model_info *info);
choir_module *choir__bert_build(const choir__bert_family *family, const char *text,
    choir_scope *run, const choir_model_info *info);

#endif
