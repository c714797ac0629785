/* Tokens that are searched for in the text before the model runs: the leftmost match, and among
 * several there the longest. */
#ifndef CHOIR_DATA_ADDED_H
#define CHOIR_DATA_ADDED_H

#include <stdbool.h>
#include "data/tokenizer/trie.h"

typedef struct choir__added {
    const char *text; /* the owner of the set keeps it */
    uint32_t bytes;   /* 1 or more */
    int32_t id;
    bool strip_left, strip_right; /* the token includes adjacent white space */
} choir__added;

typedef struct choir__added_set {
    choir__added *token; /* (count) */
    size_t count;
    choir__trie trie; /* trie of indices into `token` */
} choir__added_set;

/* Takes ownership of `tokens`. */
void choir__added_set_init(choir__added_set *set, choir__added *tokens, size_t count);
void choir__added_set_free(choir__added_set *set);

/* A walk through a text: pieces between tokens, and tokens. */
typedef struct choir__added_walk {
    const char *piece, *piece_end; /* the text before the token; may be empty */
    const choir__added *token;     /* the token found; NULL: the end of the text */
    const char *from, *search, *end;
} choir__added_walk;

choir__added_walk choir__added_begin(const char *text, const char *end);
/* Finds the next piece and token; returns false after the end. */
bool choir__added_next(const choir__added_set *set, choir__added_walk *w);

/* Returns whether a token has a letter or digit of ASCII before `space`, or swallows white
 * space that follows one: a text may not be cut between the two. */
bool choir__added_crosses(const choir__added_set *set, const char *space);

/* Returns whether the text before `at` ends with a token: the following text is then not a
 * continuation. */
bool choir__added_ends(const choir__added_set *set, const char *text, const char *at);

/* Returns whether a byte is a letter or digit of ASCII. */
static inline bool choir__is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Returns whether a text contains a letter or digit of ASCII followed by `space`. */
bool choir__text_crosses(const char *text, size_t bytes, const char *space);

#endif
