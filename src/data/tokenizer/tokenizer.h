/* What the kinds of tokenizers share: the object, a vocabulary, a growing list of ids.
 *
 * A tokenizer is a struct whose first member is choir_tokenizer. It is read from a file (or
 * made), never changed, and keeps the file's own text, which is what saving writes: nothing is
 * lost on the way from a published tokenizer through a checkpoint and back. */
#ifndef CHOIR_DATA_TOKENIZER_H
#define CHOIR_DATA_TOKENIZER_H

#include <jansson.h>
#include "data/dataset.h"
#include "data/tokenizer/utf8.h"

/* --- a list of ids --- */

typedef struct choir__ids {
    int32_t *id;
    size_t count, room;
} choir__ids;

void choir__ids_add(choir__ids *ids, int32_t id);
void choir__ids_add_all(choir__ids *ids, const int32_t *id, size_t count);

/* A growing text. */
typedef struct choir__tokenizer_buffer {
    char *data;
    size_t bytes, room;
} choir__tokenizer_buffer;

void choir__tokenizer_buffer_add(choir__tokenizer_buffer *b, const char *text, size_t bytes);
void choir__tokenizer_buffer_add_code(choir__tokenizer_buffer *b, uint32_t code);

/* --- vocabulary: texts by id, ids by text --- */

enum { CHOIR__MOST_TOKENS = 1 << 24, CHOIR__LONGEST_TOKEN = 1 << 12 };

typedef struct choir__vocab {
    int64_t size;
    choir__tokenizer_buffer texts; /* each with a '\0' behind */
    size_t *at;                    /* (size) offset in texts, + 1; 0: there is no such id */
    uint32_t *length;              /* (size) */
    uint32_t *slot;                /* (slots) id + 1, by hash; 0: empty */
    size_t slots;                  /* a power of two */
} choir__vocab;

void choir__vocab_init(choir__vocab *v, int64_t size);
void choir__vocab_free(choir__vocab *v);
/* Gives the id its text; false: it has one already. */
bool choir__vocab_set(choir__vocab *v, int64_t id, const char *text, size_t bytes);
const char *choir__vocab_text(const choir__vocab *v, int64_t id, size_t *bytes);
/* Makes the text of id findable; returns the id that has this text already, or -1. */
int64_t choir__vocab_index(choir__vocab *v, int64_t id);
int64_t choir__vocab_find(const choir__vocab *v, const char *text, size_t bytes);

/* Like choir__vocab_find, for callers that extend the text's hash (base/hash.h) as the text
 * grows. */
int64_t choir__vocab_find_hashed(
    const choir__vocab *v, uint64_t hash, const char *text, size_t bytes);

/* --- tokenizers --- */

typedef enum choir__tokenizer_place { /* of a piece of text */
    CHOIR__BEGINNING,                 /* of the whole */
    CHOIR__BEHIND_ADDED,
    CHOIR__CONTINUED /* cut off from what came before by the caller, between two tokens */
} choir__tokenizer_place;

typedef struct choir__tokenizer_ops {
    const char *kind;
    int ids_per_byte; /* at most so many, and as many more for a text's beginning */
    bool any_bytes;   /* also of what is not UTF-8 */
    /* Appends the ids of [text, end), a piece between special tokens. Returns NULL, or where a
     * character without a token stands. */
    const char *(*encode)(const choir_tokenizer *self, const char *text, const char *end,
        choir__tokenizer_place place, choir__ids *ids);
    char *(*to_json)(const choir_tokenizer *self); /* NULL: the source is written */
    void (*free)(choir_tokenizer *self);           /* what the kind added; may be NULL */
} choir__tokenizer_ops;

typedef struct choir__added { /* a token found in the text before all else */
    const char *text;         /* lies in the vocabulary's texts */
    uint32_t bytes;
    int32_t id;
    bool strip_left, strip_right; /* white space beside it belongs to it */
} choir__added;

struct choir_tokenizer {
    const choir__tokenizer_ops *ops;
    int64_t size;
    choir__vocab decoded; /* (size) what each id stands for in a text */
    char *source;         /* JSON, as saved */
    size_t source_bytes;
    choir__added *added; /* (added_count), longest first */
    size_t added_count;
    bool added_start[256];
    char cut_before; /* a text may be cut before this, behind an ASCII letter or digit; 0:
                        nowhere */
};

/* Ids of a text; place: it begins here, or goes on. name is for messages, may be
 * NULL. Errors: range, format, naming the line. */
choir_status choir__tokenizer_encode(const choir_tokenizer *tokenizer, const char *name,
    const char *text, size_t bytes, choir__tokenizer_place place, choir__ids *ids);

/* inner with those of the tokens that it lacks as further special ones; inner itself, if it has
 * them all. On success the result owns inner. Errors: argument. */
choir_status choir__tokenizer_extend(
    choir_tokenizer *inner, char *const *tokens, int64_t count, choir_tokenizer **tokenizer);

/* Takes a list of added tokens. */
void choir__tokenizer_set_added(choir_tokenizer *t, choir__added *added, size_t count);

/* Reads any of the known forms from memory; name is for messages. Errors: format. */
choir_status choir__tokenizer_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer);

/* The kinds' own readers. root: the file's JSON; the caller keeps it. */
choir_status choir__chars_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__bytes_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__hf_from_json(const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__sentencepiece_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer);
choir_status choir__sentencepiece_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
/* Takes `inner` over, also when it fails. */
choir_status choir__extended_from_json(
    const char *name, json_t *root, choir_tokenizer *inner, choir_tokenizer **tokenizer);

/* A kind in the registry. Either read makes the tokenizer of the file's JSON, or read_around
 * makes it of that and of the inner tokenizer that stands in it under "base". */
typedef struct choir__tokenizer_kind {
    const char *type;
    choir_status (*read)(const char *name, json_t *root, choir_tokenizer **tokenizer);
    choir_status (*read_around)(
        const char *name, json_t *root, choir_tokenizer *inner, choir_tokenizer **tokenizer);
} choir__tokenizer_kind;

/* Finds the kind of a "type"; name is the file's, for the message. Error: format. */
choir_status choir__tokenizer_kind_find(
    const char *name, const char *type, const choir__tokenizer_kind **kind);

/* GPT-2's pair of files, already in memory. Errors: format, naming file and line or token. */
choir_status choir__gpt2_parse(const char *vocab_name, const char *vocab, size_t vocab_bytes,
    const char *merges_name, const char *merges, size_t merges_bytes,
    choir_tokenizer **tokenizer);

#endif
