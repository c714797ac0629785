/* Opens a dataset by its path, and checks whether a model can be run on it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/augment.h>

#include "base/files/file.h"
#include "base/floats.h"
#include "data/labels.h"
#include "data/open/reader.h"
#include "data/record_parts.h"
#include "tensor/tensor.h"

enum { RANDOM_TRAIN = 1 << 16, RANDOM_VALID = 128 };

choir_data_opts choir_data_defaults(void)
{
    return (choir_data_opts){
        .seed = 42, .random_train = RANDOM_TRAIN, .random_valid = RANDOM_VALID};
}

/* Reports why no reader takes the path. */
static choir_status refuse(const choir__data_request *r)
{
    const choir_model_info *i = r->info;
    int length = (int)strcspn(i->config, ":");
    if (i->task == CHOIR_REGRESSION && !i->vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %.*s trains on random data alone: name 'random' in place of %s", length,
            i->config, r->path);
    if (i->task == CHOIR_LANGUAGE)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %.*s: expected a text file, got %s, a folder", length, i->config, r->path);
    if (i->vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %.*s with classes: expected labelled texts (a .jsonl, .csv, .tsv or .parquet "
            "file, or a folder with train.jsonl or the like) or 'random', got %s",
            length, i->config, r->path);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %.*s: expected a folder of %s or 'random', got %s", length, i->config,
        i->task == CHOIR_IMAGE_TO_TEXT ? "images with a metadata.jsonl"
                                       : "images (class folders or IDX files)",
        r->path);
}

/* Augments the training split, if the options say so. Frees *dataset on failure. */
static choir_status augment(const choir__data_request *r, choir_dataset **dataset)
{
    choir_augment_opts opts = choir_augment_defaults();
    if (!r->opts->augment || r->split != CHOIR_TRAIN)
        return CHOIR_OK;
    choir_status status = choir_augment_parse(r->opts->augment, &opts);
    opts.seed = r->opts->seed;
    opts.balance = r->opts->balance;
    if (status == CHOIR_OK && !(*dataset)->ops->normalized)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: --augment %s changes images with a class each, all normalised alike, and these "
            "are other data",
            r->path, r->opts->augment);
    if (status == CHOIR_OK)
        status = choir_dataset_augmented(*dataset, opts, dataset);
    if (status != CHOIR_OK) {
        choir_dataset_free(*dataset);
        *dataset = NULL;
    }
    return status;
}

/* A training opens its data for each split and rank. */
static bool is_read_once(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

static choir_status open_one(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    if (r->split == CHOIR_TRAIN && is_read_once(r->path))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s can be read once, and training reads its data again: expected a file or a folder, "
            "or standard input (choir train ... -)",
            r->path);
    const choir__data_reader *reader = choir__data_reader_find(r);
    if (choir__is_hub_name(r->path) || (!reader && access(r->path, F_OK) != 0))
        return choir__file_absent(r->path, CHOIR__HUB_DATA);
    if (reader && r->opts->pack && (reader != &choir__data_corpus || !r->info->packs))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: packing (choir train --pack) is for documents (.jsonl, .csv, .tsv or .parquet) "
            "and models that keep them apart: gpt2, llama and its relatives",
            r->path);
    if (reader && r->opts->columns && reader != &choir__data_corpus &&
        reader != &choir__data_labelled)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: only .jsonl, .csv, .tsv and .parquet files of texts have columns (choir train "
            "--columns)",
            r->path);
    return reader ? reader->open(r, tokenizer, dataset) : refuse(r);
}

/* Opens each source. Validation reads all samples of all sources once. */
static choir_status open_sources(const choir__data_request *r,
    const choir__data_sources *sources, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_dataset *each[CHOIR__MOST_SOURCES] = {NULL};
    double weights[CHOIR__MOST_SOURCES];
    bool training = r->split == CHOIR_TRAIN;
    choir_status status = CHOIR_OK;
    if (sources->count > 1 && r->info->task == CHOIR_LANGUAGE && !*tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: several texts need a tokenizer for all of them (choir train --tokenizer FILE, or "
            "--bytes)",
            r->path);
    for (int s = 0; s < sources->count && status == CHOIR_OK; s++) {
        choir__data_request one = *r;
        one.path = sources->source[s].path;
        weights[s] = sources->source[s].weight;
        status = open_one(&one, tokenizer, &each[s]);
        if (status == CHOIR_OK && training)
            status = choir__data_source_cut(&sources->source[s], &each[s]);
    }
    if (status == CHOIR_OK && sources->count == 1)
        *dataset = each[0];
    else if (status == CHOIR_OK)
        status = choir_dataset_mixed(
            each, sources->weighed && training ? weights : NULL, sources->count, dataset);
    for (int s = 0; s < sources->count && status != CHOIR_OK; s++)
        choir_dataset_free(each[s]);
    return status;
}

/* Opens the data that a path names, or several that it joins. */
static choir_status open_path(
    choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir__data_sources sources;
    choir_status status = choir__data_sources_parse(r->path, &sources);
    if (status == CHOIR_OK)
        status = open_sources(r, &sources, tokenizer, dataset);
    if (status == CHOIR_OK)
        status = augment(r, dataset);
    choir__data_sources_free(&sources);
    return status;
}

choir_status choir_dataset_open(const char *path, choir_split split, choir_data_opts opts,
    const choir_model_info *info, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    CHOIR__DEFAULT_FLOATS;
    if (!info)
        return choir__missing(__func__, "model info");
    if (!tokenizer)
        return choir__missing(__func__, "tokenizer");
    if (!dataset)
        return choir__missing(__func__, "dataset");
    char *own = NULL;
    if (!path && info->task == CHOIR_LANGUAGE && !(own = choir__data_own_text()))
        return CHOIR_ERR_IO;
    choir__data_request r = {.path = path  ? path
                                     : own ? own
                                           : "no data",
        .split = split,
        .opts = &opts,
        .info = info};
    choir_status status = path || own ? open_path(&r, tokenizer, dataset)
                                      : refuse(&r); /* only language models have a default */
    free(own);
    return status;
}

bool choir_data_has_documents(const char *path)
{
    choir__data_sources sources;
    bool all = path && choir__data_sources_parse(path, &sources) == CHOIR_OK;
    for (int s = 0; all && s < sources.count; s++)
        all = choir__has_records(sources.source[s].path);
    if (path)
        choir__data_sources_free(&sources);
    return all;
}

void choir_data_free(choir_data *data)
{
    if (!data)
        return;
    choir_dataset_free(data->train);
    choir_dataset_free(data->validation);
    choir_tokenizer_free(data->tokenizer);
    *data = (choir_data){0};
}

/* --- an existing model --- */

static choir_status too_many_classes(
    const choir_dataset *d, const char *path, const choir_model_info *info)
{
    const char *at = choir__labelled_largest(d);
    at = at ? at : choir__file_shards_largest(d);
    return choir__error(CHOIR_ERR_SHAPE, "%s has %lld classes, the model %lld%s%s", path,
        (long long)d->classes, (long long)info->classes, at ? ": the largest label is in " : "",
        at ? at : "");
}

static choir_status images_fit(
    const choir_dataset *d, const char *path, const choir_model_info *info)
{
    if (!choir__same_shape(d->x_shape, info->input))
        return choir__error(CHOIR_ERR_SHAPE, "%s: expected images of %s, as the model, got %s",
            path, choir__shape_text(info->input), choir__shape_text(d->x_shape));
    if ((choir_dataset_class_name(d, 0) && d->classes != info->classes) ||
        d->classes > info->classes)
        return too_many_classes(d, path, info);
    return CHOIR_OK;
}

static choir_status labelled_fit(
    const choir_dataset *d, const char *path, const choir_model_info *info)
{
    if (d->x_shape.dim[d->x_shape.ndim - 1] != info->input.dim[0])
        return choir__error(CHOIR_ERR_SHAPE, "%s: expected samples of %lld tokens, got %s",
            path, (long long)info->input.dim[0], choir__shape_text(d->x_shape));
    if (d->classes > info->classes)
        return too_many_classes(d, path, info);
    return CHOIR_OK;
}

choir_status choir_dataset_fits(
    const choir_dataset *d, const char *path, const choir_model_info *info)
{
    if (!d)
        return choir__missing(__func__, "dataset");
    if (!info)
        return choir__missing(__func__, "model info");
    path = path ? path : "the text that comes with Choir";
    if (info->task == CHOIR_CLASSIFICATION && !info->vocab)
        return images_fit(d, path, info);
    if (info->task != CHOIR_LANGUAGE && info->vocab)
        return labelled_fit(d, path, info);
    if (info->task == CHOIR_IMAGE_TO_TEXT && d->classes > info->classes)
        return choir__error(CHOIR_ERR_SHAPE,
            "%s has fields or characters that the model does not know: %lld tokens, the model "
            "%lld",
            path, (long long)d->classes, (long long)info->classes);
    if (info->task == CHOIR_LANGUAGE && d->classes > info->classes)
        return choir__error(CHOIR_ERR_RANGE,
            "%s has ids of a vocabulary of %lld, and the model knows %lld: it is not the data of"
            " this model",
            path, (long long)d->classes, (long long)info->classes);
    return CHOIR_OK;
}
