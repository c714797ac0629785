/* The reading of a tokenizer.json: hf.c, its vocabulary in hf_vocab.c, its steps in hf_steps.c.
 */
#ifndef CHOIR_DATA_HF_H
#define CHOIR_DATA_HF_H

#include "data/tokenizer/hf_pipeline.h"

/* Reads the "normalizer" and the "pre_tokenizer" into p. The caller frees p, also after an
 * error. Errors: format, naming key and value. */
choir_status choir__hf_steps_parse(const char *name, json_t *root, choir__hf_pipeline *p);

/* A tokenizer.json that is being read. */
typedef struct choir__hf_reader {
    const char *name;
    json_t *model, *added_list;
    choir__hf_pipeline pipe;
    bool byte_level;
    char prefix[16];        /* WordPiece's, of a word's continuation */
    int64_t size;           /* the largest id + 1 */
    choir__vocab keys;      /* texts of tokens as the model looks them up */
    choir__vocab texts;     /* texts of tokens as they are decoded */
    choir__added_set added; /* in the text as it is; the others are in the pipeline */
} choir__hf_reader;

/* Finds the number of ids, and checks that each is a number in range. Error: format. */
choir_status choir__hf_measure(choir__hf_reader *r);
/* Reads the keys and their texts; *scores: of a list of pieces, on the heap, NaN for an id
 * without one; NULL: a list is an error. Error: format. */
choir_status choir__hf_vocabulary(choir__hf_reader *r, double **scores);
/* Reads the added tokens; a later entry with the same id replaces an earlier one. Error:
 * format. */
choir_status choir__hf_added(choir__hf_reader *r);
/* Converts a key of GPT-2's characters to its bytes. Returns false if a character has no byte.
 */
bool choir__hf_bytes(const char *key, size_t length, choir__text_buffer *out);

/* Returns the special token that a post-processor puts in front of a single text (behind it);
 * NULL: none. */
const char *choir__hf_surrounds(const json_t *post_processor, bool in_front);

/* Returns the string at a key, or NULL. */
static inline const char *choir__json_text(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Reads an optional true or false. Error: format. */
choir_status choir__json_flag(
    const char *name, const char *where, json_t *object, const char *key, bool *flag);

/* Decode and encode base64. Decoding returns NULL if the text is not base64. The caller frees
 * the results. */
char *choir__base64_decode(const char *text, size_t length, size_t *bytes);
char *choir__base64_encode(const char *data, size_t bytes);

#endif
