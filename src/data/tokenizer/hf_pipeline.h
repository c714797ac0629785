/* A tokenizer.json: its normalizer, added tokens that are searched for in the normalized text,
 * its pre-tokenizer, which cuts the text into words, and its model. */
#ifndef CHOIR_DATA_HF_PIPELINE_H
#define CHOIR_DATA_HF_PIPELINE_H

#include "data/tokenizer/added.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/cuts.h"
#include "data/tokenizer/models.h"
#include "data/tokenizer/tokenizer.h"

/* The "normalizer" of a tokenizer.json: a list of steps; each step turns a text into another
 * text. */

enum { CHOIR__MOST_STEPS = 8 };

typedef enum choir__normal_kind {
    CHOIR__NORMAL_CHARSMAP,
    CHOIR__NORMAL_STRIP,    /* white space at the ends */
    CHOIR__NORMAL_REPLACE,  /* pattern by content */
    CHOIR__NORMAL_COLLAPSE, /* two spaces or more by content */
    CHOIR__NORMAL_PREPEND,  /* puts content before a text that is not empty */
    CHOIR__NORMAL_BERT,
    CHOIR__NORMAL_NFC
} choir__normal_kind;

typedef struct choir__normal_step {
    choir__normal_kind kind;
    choir__charsmap charsmap;
    char *pattern, *content;
    bool left, right;                          /* strip */
    bool clean, chinese, strip_accents, lower; /* bert */
} choir__normal_step;

typedef struct choir__normalizer {
    choir__normal_step step[CHOIR__MOST_STEPS];
    int count;
    double growth; /* a bound on the bytes that all steps make of each byte; 0: no step */
    choir__text_buffer between[2]; /* texts between steps. They are not shared. */
} choir__normalizer;

void choir__normalizer_free(choir__normalizer *n);

#define CHOIR__UNKNOWN_CHARACTER "\xef\xbf\xbd" /* U+FFFD */

/* Copies a text, with U+FFFD in place of each byte that is not UTF-8. */
void choir__copy_valid(const char *text, const char *end, choir__text_buffer *out);

/* Appends the canonical composition of a text (nfc.c). */
void choir__nfc(const char *text, const char *end, choir__text_buffer *out);

/* Stores the text in out. continued: it follows another text without a gap. *whole, which may
 * be NULL, becomes false if what the text began with is gone. */
void choir__normalize(choir__normalizer *n, const char *text, const char *end, bool continued,
    choir__text_buffer *out, bool *whole);

/* Returns the position in the text of the character that becomes the byte `offset` of its
 * normal form. */
const char *choir__normalize_back(
    choir__normalizer *n, const char *text, const char *end, bool continued, size_t offset);

/* Cutting a text into words as byte-level models do. */

typedef enum choir__tokenizer_split {
    CHOIR__SPLIT_NONE,
    CHOIR__SPLIT_GPT2,
    CHOIR__SPLIT_LLAMA3, /* numbers in groups of three digits */
    CHOIR__SPLIT_QWEN2,  /* like Llama 3, but digits one by one */
    CHOIR__SPLIT_DIGIT,  /* each number alone, and what stands between them */
    CHOIR__SPLIT_DIGITS, /* likewise, runs of numbers */
    CHOIR__SPLIT_SPACES  /* cuts behind each space */
} choir__tokenizer_split;

/* Returns the pattern that a file's regular expression means, or -1. */
int choir__tokenizer_split_of(const char *regex);
/* Returns whether a published expression matches every text, and ends each match before white
 * space behind a letter or digit. */
bool choir__tokenizer_split_is_known(const char *regex);

/* Returns the end of the word at `at` < end. */
const char *choir__tokenizer_split_next(
    choir__tokenizer_split split, const char *at, const char *end);

typedef enum choir__word_kind {
    CHOIR__WORDS_PATTERN,   /* one of the patterns above */
    CHOIR__WORDS_CUTS,      /* the matches of any regular expression, or of a text */
    CHOIR__WORDS_BYTES,     /* a pattern, or whole; with a space before */
    CHOIR__WORDS_METASPACE, /* ' ' becomes U+2581 */
    CHOIR__WORDS_SPACE,     /* splits at white space, which is dropped */
    CHOIR__WORDS_BERT       /* likewise, and punctuation stands alone */
} choir__word_kind;

typedef enum choir__prefix {
    CHOIR__PREFIX_NONE,
    CHOIR__PREFIX_FIRST, /* at the beginning of the whole text */
    CHOIR__PREFIX_ALWAYS
} choir__prefix;

typedef struct choir__word_step {
    choir__word_kind kind;
    choir__tokenizer_split split; /* patterns and bytes */
    choir__cuts cuts;
    bool ends_words;         /* cuts: a word ends before white space behind a letter */
    choir__prefix prefix;    /* bytes and metaspace: a space, unless the text has one */
    bool divide;             /* metaspace: before each mark */
    choir__text_buffer text; /* the changed text. It is not shared. */
} choir__word_step;

typedef struct choir__hf_pipeline {
    choir__normalizer normalizer;
    choir__added_set added;
    choir__vocab added_texts; /* added tokens, with the texts that the set finds */
    choir__word_step step[CHOIR__MOST_STEPS];
    int count;
    choir__model *model;
    choir__text_buffer normal;
} choir__hf_pipeline;

/* Cutting a text into words (hf_words.c). */
typedef struct choir__hf_work {
    choir__hf_pipeline *p;
    choir__ids *ids;
    bool part; /* the text continues another one, and the model sees both as one */
} choir__hf_work;

/* Appends the ids of a text, from the step with this number on. Returns NULL, or the position
 * in the text of a character without a token; ids->status is not CHOIR_OK after another error.
 */
const char *choir__hf_words(const choir__hf_work *w, int step, const char *text,
    const char *end, choir__tokenizer_place place);

/* Takes ownership of all of p. keys: the model's. The caller sets source, decoded and added. */
choir_tokenizer *choir__hf_pipeline_tokenizer(
    choir__hf_pipeline *p, int64_t size, char cut_before);
void choir__hf_pipeline_free(choir__hf_pipeline *p);

/* Returns whether p has a step of this kind. */
bool choir__hf_normalizes(const choir__hf_pipeline *p, choir__normal_kind kind);
bool choir__hf_cuts(const choir__hf_pipeline *p, choir__word_kind kind);

/* The text around a character that its ids may depend on, beside the keys that contain it. */
typedef enum choir__word_needs {
    CHOIR__NEEDS_NOTHING,
    CHOIR__NEEDS_RUN, /* a run of unknown characters is one token */
    CHOIR__NEEDS_WORD /* a word that is a token is not merged */
} choir__word_needs;

/* Returns the character before which a text may be cut (choir_tokenizer.cut_before). raw: the
 * tokens that are searched for before all else. */
char choir__hf_pipeline_cut(choir__hf_pipeline *p, const choir__vocab *keys,
    const choir__added_set *raw, choir__word_needs needs);

#endif
