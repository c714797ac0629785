/* A language model's data: texts and files of token ids, masked for models that expect it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/labels.h"
#include "data/open/reader.h"
#include "data/record_parts.h"

/* Returns the id of the mask: the token of that name, which published tokenizers have, or the
 * id after the last one. */
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

/* Masks tokens of *data if the model expects it. Frees *data on failure. */
static choir_status mask(
    const choir__data_request *r, const choir_tokenizer *tokenizer, choir_dataset **data)
{
    choir_status status;
    if (!r->info->masked)
        return CHOIR_OK;
    if (!tokenizer)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "ids alone do not say which of them is the mask: expected a tokenizer (choir train "
            "--tokenizer FILE)");
    else
        status = choir_dataset_masked(
            *data, mask_of(tokenizer), choir_tokenizer_size(tokenizer), r->opts->seed, data);
    if (status != CHOIR_OK) {
        choir_dataset_free(*data);
        *data = NULL;
    }
    return status;
}

static bool takes_text(const choir__data_request *r)
{
    return r->info->task == CHOIR_LANGUAGE && !choir__data_is_folder(r->path);
}

static bool takes_corpus(const choir__data_request *r)
{
    return r->info->task == CHOIR_LANGUAGE && choir__has_records(r->path);
}

static bool takes_tokens(const choir__data_request *r)
{
    return takes_text(r) && choir__is_token_file(r->path);
}

static choir_status open_text(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_status status = choir__data_check_tokenizer(r, *tokenizer);
    if (status == CHOIR_OK)
        status = choir__dataset_text(
            r->path, r->info->input.dim[0], r->split, r->opts->held_out, tokenizer, dataset);
    return status == CHOIR_OK ? mask(r, *tokenizer, dataset) : status;
}

static choir_status open_corpus(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_corpus_opts opts = choir_corpus_defaults();
    opts.context = r->info->input.dim[0];
    opts.fixed_tokens = r->opts->needs_tokenizer;
    opts.apart = r->opts->pack;
    opts.held_out = r->opts->held_out;
    opts.columns = r->opts->columns;
    choir_status status = choir__data_check_tokenizer(r, *tokenizer);
    if (status == CHOIR_OK)
        status = choir_dataset_corpus(r->path, r->split, opts, tokenizer, dataset);
    return status == CHOIR_OK ? mask(r, *tokenizer, dataset) : status;
}

static choir_status open_tokens(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    int64_t vocabulary = *tokenizer ? choir_tokenizer_size(*tokenizer) : 0;
    choir_status status = choir__dataset_tokens(
        r->path, r->info->input.dim[0], r->split, r->opts->held_out, vocabulary, dataset);
    return status == CHOIR_OK ? mask(r, *tokenizer, dataset) : status;
}

const choir__data_reader choir__data_text = {"text", takes_text, open_text, NULL};
const choir__data_reader choir__data_corpus = {
    "corpus", takes_corpus, open_corpus, choir__is_record_file};
const choir__data_reader choir__data_tokens = {"tokens", takes_tokens, open_tokens, NULL};

/* --- the text that comes with Choir --- */

/* Finds the text relative to a program or library: in FOLDER/share of a build, in
 * FOLDER/../share of an installation. */
static char *text_beside(const char *file)
{
    static const char *const places[] = {"../share", "share", "../../share"};
    const char *slash = strrchr(file, '/');
    for (size_t i = 0; i < CHOIR_COUNT(places) && slash; i++) {
        char *path =
            choir__format("%.*s/%s/choir/choir.txt", (int)(slash - file), file, places[i]);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

char *choir__data_own_text(void)
{
    char program[PATH_MAX + 1] = "";
    Dl_info library;
    char *path = NULL;
    if (readlink("/proc/self/exe", program, PATH_MAX) > 0)
        path = text_beside(program);
    if (!path && dladdr(choir__data_own_text, &library) && library.dli_fname)
        path = text_beside(library.dli_fname);
    if (!path)
        choir__error(
            CHOIR_ERR_IO, "the text that comes with Choir is missing; name a text file");
    return path;
}

/* --- texts and words with a class each, for models that read tokens and choose a class --- */

static bool takes_labelled(const choir__data_request *r)
{
    return r->info->task != CHOIR_LANGUAGE && r->info->vocab && choir__has_records(r->path);
}

static choir_status open_labelled(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = r->info->input.dim[0];
    opts.task = r->info->task;
    opts.words = opts.task == CHOIR_CLASSIFICATION && r->info->output.ndim == 1;
    opts.outputs = r->info->output.dim[0];
    opts.classes = r->opts->classes;
    opts.held_out = r->opts->held_out;
    if (!*tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: labelled texts need the model's tokenizer (choir train --tokenizer FILE)",
            r->path);
    choir__labelled_columns columns;
    choir_status status = choir__labelled_columns_parse(r->opts->columns, &columns, &opts);
    return status == CHOIR_OK
               ? choir_dataset_labelled(r->path, r->split, opts, *tokenizer, dataset)
               : status;
}

const choir__data_reader choir__data_labelled = {
    "labelled", takes_labelled, open_labelled, choir__is_record_file};
