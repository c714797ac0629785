/* Random samples of the shape that the model expects. The validation split has another seed. */
#include <string.h>

#include "base/base.h"
#include "data/open/reader.h"

bool choir__data_is_random(const char *path)
{
    return !strcmp(path, "random");
}

static bool takes(const choir__data_request *r)
{
    return choir__data_is_random(r->path);
}

static choir_status open_random(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    const choir_model_info *i = r->info;
    bool train = r->split == CHOIR_TRAIN;
    int64_t count = train ? r->opts->random_train : r->opts->random_valid;
    uint64_t seed = r->opts->seed + !train;
    (void)tokenizer;
    if (count < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "random data: expected 1 sample or more, got %lld; begin with choir_data_defaults()",
            (long long)count);
    if (i->task == CHOIR_LANGUAGE)
        return choir_dataset_random_tokens(count, i->input.dim[0], i->classes, seed, dataset);
    if (i->vocab && i->task != CHOIR_CLASSIFICATION)
        return choir_dataset_random_numbers(count, i->input.dim[0], i->vocab, i->output.dim[0],
            i->task == CHOIR_MULTI_LABEL, seed, dataset);
    if (i->vocab && i->output.ndim)
        return choir_dataset_random_words(
            count, i->input.dim[0], i->vocab, i->classes, seed, dataset);
    if (i->vocab)
        return choir_dataset_random_labelled(
            count, i->input.dim[0], i->vocab, i->classes, seed, dataset);
    return choir_dataset_random(count, i->input,
        i->task == CHOIR_CLASSIFICATION ? CHOIR_SCALAR : i->output,
        i->task == CHOIR_REGRESSION ? 0 : i->classes, seed, dataset);
}

const choir__data_reader choir__data_random = {"random", takes, open_random, NULL};
