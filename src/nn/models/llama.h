/* Llama and Mistral: shared by their modules (llama.c) and their options (llama_options.c). */
#ifndef CHOIR_LLAMA_H
#define CHOIR_LLAMA_H

#include "nn/models/spec.h"

enum { CHOIR__LLAMA_LAYERS = 256 };

typedef struct choir__llama_sizes {
    int64_t layers, heads, kv_heads, head_dim, width, hidden, context, vocab;
    int64_t window; /* a position sees this many last positions; 0: all */
    int64_t pad;    /* the token of padding, whose embedding is not trained; -1: none */
    double eps;
    bool tied, attention_bias, mlp_bias;
    choir_rotary_opts rotary;
} choir__llama_sizes;

/* Forward: ids i64 (B, T), T up to the context -> scores (B, T, vocab). */
choir_module *choir__llama_new(choir_scope *run, const choir__llama_sizes *sizes);

/* Their config.json and weights (llama_published.c). */
extern const struct choir__published choir__llama_published, choir__mistral_published;

#endif
