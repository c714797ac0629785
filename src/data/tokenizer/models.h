/* The models of a tokenizer.json or a SentencePiece file: each turns a word into ids.
 *
 * A word is a text that has been prepared (hf_pipeline.h, sentencepiece_text.c): bytes for a
 * byte-level model (GPT-2, Llama 3), else characters with U+2581 in place of spaces. */
#ifndef CHOIR_DATA_TOKENIZER_MODELS_H
#define CHOIR_DATA_TOKENIZER_MODELS_H

#include "data/tokenizer/tokenizer.h"

#define CHOIR__SPACE_MARK "\xe2\x96\x81"

typedef struct choir__model choir__model;

typedef struct choir__model_ops {
    const char *kind;
    /* Appends the ids of [word, end). part: the word is a part of a longer text that was cut,
     * so its ids must not depend on what stands before. Returns NULL, or the position of a
     * character without a token. */
    const char *(*encode)(
        choir__model *self, const char *word, const char *end, bool part, choir__ids *ids);
    void (*free)(choir__model *self);
} choir__model_ops;

struct choir__model {
    const choir__model_ops *ops;
};

/* --- models: each takes ownership of keys, and finds the ids that are indexed there --- */

/* Treatment of a character without a token. */
typedef struct choir__unknown {
    int32_t id; /* -1: an error */
    bool fuse;  /* one token for several unknown characters in a row */
    /* Tokens of single bytes to fall back on, or -1. byte[0] = -1: no such tokens. */
    int32_t byte[256];
} choir__unknown;

/* Looks up <0x00> ... <0xFF>; returns false if one is missing. */
bool choir__unknown_bytes(choir__unknown *u, const choir__vocab *keys);
/* Appends the ids of unknown bytes; returns false if they have none. again: the text before
 * them is unknown, too. */
bool choir__unknown_add(
    const choir__unknown *u, const char *at, size_t bytes, bool again, choir__ids *ids);

typedef struct choir__merge {
    int32_t left, right, result, rank; /* the lowest rank is merged first */
} choir__merge;

typedef struct choir__bpe_opts {
    bool byte_level;  /* keys are bytes; else characters */
    bool whole_words; /* a word that is a token needs no merges */
    choir__unknown unknown;
} choir__bpe_opts;

/* Error: format (a pair twice). */
choir_status choir__bpe_new(const char *name, choir__vocab *keys, const choir__merge *merges,
    size_t count, const choir__bpe_opts *opts, choir__model **model);

typedef struct choir__unigram_opts {
    choir__unknown unknown;
    double unknown_score; /* score of an unknown character */
    /* Sums are rounded to f32, as in SentencePiece; else as in Hugging Face's tokenizers, which
     * also looks up a run of unknown characters as one text. The roundings decide between
     * pieces of equal scores. */
    bool sentencepiece;
} choir__unigram_opts;

/* scores (size): one per key; a key with a NAN is never chosen. Takes ownership of scores. */
choir__model *choir__unigram_new(
    choir__vocab *keys, double *scores, const choir__unigram_opts *opts);

typedef struct choir__wordpiece_opts {
    int32_t unknown;
    int64_t longest; /* in characters; a longer word is unknown */
    char prefix[16]; /* prefix of a word's continuation */
} choir__wordpiece_opts;

choir__model *choir__wordpiece_new(choir__vocab *keys, const choir__wordpiece_opts *opts);

#endif
