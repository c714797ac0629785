/* What bert.c and bert_layer.c share. */
#ifndef CHOIR_BERT_H
#define CHOIR_BERT_H

#include "nn/module.h"

typedef struct choir__bert_sizes {
    int64_t layers, heads, width, hidden, context, vocab, types;
    int64_t classes; /* of a sequence; 0: the head says which tokens are behind the masks */
    double dropout, eps;
} choir__bert_sizes;

/* One layer of the encoder. forward: x (B, T, C), and perhaps the scores' bias (B, 1, 1, T). */
choir_module *choir__bert_layer(choir_scope *run, const choir__bert_sizes *sizes);

/* Linear, with the published initial values: normal of deviation 0.02, no bias. */
choir_module *choir__bert_linear(choir_scope *run, int64_t in, int64_t out);

#endif
