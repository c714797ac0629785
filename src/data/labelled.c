/* Texts with a class each, or words with a class each, for models such as BERT.
 *
 *   sequence   [CLS] t1 t2 ... [SEP] [PAD] ...                 types 0 ...
 *   pair       [CLS] a1 a2 ... [SEP] b1 b2 ... [SEP] [PAD] ... types 0 ... 0 1 ... 1 0 ...
 *   words      [CLS] w1 w2 w2 ... [SEP] [PAD] ...              y: of each word's first token
 *
 * A text that is too long loses its last tokens, of a pair those of the longer text: what
 * transformers calls longest_first. Opening the dataset encodes all texts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/labelled.h"
#include "data/labels.h"
#include "data/records.h"
#include "data/tokenizer/tokenizer.h"

enum { HOLD_OUT = 10, ROWS = 3 }; /* rows of x: ids, types, mask */

typedef struct sample {
    int64_t at;     /* of its tokens in ids and, for words, in targets */
    int32_t length; /* tokens, [CLS] and [SEP] included */
    int32_t first;  /* tokens of the first text, its [SEP] included: the others have type 1 */
    int64_t label;  /* sequences and pairs */
} sample;

typedef struct labelled {
    choir_dataset base;
    int64_t context;
    int64_t cls, sep, pad; /* ids */
    sample *samples;
    int64_t count, room;
    int64_t *ids, *targets; /* targets: NULL unless words have classes */
    int64_t used, token_room;
    choir__labels labels;
} labelled;

/* --- columns --- */

static const char *const texts[] = {"text", "sentence", "sentence1", "premise", NULL};
static const char *const pairs[] = {"text_pair", "sentence2", "hypothesis", NULL};
static const char *const classes[] = {"label", "labels", NULL};
static const char *const words[] = {"tokens", "words", NULL};
static const char *const word_classes[] = {"tags", "ner_tags", "labels", NULL};

/* Returns the value of the column that the caller names or, without a name, of the first usual
 * one that the record has; NULL: there is none. */
static const json_t *column(const json_t *record, const char *named, const char *const *usual)
{
    if (named)
        return json_object_get(record, named);
    for (int i = 0; usual[i]; i++)
        if (json_object_get(record, usual[i]))
            return json_object_get(record, usual[i]);
    return NULL;
}

static choir_status missing(
    const choir__record_at *at, const char *named, const char *const *usual)
{
    return choir__record_wrong(at, "missing the column '%s'", named ? named : usual[0]);
}

/* --- reading --- */

typedef struct reading {
    labelled *d;
    const choir_tokenizer *tokenizer;
    const choir_labelled_opts *opts;
    int64_t entries; /* of the file, so far */
    bool training;
    bool shared;      /* the file has both splits: every tenth entry is for validation */
    bool labels_only; /* the file is the other split's: its labels are the classes */
    bool keep;        /* the present entry is a sample of this split */
} reading;

/* Adds tokens to the sample that is being made. */
static void add_tokens(labelled *d, const int64_t *ids, int64_t count, int64_t target)
{
    if (d->used + count > d->token_room) {
        d->token_room = 2 * (d->used + count) + 256;
        d->ids = choir__realloc(d->ids, (size_t)d->token_room * sizeof *d->ids);
        if (d->targets)
            d->targets = choir__realloc(d->targets, (size_t)d->token_room * sizeof *d->targets);
    }
    for (int64_t i = 0; i < count; i++, d->used++) {
        d->ids[d->used] = ids[i];
        if (d->targets)
            d->targets[d->used] = i == 0 ? target : CHOIR_IGNORED;
    }
}

static choir_status encode(const reading *r, const choir__record_at *at, const json_t *text,
    int64_t **ids, int64_t *count)
{
    size_t bytes = json_string_length(text);
    choir_status status =
        choir__tokenizer_ids(r->tokenizer, json_string_value(text), bytes, 0, ids, count);
    return status == CHOIR_OK ? CHOIR_OK : choir__record_wrong(at, "%s", choir_error_message());
}

/* Shortens the longer of two texts until both fit, as the library `tokenizers` does
 * (TruncationStrategy::LongestFirst). */
static void fit(int64_t room, int64_t *a, int64_t *b)
{
    int64_t *shorter = *a > *b ? b : a, *longer = *a > *b ? a : b;
    if (*a + *b <= room)
        return;
    *longer = choir__max(*shorter, room - *shorter);
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = *shorter + room % 2;
    }
}

static choir_status add_text(
    reading *r, const choir__record_at *at, const json_t *record, const json_t *text, sample *s)
{
    labelled *d = r->d;
    const json_t *pair = column(record, r->opts->pair, pairs);
    int64_t *a = NULL, *b = NULL, a_count = 0, b_count = 0;
    if (!json_is_string(text) || (pair && !json_is_string(pair)))
        return choir__record_wrong(at, "expected texts as strings");
    choir_status status = encode(r, at, text, &a, &a_count);
    if (status == CHOIR_OK && pair)
        status = encode(r, at, pair, &b, &b_count);
    if (status == CHOIR_OK) {
        fit(d->context - (pair ? 3 : 2), &a_count, &b_count);
        add_tokens(d, &d->cls, 1, CHOIR_IGNORED);
        add_tokens(d, a, a_count, CHOIR_IGNORED);
        add_tokens(d, &d->sep, 1, CHOIR_IGNORED);
        s->first = (int32_t)a_count + 2;
        add_tokens(d, b, b_count, CHOIR_IGNORED);
        if (pair)
            add_tokens(d, &d->sep, 1, CHOIR_IGNORED);
    }
    free(a);
    free(b);
    return status;
}

/* Adds words, each with its class; words that do not fit are left out. */
static choir_status add_words(reading *r, const choir__record_at *at, const json_t *list,
    const int64_t *labels, sample *s)
{
    labelled *d = r->d;
    choir_status status = CHOIR_OK;
    int64_t left = d->context - 2;
    add_tokens(d, &d->cls, 1, CHOIR_IGNORED);
    for (size_t i = 0; i < json_array_size(list) && left > 0 && status == CHOIR_OK; i++) {
        int64_t *ids = NULL, count = 0;
        status = encode(r, at, json_array_get(list, i), &ids, &count);
        count = choir__min(count, left);
        if (status == CHOIR_OK)
            add_tokens(d, ids, count, labels[i]);
        left -= count;
        free(ids);
    }
    add_tokens(d, &d->sep, 1, CHOIR_IGNORED);
    s->first = INT32_MAX;
    return status;
}

static choir_status read_words(
    reading *r, const choir__record_at *at, const json_t *record, sample *s)
{
    const json_t *list = column(record, r->opts->text, words);
    const json_t *tags = column(record, r->opts->label, word_classes);
    choir_status status = CHOIR_OK;
    if (!list)
        return missing(at, r->opts->text, words);
    if (!tags)
        return missing(at, r->opts->label, word_classes);
    size_t count = json_array_size(list);
    if (!json_is_array(list) || !json_is_array(tags) || count != json_array_size(tags))
        return choir__record_wrong(at,
            "expected an array of words, and one of as many classes, got %zu and %zu", count,
            json_array_size(tags));
    int64_t *labels = choir__calloc(count + 1, sizeof *labels);
    for (size_t i = 0; i < count && status == CHOIR_OK; i++)
        status = json_is_string(json_array_get(list, i))
                     ? choir__labels_add(&r->d->labels, at, json_array_get(tags, i), &labels[i])
                     : choir__record_wrong(at, "expected words as strings");
    if (status == CHOIR_OK && r->keep)
        status = add_words(r, at, list, labels, s);
    free(labels);
    return status;
}

static choir_status read_text(
    reading *r, const choir__record_at *at, const json_t *record, sample *s)
{
    const json_t *text = column(record, r->opts->text, texts);
    const json_t *label = column(record, r->opts->label, classes);
    if (!text)
        return missing(at, r->opts->text, texts);
    if (!label)
        return missing(at, r->opts->label, classes);
    choir_status status = choir__labels_add(&r->d->labels, at, label, &s->label);
    return status == CHOIR_OK && r->keep ? add_text(r, at, record, text, s) : status;
}

static choir_status read_record(void *arg, const choir__record_at *at, const json_t *record)
{
    reading *r = arg;
    labelled *d = r->d;
    bool held = r->entries++ % HOLD_OUT == HOLD_OUT - 1;
    sample s = {.at = d->used};
    r->keep = r->shared ? held != r->training : !r->labels_only;
    choir_status status =
        r->opts->words ? read_words(r, at, record, &s) : read_text(r, at, record, &s);
    if (status == CHOIR_OK && r->keep) {
        if (d->count == d->room) {
            d->room = 2 * d->room + 64;
            d->samples = choir__realloc(d->samples, (size_t)d->room * sizeof *d->samples);
        }
        s.length = (int32_t)(d->used - s.at);
        d->samples[d->count++] = s;
    }
    return status;
}

/* --- files and folders --- */

static const char *const training_names[] = {"train", NULL};
static const char *const validation_names[] = {"validation", "val", "dev", "test", NULL};

/* Returns the path of the first file FOLDER/NAME.SUFFIX that exists, which the caller frees. */
static char *find_part(const char *folder, const char *const *names)
{
    static const char *const suffixes[] = {"jsonl", "csv", "tsv"};
    for (int n = 0; names[n]; n++)
        for (size_t s = 0; s < CHOIR_COUNT(suffixes); s++) {
            char *path = choir__format("%s/%s.%s", folder, names[n], suffixes[s]);
            if (access(path, R_OK) == 0)
                return path;
            free(path);
        }
    return NULL;
}

bool choir__is_labelled(const char *path)
{
    if (choir__is_record_file(path))
        return true;
    char *train = find_part(path, training_names);
    free(train);
    return train != NULL;
}

/* The classes are those of the training split, in both splits. */
static choir_status read_parts(reading *r, const char *path)
{
    char *train = choir__is_record_file(path) ? NULL : find_part(path, training_names);
    char *held = train ? find_part(path, validation_names) : NULL;
    r->shared = !held;
    r->labels_only = held && !r->training;
    choir_status status = choir__records_read(train ? train : path, read_record, r);
    if (status == CHOIR_OK)
        status = choir__labels_settle(&r->d->labels);
    if (status == CHOIR_OK && r->labels_only) {
        r->labels_only = false;
        status = choir__records_read(held, read_record, r);
    }
    free(train);
    free(held);
    return status;
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return ((const labelled *)self)->count;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const labelled *d = (const labelled *)self;
    const sample *s = &d->samples[index];
    int64_t *ids = x, *types = ids + d->context, *mask = types + d->context, *target = y;
    for (int64_t i = 0; i < d->context; i++) {
        bool in = i < s->length;
        ids[i] = in ? d->ids[s->at + i] : d->pad;
        types[i] = in && i >= s->first;
        mask[i] = in;
        if (d->targets)
            target[i] =
                in ? choir__label_class(&d->labels, d->targets[s->at + i]) : CHOIR_IGNORED;
    }
    if (!d->targets)
        *target = choir__label_class(&d->labels, s->label);
    return CHOIR_OK;
}

static const char *class_name(const choir_dataset *self, int64_t id)
{
    return choir__label_name(&((const labelled *)self)->labels, id);
}

static void free_labelled(choir_dataset *self)
{
    labelled *d = (labelled *)self;
    choir__labels_free(&d->labels);
    free(d->samples);
    free(d->targets);
    free(d->ids);
    free(d);
}

static const choir_dataset_ops ops = {
    .length = length, .get = get, .free = free_labelled, .class_name = class_name};

static choir_status find_special(
    const choir_tokenizer *tokenizer, const char *text, int64_t *id)
{
    *id = choir_tokenizer_id(tokenizer, text);
    return *id >= 0 ? CHOIR_OK
                    : choir__error(CHOIR_ERR_ARGUMENT,
                          "expected a tokenizer with the tokens [CLS], [SEP] and [PAD], as "
                          "BERT's; this one has no %s",
                          text);
}

static choir_status settle(labelled *d, const char *path, const choir_tokenizer *tokenizer)
{
    choir_status status = find_special(tokenizer, "[CLS]", &d->cls);
    if (status == CHOIR_OK)
        status = find_special(tokenizer, "[SEP]", &d->sep);
    if (status == CHOIR_OK)
        status = find_special(tokenizer, "[PAD]", &d->pad);
    if (status == CHOIR_OK && d->context < 4)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a context of 4 tokens or more, got %lld", path,
            (long long)d->context);
    return status;
}

choir_labelled_opts choir_labelled_defaults(void)
{
    return (choir_labelled_opts){.context = 128};
}

choir_status choir_dataset_labelled(const char *path, choir_split split,
    choir_labelled_opts opts, const choir_tokenizer *tokenizer, choir_dataset **dataset)
{
    labelled *d = choir__calloc(1, sizeof *d);
    reading r = {
        .d = d, .tokenizer = tokenizer, .opts = &opts, .training = split == CHOIR_TRAIN};
    d->context = opts.context;
    if (opts.words)
        d->targets = choir__calloc(1, sizeof *d->targets);
    choir_status status = settle(d, path, tokenizer);
    if (status == CHOIR_OK)
        status = read_parts(&r, path);
    if (status == CHOIR_OK && !d->count)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: the %s split has no samples", path,
            r.training ? "training" : "validation");
    if (status != CHOIR_OK) {
        free_labelled(&d->base);
        return status;
    }
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(ROWS, d->context),
        .y_shape = opts.words ? choir_dims(d->context) : CHOIR_SCALAR,
        .classes = d->labels.classes};
    *dataset = &d->base;
    return CHOIR_OK;
}
