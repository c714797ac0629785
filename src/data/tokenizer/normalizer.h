/* The "normalizer" of a tokenizer.json: a list of steps; each step turns a text into another
 * text. */
#ifndef CHOIR_DATA_NORMALIZER_H
#define CHOIR_DATA_NORMALIZER_H

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/tokenizer.h"

enum { CHOIR__MOST_STEPS = 8 };

typedef enum choir__normal_kind {
    CHOIR__NORMAL_CHARSMAP,
    CHOIR__NORMAL_STRIP,    /* white space at the ends */
    CHOIR__NORMAL_REPLACE,  /* pattern by content */
    CHOIR__NORMAL_COLLAPSE, /* two spaces or more by content */
    CHOIR__NORMAL_PREPEND,  /* content, to a text that is not empty */
    CHOIR__NORMAL_BERT
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
    choir__tokenizer_buffer between[2]; /* texts between steps. They are not shared. */
} choir__normalizer;

void choir__normalizer_free(choir__normalizer *n);

/* Stores the text in out. continued: it follows another text without a gap. *whole, which may
 * be NULL, becomes false if what the text began with is gone. */
void choir__normalize(choir__normalizer *n, const char *text, const char *end, bool continued,
    choir__tokenizer_buffer *out, bool *whole);

/* Returns the position in the text of the character that becomes the byte `offset` of its
 * normal form. */
const char *choir__normalize_back(
    choir__normalizer *n, const char *text, const char *end, bool continued, size_t offset);

#endif
