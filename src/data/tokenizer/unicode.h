/* The properties of Unicode that tokenizers need: classes, lower case, accents, clusters. */
#ifndef CHOIR_DATA_UNICODE_H
#define CHOIR_DATA_UNICODE_H

#include "base/utf8.h"

/* The class of a character, for splitting: letters \p{L}, numbers \p{N}, white space \s. A byte
 * that is not UTF-8 has class OTHER. */
typedef enum choir__class {
    CHOIR__OTHER,
    CHOIR__LETTER,
    CHOIR__NUMBER,
    CHOIR__SPACE
} choir__class;

choir__class choir__unicode_class(uint32_t code);

/* The general category of a character, as the number of its bit; and the bits of \p{Lu}, or of
 * all categories that \p{L} means; 0: no such name. */
int choir__unicode_category(uint32_t code);
uint32_t choir__unicode_categories(const char *name);
/* Returns the number of ranges of characters whose category is in the mask. Unless it is NULL,
 * ranges gets their first and last characters, by rising numbers. */
size_t choir__unicode_ranges(uint32_t mask, uint32_t *ranges);
bool choir__unicode_punctuation(uint32_t code); /* \p{P}, and ASCII's symbols */
bool choir__unicode_control(uint32_t code); /* \p{Cc}, \p{Cf}, \p{Co}; not tab and line ends */
bool choir__unicode_chinese(uint32_t code); /* ideographs, BERT's ranges */
/* The canonical combining class, of characters that choir__unicode_bare keeps; else 0. */
int choir__unicode_combining(uint32_t code);

/* Return the number of characters written, at most four (0: none remains). */
int choir__unicode_lower(uint32_t code, uint32_t out[4]);
int choir__unicode_bare(uint32_t code, uint32_t out[4]); /* decomposed (NFD), without marks */

/* Returns the number of characters (1 to 4) of the full canonical decomposition (NFD). */
int choir__unicode_decomposed(uint32_t code, uint32_t out[4]);
/* The canonical combining class; 0: a starter. */
int choir__unicode_mark_class(uint32_t code);
/* The character that canonical composition makes of both, or 0. */
uint32_t choir__unicode_joined(uint32_t first, uint32_t second);

/* Returns the length of the first grapheme cluster of [text, end), which is not empty: a
 * character with its marks (UAX #29, extended clusters). */
size_t choir__unicode_cluster(const char *text, const char *end);

#endif
