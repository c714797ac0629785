/* Images with JSON that describes their contents. Opening the dataset reads the lines of
 * metadata.jsonl and converts their values to texts. An image is read when its sample is
 * requested. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/floats.h"
#include "data/text/document_text.h"
#include "data/dataset.h"
#include "data/records.h"
#include "data/tokenizer/tokenizer.h"
#include "data/images/transform.h"

enum { FILE_LIMIT = 1 << 30 };

typedef struct document {
    char *image, *text;
    int64_t *ids; /* (count), followed by </s> */
    int64_t count;
} document;

typedef struct documents {
    choir_dataset base;
    choir_document_opts opts;
    char *root; /* the folder of metadata.jsonl */
    document *all;
    int64_t count, pad;
    choir__resample_fn *resample;
    choir__image_works works;
} documents;

/* --- a line of metadata.jsonl --- */

/* JSON within a string of JSON, which is parsed in a copy. */
typedef struct inner_json {
    char *text;
    choir__json_nodes nodes;
} inner_json;

/* Finds the value to predict: gt_parse of ground_truth, or the first of gt_parses. */
static choir_status find_value(const choir__data_record_at *at, const choir__json *root,
    inner_json *inner, const choir__json **value)
{
    const choir__json *truth = choir__json_get(root, "ground_truth"), *several;
    const char *where;
    if (choir__json_is(truth, CHOIR__JSON_STRING)) {
        inner->text = choir__strdup(truth->text);
        const char *wrong =
            choir__json_parse(&inner->nodes, inner->text, inner->text + truth->bytes, &where);
        if (wrong)
            return choir__data_record_wrong(
                at, "ground_truth: expected a string of JSON: %s", wrong);
        truth = inner->nodes.node;
    }
    *value = choir__json_get(truth, "gt_parse");
    several = choir__json_get(truth, "gt_parses");
    if (!*value && choir__json_is(several, CHOIR__JSON_ARRAY) && several->count)
        *value = choir__json_first(several);
    return *value ? CHOIR_OK
                  : choir__data_record_wrong(at, "missing ground_truth with a gt_parse");
}

static void add_document(documents *d, const char *image, char *text)
{
    CHOIR__GROW(d->all, d->count);
    d->all[d->count++] = (document){.image = choir__strdup(image), .text = text};
}

/* Returns whether a name stays within its folder. */
static bool is_inside(const char *name)
{
    for (const char *at = name, *end; *name != '/'; at = end + 1) {
        end = strchrnul(at, '/');
        if (end - at == 2 && !memcmp(at, "..", 2))
            return false;
        if (!*end)
            return true;
    }
    return false;
}

static choir_status check_name(const choir__data_record_at *at, const char *name)
{
    if (!name)
        return choir__data_record_wrong(at, "missing file_name");
    return is_inside(name) ? CHOIR_OK
                           : choir__data_record_wrong(
                                 at, "file_name '%.200s': expected a file of the folder", name);
}

typedef struct reading {
    documents *d, *rest; /* rest: the other split; NULL: the file has one split */
    bool training;
    int64_t entries; /* lines, so far */
    choir__names *fields;
} reading;

/* Adds a line to its split: a file with both splits holds out some lines (data/dataset.h). */
static choir_status read_record(
    void *arg, const choir__data_record_at *at, const choir__json *record)
{
    reading *r = arg;
    inner_json inner = {0};
    const choir__json *value = NULL, *image_name = choir__json_get(record, "file_name");
    bool held = choir__is_held(r->d->opts.image.held_out, r->entries++);
    const char *image =
        choir__json_is(image_name, CHOIR__JSON_STRING) ? image_name->text : NULL;
    choir_status status = check_name(at, image);
    if (status == CHOIR_OK)
        status = find_value(at, record, &inner, &value);
    if (status == CHOIR_OK)
        add_document(r->rest && held == r->training ? r->rest : r->d, image,
            choir__document_text(value, r->fields));
    choir__json_nodes_free(&inner.nodes);
    free(inner.text);
    return status;
}

static choir_status read_metadata(
    documents *d, documents *rest, const char *folder, bool training, choir__names *fields)
{
    char *path = choir__format("%s/metadata.jsonl", folder);
    reading r = {.d = d, .rest = rest, .training = training, .fields = fields};
    choir_status status = choir__data_records_read(path, read_record, &r);
    free(path);
    return status;
}

/* --- folders --- */

static bool has_metadata(const char *folder, const char *part)
{
    struct stat info;
    char *path = choir__format("%s/%s%smetadata.jsonl", folder, part, *part ? "/" : "");
    bool there = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    free(path);
    return there;
}

static const char *validation_part(const char *folder)
{
    static const char *const names[] = {"validation", "val", "test"};
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        if (has_metadata(folder, names[i]))
            return names[i];
    return NULL;
}

/* The fields and characters of both splits receive tokens, first in the order of training's
 * lines, then of the others. So both splits have the same tokens. */
static choir_status read_all(
    documents *d, documents *rest, const char *folder, bool training, choir__names *fields)
{
    bool split = has_metadata(folder, "train");
    const char *other = split ? validation_part(folder) : NULL;
    char *train = choir__format("%s%s", folder, split ? "/train" : "");
    char *held = other ? choir__format("%s/%s", folder, other) : NULL;
    choir_status status = read_metadata(
        training || !held ? d : rest, held ? NULL : rest, train, training, fields);
    if (status == CHOIR_OK && held)
        status = read_metadata(training ? rest : d, NULL, held, training, fields);
    d->base.held_out = !held && !training;
    d->root = training || !held ? train : held;
    free(training || !held ? held : train);
    if (status == CHOIR_OK && !d->count)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: %s", folder,
            training ? "metadata.jsonl has no lines to train on"
                     : "no lines are held out to validate on: make validation/metadata.jsonl");
    return status;
}

/* --- tokens --- */

static choir_status characters(
    const documents *d, const documents *rest, choir_tokenizer **tokenizer)
{
    choir__text_buffer text = {0};
    for (int64_t i = 0; i < d->count + rest->count; i++) {
        const document *k = i < d->count ? &d->all[i] : &rest->all[i - d->count];
        choir__text_buffer_add(&text, k->text, strlen(k->text));
    }
    choir_status status = choir_tokenizer_chars(text.bytes, text.used, tokenizer);
    free(text.bytes);
    return status;
}

/* Adds the fields to *tokenizer, which may become another object. */
static choir_status settle_tokenizer(const documents *d, const documents *rest,
    choir__names *fields, choir_tokenizer **tokenizer)
{
    choir_tokenizer *known = *tokenizer, *extended;
    choir_status status = known ? CHOIR_OK : characters(d, rest, &known);
    if (status == CHOIR_OK)
        status = choir__tokenizer_extend(known, fields->name, fields->count, &extended);
    if (status != CHOIR_OK) {
        if (known != *tokenizer)
            choir_tokenizer_free(known);
        return status;
    }
    *tokenizer = extended; /* owns the other */
    return CHOIR_OK;
}

static choir_status encode(documents *d, const choir_tokenizer *tokenizer)
{
    int64_t end = choir_tokenizer_id(tokenizer, "</s>");
    d->pad = choir_tokenizer_id(tokenizer, "<pad>");
    for (int64_t i = 0; i < d->count; i++) {
        document *k = &d->all[i];
        choir_status status =
            choir__tokenizer_ids(tokenizer, k->text, strlen(k->text), 1, &k->ids, &k->count);
        if (status != CHOIR_OK)
            return choir__error(status, "%s, of %s: %s", d->root, k->image, choir__message());
        k->ids[k->count++] = end;
    }
    return CHOIR_OK;
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return ((const documents *)self)->count;
}

static choir_status render(choir__image_work *w, choir__resample_fn *resample,
    const choir_image_opts *o, const char *path, float *x)
{
    char *data = NULL;
    size_t bytes;
    choir_status status = choir__read_file(path, FILE_LIMIT, &data, &bytes);
    if (status == CHOIR_OK)
        status = choir__decoder_open(&w->decoder, path, data, bytes, o->max_pixels);
    if (status == CHOIR_OK) {
        choir__view view = choir__view_whole(o, w->decoder.width, w->decoder.height);
        status = choir__image_render(w, o, resample, &view, x);
        choir__decoder_close(&w->decoder);
    }
    free(data);
    return status;
}

choir_status choir_document_image(const char *path, const choir_image_opts *opts, float *x)
{
    CHOIR__DEFAULT_FLOATS;
    if (!opts)
        return choir__missing(__func__, "image opts");
    if (!x)
        return choir__missing(__func__, "x");
    choir__image_work w = {0};
    choir_status status = render(&w, choir__resample_find(), opts, path, x);
    choir__image_work_free(&w);
    return status;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    documents *d = (documents *)self;
    const document *k = &d->all[index];
    int64_t *out = y;
    char *path = choir__format("%s/%s", d->root, k->image);
    choir__image_work *w = choir__image_work_take(&d->works);
    choir_status status = render(w, d->resample, &d->opts.image, path, x);
    choir__image_work_put(&d->works, w);
    for (int64_t i = 0; i < d->opts.context; i++)
        out[i] = i < k->count ? k->ids[i] : d->pad;
    free(path);
    return status;
}

static void free_all(documents *d)
{
    for (int64_t i = 0; i < d->count; i++) {
        free(d->all[i].image);
        free(d->all[i].text);
        free(d->all[i].ids);
    }
    free(d->all);
}

static void free_documents(choir_dataset *self)
{
    documents *d = (documents *)self;
    free_all(d);
    choir__image_works_free(&d->works);
    free(d->root);
    free(d);
}

static bool place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    of->file = ((const documents *)self)->all[index].image;
    return part == 0;
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_documents,
    .channels_last = true,
    .place = place};

choir_document_opts choir_document_defaults(void)
{
    choir_document_opts opts = {.image = choir_image_defaults(), .context = 768};
    for (int c = 0; c < 3; c++)
        opts.image.mean[c] = opts.image.std[c] = 0.5f;
    return opts;
}

choir_status choir_dataset_documents(const char *folder, choir_split split,
    choir_document_opts opts, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    choir_status status = choir__image_opts_check(&opts.image);
    if (status != CHOIR_OK)
        return status;
    if (opts.image.height < 1 || opts.image.width < 1 || opts.context < 2)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: images of %d x %d pixels and %lld tokens are no documents", folder,
            opts.image.width, opts.image.height, (long long)opts.context);
    documents *d = choir__calloc(1, sizeof *d);
    choir__names fields = {0};
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_F32,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(3, opts.image.height, opts.image.width),
        .y_shape = choir_dims(opts.context)};
    d->opts = opts;
    d->resample = choir__resample_find();
    choir__image_works_init(&d->works);
    for (int i = 0; i < 3; i++)
        choir__names_add(&fields, "*", (const char *[]){"<s>", "<pad>", "</s>"}[i]);
    documents rest = {0}; /* documents of the other split */
    status = read_all(d, &rest, folder, split == CHOIR_TRAIN, &fields);
    if (status == CHOIR_OK)
        status = settle_tokenizer(d, &rest, &fields, tokenizer);
    free_all(&rest);
    if (status == CHOIR_OK)
        status = encode(d, *tokenizer);
    choir__names_free(&fields);
    if (status != CHOIR_OK) {
        free_documents(&d->base);
        return status;
    }
    d->base.classes = choir_tokenizer_size(*tokenizer);
    *dataset = &d->base;
    return CHOIR_OK;
}
