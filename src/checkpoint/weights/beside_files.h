/* The files beside a published model's weights on their way into checkpoints: the files of the
 * model and of its tokenizer, which may come from two folders. */
#ifndef CHOIR_BESIDE_FILES_H
#define CHOIR_BESIDE_FILES_H

#include "data/text/corpus.h"
#include "nn/models/config.h"

/* The parts of a saved model. All but `text` may be NULL. */
typedef struct choir__beside_parts {
    const char *text; /* end of texts of the model; "": unknown */
    const choir_beside *beside;
    const choir_tokenizer *tokenizer;
    const choir_class_names *classes;
} choir__beside_parts;

/* Gives a tokenizer (NULL: none) the files of the model's folder that its own folder lacks, as
 * long as they fit it, so that they name the token that ends a text. */
void choir__beside_lend(choir_tokenizer *tokenizer, const choir_beside *model);

/* Writes the files to a folder: config.json as the model is now, generation_config.json with
 * the tokenizer's ids, and the others as they were. Errors: io. */
choir_status choir__beside_save(const choir__beside_parts *kept, const char *folder);

/* Returns a line for each file that cannot be read or is not copied, and one if the files lack
 * the end of texts, or ""; the caller frees it. */
char *choir__beside_notes(const choir__beside_parts *kept);

#endif
