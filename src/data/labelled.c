/* Texts with a class each, or words with a class each, for models such as BERT; or texts with
 * numbers or several classes each (targets.h). Opening the dataset reads the records and
 * encodes all texts (images/encoded.h). */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "data/images/encoded.h"
#include "data/dataset.h"
#include "data/labels.h"
#include "data/record_places.h"
#include "data/record_parts.h"
#include "data/targets.h"

typedef struct labelled {
    choir_dataset base;
    choir__encoded encoded;
    choir__labels labels;
    choir__targets targets;           /* outputs 0: each sample or word has one class */
    choir__data_record_places places; /* records in the order of the file */
} labelled;

/* --- columns --- */

const char *const choir__column_text[] = {"text", "sentence", "sentence1", "premise", NULL};
const char *const choir__column_pair[] = {"text_pair", "sentence2", "hypothesis", NULL};
const char *const choir__column_words[] = {"tokens", "words", NULL};
static const char *const classes[] = {"label", "labels", NULL};
static const char *const word_classes[] = {"tags", "ner_tags", "labels", NULL};

choir_status choir__labelled_columns_parse(
    const char *text, choir__labelled_columns *columns, choir_labelled_opts *opts)
{
    *columns = (choir__labelled_columns){0};
    if (!text)
        return CHOIR_OK;
    const choir__option known[] = {{"text", CHOIR__TEXT, columns->text, 0, 0},
        {"pair", CHOIR__TEXT, columns->pair, 0, 0},
        {"label", CHOIR__TEXT, columns->label, 0, 0}, {0}};
    char *named = choir__format("columns:%s", text);
    choir_status status = choir__options_parse(named, "columns", known);
    free(named);
    opts->text = *columns->text ? columns->text : NULL;
    opts->pair = *columns->pair ? columns->pair : NULL;
    opts->label = *columns->label ? columns->label : NULL;
    return status;
}

const choir__json *choir__column(
    const choir__json *record, const char *named, const char *const *usual)
{
    if (named)
        return choir__json_get(record, named);
    const choir__json *found = NULL;
    for (int i = 0; usual[i] && !found; i++)
        found = choir__json_get(record, usual[i]);
    return found;
}

choir_status choir__column_missing(
    const choir__data_record_at *at, const char *named, const char *const *usual)
{
    return choir__data_record_wrong(at, "missing the column '%s'", named ? named : usual[0]);
}

choir_status choir__column_pieces(
    const choir__data_record_at *at, const choir__json *list, choir__piece **pieces)
{
    const choir__json *word = choir__json_first(list);
    *pieces = choir__calloc((size_t)list->count + 1, sizeof **pieces);
    for (size_t i = 0; i < list->count; i++, word = choir__json_next(word)) {
        if (!choir__json_is(word, CHOIR__JSON_STRING))
            return choir__data_record_wrong(at, "expected words as strings");
        (*pieces)[i] = (choir__piece){word->text, word->bytes};
    }
    return CHOIR_OK;
}

/* --- reading --- */

typedef struct reading {
    labelled *d;
    const choir_labelled_opts *opts;
    int64_t entries; /* entries of the file so far */
    bool training;
    bool shared;      /* the file has both splits (data/dataset.h) */
    bool labels_only; /* the file is the other split's: its labels are the classes */
    bool held;        /* the present entry is for validation, by its place */
    bool keep;        /* the present entry is a sample of this split */
    choir__holdout_classes classes; /* for a file with both splits and a class per entry */
} reading;

/* Names the record in the error of adding its sample. */
static choir_status added(const choir__data_record_at *at, choir_status status)
{
    return status == CHOIR_OK ? CHOIR_OK : choir__data_record_wrong(at, "%s", choir__message());
}

static choir_status add_text(reading *r, const choir__data_record_at *at,
    const choir__json *record, const choir__json *text, int64_t label)
{
    const choir__json *pair = choir__column(record, r->opts->pair, choir__column_pair);
    choir__piece second = {0};
    if (!choir__json_is(text, CHOIR__JSON_STRING) ||
        (pair && !choir__json_is(pair, CHOIR__JSON_STRING)))
        return choir__data_record_wrong(at, "expected texts as strings");
    if (pair)
        second = (choir__piece){pair->text, pair->bytes};
    return added(at, choir__encoded_text(&r->d->encoded,
                         (choir__piece){text->text, text->bytes}, second, label));
}

static choir_status read_words(
    reading *r, const choir__data_record_at *at, const choir__json *record)
{
    const choir__json *list = choir__column(record, r->opts->text, choir__column_words);
    const choir__json *tags = choir__column(record, r->opts->label, word_classes);
    choir__piece *words;
    if (!list)
        return choir__column_missing(at, r->opts->text, choir__column_words);
    if (!tags)
        return choir__column_missing(at, r->opts->label, word_classes);
    if (list->type != CHOIR__JSON_ARRAY || tags->type != CHOIR__JSON_ARRAY ||
        list->count != tags->count)
        return choir__data_record_wrong(at,
            "expected an array of words, and one of as many classes, got %u and %u",
            list->count, tags->count);
    size_t count = list->count;
    int64_t *labels = choir__calloc(count + 1, sizeof *labels);
    choir_status status = choir__column_pieces(at, list, &words);
    const choir__json *tag = choir__json_first(tags);
    for (size_t i = 0; i < count && status == CHOIR_OK; i++, tag = choir__json_next(tag))
        status = choir__labels_add(&r->d->labels, at, tag, &labels[i]);
    if (status == CHOIR_OK && r->keep)
        status = added(at, choir__encoded_words(&r->d->encoded, words, count, labels));
    free(words);
    free(labels);
    return status;
}

static choir_status read_text(
    reading *r, const choir__data_record_at *at, const choir__json *record)
{
    const choir__json *text = choir__column(record, r->opts->text, choir__column_text);
    const choir__json *label = choir__column(record, r->opts->label, classes);
    int64_t number = 0;
    if (!text)
        return choir__column_missing(at, r->opts->text, choir__column_text);
    if (!label)
        return choir__column_missing(at, r->opts->label, classes);
    if (r->d->targets.outputs) {
        choir_status status =
            choir__targets_add(&r->d->targets, &r->d->labels, at, label, r->keep);
        return status == CHOIR_OK && r->keep ? add_text(r, at, record, text, 0) : status;
    }
    choir_status status = choir__labels_add(&r->d->labels, at, label, &number);
    if (status == CHOIR_OK && r->shared)
        r->keep = choir__holdout_classes_note(
            &r->classes, number, r->held, r->training, r->d->encoded.count);
    return status == CHOIR_OK && r->keep ? add_text(r, at, record, text, number) : status;
}

static choir_status read_record(
    void *arg, const choir__data_record_at *at, const choir__json *record)
{
    reading *r = arg;
    r->held = choir__is_held(r->opts->held_out, r->entries++);
    r->keep = r->shared ? r->held != r->training : !r->labels_only;
    int64_t before = r->d->encoded.count;
    choir_status status = r->opts->words ? read_words(r, at, record) : read_text(r, at, record);
    if (r->d->encoded.count > before) {
        r->d->encoded.samples[before].record = r->d->places.count;
        choir__data_record_places_add(&r->d->places, at, r->d->places.count);
    }
    return status;
}

/* --- files --- */

/* Drops the samples that the other split has, once all classes are known. */
static void drop_samples(reading *r)
{
    bool *dropped = choir__holdout_classes_end(&r->classes, r->training, r->d->encoded.count);
    choir__encoded_drop(&r->d->encoded, dropped);
    free(dropped);
}

/* Both splits have the given classes or else the training split's. */
static choir_status read_parts(reading *r, const char *path)
{
    choir__data_record_parts parts;
    choir_status status = choir__data_record_parts_find(path, &parts);
    bool apart = parts.held.count > 0, given = r->opts->classes && r->opts->classes->count;
    bool numbers = r->d->targets.outputs && !r->d->targets.several;
    r->shared = !apart;
    r->labels_only = apart && !r->training && !given && !numbers;
    given |= numbers; /* there are no classes to learn */
    if (status == CHOIR_OK && given && !numbers)
        status = choir__labels_give(&r->d->labels, r->opts->classes);
    if (status == CHOIR_OK && (r->shared || r->training || !given))
        status = choir__data_record_parts_read(&parts.train, read_record, r);
    if (status == CHOIR_OK && given && apart && !r->training)
        status = choir__data_record_parts_read(&parts.held, read_record, r);
    if (status == CHOIR_OK && !numbers)
        status = choir__labels_settle(&r->d->labels);
    if (status == CHOIR_OK && r->labels_only) {
        r->labels_only = false;
        status = choir__data_record_parts_read(&parts.held, read_record, r);
    }
    choir__data_record_parts_free(&parts);
    drop_samples(r);
    return status;
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return ((const labelled *)self)->encoded.count;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const labelled *d = (const labelled *)self;
    const choir__encoded *e = &d->encoded;
    int64_t *target = y;
    choir__encoded_get(e, index, x);
    if (d->targets.outputs)
        choir__targets_get(&d->targets, &d->labels, index, y);
    else if (!e->labels)
        *target = choir__label_class(&d->labels, e->samples[index].label);
    for (int64_t i = 0; e->labels && i < e->context; i++)
        target[i] = choir__label_class(&d->labels, choir__encoded_label(e, index, i));
    return CHOIR_OK;
}

static const char *class_name(const choir_dataset *self, int64_t id)
{
    return choir__label_name(&((const labelled *)self)->labels, id);
}

static bool place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    const labelled *d = (const labelled *)self;
    choir__data_record_places_fill(&d->places, d->encoded.samples[index].record, of);
    of->document = index;
    return part == 0;
}

static void free_labelled(choir_dataset *self)
{
    labelled *d = (labelled *)self;
    choir__data_record_places_free(&d->places);
    choir__labels_free(&d->labels);
    choir__targets_free(&d->targets);
    choir__encoded_free(&d->encoded);
    free(d);
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_labelled,
    .class_name = class_name,
    .place = place};

const char *choir__labelled_largest(const choir_dataset *d)
{
    return d->ops == &ops ? ((const labelled *)d)->labels.largest_place : NULL;
}

choir_labelled_opts choir_labelled_defaults(void)
{
    return (choir_labelled_opts){.context = 128, .task = CHOIR_CLASSIFICATION};
}

/* Returns an error unless the options name numbers or several classes as they must. */
static choir_status check_targets(const choir_labelled_opts *opts, const char *path)
{
    bool one = opts->task == CHOIR_CLASSIFICATION;
    if (one || (!opts->words && opts->outputs > 0 &&
                   (opts->task == CHOIR_REGRESSION || opts->task == CHOIR_MULTI_LABEL)))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected a class per text, or without words outputs of 1 or more; begin with "
        "choir_labelled_defaults()",
        path);
}

choir_status choir_dataset_labelled(const char *path, choir_split split,
    choir_labelled_opts opts, const choir_tokenizer *tokenizer, choir_dataset **dataset)
{
    if (!path || !tokenizer || !dataset)
        return choir__missing(__func__, !path ? "path" : tokenizer ? "dataset" : "tokenizer");
    labelled *d = choir__calloc(1, sizeof *d);
    reading r = {.d = d, .opts = &opts, .training = split == CHOIR_TRAIN};
    choir_status status = check_targets(&opts, path);
    if (status == CHOIR_OK)
        status = choir__holdout_check(path, opts.held_out);
    if (opts.task != CHOIR_CLASSIFICATION)
        d->targets = (choir__targets){
            .outputs = opts.outputs, .several = opts.task == CHOIR_MULTI_LABEL};
    if (status == CHOIR_OK)
        status = choir__encoded_init(&d->encoded, tokenizer, opts.context, opts.words, path);
    if (status == CHOIR_OK)
        status = read_parts(&r, path);
    if (status == CHOIR_OK && !d->encoded.count)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: the %s split has no samples", path,
            r.training ? "training" : "validation");
    if (status != CHOIR_OK) {
        free_labelled(&d->base);
        return status;
    }
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = d->targets.outputs ? CHOIR_F32 : CHOIR_I64,
        .x_shape = choir_dims(CHOIR__ENCODED_ROWS, opts.context),
        .y_shape = d->targets.outputs ? choir_dims(opts.outputs)
                   : opts.words       ? choir_dims(opts.context)
                                      : CHOIR_SCALAR,
        .classes = d->labels.classes,
        .held_out = r.shared && !r.training,
        .numbered = choir__labels_are_numbers(&d->labels)};
    *dataset = &d->base;
    return CHOIR_OK;
}
