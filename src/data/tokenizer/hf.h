/* Shared by the two files that read a tokenizer.json. */
#ifndef CHOIR_DATA_HF_H
#define CHOIR_DATA_HF_H

#include "data/tokenizer/hf_pipeline.h"

/* Reads the "normalizer" and the "pre_tokenizer" into p. The caller frees p, also after an
 * error. Errors: format, naming key and value. */
choir_status choir__hf_steps_parse(const char *name, json_t *root, choir__hf_pipeline *p);

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
