/* Shared by bert.c and bert_layer.c. */
#ifndef CHOIR_BERT_H
#define CHOIR_BERT_H

#include "nn/module.h"

typedef struct choir__bert_sizes {
    int64_t layers, heads, width, hidden, context, vocab, types;
    /* Classes of a sequence, or of a word. 0: the head predicts the masked tokens. */
    int64_t classes;
    double dropout, eps;
    int64_t pad;    /* the token of padding, whose embedding is not trained; -1: none */
    bool words;     /* each position has a class, not the sequence */
    int64_t length; /* tokens of a sample, at most context; 0: context */
} choir__bert_sizes;

/* Creates one layer of the encoder. Forward: x (B, T, C), and optionally a bias of the scores
 * (B, 1, 1, T). */
choir_module *choir__bert_layer(choir_scope *run, const choir__bert_sizes *sizes);

/* Creates a linear layer with the published initial values: weights normal with deviation 0.02,
 * biases 0. */
choir_module *choir__bert_linear(choir_scope *run, int64_t in, int64_t out);

#endif
