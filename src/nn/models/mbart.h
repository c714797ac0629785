/* BART's decoder in MBart's form (Liu et al., 2020), as Donut uses it: tokens and an encoder's
 * states to logits. */
#ifndef CHOIR_MBART_H
#define CHOIR_MBART_H

#include <choir/nn.h>

enum {
    CHOIR__MBART_LAYERS = 64,
    CHOIR__MBART_OFFSET = 2 /* offset of positions, as published */
};

typedef struct choir__mbart_sizes {
    int64_t layers, heads, width, hidden, context, vocab;
    int64_t pad; /* the token of padding, whose embedding is not trained */
    double dropout;
} choir__mbart_sizes;

/* Creates the decoder. Forward: ids (B, T) i64, states (B, S, width) -> (B, T, vocab). */
choir_module *choir__mbart_new(choir_scope *run, const choir__mbart_sizes *sizes);

#endif
