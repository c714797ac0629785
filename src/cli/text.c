/* The tokenizer of a language model's data: see text.h. */
#include "cli/text.h"

#include <choir/training.h>

#include "base/base.h"

choir_status choir__text_tokenizer(const choir__job *j, choir_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (j->resumed) { /* the weights belong to the ids of the checkpoint's tokenizer */
        choir_status status = choir_training_tokenizer(j->resume, tokenizer);
        if (status != CHOIR_OK || *tokenizer)
            return status;
    }
    if (j->tokenizer_file && j->bytes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--bytes and --tokenizer %s: one of them can be", j->tokenizer_file);
    if (j->tokenizer_file)
        return choir_tokenizer_load(j->tokenizer_file, tokenizer);
    if (j->bytes)
        return choir_tokenizer_bytes(tokenizer);
    if (j->resume)
        return choir_training_tokenizer(j->resume, tokenizer);
    return j->published && choir_tokenizer_exists(j->published)
               ? choir_tokenizer_load(j->published, tokenizer)
               : CHOIR_OK;
}
