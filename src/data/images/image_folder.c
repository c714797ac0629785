/* A dataset of images in folders: names stay in memory, files are read when their sample is
 * requested.
 *
 *     DIR/train/CLASS/FILE, DIR/val/CLASS/FILE     (or test; else a part of each class's files)
 *     DIR/CLASS/FILE
 *
 * FILE may be in folders of its class: then the order is torchvision's, by folder, then by
 * name. Several threads may call get. */
#include <stdlib.h>
#include <string.h>

#include "base/files/map.h"
#include "base/text.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/images/image_list.h"
#include "base/utf8.h"
#include "data/images/transform.h"

typedef struct image_file {
    char *name;
    int64_t class;
} image_file;

typedef struct image_folder {
    choir_dataset base;
    choir_image_opts opts;
    bool training;
    char *root;  /* folder that contains the class folders */
    char *first; /* first training image, whose size may determine the sample's */
    choir__name_list classes;
    choir__map places; /* places of a model's classes, which need not be sorted */
    image_file *files;
    int64_t count;
    choir__resample_fn *resample;
    choir__image_works works;
} image_folder;

/* --- the files of a split --- */

static void add_file(image_folder *d, char *name, int64_t class)
{
    CHOIR__GROW(d->files, d->count);
    d->files[d->count++] = (image_file){name, class};
}

/* held: the folder has the files of both splits (data/dataset.h). */
static choir_status add_class(image_folder *d, const char *class_name, int64_t class, bool held)
{
    choir__name_list n = {0};
    char *path = choir__format("%s/%s", d->root, class_name);
    choir_status status = choir__list_images(path, &n);
    if (status == CHOIR_OK && !n.count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: the class has no images: remove its folder, or put .jpg, .jpeg or .png files"
            " there",
            path);
    for (int64_t i = 0; i < n.count && status == CHOIR_OK; i++)
        if (!held || choir__is_held_of_class(d->opts.held_out, i, n.count) != d->training) {
            add_file(d, n.name[i], class);
            n.name[i] = NULL;
        }
    choir__name_list_free(&n);
    free(path);
    return status;
}

static int64_t find_class(const image_folder *d, const char *name)
{
    if (d->opts.classes)
        return choir__map_find(&d->places, name);
    char **found = bsearch(&name, d->classes.name, (size_t)d->classes.count,
        sizeof *d->classes.name, choir__by_text);
    return found ? found - d->classes.name : -1;
}

static choir_status unknown_class(const image_folder *d, const char *name)
{
    choir_class_names known = {d->classes.name, d->classes.count};
    char *list = choir__class_names_list(&known);
    choir_status status =
        choir__error(CHOIR_ERR_FORMAT, "%s/%s: expected the name of %s: %s", d->root, name,
            d->opts.classes ? "one of the model's classes" : "a class to train on", list);
    free(list);
    return status;
}

/* The folders of training, or the model's classes, determine the class ids of both splits. */
static choir_status add_classes(image_folder *d, bool held)
{
    choir__name_list n = {0};
    choir_status status = choir__list_folders(d->root, &n);
    if (status == CHOIR_OK && !n.count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s has no folders of classes: images are looked for as CLASS/*.jpg, .jpeg, .png",
            d->root);
    for (int64_t i = 0; i < n.count && status == CHOIR_OK; i++) {
        int64_t class = find_class(d, n.name[i]);
        status = class < 0 ? unknown_class(d, n.name[i]) : add_class(d, n.name[i], class, held);
    }
    choir__name_list_free(&n);
    return status;
}

static choir_status find_first(image_folder *d)
{
    choir__name_list n = {0};
    char *path = choir__format("%s/%s", d->root, d->classes.count ? d->classes.name[0] : "");
    choir_status status = choir__list_images(path, &n);
    if (n.count)
        d->first = choir__format("%s/%s", path, n.name[0]);
    choir__name_list_free(&n);
    free(path);
    return status;
}

/* Replaces the folders' names by the classes of the model, which they must be among. */
static choir_status take_classes(image_folder *d)
{
    choir__name_list folders = d->classes;
    choir_status status = CHOIR_OK;
    d->classes = (choir__name_list){0};
    for (int64_t c = 0; c < d->opts.classes->count; c++) {
        choir__name_list_add(&d->classes, d->opts.classes->name[c]);
        const char *name = d->classes.name[c];
        if (choir__map_find(&d->places, name) < 0) /* a folder means the first of that name */
            choir__map_put(&d->places, name, c);
    }
    for (int64_t i = 0; i < folders.count && status == CHOIR_OK; i++)
        if (find_class(d, folders.name[i]) < 0)
            status = unknown_class(d, folders.name[i]);
    choir__name_list_free(&folders);
    return status;
}

/* Names of classes are kept in JSON. */
static choir_status check_names(const image_folder *d)
{
    for (int64_t c = 0; c < d->classes.count; c++)
        if (!choir__is_utf8(d->classes.name[c], strlen(d->classes.name[c])))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: expected folders of classes whose names are UTF-8, got other bytes in that of "
                "class %lld",
                d->root, (long long)c);
    return CHOIR_OK;
}

static choir_status look_into(image_folder *d, const char *folder)
{
    bool has_train = choir__is_folder_at(folder, "train");
    const char *other = choir__is_folder_at(folder, "val")    ? "val"
                        : choir__is_folder_at(folder, "test") ? "test"
                                                              : NULL;
    bool held = !has_train || !other;
    d->root = choir__format("%s%s", folder, has_train ? "/train" : "");
    choir_status status = choir__list_folders(d->root, &d->classes);
    if (status == CHOIR_OK)
        status = check_names(d);
    if (status == CHOIR_OK)
        status = find_first(d);
    if (status == CHOIR_OK && d->opts.classes)
        status = take_classes(d);
    if (status == CHOIR_OK && !d->training && !held) {
        free(d->root);
        d->root = choir__format("%s/%s", folder, other);
    }
    if (status == CHOIR_OK)
        status = add_classes(d, held);
    if (status == CHOIR_OK && !d->count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: its classes have too few images for some to be held out to validate on: make "
            "train/CLASS and val/CLASS",
            folder);
    d->base.classes = d->classes.count;
    d->base.held_out = held && !d->training;
    return status;
}

/* --- one sample --- */

static char *path_of(const image_folder *d, int64_t index)
{
    const image_file *f = &d->files[index];
    return choir__format("%s/%s/%s", d->root, d->classes.name[f->class], f->name);
}

static choir_status get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    image_folder *d = (image_folder *)self;
    char *path = path_of(d, index);
    uint64_t key = choir__rng_key(d->opts.seed, "image");
    key = choir__mix(choir__mix(key, (uint64_t)epoch), (uint64_t)index);
    choir__image_work *w = choir__image_work_take(&d->works);
    choir_status status =
        choir__image_file(w, &d->opts, d->resample, path, d->training ? &key : NULL, x);
    choir__image_work_put(&d->works, w);
    *(int64_t *)y = d->files[index].class;
    free(path);
    return status;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    return get_epoch(self, 0, index, x, y);
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return ((const image_folder *)self)->count;
}

static void free_folder(choir_dataset *self)
{
    image_folder *d = (image_folder *)self;
    for (int64_t i = 0; i < d->count; i++)
        free(d->files[i].name);
    choir__image_works_free(&d->works);
    choir__name_list_free(&d->classes);
    choir__map_free(&d->places);
    free(d->files);
    free(d->root);
    free(d->first);
    free(d);
}

static const char *class_name(const choir_dataset *self, int64_t id)
{
    const image_folder *d = (const image_folder *)self;
    return id >= 0 && id < d->classes.count ? d->classes.name[id] : NULL;
}

static int64_t class_of(choir_dataset *self, int64_t index)
{
    return ((const image_folder *)self)->files[index].class;
}

static void normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const choir_image_opts *o = &((const image_folder *)self)->opts;
    memcpy(mean, o->mean, sizeof o->mean);
    memcpy(std, o->std, sizeof o->std);
}

static bool place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    of->file = ((const image_folder *)self)->files[index].name;
    return part == 0;
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .get_epoch = get_epoch,
    .free = free_folder,
    .channels_last = true,
    .class_name = class_name,
    .normalized = normalized,
    .class_of = class_of,
    .place = place};

int64_t choir__folder_resize(const choir_dataset *dataset)
{
    enum { FILE_LIMIT = 1 << 30 };
    const image_folder *d = (const image_folder *)dataset;
    char *data = NULL;
    size_t bytes;
    int64_t side = 0;
    if (dataset->ops != &ops || !d->count)
        return 0;
    char *path = path_of(d, 0);
    if (choir__read_file(path, FILE_LIMIT, &data, &bytes) == CHOIR_OK)
        side = choir__image_resize(&d->opts, path, data, bytes);
    else
        (void)choir_error_message(); /* reading the sample reports it */
    free(data);
    free(path);
    return side;
}

choir_image_opts choir_image_defaults(void)
{
    return (choir_image_opts){.scale_min = 0.08f,
        .scale_max = 1,
        .ratio_min = 3.0f / 4,
        .ratio_max = 4.0f / 3,
        .padding = 4,
        .flip = true,
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
        .max_pixels = 1 << 26};
}

choir_status choir_dataset_images(
    const char *folder, choir_split split, choir_image_opts opts, choir_dataset **dataset)
{
    if (split != CHOIR_TRAIN && split != CHOIR_VALIDATION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: unknown split %d: choose CHOIR_TRAIN or CHOIR_VALIDATION", folder, (int)split);
    choir_status status = choir__image_opts_check(&opts);
    if (status != CHOIR_OK)
        return status;
    image_folder *d = choir__calloc(1, sizeof *d);
    d->base = (choir_dataset){.ops = &ops, .x_dtype = CHOIR_F32, .y_dtype = CHOIR_I64};
    d->opts = opts;
    if (opts.classes && !opts.classes->count)
        d->opts.classes = NULL;
    d->training = split == CHOIR_TRAIN;
    d->resample = choir__resample_find();
    choir__image_works_init(&d->works);
    status = look_into(d, folder);
    if (status == CHOIR_OK)
        status = choir__image_opts_settle(&d->opts, d->first, d->root);
    if (status != CHOIR_OK) {
        free_folder(&d->base);
        return status;
    }
    d->base.x_shape = choir_dims(3, d->opts.height, d->opts.width);
    *dataset = &d->base;
    return CHOIR_OK;
}
