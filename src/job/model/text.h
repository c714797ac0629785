/* The tokenizer of a language model's data, chosen by the options. */
#ifndef CHOIR_JOB_MODEL_TEXT_H
#define CHOIR_JOB_MODEL_TEXT_H

#include "job/job.h"

/* Stores the tokenizer that --tokenizer, --bytes, the resumed checkpoint or the published model
 * names in *tokenizer, or NULL if none is named. */
choir_status choir__text_tokenizer(const choir__job *j, choir_tokenizer **tokenizer);

/* Returns whether --tokenizer asks for one token per character. */
bool choir__text_is_chars(const char *name);

#endif
