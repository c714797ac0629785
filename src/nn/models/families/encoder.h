/* The published form of BERT and its relatives: what their files share. A family's file has a
 * choir__bert_family, its table of keys, and a choir__encoder_form for the functions below,
 * which read and write the keys whose meaning depends on others. */
#ifndef CHOIR_MODELS_ENCODER_H
#define CHOIR_MODELS_ENCODER_H

#include "nn/models/bert.h"
#include "nn/models/config.h"
#include "nn/models/published.h"

typedef struct choir__encoder_form {
    const char *classifier, *tagger; /* architectures of heads over texts and over words */
    const char *width, *heads;       /* keys of the sizes that must agree */
    int64_t width_absent, heads_absent, vocab_absent, pad_absent;
} choir__encoder_form;

/* Rows that all families have. */
#define CHOIR__ENCODER_KEYS                                                                    \
    {"tie_word_embeddings", .values = "true"},                                                 \
    {                                                                                          \
        "initializer_range", .values = "0.02",                                                 \
                             .note = "new weights start with a deviation of 0.02 here"         \
    }

#define CHOIR__NO_ATTENTION_DROPOUT "attention dropout is not implemented and is ignored"

/* Returns whether the file is of a head over words. */
bool choir__encoder_tags(const choir__config *c, const choir__encoder_form *form);
/* Reads padding, the head, and the kind of its targets. */
choir_status choir__encoder_read(choir__config *c, const choir__encoder_form *form);
/* Writes these keys. */
void choir__encoder_write(const char *text, json_t *root, const choir__encoder_form *form);

#endif
