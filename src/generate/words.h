/* The text of tokens while it is written. */
#ifndef CHOIR_GENERATE_WORDS_H
#define CHOIR_GENERATE_WORDS_H

#include <choir/generate.h>

typedef struct choir__words {
    const char *const *stop; /* (stops) */
    int64_t stops;
    char *raw;           /* the tokens' bytes, perhaps with a part of a character at the end */
    size_t bytes, given; /* raw's length; bytes of it that have become text */
    char *text;          /* UTF-8, '\0'-terminated */
    size_t text_bytes;
    size_t shown; /* bytes that choir__words_next has returned */
} choir__words;

/* Appends what a token spells. Returns true if a stop string is there: the text ends before it.
 */
bool choir__words_add(choir__words *w, const char *spelled, size_t bytes);

/* Ends the text: nothing is held back any more. */
void choir__words_end(choir__words *w);

/* Returns text that is new and certain, and its length; 0: none. */
size_t choir__words_next(choir__words *w, const char **text);

#endif
