/* Image files: reading one as a sample, and a dataset of files without classes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/dataset.h"
#include "data/images/image_list.h"
#include "data/images/transform.h"

enum { FILE_LIMIT = 1 << 30 };

/* --- one file --- */

static choir_status render(choir__image_work *w, const choir_image_opts *opts,
    choir__resample_fn *resample, const char *path, const uint64_t *random, float *out)
{
    choir__decoder *decoder = &w->decoder;
    choir__view view;
    choir_status status = CHOIR_OK;
    if (random)
        status =
            choir__view_random(opts, path, decoder->width, decoder->height, *random, &view);
    else
        view = choir__view_center(opts, decoder->width, decoder->height);
    return status == CHOIR_OK ? choir__image_render(w, opts, resample, &view, out) : status;
}

choir_status choir__image_data(choir__image_work *w, const choir_image_opts *opts,
    choir__resample_fn *resample, const char *name, const char *data, size_t bytes,
    const uint64_t *random, float *out)
{
    choir_status status = choir__decoder_open(&w->decoder, name, data, bytes, opts->max_pixels);
    if (status == CHOIR_OK) {
        status = render(w, opts, resample, name, random, out);
        choir__decoder_close(&w->decoder);
    }
    return status;
}

choir_status choir__image_file(choir__image_work *w, const choir_image_opts *opts,
    choir__resample_fn *resample, const char *path, const uint64_t *random, float *out)
{
    char *data = NULL;
    size_t bytes;
    choir_status status = choir__read_file(path, FILE_LIMIT, &data, &bytes);
    if (status == CHOIR_OK)
        status = choir__image_data(w, opts, resample, path, data, bytes, random, out);
    free(data);
    return status;
}

int64_t choir__image_resize(
    const choir_image_opts *o, const char *name, const char *data, size_t bytes)
{
    choir__decoder image = {0};
    int64_t side = 0;
    if (choir__decoder_open(&image, name, data, bytes, o->max_pixels) == CHOIR_OK) {
        choir__view v = choir__view_center(o, image.width, image.height);
        side = choir__min(v.full_width, v.full_height);
        choir__decoder_close(&image);
    } else {
        (void)choir_error_message(); /* reading the sample reports it */
    }
    choir__decoder_free(&image);
    return side;
}

choir_status choir__image_opts_settle_data(
    choir_image_opts *o, const char *name, const char *data, size_t bytes)
{
    choir__decoder first = {0};
    if (o->height)
        return CHOIR_OK;
    choir_status status = choir__decoder_open(&first, name, data, bytes, o->max_pixels);
    if (status == CHOIR_OK) {
        int64_t longer = choir__max(first.width, first.height);
        double scale = o->most && longer > o->most ? (double)o->most / (double)longer : 1;
        o->width = (int)choir__max(1, (int64_t)rint(scale * first.width));
        o->height = (int)choir__max(1, (int64_t)rint(scale * first.height));
        choir__decoder_close(&first);
        status = choir__image_opts_check(o); /* an image may be larger than a sample */
    }
    choir__decoder_free(&first);
    return status;
}

choir_status choir__image_opts_settle(choir_image_opts *o, const char *path, const char *of)
{
    if (o->height)
        return CHOIR_OK;
    if (!path)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: the first class has no images to train on", of);
    char *data = NULL;
    size_t bytes;
    choir_status status = choir__read_file(path, FILE_LIMIT, &data, &bytes);
    if (status == CHOIR_OK)
        status = choir__image_opts_settle_data(o, path, data, bytes);
    free(data);
    return status;
}

/* --- a dataset --- */

typedef struct image_files {
    choir_dataset base;
    choir_image_opts opts;
    choir__name_list files;
    choir__resample_fn *resample;
    choir__image_works works;
} image_files;

static int64_t length(const choir_dataset *self)
{
    return ((const image_files *)self)->files.count;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    image_files *d = (image_files *)self;
    choir__image_work *w = choir__image_work_take(&d->works);
    choir_status status =
        choir__image_file(w, &d->opts, d->resample, d->files.name[index], NULL, x);
    choir__image_work_put(&d->works, w);
    *(int64_t *)y = 0;
    return status;
}

static const char *sample_name(const choir_dataset *self, int64_t index)
{
    const image_files *d = (const image_files *)self;
    return index >= 0 && index < d->files.count ? d->files.name[index] : NULL;
}

static void free_files(choir_dataset *self)
{
    image_files *d = (image_files *)self;
    choir__image_works_free(&d->works);
    choir__name_list_free(&d->files);
    free(d);
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_files,
    .channels_last = true,
    .sample_name = sample_name};

/* Adds a file, or the images of a folder. */
static choir_status add(choir__name_list *files, const char *path)
{
    struct stat info;
    choir__name_list inside = {0};
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        choir__name_list_add(files, path); /* a faulty file is an error of its sample */
        return CHOIR_OK;
    }
    choir_status status = choir__list_images(path, &inside);
    if (status == CHOIR_OK && !inside.count)
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: the folder has no .jpg, .jpeg or .png files", path);
    bool slash = path[strlen(path) - 1] == '/';
    for (int64_t i = 0; i < inside.count && status == CHOIR_OK; i++) {
        char *whole = choir__format("%s%s%s", path, slash ? "" : "/", inside.name[i]);
        choir__name_list_add(files, whole);
        free(whole);
    }
    choir__name_list_free(&inside);
    return status;
}

choir_status choir_dataset_image_files(
    const char *const *paths, int64_t count, choir_image_opts opts, choir_dataset **dataset)
{
    if (!paths || !dataset)
        return choir__missing(__func__, paths ? "dataset" : "paths");
    choir_status status = choir__image_opts_check(&opts);
    if (status == CHOIR_OK && count < 1)
        status = choir__error(CHOIR_ERR_ARGUMENT, "expected an image file or a folder");
    if (status != CHOIR_OK)
        return status;
    image_files *d = choir__calloc(1, sizeof *d);
    d->base = (choir_dataset){.ops = &ops, .x_dtype = CHOIR_F32, .y_dtype = CHOIR_I64};
    d->opts = opts;
    d->resample = choir__resample_find();
    choir__image_works_init(&d->works);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++)
        status = paths[i] ? add(&d->files, paths[i]) : choir__missing(__func__, "path");
    if (status == CHOIR_OK)
        status = choir__image_opts_settle(&d->opts, d->files.name[0], d->files.name[0]);
    if (status != CHOIR_OK) {
        free_files(&d->base);
        return status;
    }
    d->base.x_shape = choir_dims(3, d->opts.height, d->opts.width);
    d->base.y_shape = CHOIR_SCALAR;
    *dataset = &d->base;
    return CHOIR_OK;
}
