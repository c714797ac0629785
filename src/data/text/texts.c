/* Texts without classes: a list that grows, reading one from a file of records, and the dataset
 * whose classes a model predicts. */
#include <stdlib.h>
#include <string.h>

#include "data/labels.h"
#include "base/utf8.h"

/* --- the list --- */

static choir_text *add(choir_texts *t)
{
    CHOIR__GROW(t->text, t->count);
    t->text[t->count] = (choir_text){0};
    return &t->text[t->count++];
}

static void add_word(choir_text *t, const char *word, size_t bytes)
{
    t->words[t->word_count++] = choir__format("%.*s", (int)bytes, word);
}

/* Adds the words between spaces, fewer than the text has bytes. */
static void split(choir_text *t, const char *text)
{
    static const char spaces[] = " \t\r\n\v\f";
    t->words = choir__calloc(strlen(text) / 2 + 1, sizeof *t->words);
    for (const char *at = text + strspn(text, spaces); *at; at += strspn(at, spaces)) {
        size_t bytes = strcspn(at, spaces);
        add_word(t, at, bytes);
        at += bytes;
    }
}

void choir_texts_add(choir_texts *texts, const char *text, const char *pair, bool words)
{
    if (choir__lacks(texts, __func__, "texts") || choir__lacks(text, __func__, "text"))
        return;
    choir_text *t = add(texts);
    if (words) {
        split(t, text);
        return;
    }
    t->text = choir__strdup(text);
    t->pair = pair ? choir__strdup(pair) : NULL;
}

void choir_texts_free(choir_texts *texts)
{
    if (!texts)
        return;
    for (int64_t i = 0; i < texts->count; i++) {
        choir_text *t = &texts->text[i];
        for (int64_t w = 0; w < t->word_count; w++)
            free(t->words[w]);
        free(t->words);
        free(t->text);
        free(t->pair);
    }
    free(texts->text);
    *texts = (choir_texts){0};
}

/* --- a file --- */

typedef struct reading {
    choir_texts *texts;
    const choir_labelled_opts *opts;
} reading;

static choir_status read_words(
    const reading *r, const choir__data_record_at *at, const choir__json *record)
{
    const choir__json *list = choir__column(record, r->opts->text, choir__column_words);
    choir__piece *words;
    if (!list)
        list = choir__column(record, r->opts->text, choir__column_text);
    if (!list)
        return choir__column_missing(at, r->opts->text, choir__column_words);
    if (list->type == CHOIR__JSON_STRING) {
        choir_texts_add(r->texts, list->text, NULL, true);
        return CHOIR_OK;
    }
    if (list->type != CHOIR__JSON_ARRAY)
        return choir__data_record_wrong(at, "expected an array of words, or a text");
    choir_status status = choir__column_pieces(at, list, &words);
    choir_text *t = add(r->texts);
    t->words = choir__calloc((size_t)list->count + 1, sizeof *t->words);
    for (size_t i = 0; i < list->count && status == CHOIR_OK; i++)
        add_word(t, words[i].text, words[i].bytes);
    free(words);
    return status;
}

static choir_status read_text(
    const reading *r, const choir__data_record_at *at, const choir__json *record)
{
    const choir__json *text = choir__column(record, r->opts->text, choir__column_text);
    const choir__json *pair = choir__column(record, r->opts->pair, choir__column_pair);
    if (!text)
        return choir__column_missing(at, r->opts->text, choir__column_text);
    if (text->type != CHOIR__JSON_STRING || (pair && pair->type != CHOIR__JSON_STRING))
        return choir__data_record_wrong(at, "expected texts as strings");
    choir_texts_add(r->texts, text->text, pair ? pair->text : NULL, false);
    return CHOIR_OK;
}

static choir_status read_record(
    void *arg, const choir__data_record_at *at, const choir__json *record)
{
    const reading *r = arg;
    return r->opts->words ? read_words(r, at, record) : read_text(r, at, record);
}

choir_status choir_texts_read(const char *path, choir_labelled_opts opts, choir_texts *texts)
{
    if (!path || !texts)
        return choir__missing(__func__, path ? "texts" : "path");
    reading r = {texts, &opts};
    if (!choir__is_record_file(path))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a file of records, .jsonl, .csv, .tsv or .parquet", path);
    return choir__data_records_read(path, read_record, &r);
}

/* --- the dataset --- */

typedef struct text_dataset {
    choir_dataset base;
    choir__encoded encoded;
} text_dataset;

static int64_t length(const choir_dataset *self)
{
    return ((const text_dataset *)self)->encoded.count;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const choir__encoded *e = &((const text_dataset *)self)->encoded;
    int64_t *target = y;
    choir__encoded_get(e, index, x);
    if (!e->labels)
        *target = 0;
    for (int64_t i = 0; e->labels && i < e->context; i++)
        target[i] = choir__encoded_label(e, index, i);
    return CHOIR_OK;
}

static void free_texts(choir_dataset *self)
{
    choir__encoded_free(&((text_dataset *)self)->encoded);
    free(self);
}

static const choir_dataset_ops ops = {.length = length, .get = get, .free = free_texts};

static choir__piece piece(const char *text)
{
    return (choir__piece){text, text ? strlen(text) : 0};
}

static bool is_utf8(const choir_text *t)
{
    bool good = (!t->text || choir__is_utf8(t->text, strlen(t->text))) &&
                (!t->pair || choir__is_utf8(t->pair, strlen(t->pair)));
    for (int64_t i = 0; i < t->word_count; i++)
        good = good && choir__is_utf8(t->words[i], strlen(t->words[i]));
    return good;
}

/* The label of a word is its index. */
static choir_status add_words(choir__encoded *e, const choir_text *t)
{
    size_t count = (size_t)t->word_count;
    choir__piece *words = choir__calloc(count + 1, sizeof *words);
    int64_t *labels = choir__calloc(count + 1, sizeof *labels);
    for (size_t i = 0; i < count; i++) {
        words[i] = piece(t->words[i]);
        labels[i] = (int64_t)i;
    }
    choir_status status = choir__encoded_words(e, words, count, labels);
    free(words);
    free(labels);
    return status;
}

static choir_status add_texts(choir__encoded *e, const choir_texts *texts)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < texts->count && status == CHOIR_OK; i++) {
        const choir_text *t = &texts->text[i];
        if (!is_utf8(t))
            status = choir__error(CHOIR_ERR_FORMAT, "expected UTF-8");
        else if (!e->labels && !t->text)
            status = choir__error(CHOIR_ERR_ARGUMENT, "expected a text, got words");
        else
            status = e->labels ? add_words(e, t)
                               : choir__encoded_text(e, piece(t->text), piece(t->pair), 0);
        if (status == CHOIR_OK)
            continue;
        char *message = choir__format("text %lld: %s", (long long)i, choir__message());
        choir__set_message(message);
        free(message);
    }
    return status;
}

choir_status choir_dataset_texts(const choir_texts *texts, choir_labelled_opts opts,
    const choir_tokenizer *tokenizer, choir_dataset **dataset)
{
    if (!texts || !tokenizer || !dataset)
        return choir__missing(__func__, !texts ? "texts" : tokenizer ? "dataset" : "tokenizer");
    if (texts->count < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected a text, got none");
    text_dataset *d = choir__calloc(1, sizeof *d);
    choir_status status =
        choir__encoded_init(&d->encoded, tokenizer, opts.context, opts.words, "the model");
    if (status == CHOIR_OK)
        status = add_texts(&d->encoded, texts);
    if (status != CHOIR_OK) {
        free_texts(&d->base);
        return status;
    }
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(CHOIR__ENCODED_ROWS, opts.context),
        .y_shape = opts.words ? choir_dims(opts.context) : CHOIR_SCALAR};
    *dataset = &d->base;
    return CHOIR_OK;
}
