/* Shared by the kinds of tokenizers: the object, a vocabulary, a growing list of ids.
 *
 * A tokenizer is a struct whose first member is choir_tokenizer. It is read from a file (or
 * created) and never changes. It keeps the file's text, and saving writes this text, so nothing
 * is lost on the way from a published tokenizer through a checkpoint and back. */
#ifndef CHOIR_DATA_TOKENIZER_H
#define CHOIR_DATA_TOKENIZER_H

#include <choir/beside.h>
#include <jansson.h>
#include "base/text.h"
#include "data/dataset.h"
#include "data/tokenizer/added.h"
#include "data/tokenizer/unicode.h"

/* --- a list of ids --- */

typedef struct choir__ids {
    int32_t *id;
    size_t count, room;
    choir_status status; /* an error that is not about a character, and has its message */
} choir__ids;

void choir__ids_add(choir__ids *ids, int32_t id);
void choir__ids_add_all(choir__ids *ids, const int32_t *id, size_t count);

/* --- vocabulary: texts by id, ids by text --- */

enum { CHOIR__MOST_TOKENS = 1 << 24, CHOIR__LONGEST_TOKEN = 1 << 12 };

typedef struct choir__vocab {
    int64_t size;
    choir__text_buffer texts; /* each followed by '\0' */
    size_t *at;               /* (size) offset in texts + 1; 0: no such id */
    uint32_t *length;         /* (size) */
    uint32_t *slot;           /* (slots) id + 1, by hash; 0: empty */
    size_t slots;             /* a power of two */
    uint64_t seed;            /* seed of the hashes */
} choir__vocab;

void choir__vocab_init(choir__vocab *v, int64_t size);
void choir__vocab_free(choir__vocab *v);
/* Sets the text of an id; returns false if it has one already. */
bool choir__vocab_set(choir__vocab *v, int64_t id, const char *text, size_t bytes);
const char *choir__vocab_text(const choir__vocab *v, int64_t id, size_t *bytes);
/* Makes the text of id findable. Returns the id that has this text already, or -1. */
int64_t choir__vocab_index(choir__vocab *v, int64_t id);
int64_t choir__vocab_find(const choir__vocab *v, const char *text, size_t bytes);

/* Like choir__vocab_find, for callers that extend the text's hash (base/hash.h), from v->seed
 * on, as the text grows. */
int64_t choir__vocab_find_hashed(
    const choir__vocab *v, uint64_t hash, const char *text, size_t bytes);

/* Returns whether a key has a letter or digit of ASCII followed by `space`. */
bool choir__vocab_crosses(const choir__vocab *v, const char *space);

/* --- tokenizers --- */

/* The position of a piece of text. */
typedef enum choir__tokenizer_place {
    CHOIR__BEGINNING, /* the piece begins the whole text */
    CHOIR__INSIDE,    /* the piece follows an added token, or is a word of a text */
    /* The caller has cut the text before the piece, between two tokens. */
    CHOIR__CONTINUED
} choir__tokenizer_place;

typedef struct choir__tokenizer_ops {
    const char *kind;
    bool any_bytes; /* encodes all bytes, those that are not UTF-8 included */
    bool single;    /* each character is a token: texts of any length are encoded at once */
    /* Appends the ids of [text, end), a piece between special tokens. Returns NULL, or the
     * position of a character without a token. */
    const char *(*encode)(const choir_tokenizer *self, const char *text, const char *end,
        choir__tokenizer_place place, choir__ids *ids);
    char *(*to_json)(const choir_tokenizer *self); /* NULL: the source is written */
    void (*free)(choir_tokenizer *self);           /* frees the kind's members; may be NULL */
} choir__tokenizer_ops;

struct choir_tokenizer {
    const choir__tokenizer_ops *ops;
    bool published; /* the source is a tokenizer.json as other programs read it */
    int64_t size;
    choir__vocab decoded; /* (size) the text of each id in decoded form */
    char *source;         /* JSON, as saved */
    size_t source_bytes;
    choir__added_set added; /* searched for before anything else */
    choir_beside *beside;   /* other files of the tokenizer's folder; NULL: none */
    int64_t
        begin; /* the id + 1 of the token in front of each whole text; -1: none; 0: unknown */
    /* A text may be cut before this character if an ASCII letter or digit precedes it. 0:
     * nowhere. */
    char cut_before;
};

/* Appends the ids of a text. place: the text begins here, or continues. name is for messages
 * and may be NULL. Errors: range, format, naming the line; argument: a text of more than 2^30
 * bytes that cannot be cut. */
choir_status choir__tokenizer_encode(const choir_tokenizer *tokenizer, const char *name,
    const char *text, size_t bytes, choir__tokenizer_place place, choir__ids *ids);

/* Appends the ids of a whole text, with the tokenizer's token in front. Errors: as above. */
choir_status choir__tokenizer_encode_whole(
    const choir_tokenizer *tokenizer, const char *text, size_t bytes, choir__ids *ids);

/* Like choir_tokenizer_encode, but allocates the ids, with room for `more` behind them. The
 * caller frees *ids, which is NULL after an error. */
choir_status choir__tokenizer_ids(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, size_t more, int64_t **ids, int64_t *count);

/* Stores the text of the tokenizer's file; the caller frees *text, which is NULL after an
 * error. name is for messages. Errors: memory. */
choir_status choir__tokenizer_text(
    const choir_tokenizer *t, const char *name, char **text, size_t *bytes);

/* Extends inner by those `tokens` that it lacks, as special tokens; returns inner itself if it
 * has all. On success the result owns inner. Errors: argument. */
choir_status choir__tokenizer_extend(
    choir_tokenizer *inner, char *const *tokens, int64_t count, choir_tokenizer **tokenizer);

/* Returns the last position at which a text may be cut, because no token crosses it; 0: none.
 */
size_t choir__tokenizer_last_cut(const choir_tokenizer *t, const char *text, size_t bytes);

/* Reads a tokenizer of any known form from memory; name is for messages. Errors: format. Tests
 * call it, too. */
choir_status choir__tokenizer_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer);

/* Readers of the kinds. root: the file's JSON; the caller keeps it. */
choir_status choir__chars_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__bytes_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__hf_from_json(const char *name, json_t *root, choir_tokenizer **tokenizer);
choir_status choir__sentencepiece_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer);
choir_status choir__sentencepiece_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer);
/* Takes ownership of `inner`, also when it fails. */
choir_status choir__extended_from_json(
    const char *name, json_t *root, choir_tokenizer *inner, choir_tokenizer **tokenizer);

/* A kind in the registry. Either `read` creates the tokenizer from the file's JSON, or
 * `read_around` creates it from the JSON and from the inner tokenizer stored under "base". */
typedef struct choir__tokenizer_kind {
    const char *type;
    choir_status (*read)(const char *name, json_t *root, choir_tokenizer **tokenizer);
    choir_status (*read_around)(
        const char *name, json_t *root, choir_tokenizer *inner, choir_tokenizer **tokenizer);
} choir__tokenizer_kind;

/* Finds the kind for a "type"; name is the file's, for the message. Error: format. */
choir_status choir__tokenizer_kind_find(
    const char *name, const char *type, const choir__tokenizer_kind **kind);

/* Reads GPT-2's pair of files from memory. Errors: format, naming file and line or token. */
choir_status choir__gpt2_parse(const char *vocab_name, const char *vocab, size_t vocab_bytes,
    const char *merges_name, const char *merges, size_t merges_bytes,
    choir_tokenizer **tokenizer);

#endif
