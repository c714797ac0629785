/* Images with classes in tars, as WebDataset names their members: the members of a sample
 * follow one another, with one name and different suffixes.
 *
 *     0001.jpg  0001.cls  0002.png  0002.json  ...        cls: a class; json: its "cls" or
 * "label"
 *
 * Opening reads all headers, and the classes. An image is read from its place when its sample
 * is requested. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/text.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/labels.h"
#include "data/loading/shards.h"
#include "base/utf8.h"
#include "data/images/transform.h"

enum { LONGEST_LABEL = 1 << 20 };

typedef struct member {
    int64_t at, bytes,
        label;   /* bytes: 0 before the image is found; label: -1 before the class is */
    char *key;   /* the name without its suffix */
    char *image; /* the image's name */
    int32_t shard;
} member;

typedef struct shards {
    choir_dataset base;
    choir_image_opts opts;
    bool training;
    choir__shard_files files;
    member first; /* first member, whose image determines the size of samples */
    member *samples;
    int64_t count, seen;         /* seen: samples of both splits */
    choir__holdout_classes held; /* used while members are read */
    choir__labels labels;
    choir__json_nodes nodes;
    choir__resample_fn *resample;
    choir__image_works works;
} shards;

/* --- members --- */

/* Returns the suffix, behind the first dot of the last part of the path. */
static const char *suffix_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strchr(slash ? slash + 1 : name, '.');
    return dot ? dot + 1 : "";
}

/* Finds the label in the text of a .cls or .json; json is changed. */
static choir_status read_label(
    shards *d, const choir__data_record_at *at, bool json, char *text, int64_t *label)
{
    size_t bytes = strlen(text);
    choir__json word = {CHOIR__JSON_STRING, .nodes = 1, .text = text, .bytes = bytes};
    const choir__json *value = &word;
    if (json) {
        const char *where, *wrong = choir__json_parse(&d->nodes, text, text + bytes, &where);
        if (wrong)
            return choir__data_record_wrong(
                at, "%s (byte %lld)", wrong, (long long)(where - text));
        value = choir__json_get(d->nodes.node, "cls");
        value = value ? value : choir__json_get(d->nodes.node, "label");
        if (!value)
            return CHOIR_OK; /* the label may be in a .cls file */
    }
    if (!json && !choir__is_utf8(text, bytes))
        return choir__data_record_wrong(at, "expected UTF-8");
    while (!json && bytes && strchr(" \t\r\n", text[bytes - 1]))
        text[--bytes] = '\0';
    return choir__labels_add(&d->labels, at, value, label);
}

/* Returns the sample that the member belongs to: the last one, or a new one. */
static member *sample_of(shards *d, const char *name, int32_t shard)
{
    size_t length = (size_t)(suffix_of(name) - name);
    member *last = d->count ? &d->samples[d->count - 1] : NULL;
    if (last && last->shard == shard && strlen(last->key) == length &&
        !strncmp(last->key, name, length))
        return last;
    CHOIR__GROW(d->samples, d->count);
    d->samples[d->count] =
        (member){.label = -1, .key = choir__format("%.*s", (int)length, name), .shard = shard};
    return &d->samples[d->count++];
}

static choir_status add_member(
    shards *d, const choir__tar *tar, const choir__tar_member *m, int32_t shard)
{
    const char *suffix = suffix_of(m->name);
    bool json = !strcmp(suffix, "json"), class = !strcmp(suffix, "cls");
    bool image = choir__is_image_name(m->name);
    if (!json && !class && !image)
        return CHOIR_OK;
    member *s = sample_of(d, m->name, shard);
    if (image && s->image)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected one image per sample, got %s and %s", tar->path, s->image, m->name);
    if (!image && s->label >= 0)
        return CHOIR_OK; /* the sample's first class counts, of a .cls and a .json */
    if (image) {
        s->image = choir__strdup(m->name);
        s->at = m->at;
        s->bytes = m->bytes;
        return CHOIR_OK;
    }
    char *text, *path = choir__format("%s, %s", tar->path, m->name);
    choir__data_record_at at = {.path = path};
    choir_status status = m->bytes <= LONGEST_LABEL
                              ? choir__tar_read(tar->fd, tar->path, m->at, m->bytes, &text)
                              : choir__data_record_wrong(
                                    &at, "expected a class of at most %d bytes", LONGEST_LABEL);
    if (status == CHOIR_OK) {
        status = read_label(d, &at, json, text, &s->label);
        free(text);
    }
    free(path);
    return status;
}

static void free_member(member *s)
{
    free(s->key);
    free(s->image);
}

/* Returns whether the next whole sample is of this split; kept: number of earlier samples of
 * the split. */
static bool is_kept(shards *d, const member *s, int64_t kept)
{
    if (d->files.splits)
        return d->training == (s->shard < d->files.training);
    return choir__holdout_classes_note(
        &d->held, s->label, choir__is_held(d->opts.held_out, d->seen++), d->training, kept);
}

/* Drops the samples that the other split has, once all classes are known. */
static void drop_samples(shards *d)
{
    bool *dropped = choir__holdout_classes_end(&d->held, d->training, d->count);
    int64_t kept = 0;
    for (int64_t i = 0; i < d->count; i++)
        if (dropped[i])
            free_member(&d->samples[i]);
        else
            d->samples[kept++] = d->samples[i];
    d->count = kept;
    free(dropped);
}

/* Keeps the samples from number `first` on that are whole and of this split. */
static choir_status keep_samples(shards *d, int64_t first)
{
    int64_t kept = first;
    choir_status status = CHOIR_OK;
    for (int64_t i = first; i < d->count; i++) {
        member *s = &d->samples[i];
        bool whole = s->image && s->bytes && s->label >= 0;
        if (s->image && !s->bytes && status == CHOIR_OK)
            status = choir__error(CHOIR_ERR_FORMAT, "%s: %s is empty: expected an image",
                d->files.all.name[s->shard], s->image);
        if (s->image && s->label < 0 && status == CHOIR_OK)
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s: %s has no class: expected %scls, or %sjson with \"cls\" or \"label\"",
                d->files.all.name[s->shard], s->image, s->key, s->key);
        if (!s->image && s->label >= 0 && status == CHOIR_OK)
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s: the sample %s has a class and no image; links to other members are not read",
                d->files.all.name[s->shard], s->key);
        if (whole && !d->first.image) {
            d->first = *s;
            d->first.image = choir__strdup(s->image);
        }
        if (status == CHOIR_OK && whole && is_kept(d, s, kept))
            d->samples[kept++] = *s;
        else
            free_member(s);
    }
    d->count = kept;
    return status;
}

static choir_status read_shard(shards *d, int32_t shard)
{
    choir__tar tar;
    choir__tar_member m;
    int64_t first = d->count;
    choir_status status = choir__tar_open(&tar, d->files.all.name[shard]);
    while (status == CHOIR_OK && (status = choir__tar_next(&tar, &m)) == CHOIR_OK && m.name)
        status = add_member(d, &tar, &m, shard);
    choir__tar_close(&tar);
    return status == CHOIR_OK ? keep_samples(d, first) : status;
}

/* The tars of training determine the classes, so validation reads them, too. */
static choir_status read_shards(shards *d, const char *path)
{
    choir_status status = choir__shards_find(path, &d->files);
    if (status == CHOIR_OK && d->training && d->files.splits && !d->files.training)
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s has tars for validation alone: train*.tar are missing", path);
    int64_t last = d->files.splits && d->training ? d->files.training : d->files.all.count;
    if (status == CHOIR_OK && d->opts.classes)
        status = choir__labels_give(&d->labels, d->opts.classes);
    for (int64_t i = 0; i < last && status == CHOIR_OK; i++) {
        if (d->files.splits && i && i == d->files.training && !d->opts.classes)
            status = choir__labels_settle(&d->labels);
        if (status == CHOIR_OK)
            status = read_shard(d, (int32_t)i);
    }
    drop_samples(d);
    if (status == CHOIR_OK && !d->count)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: the %s split has no images with a class",
            path, d->training ? "training" : "validation");
    return status == CHOIR_OK && !d->labels.settled ? choir__labels_settle(&d->labels) : status;
}

/* --- samples --- */

static choir_status read_image(const shards *d, const member *s, char **data, char **name)
{
    const char *path = d->files.all.name[s->shard];
    int fd;
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    status = choir__tar_read(fd, path, s->at, s->bytes, data);
    close(fd);
    if (status == CHOIR_OK)
        *name = choir__format("%s, %s", path, s->image);
    return status;
}

static choir_status get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    shards *d = (shards *)self;
    const member *s = &d->samples[index];
    char *data, *name;
    uint64_t key = choir__rng_key(d->opts.seed, "image");
    key = choir__mix(choir__mix(key, (uint64_t)epoch), (uint64_t)index);
    choir_status status = read_image(d, s, &data, &name);
    if (status != CHOIR_OK)
        return status;
    choir__image_work *w = choir__image_work_take(&d->works);
    status = choir__image_data(
        w, &d->opts, d->resample, name, data, (size_t)s->bytes, d->training ? &key : NULL, x);
    choir__image_work_put(&d->works, w);
    *(int64_t *)y = choir__label_class(&d->labels, s->label);
    free(data);
    free(name);
    return status;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    return get_epoch(self, 0, index, x, y);
}

static int64_t class_of(choir_dataset *self, int64_t index)
{
    const shards *d = (const shards *)self;
    return choir__label_class(&d->labels, d->samples[index].label);
}

static int64_t length(const choir_dataset *self)
{
    return ((const shards *)self)->count;
}

static const char *class_name(const choir_dataset *self, int64_t id)
{
    return choir__label_name(&((const shards *)self)->labels, id);
}

static const char *sample_name(const choir_dataset *self, int64_t index)
{
    const shards *d = (const shards *)self;
    return index >= 0 && index < d->count ? d->samples[index].image : NULL;
}

static void normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const choir_image_opts *o = &((const shards *)self)->opts;
    memcpy(mean, o->mean, sizeof o->mean);
    memcpy(std, o->std, sizeof o->std);
}

static void free_shards(choir_dataset *self)
{
    shards *d = (shards *)self;
    for (int64_t i = 0; i < d->count; i++)
        free_member(&d->samples[i]);
    choir__image_works_free(&d->works);
    choir__name_list_free(&d->files.all);
    choir__labels_free(&d->labels);
    choir__json_nodes_free(&d->nodes);
    free(d->first.image);
    free(d->samples);
    free(d);
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_shards,
    .get_epoch = get_epoch,
    .channels_last = true,
    .class_name = class_name,
    .sample_name = sample_name,
    .normalized = normalized,
    .class_of = class_of};

static choir_status settle(shards *d)
{
    char *data, *name;
    choir_status status = read_image(d, &d->first, &data, &name);
    if (status != CHOIR_OK)
        return status;
    status = choir__image_opts_settle_data(&d->opts, name, data, (size_t)d->first.bytes);
    free(data);
    free(name);
    return status;
}

int64_t choir__shards_resize(const choir_dataset *dataset)
{
    const shards *d = (const shards *)dataset;
    char *data = NULL, *name = NULL;
    int64_t side = 0;
    if (dataset->ops != &ops || !d->count)
        return 0;
    if (read_image(d, &d->samples[0], &data, &name) == CHOIR_OK)
        side = choir__image_resize(&d->opts, name, data, (size_t)d->samples[0].bytes);
    else
        (void)choir_error_message(); /* reading the sample reports it */
    free(data);
    free(name);
    return side;
}

const char *choir__file_shards_largest(const choir_dataset *d)
{
    return d->ops == &ops ? ((const shards *)d)->labels.largest_place : NULL;
}

choir_status choir_dataset_shards(
    const char *path, choir_split split, choir_image_opts opts, choir_dataset **dataset)
{
    if (!path || !dataset)
        return choir__missing(__func__, path ? "dataset" : "path");
    choir_status status = choir__image_opts_check(&opts);
    if (status != CHOIR_OK)
        return status;
    shards *d = choir__calloc(1, sizeof *d);
    d->opts = opts;
    if (opts.classes && !opts.classes->count)
        d->opts.classes = NULL;
    d->training = split == CHOIR_TRAIN;
    d->resample = choir__resample_find();
    choir__image_works_init(&d->works);
    status = read_shards(d, path);
    if (status == CHOIR_OK)
        status = settle(d);
    if (status != CHOIR_OK) {
        free_shards(&d->base);
        return status;
    }
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_F32,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(3, d->opts.height, d->opts.width),
        .y_shape = CHOIR_SCALAR,
        .classes = d->labels.classes,
        .held_out = !d->files.splits && !d->training,
        .numbered = choir__labels_are_numbers(&d->labels)};
    *dataset = &d->base;
    return CHOIR_OK;
}
