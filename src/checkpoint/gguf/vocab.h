/* Tokenizers in GGUF files: from a transformers folder, and back. */
#ifndef CHOIR_GGUF_VOCAB_H
#define CHOIR_GGUF_VOCAB_H

#include <jansson.h>

#include "checkpoint/gguf/gguf.h"

/* Adds the tokenizer.* keys of a folder's tokenizer.json and tokenizer_config.json, its chat
 * template among them. rows: the model's rows of embeddings, which tokens are filled up to.
 * turn_end: the token that ends an answer, where the folder names no such token; -1: unknown.
 * notes: one line for each step that llama.cpp does otherwise in rare texts; the caller frees
 * it, also after an error. Errors: io, format, unsupported (a tokenizer that llama.cpp lacks,
 * by the step it lacks). */
choir_status choir__gguf_add_vocab(
    choir__gguf_out *out, const char *folder, int64_t rows, int64_t turn_end, char **notes);

/* Adds a folder's chat templates; config: its tokenizer_config.json, or NULL. Errors: io. */
choir_status choir__gguf_add_templates(
    choir__gguf_out *out, const char *folder, const json_t *config);
/* Returns a file's templates as tokenizer_config.json has them, one as a text, or several as a
 * list, which the caller decrefs; NULL: it has none. */
json_t *choir__gguf_templates(const choir__gguf_in *in);

/* Returns whether a file has a tokenizer. */
bool choir__gguf_has_vocab(const choir__gguf_in *in);

/* Writes tokenizer.json and tokenizer_config.json of a file's tokenizer into a folder. Errors:
 * io, format, unsupported. */
choir_status choir__gguf_write_vocab(const choir__gguf_in *in, const char *folder);

/* Returns what llama.cpp calls the way in which these steps cut a text into words, or NULL. */
const char *choir__gguf_splitter_of(const json_t *pre_tokenizer);
/* Returns steps that cut as llama.cpp does under that name, or NULL. The caller decrefs them.
 */
json_t *choir__gguf_steps_of(const char *splitter);

#endif
