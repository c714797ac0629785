/* Folders of images: images with classes, in class folders or IDX files, and images with JSON.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "data/dataset.h"
#include "data/open/reader.h"
#include "data/loading/shards.h"

bool choir__data_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* Returns whether a folder contains folders and no IDX files. */
static bool has_classes(const char *folder)
{
    DIR *dir = opendir(folder);
    bool idx = false, folders = false;
    if (!dir)
        return false;
    for (struct dirent *e; (e = readdir(dir));) {
        idx |= strstr(e->d_name, "-idx3-ubyte") != NULL;
        folders |= e->d_name[0] != '.' &&
                   (e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN);
    }
    closedir(dir);
    return folders && !idx;
}

/* --- classes --- */

static bool takes_idx(const choir__data_request *r)
{
    return r->info->task == CHOIR_CLASSIFICATION && !r->info->vocab &&
           choir__data_is_folder(r->path);
}

static bool takes_images(const choir__data_request *r)
{
    return takes_idx(r) && has_classes(r->path);
}

static bool takes_shards(const choir__data_request *r)
{
    return r->info->task == CHOIR_CLASSIFICATION && !r->info->vocab &&
           choir__is_shards(r->path);
}

/* Pixels of a sample's longer side at most, where neither the model nor the user names a size:
 * a small model of whole photographs would take an hour. */
enum { LARGEST = 128 };

static choir_image_opts image_opts(const choir__data_request *r)
{
    choir_image_opts opts = r->opts->images ? *r->opts->images : choir_image_defaults();
    if (r->info->input.ndim == 3) {
        opts.height = (int)r->info->input.dim[1];
        opts.width = (int)r->info->input.dim[2];
    } else if (!opts.most) {
        opts.most = LARGEST;
    }
    opts.seed = r->opts->seed;
    opts.classes = r->opts->classes;
    opts.held_out = r->opts->held_out;
    return opts;
}

static choir_status open_images(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    (void)tokenizer;
    return choir_dataset_images(r->path, r->split, image_opts(r), dataset);
}

static choir_status open_shards(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    (void)tokenizer;
    return choir_dataset_shards(r->path, r->split, image_opts(r), dataset);
}

static choir_status open_idx(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    (void)tokenizer;
    return choir__dataset_idx(r->path, r->split, r->opts->held_out, r->info->pixel_mean,
        r->info->pixel_deviation, dataset);
}

/* --- documents --- */

static bool takes_documents(const choir__data_request *r)
{
    return r->info->task == CHOIR_IMAGE_TO_TEXT && choir__data_is_folder(r->path);
}

static choir_status open_documents(
    const choir__data_request *r, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_document_opts opts = choir_document_defaults();
    opts.image.height = (int)r->info->input.dim[1];
    opts.image.width = (int)r->info->input.dim[2];
    opts.image.held_out = r->opts->held_out;
    opts.context = r->info->output.dim[0];
    choir_status status = choir__data_check_tokenizer(r, *tokenizer);
    return status == CHOIR_OK
               ? choir_dataset_documents(r->path, r->split, opts, tokenizer, dataset)
               : status;
}

/* --- the files that are the data --- */

static bool is_idx(const char *name)
{
    return strstr(name, "-ubyte") != NULL;
}

static bool is_image_or_list(const char *name)
{
    return choir__is_image_name(name) || !strcmp(name, "metadata.jsonl");
}

const choir__data_reader choir__data_images = {
    "images", takes_images, open_images, choir__is_image_name};
const choir__data_reader choir__data_shards = {
    "shards", takes_shards, open_shards, choir__is_tar_name};
const choir__data_reader choir__data_idx = {"idx", takes_idx, open_idx, is_idx};
const choir__data_reader choir__data_documents = {
    "documents", takes_documents, open_documents, is_image_or_list};
