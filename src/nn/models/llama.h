/* Llama and its relatives: shared by their module (llama.c), their options (llama_options.c),
 * their config.json and the families, which say how they differ (families/). */
#ifndef CHOIR_LLAMA_H
#define CHOIR_LLAMA_H

#include "nn/models/spec.h"

enum { CHOIR__LLAMA_LAYERS = 256, CHOIR__ROTARY_RATES = 128 };

/* Traits of a family of decoders: how all of its models differ from Llama. */
enum {
    CHOIR__TRAIT_QKV_BIAS = 1, /* queries, keys and values alone have biases */
    CHOIR__TRAIT_QK_NORM = 2, /* single heads of queries and keys are normed before they turn */
    CHOIR__TRAIT_ONE_MORE = 4, /* norms multiply by 1 + weight */
    CHOIR__TRAIT_POST_NORMS =
        8, /* results of attention and of the gated layers are normed as well */
    CHOIR__TRAIT_GELU = 16,   /* gates are GELU's tanh form in place of SiLU */
    CHOIR__TRAIT_SCALED = 32, /* embeddings are multiplied by sqrt(width) */
    CHOIR__TRAIT_FUSED =
        64 /* queries, keys and values come from one matrix, as do gate and up */
};

typedef struct choir__llama_sizes {
    int64_t layers, heads, kv_heads, head_dim, width, hidden, context, vocab;
    int64_t window; /* a position sees this many last positions; 0: all */
    int64_t pad;    /* the token of padding, whose embedding is not trained; -1: none */
    double eps;
    bool tied, attention_bias, mlp_bias;
    choir_rotary_opts rotary;
    unsigned traits;
    double partial;     /* part of a head's dimensions that turn; 0: all */
    double local_theta; /* theta of layers with a window; 0: the same */
    double query_scale; /* scores are divided by its root; 0: of head_dim */
    double softcap,
        final_softcap; /* bounds of attention's scores and of the tokens'; 0: not bent */
    /* kinds of layers, repeated over the layers; "": all have the window, or see all.
     * f: sees all positions; s: has the window; n, w: likewise, without rotary positions */
    char pattern[256];
    double short_factors[CHOIR__ROTARY_RATES], long_factors[CHOIR__ROTARY_RATES];
} choir__llama_sizes;

/* A family: its name in texts ("qwen2"), in messages and as words in front of its options. */
typedef struct choir__model_family {
    const char *name;
    /* the family's own options (llama_options.c has the common ones), ended by NULL */
    const char *const *options;
    choir__llama_sizes defaults;
    /* checks what else must agree; NULL: nothing. Error: argument */
    choir_status (*check)(const choir__llama_sizes *sizes);
    const char *const *longropes; /* two older names of rope_type "longrope", or NULL */
    /* models that `size=` names: `sizes`, ended by a NULL name */
    const struct choir__family_size *sizes;
    /* values of keys that config.json lacks: heads, key and value heads (0: as many as heads),
     * the width, tokens, the token of padding (-1: none), positions */
    struct {
        int64_t heads, kv_heads, width, vocab, pad, context;
    } absent;
} choir__model_family;

typedef struct choir__family_size {
    const char *name;
    choir__llama_sizes sizes;
} choir__family_size;

/* Returns the kind of a layer: a letter of the pattern. */
char choir__llama_kind(const choir__llama_sizes *sizes, int64_t layer);

/* Returns how many dimensions of a head turn: an even number. */
int64_t choir__llama_turning(const choir__llama_sizes *sizes);

/* Forward: ids i64 (B, T), T up to the context -> scores (B, T, vocab). */
choir_module *choir__llama_new(choir_scope *run, const choir__llama_sizes *sizes);

/* Describe and build a family's model (llama_options.c): see spec.h. */
choir_status choir__family_describe(
    const choir__model_family *family, const char *text, choir_model_info *info);
choir_module *choir__family_build(const choir__model_family *family, const char *text,
    choir_scope *run, const choir_model_info *info);

#endif
