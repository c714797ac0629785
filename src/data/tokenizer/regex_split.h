/* Cutting a text at the matches of a regular expression, as a Split step of a tokenizer.json
 * says. */
#ifndef CHOIR_DATA_REGEX_SPLIT_H
#define CHOIR_DATA_REGEX_SPLIT_H

#include "data/tokenizer/regex.h"

/* The words that matches and the gaps between them become. */
typedef enum choir__regex_behavior {
    CHOIR__REGEX_ISOLATED, /* words of their own */
    CHOIR__REGEX_REMOVED,
    CHOIR__REGEX_PREVIOUS,  /* each goes with the gap before it */
    CHOIR__REGEX_NEXT,      /* each goes with the gap behind it */
    CHOIR__REGEX_CONTIGUOUS /* matches without a gap between them are one word */
} choir__regex_behavior;

typedef struct choir__regex_split {
    choir__regex *regex;
    choir__regex_behavior behavior;
    bool invert; /* gaps count as matches, and matches as gaps */
} choir__regex_split;

typedef struct choir__regex_piece {
    const char *from, *to;
    bool match;
} choir__regex_piece;

/* A walk over the words of a text. */
typedef struct choir__regex_walk {
    const choir__regex_split *split;
    const char *at, *end;
    uint64_t steps;           /* how many a match may still take */
    choir__regex_piece found; /* the next match; to NULL: not yet searched for */
    choir__regex_piece held;  /* a word that may become longer; to NULL: none */
    bool after_match;         /* the last piece of the held word is a match */
} choir__regex_walk;

choir__regex_walk choir__regex_split_begin(
    const choir__regex_split *split, const char *text, const char *end);
/* Stores the next word, and returns false behind the last. */
bool choir__regex_split_next(choir__regex_walk *walk, const char **from, const char **to);

#endif
