/* A dataset of images in folders: names stay in memory, files are read when their sample is
 * requested.
 *
 *     DIR/train/CLASS/FILE, DIR/val/CLASS/FILE     (or test; else every tenth file of a class)
 *     DIR/CLASS/FILE
 *
 * FILE may be in folders of its class: then the order is torchvision's, by folder, then by
 * name. Several threads may call get. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "data/dataset.h"
#include "data/transform.h"

enum { HOLD_OUT = 10, FILE_LIMIT = 1 << 30, DEEPEST = 32 };

/* A sorted list of names. */
typedef struct names {
    char **name;
    int64_t count, room;
} names;

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
    names classes;
    image_file *files;
    int64_t count, room;
    choir__resample_fn *resample;
    choir__image_works works;
} image_folder;

/* --- names --- */

static void add_name(names *n, const char *name)
{
    if (n->count == n->room) {
        n->room = n->room ? 2 * n->room : 64;
        n->name = choir__realloc(n->name, (size_t)n->room * sizeof *n->name);
    }
    n->name[n->count++] = choir__strdup(name);
}

static void free_names(names *n)
{
    for (int64_t i = 0; i < n->count; i++)
        free(n->name[i]);
    free(n->name);
    *n = (names){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_folder_at(const char *path, const char *name)
{
    struct stat info;
    char *whole = choir__format("%s/%s", path, name);
    bool folder = stat(whole, &info) == 0 && S_ISDIR(info.st_mode);
    free(whole);
    return folder;
}

/* Returns whether a name ends in one of the endings, in either case. */
static bool ends_in(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');
    for (; dot && *endings; endings++)
        if (!strcasecmp(dot, *endings))
            return true;
    return false;
}

static const char *const readable[] = {".jpg", ".jpeg", ".png", NULL};
/* Images to torchvision, which are not read here. */
static const char *const unreadable[] = {
    ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", NULL};

bool choir__is_image_name(const char *name)
{
    return ends_in(name, readable);
}

static choir_status open_folder(const char *path, DIR **dir)
{
    *dir = opendir(path);
    return *dir ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "%s: no folder that can be read: %s", path,
                      strerror(errno));
}

static bool is_folder_entry(const char *path, const struct dirent *e)
{
    bool known = e->d_type == DT_DIR || e->d_type == DT_REG;
    return known ? e->d_type == DT_DIR : is_folder_at(path, e->d_name);
}

/* Lists the folders in a folder, except those whose name starts with a dot. */
static choir_status list_folders(const char *path, names *n)
{
    DIR *dir;
    choir_status status = open_folder(path, &dir);
    if (status != CHOIR_OK)
        return status;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && is_folder_entry(path, e))
            add_name(n, e->d_name);
    closedir(dir);
    if (n->count)
        qsort(n->name, (size_t)n->count, sizeof *n->name, by_name);
    return CHOIR_OK;
}

/* Adds the images of a class in its folder `inside` ("" or "a/b/") and in the folders there. */
static choir_status add_images(const char *class_path, const char *inside, int depth, names *n)
{
    names folders = {0};
    DIR *dir = NULL;
    char *path = choir__format("%s/%s", class_path, inside);
    choir_status status = depth < DEEPEST
                              ? open_folder(path, &dir)
                              : choir__error(CHOIR_ERR_FORMAT,
                                    "%s: folders are nested deeper than %d", path, DEEPEST);
    for (struct dirent *e; dir && status == CHOIR_OK && (e = readdir(dir));) {
        char *name = choir__format("%s%s", inside, e->d_name);
        if (e->d_name[0] == '.')
            ; /* leftovers of other programs */
        else if (is_folder_entry(path, e))
            add_name(&folders, name);
        else if (choir__is_image_name(name))
            add_name(n, name);
        else if (ends_in(name, unreadable))
            status = choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s%s: expected JPEG or PNG images alone: convert the file or move it away",
                path, e->d_name);
        free(name);
    }
    if (dir)
        closedir(dir);
    for (int64_t i = 0; i < folders.count && status == CHOIR_OK; i++) {
        char *deeper = choir__format("%s/", folders.name[i]);
        status = add_images(class_path, deeper, depth + 1, n);
        free(deeper);
    }
    free_names(&folders);
    free(path);
    return status;
}

/* Orders paths by their folder, then by the file's name. */
static int by_folder(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    const char *end_x = strrchr(x, '/'), *end_y = strrchr(y, '/');
    size_t in_x = end_x ? (size_t)(end_x - x) : 0, in_y = end_y ? (size_t)(end_y - y) : 0;
    int order = memcmp(x, y, in_x < in_y ? in_x : in_y);
    if (order == 0 && in_x != in_y)
        order = in_x < in_y ? -1 : 1;
    return order ? order : strcmp(x, y);
}

/* Lists the images of a class, in order. */
static choir_status list_images(const char *class_path, names *n)
{
    choir_status status = add_images(class_path, "", 0, n);
    if (n->count)
        qsort(n->name, (size_t)n->count, sizeof *n->name, by_folder);
    return status;
}

/* --- the files of a split --- */

static void add_file(image_folder *d, char *name, int64_t class)
{
    if (d->count == d->room) {
        d->room = d->room ? 2 * d->room : 256;
        d->files = choir__realloc(d->files, (size_t)d->room * sizeof *d->files);
    }
    d->files[d->count++] = (image_file){name, class};
}

/* held: every tenth file is for validation and the others are for training. */
static choir_status add_class(image_folder *d, const char *class_name, int64_t class, bool held)
{
    names n = {0};
    char *path = choir__format("%s/%s", d->root, class_name);
    choir_status status = list_images(path, &n);
    if (status == CHOIR_OK && !n.count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: the class has no images: remove its folder, or put .jpg, .jpeg or .png files"
            " there",
            path);
    for (int64_t i = 0; i < n.count && status == CHOIR_OK; i++)
        if (!held || (i % HOLD_OUT == HOLD_OUT - 1) != d->training) {
            add_file(d, n.name[i], class);
            n.name[i] = NULL;
        }
    free_names(&n);
    free(path);
    return status;
}

static int64_t find_class(const image_folder *d, const char *name)
{
    char **found = bsearch(
        &name, d->classes.name, (size_t)d->classes.count, sizeof *d->classes.name, by_name);
    return found ? found - d->classes.name : -1;
}

/* The folders of training determine the class ids, also of validation. */
static choir_status add_classes(image_folder *d, bool held)
{
    names n = {0};
    choir_status status = list_folders(d->root, &n);
    if (status == CHOIR_OK && !n.count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s has no folders of classes: images are looked for as CLASS/*.jpg, .jpeg, .png",
            d->root);
    for (int64_t i = 0; i < n.count && status == CHOIR_OK; i++) {
        int64_t class = find_class(d, n.name[i]);
        status = class < 0 ? choir__error(CHOIR_ERR_FORMAT,
                                 "%s/%s: expected the name of a class to train on", d->root,
                                 n.name[i])
                           : add_class(d, n.name[i], class, held);
    }
    free_names(&n);
    return status;
}

static choir_status find_first(image_folder *d)
{
    names n = {0};
    char *path = choir__format("%s/%s", d->root, d->classes.count ? d->classes.name[0] : "");
    choir_status status = list_images(path, &n);
    if (n.count)
        d->first = choir__format("%s/%s", path, n.name[0]);
    free_names(&n);
    free(path);
    return status;
}

static choir_status look_into(image_folder *d, const char *folder)
{
    bool has_train = is_folder_at(folder, "train");
    const char *other = is_folder_at(folder, "val")    ? "val"
                        : is_folder_at(folder, "test") ? "test"
                                                       : NULL;
    bool held = !has_train || !other;
    d->root = choir__format("%s%s", folder, has_train ? "/train" : "");
    choir_status status = list_folders(d->root, &d->classes);
    if (status == CHOIR_OK)
        status = find_first(d);
    if (status == CHOIR_OK && !d->training && !held) {
        free(d->root);
        d->root = choir__format("%s/%s", folder, other);
    }
    if (status == CHOIR_OK)
        status = add_classes(d, held);
    if (status == CHOIR_OK && !d->count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: no class has %d images, so none are held out to validate on: make train/CLASS"
            " and val/CLASS",
            folder, HOLD_OUT);
    d->base.classes = d->classes.count;
    return status;
}

/* --- one sample --- */

static char *path_of(const image_folder *d, int64_t index)
{
    const image_file *f = &d->files[index];
    return choir__format("%s/%s/%s", d->root, d->classes.name[f->class], f->name);
}

static choir_status render(image_folder *d, choir__image_work *w, const char *path,
    uint64_t key, const char *data, size_t bytes, float *out)
{
    choir__decoder *decoder = &w->decoder;
    choir__view view;
    choir_status status = choir__decoder_open(decoder, path, data, bytes, d->opts.max_pixels);
    if (status != CHOIR_OK)
        return status;
    if (d->training)
        status =
            choir__view_random(&d->opts, path, decoder->width, decoder->height, key, &view);
    else
        view = choir__view_center(&d->opts, decoder->width, decoder->height);
    if (status == CHOIR_OK)
        status = choir__image_render(w, &d->opts, d->resample, &view, out);
    choir__decoder_close(decoder);
    return status;
}

static choir_status get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    image_folder *d = (image_folder *)self;
    char *path = path_of(d, index), *data = NULL;
    size_t bytes;
    uint64_t key = choir__rng_key(d->opts.seed, "image");
    choir_status status = choir__read_file(path, FILE_LIMIT, &data, &bytes);
    if (status == CHOIR_OK) {
        choir__image_work *w = choir__image_work_take(&d->works);
        key = choir__mix(choir__mix(key, (uint64_t)epoch), (uint64_t)index);
        status = render(d, w, path, key, data, bytes, x);
        choir__image_work_put(&d->works, w);
        *(int64_t *)y = d->files[index].class;
    }
    free(data);
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
    free_names(&d->classes);
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

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .get_epoch = get_epoch,
    .free = free_folder,
    .channels_last = true,
    .class_name = class_name};

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

/* Sets the options that depend on the first image. */
static choir_status settle(image_folder *d)
{
    choir_image_opts *o = &d->opts;
    if (o->height && o->crop != CHOIR_CROP_AUTO)
        return CHOIR_OK;
    if (!d->first)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: the first class has no images to train on", d->root);
    choir__decoder first = {0};
    char *data = NULL;
    size_t bytes;
    choir_status status = choir__read_file(d->first, FILE_LIMIT, &data, &bytes);
    if (status == CHOIR_OK)
        status = choir__decoder_open(&first, d->first, data, bytes, o->max_pixels);
    if (status == CHOIR_OK) {
        if (!o->height) {
            o->width = first.width;
            o->height = first.height;
        }
        if (o->crop == CHOIR_CROP_AUTO)
            o->crop = first.width == o->width && first.height == o->height ? CHOIR_CROP_PADDED
                                                                           : CHOIR_CROP_RESIZED;
        choir__decoder_close(&first);
        status = choir__image_opts_check(o); /* an image may be larger than a sample */
    }
    choir__decoder_free(&first);
    free(data);
    return status;
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
    d->training = split == CHOIR_TRAIN;
    d->resample = choir__resample_find();
    choir__image_works_init(&d->works);
    status = look_into(d, folder);
    if (status == CHOIR_OK)
        status = settle(d);
    if (status != CHOIR_OK) {
        free_folder(&d->base);
        return status;
    }
    d->base.x_shape = choir_dims(3, d->opts.height, d->opts.width);
    *dataset = &d->base;
    return CHOIR_OK;
}
