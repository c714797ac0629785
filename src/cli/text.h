/* A language model's data: texts and files of tokens, and the tokenizer for them. */
#ifndef CHOIR_CLI_TEXT_H
#define CHOIR_CLI_TEXT_H

#include "cli/job.h"

/* The tokenizer that --tokenizer, --bytes or the resumed checkpoint name; none named: left NULL
 * (characters of the text). */
choir_status choir__text_tokenizer(choir__job *j);

/* The tokenizer that lies in a folder of a published model; none there: *tokenizer is NULL. */
choir_status choir__text_tokenizer_in(const char *folder, choir_tokenizer **tokenizer);

/* A text file, or a file of ids. *tokenizer as choir_dataset_text; a file of ids leaves it. */
choir_status choir__text_open(const char *path, int64_t context, choir_split split,
    choir_tokenizer **tokenizer, choir_dataset **data);

/* For a model that says what is behind masks: *data becomes its masked form. The mask is the
 * tokenizer's own token, or the id behind its last. */
choir_status choir__text_mask(
    const choir_tokenizer *tokenizer, uint64_t seed, choir_dataset **data);

/* That a model of so many classes can take the data's ids. Error: range. */
choir_status choir__text_check(const choir_dataset *data, const char *path, int64_t classes);

#endif
