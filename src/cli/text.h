/* The tokenizer of a language model's data, as the options name it. */
#ifndef CHOIR_CLI_TEXT_H
#define CHOIR_CLI_TEXT_H

#include "cli/job.h"

/* Stores the tokenizer that --tokenizer, --bytes, the resumed checkpoint or the published model
 * name in *tokenizer; NULL where none is named. */
choir_status choir__text_tokenizer(const choir__job *j, choir_tokenizer **tokenizer);

#endif
