/* The models of a tokenizer.json or a SentencePiece file, and the preparation of texts for
 * them.
 *
 * Byte-level models (GPT-2, Llama 3) cut a text into words by a pattern and merge bytes. The
 * others change the text (choir__prep), mark spaces by U+2581, and merge or choose pieces of
 * characters. */
#ifndef CHOIR_DATA_TOKENIZER_MODELS_H
#define CHOIR_DATA_TOKENIZER_MODELS_H

#include "data/tokenizer/tokenizer.h"

#define CHOIR__SPACE_MARK "\xe2\x96\x81"

/* --- cutting a text into words --- */

typedef enum choir__tokenizer_split {
    CHOIR__SPLIT_NONE,
    CHOIR__SPLIT_GPT2,
    CHOIR__SPLIT_LLAMA3, /* numbers in groups of three digits */
    CHOIR__SPLIT_QWEN2   /* like Llama 3, but digits one by one */
} choir__tokenizer_split;

/* Returns the pattern that a file's regular expression means, or -1. */
int choir__tokenizer_split_of(const char *regex);

/* Returns the end of the word at `at` < end. */
const char *choir__tokenizer_split_next(
    choir__tokenizer_split split, const char *at, const char *end);

/* --- preparation of a text for a model of characters --- */

/* When a text receives a leading mark of a space. */
typedef enum choir__prefix {
    CHOIR__PREFIX_NONE,
    CHOIR__PREFIX_FIRST,  /* at the text's beginning, unless present */
    CHOIR__PREFIX_ALWAYS, /* also after added tokens */
    CHOIR__PREFIX_TWICE,  /* also if present, and after added tokens */
    CHOIR__PREFIX_DUMMY   /* at the text's beginning, also if present */
} choir__prefix;

typedef struct choir__prep {
    char *charsmap; /* NULL, or SentencePiece's table of replacements */
    size_t charsmap_bytes;
    bool strip_left, strip_right, collapse; /* spaces: at the ends, runs of spaces */
    bool any_space;                         /* all white space counts as ' ' */
    bool mark;                              /* ' ' becomes U+2581 */
    choir__prefix prefix;
    bool words;       /* a piece never crosses the beginning of a marked word */
    bool single_mark; /* a word has one mark, not a run of them */
} choir__prep;

/* Checks a table of replacements and takes a copy. Error: format. */
choir_status choir__prep_set_charsmap(
    choir__prep *p, const char *name, const char *blob, size_t bytes);
void choir__prep_free(choir__prep *p);

/* Appends the prepared text to out. */
void choir__prep_text(const choir__prep *p, const char *text, const char *end,
    choir__tokenizer_place place, choir__tokenizer_buffer *out);

/* Returns the end of the word at `at` < end of a prepared text. */
const char *choir__prep_word(const choir__prep *p, const char *at, const char *end);

/* Returns whether no key has U+2581 after another character, so that words end there. */
bool choir__vocab_has_words(const choir__vocab *v);

/* --- models: each takes ownership of keys and prep; its tokenizer has the size of keys --- */

/* Treatment of a character without a token. */
typedef struct choir__unknown {
    int32_t id; /* -1: an error */
    bool fuse;  /* one token for several in succession */
    /* Tokens of single bytes to fall back on, or -1. byte[0] = -1: there are none. */
    int32_t byte[256];
} choir__unknown;

/* Looks up <0x00> ... <0xFF>; returns false if one is missing. */
bool choir__unknown_bytes(choir__unknown *u, const choir__vocab *keys);
/* Appends the ids of an unknown character; returns false if it has none. */
bool choir__unknown_add(
    const choir__unknown *u, const char *at, int bytes, bool again, choir__ids *ids);

typedef struct choir__merge {
    int32_t left, right, result, rank; /* the lowest rank is merged first */
} choir__merge;

typedef struct choir__bpe_opts {
    bool byte_level;   /* keys are bytes; else characters of a prepared text */
    bool prefix_space; /* byte_level: a text begins with a space */
    bool whole_words;  /* a word that is a token needs no merges */
    choir__tokenizer_split split;
    choir__unknown unknown;
    choir__prep prep;
} choir__bpe_opts;

/* Error: format (a pair twice). */
choir_status choir__bpe_new(const char *name, choir__vocab *keys, const choir__merge *merges,
    size_t count, const choir__bpe_opts *opts, choir_tokenizer **tokenizer);

/* scores (size): one per key; keys with scores that are not finite are never chosen. Takes
 * ownership of scores. */
choir_tokenizer *choir__unigram_new(
    choir__vocab *keys, float *scores, const choir__unknown *unknown, const choir__prep *prep);

typedef struct choir__wordpiece_opts {
    int32_t unknown;
    int64_t longest; /* in characters; a longer word is unknown */
    char prefix[16]; /* of a word's continuation */
    bool clean, chinese, strip_accents, lower;
} choir__wordpiece_opts;

choir_tokenizer *choir__wordpiece_new(choir__vocab *keys, const choir__wordpiece_opts *opts);

#endif
