/* Texts and words with a class each, for models that read tokens and choose a class. */
#include "data/open/reader.h"
#include "data/record_parts.h"

static bool takes(const choir__data_request *r)
{
    return r->info->task == CHOIR_CLASSIFICATION && r->info->vocab &&
           choir__has_records(r->path);
}

static choir_status open_labelled(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = r->info->input.dim[0];
    opts.words = r->info->output.ndim == 1;
    opts.classes = r->opts->classes;
    opts.held_out = r->opts->held_out;
    if (!*tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: labelled texts need the model's tokenizer (choir train --tokenizer FILE)",
            r->path);
    return choir_dataset_labelled(r->path, r->split, opts, *tokenizer, dataset);
}

const choir__data_reader choir__data_labelled = {
    "labelled", takes, open_labelled, choir__is_record_file};
