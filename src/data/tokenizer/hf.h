/* What the two files that read a tokenizer.json share. */
#ifndef CHOIR_DATA_HF_H
#define CHOIR_DATA_HF_H

#include "data/tokenizer/models.h"

typedef struct choir__hf_pipeline { /* "normalizer" and "pre_tokenizer", as the models take them
                                     */
    bool byte_level, use_regex, prefix_space;
    choir__tokenizer_split split;
    choir__prep prep;
    bool bert_normalizer, bert_words;
    choir__wordpiece_opts wordpiece;
} choir__hf_pipeline;

/* prep's table is the caller's to free, in any case. Errors: format, naming key and value. */
choir_status choir__hf_pipeline_parse(const char *name, json_t *root, choir__hf_pipeline *p);

/* The string at a key, or NULL. */
static inline const char *choir__json_text(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* An optional true or false. Error: format. */
choir_status choir__json_flag(
    const char *name, const char *where, json_t *object, const char *key, bool *flag);

/* Bytes of base64; the caller frees them; NULL: it is not base64. And back. */
char *choir__base64_decode(const char *text, size_t length, size_t *bytes);
char *choir__base64_encode(const char *data, size_t bytes);

#endif
