/* A language model's data: texts and files of tokens, and the tokenizer for them. */
#include "cli/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "data/dataset.h"

choir_status choir__text_tokenizer(choir__job *j)
{
    char found[PATH_MAX];
    if (j->tokenizer)
        return CHOIR_OK;
    if (j->tokenizer_file && j->bytes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--bytes and --tokenizer %s: one of them can be", j->tokenizer_file);
    if (j->tokenizer_file)
        return choir_tokenizer_load(j->tokenizer_file, &j->tokenizer);
    if (j->bytes)
        return choir_tokenizer_bytes(&j->tokenizer);
    if (!j->resume)
        return j->published ? choir__text_tokenizer_in(j->published, &j->tokenizer) : CHOIR_OK;
    /* Its ids are those that the weights know. */
    choir_status status = choir__checkpoint_find(j->resume, found);
    return status == CHOIR_OK ? choir__checkpoint_tokenizer(found, &j->tokenizer) : status;
}

choir_status choir__text_tokenizer_in(const char *folder, choir_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    return choir__has_tokenizer(folder) ? choir_tokenizer_load(folder, tokenizer) : CHOIR_OK;
}

choir_status choir__text_open(const char *path, int64_t context, choir_split split,
    choir_tokenizer **tokenizer, choir_dataset **data)
{
    int64_t vocabulary = *tokenizer ? choir_tokenizer_size(*tokenizer) : 0;
    return choir__is_token_file(path)
               ? choir_dataset_tokens(path, context, split, vocabulary, data)
               : choir_dataset_text(path, context, split, tokenizer, data);
}

/* The id of the mask: the tokenizer's own, as that of published models has one, or the one
 * behind its last. */
static int64_t mask_of(const choir_tokenizer *tokenizer)
{
    int64_t size = choir_tokenizer_size(tokenizer);
    for (int64_t id = 0; id < size; id++) {
        const char *text = choir_tokenizer_decode(tokenizer, id);
        if (text && (!strcmp(text, "[MASK]") || !strcmp(text, "<mask>")))
            return id;
    }
    return size;
}

choir_status choir__text_mask(
    const choir_tokenizer *tokenizer, uint64_t seed, choir_dataset **data)
{
    if (!tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ids alone do not say which of them is the mask: --tokenizer FILE does");
    return choir_dataset_masked(
        *data, mask_of(tokenizer), choir_tokenizer_size(tokenizer), seed, data);
}

choir_status choir__text_check(const choir_dataset *data, const char *path, int64_t classes)
{
    if (data->classes <= classes)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_RANGE,
        "%s has ids of a vocabulary of %lld, and the model knows %lld: it is not the data of"
        " this model",
        path, (long long)data->classes, (long long)classes);
}
