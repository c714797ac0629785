/* Cutting a text at the matches of a regular expression, of a text, or of a class of
 * characters, as a step of a tokenizer.json says. */
#ifndef CHOIR_DATA_CUTS_H
#define CHOIR_DATA_CUTS_H

#include "data/tokenizer/regex.h"

/* The words that matches and the gaps between them become. */
typedef enum choir__cut_behavior {
    CHOIR__CUT_ISOLATED, /* words of their own */
    CHOIR__CUT_REMOVED,
    CHOIR__CUT_PREVIOUS,  /* each goes with the gap before it */
    CHOIR__CUT_NEXT,      /* each goes with the gap behind it */
    CHOIR__CUT_CONTIGUOUS /* matches without a gap between them are one word */
} choir__cut_behavior;

/* A match is one of the regular expression, or the literal text, or a character for which `is`
 * returns true. */
typedef struct choir__cuts {
    choir__regex *regex;
    char *literal;
    bool (*is)(uint32_t code);
    choir__cut_behavior behavior;
    bool invert; /* gaps count as matches, and matches as gaps */
} choir__cuts;

typedef struct choir__cut_piece {
    const char *from, *to;
    bool match;
} choir__cut_piece;

/* A walk over the words of a text. */
typedef struct choir__cut_walk {
    const choir__cuts *cuts;
    choir__regex_text text;
    const char *at;         /* the end of the pieces so far */
    const char *next;       /* a search begins here; NULL: nothing more is found */
    bool matched;           /* there was a match, which ends at `next` */
    choir__cut_piece found; /* the next match; to NULL: not yet searched for */
    choir__cut_piece held;  /* a word that may become longer; to NULL: none */
    bool after_match;       /* the last piece of the held word is a match */
    choir_status status;
} choir__cut_walk;

/* The text is UTF-8. */
choir__cut_walk choir__cut_begin(const choir__cuts *cuts, const char *text, const char *end);
/* Stores the next word, which may be empty, and returns false behind the last, or after an
 * error (walk->status). */
bool choir__cut_next(choir__cut_walk *walk, const char **from, const char **to);

void choir__cuts_free(choir__cuts *cuts);

#endif
