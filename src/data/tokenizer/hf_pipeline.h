/* A tokenizer.json: its normalizer, added tokens that are searched for in the normalized text,
 * its pre-tokenizer, which cuts the text into words, and its model. */
#ifndef CHOIR_DATA_HF_PIPELINE_H
#define CHOIR_DATA_HF_PIPELINE_H

#include "data/tokenizer/added.h"
#include "data/tokenizer/models.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/split.h"

typedef enum choir__word_kind {
    CHOIR__WORDS_PATTERN,   /* one of the published regular expressions */
    CHOIR__WORDS_BYTES,     /* likewise, or whole; with a space before */
    CHOIR__WORDS_METASPACE, /* ' ' becomes U+2581 */
    CHOIR__WORDS_SPACE,     /* splits at white space, which is dropped */
    CHOIR__WORDS_BERT       /* likewise, and punctuation stands alone */
} choir__word_kind;

typedef enum choir__prefix {
    CHOIR__PREFIX_NONE,
    CHOIR__PREFIX_FIRST, /* at the beginning of the whole text */
    CHOIR__PREFIX_ALWAYS
} choir__prefix;

typedef struct choir__word_step {
    choir__word_kind kind;
    choir__tokenizer_split split; /* patterns and bytes */
    choir__prefix prefix;         /* bytes and metaspace: a space, unless the text has one */
    bool divide;                  /* metaspace: before each mark */
    choir__tokenizer_buffer text; /* the changed text. It is not shared. */
} choir__word_step;

typedef struct choir__hf_pipeline {
    choir__normalizer normalizer;
    choir__added_set added;
    choir__vocab added_texts; /* as the set finds them */
    choir__word_step step[CHOIR__MOST_STEPS];
    int count;
    choir__model *model;
    choir__tokenizer_buffer normal;
} choir__hf_pipeline;

/* Takes ownership of all of p. keys: the model's. The caller sets source, decoded and added. */
choir_tokenizer *choir__hf_pipeline_tokenizer(
    choir__hf_pipeline *p, int64_t size, char cut_before);
void choir__hf_pipeline_free(choir__hf_pipeline *p);

/* Returns whether p has a step of this kind. */
bool choir__hf_normalizes(const choir__hf_pipeline *p, choir__normal_kind kind);
bool choir__hf_cuts(const choir__hf_pipeline *p, choir__word_kind kind);

/* The text around a character that its ids may depend on, beside the keys that contain it. */
typedef enum choir__word_needs {
    CHOIR__NEEDS_NOTHING,
    CHOIR__NEEDS_RUN, /* a run of unknown characters is one token */
    CHOIR__NEEDS_WORD /* a word that is a token is not merged */
} choir__word_needs;

/* Returns the character before which a text may be cut (choir_tokenizer.cut_before). raw: the
 * tokens that are searched for before all else. */
char choir__hf_pipeline_cut(choir__hf_pipeline *p, const choir__vocab *keys,
    const choir__added_set *raw, choir__word_needs needs);

#endif
