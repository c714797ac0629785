/* UTF-8, and the properties of Unicode that tokenizers need: classes, lower case, accents,
 * clusters. */
#ifndef CHOIR_DATA_UTF8_H
#define CHOIR_DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHOIR__CODE_POINTS = 0x110000, CHOIR__LONGEST_UTF8 = 4 };

/* Returns the length of the character at text < end; 0: it is not UTF-8. Which bytes may come
 * second is in table 3-7 of the Unicode Standard. */
static inline int choir__utf8_length(const char *text, const char *end)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    if (end - text < 2 || s[0] < 0xC2)
        return 0;
    if (s[0] < 0xE0)
        return (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if (end - text < 3)
        return 0;
    bool second = (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80;
    if (s[0] < 0xF0) /* neither overlong nor half of a surrogate pair */
        return second && (s[0] != 0xE0 || s[1] >= 0xA0) && (s[0] != 0xED || s[1] < 0xA0) ? 3
                                                                                         : 0;
    if (end - text < 4 || s[0] > 0xF4)
        return 0;
    second = second && (s[3] & 0xC0) == 0x80;
    return second && (s[0] != 0xF0 || s[1] >= 0x90) && (s[0] != 0xF4 || s[1] < 0x90) ? 4 : 0;
}

/* Returns the length of the character at text < end, and its code point; 0 if it is not
 * UTF-8. */
int choir__utf8_decode(const char *text, const char *end, uint32_t *code);

/* Writes the character and a '\0'; returns its length without the '\0'. */
int choir__utf8_encode(uint32_t code, char out[CHOIR__LONGEST_UTF8 + 1]);

bool choir__is_utf8(const char *text, size_t bytes);

/* Writes "'x' (U+0078)", or only the number of a control character. */
const char *choir__utf8_describe(uint32_t code, char out[32]);

/* The class of a character, for splitting: letters \p{L}, numbers \p{N}, white space \s. A byte
 * that is not UTF-8 has class OTHER. */
typedef enum choir__class {
    CHOIR__OTHER,
    CHOIR__LETTER,
    CHOIR__NUMBER,
    CHOIR__SPACE
} choir__class;

choir__class choir__unicode_class(uint32_t code);
bool choir__unicode_punctuation(uint32_t code); /* \p{P}, and ASCII's symbols */
bool choir__unicode_control(uint32_t code); /* \p{Cc}, \p{Cf}, \p{Co}; not tab and line ends */
bool choir__unicode_chinese(uint32_t code); /* ideographs, BERT's ranges */
/* The canonical combining class, of characters that choir__unicode_bare keeps; else 0. */
int choir__unicode_combining(uint32_t code);

/* Return the number of characters written, at most four (0: none remains). */
int choir__unicode_lower(uint32_t code, uint32_t out[4]);
int choir__unicode_bare(uint32_t code, uint32_t out[4]); /* decomposed (NFD), without marks */

/* Returns the length of the first grapheme cluster of [text, end), which is not empty: a
 * character with its marks (UAX #29, extended clusters). */
size_t choir__unicode_cluster(const char *text, const char *end);

#endif
