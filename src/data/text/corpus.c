/* Documents of a language model from files of records: choir_dataset_corpus.
 *
 * Opening reads the records and encodes the documents of its split, one after another, each
 * with the token that ends a text behind it. A sample is a window of this sequence:
 *
 *     ids      d d d d E d d E d d d d d d E d d d E        E: the end of a text
 *     window         |x x x x x x|                          y: the same, one later A token that
 * the model only reads, such as a prompt's, is no target. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/text/corpus.h"
#include "data/dataset.h"
#include "data/text/packs.h"
#include "data/text/talks.h"
#include "data/record_places.h"
#include "data/record_parts.h"

typedef struct corpus {
    choir_dataset base;
    choir__ids tokens; /* see choir__document_encode */
    bool ignores;      /* some tokens are no targets */
    int64_t context, length;
    choir__packs packs;               /* packs of documents that are kept apart */
    choir__data_record_places places; /* documents, each with its first token */
    bool shared;                      /* the file has both splits (data/dataset.h) */
    choir__talks talks;
    char *says; /* about conversations, or NULL */
} corpus;

/* --- one document --- */

typedef struct reading {
    corpus *d;
    choir_tokenizer *tokenizer; /* NULL: only the characters are collected */
    bool fixed, chats; /* the tokenizer: gets no more tokens; has the markers of chats */
    uint8_t *seen;     /* (CHOIR__CODE_POINTS) characters, without a tokenizer */
    choir__document_parts parts;
    int32_t end;         /* the token that ends a text */
    int64_t records;     /* records of the file so far */
    bool training, keep; /* keep: all records of this file are of this split */
    double held;         /* the part for validation then */
    bool apart;          /* documents do not see one another */
} reading;

static void note_characters(reading *r)
{
    const char *at = r->parts.text.bytes, *end = at + r->parts.text.used;
    uint32_t code;
    for (int n; at < end && (n = choir__utf8_decode(at, end, &code)); at += n)
        r->seen[code] = 1;
}

/* Returns whether the tokens of a chat, from `first` on, teach that an answer ends: a token
 * that ends a turn or a text is learned. */
static bool teaches_end(const reading *r, size_t first)
{
    const choir__ids *ids = &r->d->tokens;
    bool learned = false;
    for (size_t i = first; i < ids->count && !learned; i++)
        learned = ids->id[i] >= 0 && (ids->id[i] == r->parts.turn_end || ids->id[i] == r->end);
    return learned;
}

static choir_status encode(
    reading *r, const choir__data_record_at *at, const choir__json *record)
{
    corpus *d = r->d;
    size_t first = d->tokens.count;
    choir_status status =
        choir__document_encode(at, record, r->tokenizer, r->end, &r->parts, &d->tokens);
    for (size_t i = first; i < d->tokens.count && !d->ignores; i++)
        d->ignores = d->tokens.id[i] < 0;
    if (status == CHOIR_OK)
        choir__data_record_places_add(&d->places, at, (int64_t)first);
    if (status == CHOIR_OK)
        choir__talks_count(&d->talks, at, &r->parts, (int64_t)(d->tokens.count - first),
            d->context + 1, teaches_end(r, first));
    if (status == CHOIR_OK && r->apart)
        choir__packs_add(&d->packs, (int64_t)first, (int64_t)(d->tokens.count - 1 - first));
    return status;
}

static choir_status read_record(
    void *arg, const choir__data_record_at *at, const choir__json *record)
{
    reading *r = arg;
    bool held = choir__is_held(r->held, r->records++);
    if (r->tokenizer) {
        choir_status status =
            choir__settle_chat(at, record, r->fixed, &r->tokenizer, &r->chats, &r->parts);
        bool own = r->d->shared ? held != r->training : r->keep;
        return status == CHOIR_OK && own ? encode(r, at, record) : status;
    }
    choir_status status = choir__document_parts_of(at, record, &r->parts);
    if (status == CHOIR_OK)
        note_characters(r);
    return status;
}

/* --- the files --- */

/* Reads the files of both splits, or, with a tokenizer, those that this split needs. */
static choir_status read_files(reading *r, const char *path)
{
    choir__data_record_parts parts;
    choir_status status = choir__data_record_parts_find(path, &parts);
    r->d->shared = !parts.held.count;
    r->records = 0;
    r->keep = r->training;
    if (status == CHOIR_OK && (!r->tokenizer || r->d->shared || r->training))
        status = choir__data_record_parts_read(&parts.train, read_record, r);
    r->keep = !r->training;
    if (status == CHOIR_OK && (!r->tokenizer || !r->training))
        status = choir__data_record_parts_read(&parts.held, read_record, r);
    choir__data_record_parts_free(&parts);
    return status;
}

/* Makes the tokenizer of all characters of both splits. */
static choir_status characters(reading *r, const char *path, choir_tokenizer **tokenizer)
{
    choir__text_buffer text = {0};
    r->seen = choir__calloc(CHOIR__CODE_POINTS, 1);
    choir_status status = read_files(r, path);
    for (uint32_t code = 0; code < CHOIR__CODE_POINTS; code++)
        if (r->seen[code])
            choir__text_buffer_add_code(&text, code);
    free(r->seen);
    if (status == CHOIR_OK && !text.used)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: its documents are empty", path);
    if (status == CHOIR_OK)
        status = choir_tokenizer_chars(text.bytes, text.used, tokenizer);
    free(text.bytes);
    return status;
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return ((const corpus *)self)->length;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const corpus *d = (const corpus *)self;
    const int32_t *from = d->tokens.id + index * d->context;
    int64_t *in = x, *out = y;
    for (int64_t t = 0; t < d->context; t++) {
        in[t] = choir__document_token(from[t]);
        out[t] = from[t + 1] < 0 ? CHOIR_IGNORED : from[t + 1];
    }
    return CHOIR_OK;
}

/* x (3, context): ids, documents, positions. Padding is one more document, whose tokens are not
 * learned. */
static choir_status get_apart(choir_dataset *self, int64_t index, void *x, void *y)
{
    const corpus *d = (const corpus *)self;
    int64_t *ids = x, *documents = ids + d->context, *positions = documents + d->context;
    int64_t *out = y, t = 0, number = 0;
    choir__packed_piece piece;
    for (; choir__packs_at(&d->packs, index, number, &piece); number++)
        for (int64_t i = 0; i < piece.count; i++, t++) {
            const int64_t at = piece.at + i;
            ids[t] = choir__document_token(d->tokens.id[at]);
            documents[t] = number;
            positions[t] = i;
            out[t] = d->tokens.id[at + 1] < 0 ? CHOIR_IGNORED : d->tokens.id[at + 1];
        }
    for (; t < d->context; t++) {
        ids[t] = positions[t] = 0;
        documents[t] = number;
        out[t] = CHOIR_IGNORED;
    }
    return CHOIR_OK;
}

static bool ignores(const choir_dataset *self)
{
    return ((const corpus *)self)->ignores;
}

static const char *says(const choir_dataset *self)
{
    return ((const corpus *)self)->says;
}

/* Fills in the place of the tokens [at, end) that are of one document. */
static void place_tokens(
    const corpus *d, int64_t record, int64_t at, int64_t end, choir_sample_place *place)
{
    choir__data_record_places_fill(&d->places, record, place);
    place->first = at - d->places.of[record].first;
    place->count = end - at;
}

/* A window has a part for each document that it crosses. */
static bool place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    const corpus *d = (const corpus *)self;
    int64_t at = index * d->context, end = at + d->context,
            record = choir__data_record_places_find(&d->places, at) + part;
    if (record >= d->places.count || (part && d->places.of[record].first >= end))
        return false;
    int64_t next = record + 1 < d->places.count ? d->places.of[record + 1].first : end;
    place_tokens(
        d, record, choir__max(at, d->places.of[record].first), choir__min(next, end), of);
    return true;
}

static bool place_apart(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    const corpus *d = (const corpus *)self;
    choir__packed_piece piece;
    if (!choir__packs_at(&d->packs, index, part, &piece))
        return false;
    place_tokens(d, choir__data_record_places_find(&d->places, piece.at), piece.at,
        piece.at + piece.count, of);
    return true;
}

static void free_corpus(choir_dataset *self)
{
    corpus *d = (corpus *)self;
    free(d->tokens.id);
    choir__packs_free(&d->packs);
    choir__data_record_places_free(&d->places);
    choir__talks_free(&d->talks);
    free(d->says);
    free(d);
}

static const choir_dataset_ops ops = {.length = length,
    .get = get,
    .free = free_corpus,
    .ignores = ignores,
    .place = place,
    .says = says};
static const choir_dataset_ops ops_apart = {.length = length,
    .get = get_apart,
    .free = free_corpus,
    .ignores = ignores,
    .place = place_apart,
    .says = says};

static choir_status read_all(corpus *d, const char *path, choir_corpus_opts opts, bool training,
    choir_tokenizer **tokenizer)
{
    reading r = {.d = d, .training = training, .held = opts.held_out, .apart = opts.apart};
    choir_tokenizer *used = *tokenizer, *made = NULL;
    choir_status status = choir__columns_parse(opts.columns, &r.parts.columns);
    if (status == CHOIR_OK && !used)
        status = characters(&r, path, &made);
    used = used ? used : made;
    r.fixed = opts.fixed_tokens && !made;
    if (status == CHOIR_OK)
        status = choir__settle_end_of_text(path, r.fixed, &used);
    if (status == CHOIR_OK) {
        r.tokenizer = used; /* owns the other */
        made = NULL;
        r.end = (int32_t)choir__end_of_text(used);
        status = read_files(&r, path);
        *tokenizer = r.tokenizer;
    }
    choir_tokenizer_free(made);
    choir__document_parts_free(&r.parts);
    return status;
}

/* Returns the tokens of the other split, which is read for an error's message. */
static int64_t other_tokens(
    const char *path, bool training, choir_corpus_opts opts, choir_tokenizer *tokenizer)
{
    choir_dataset *other;
    if (opts.context == 1)
        return 0;
    opts.context = 1;
    if (choir_dataset_corpus(path, training ? CHOIR_VALIDATION : CHOIR_TRAIN, opts, &tokenizer,
            &other) != CHOIR_OK)
        return 0;
    int64_t tokens = (int64_t)((const corpus *)other)->tokens.count;
    free_corpus(other);
    return tokens;
}

static choir_status cut(corpus *d, const char *path, bool training, choir_corpus_opts opts,
    choir_tokenizer *tokenizer)
{
    int64_t tokens = (int64_t)d->tokens.count, other = tokens;
    d->length = (tokens - 1) / d->context;
    if (tokens <= d->context && opts.held_out < 1)
        other = other_tokens(path, training, opts, tokenizer);
    return choir__check_split(
        path, training ? "training" : "validation", tokens, other, d->context);
}

static choir_status pack(corpus *d, const char *path)
{
    d->length = choir__packs_end(&d->packs);
    d->ignores = true; /* padding */
    return d->length ? CHOIR_OK
                     : choir__error(CHOIR_ERR_FORMAT, "%s: the split has no documents", path);
}

choir_corpus_opts choir_corpus_defaults(void)
{
    return (choir_corpus_opts){.context = 1024};
}

choir_status choir_dataset_corpus(const char *path, choir_split split, choir_corpus_opts opts,
    choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    if (!path || !tokenizer || !dataset)
        return choir__missing(__func__, !path ? "path" : tokenizer ? "dataset" : "tokenizer");
    if (opts.context < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a context of 1 token or more, got %lld; begin with "
            "choir_corpus_defaults()",
            path, (long long)opts.context);
    if (choir__holdout_check(path, opts.held_out) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    corpus *d = choir__calloc(1, sizeof *d);
    bool training = split == CHOIR_TRAIN;
    d->context = d->packs.context = opts.context;
    choir_status status = read_all(d, path, opts, training, tokenizer);
    if (status == CHOIR_OK)
        status = choir__talks_check(
            &d->talks, d->places.count, training ? "training" : "validation");
    if (status == CHOIR_OK)
        status = opts.apart ? pack(d, path) : cut(d, path, training, opts, *tokenizer);
    if (status != CHOIR_OK) {
        free_corpus(&d->base);
        return status;
    }
    d->says = choir__talks_say(&d->talks, d->context);
    d->base = (choir_dataset){.ops = opts.apart ? &ops_apart : &ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = opts.apart ? choir_dims(3, opts.context) : choir_dims(opts.context),
        .y_shape = choir_dims(opts.context),
        .classes = choir_tokenizer_size(*tokenizer),
        .held_out = d->shared && !training};
    *dataset = &d->base;
    return CHOIR_OK;
}
