/* Texts: the characters and the methods of Python's str that templates use. */
#ifndef CHOIR_DATA_JINJA_TEXT_H
#define CHOIR_DATA_JINJA_TEXT_H

#include "data/jinja/value.h"

static inline bool choir__jinja_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
/* Names have letters, digits, _ and all characters beyond ASCII. */
static inline bool choir__jinja_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || choir__jinja_is_digit(c) ||
           c == '_' || (c & 0x80);
}

bool choir__jinja_is_space(uint32_t code);
/* Returns the first place of [at, end) that is no white space. */
const char *choir__jinja_skip_space(const char *at, const char *end);
/* Returns the place behind the last character of [from, at) that is no white space. */
const char *choir__jinja_back_space(const char *from, const char *at);
/* Replaces the escapes of a text between quotes. */
choir__jinja_value choir__jinja_unescape(choir__jinja_run *r, const char *text, size_t bytes);

/* The part of characters [from, to). */
choir__jinja_value choir__jinja_part(
    choir__jinja_run *r, choir__jinja_text *text, int64_t from, int64_t to);
typedef enum choir__jinja_side {
    CHOIR__JINJA_LEFT = 1,
    CHOIR__JINJA_RIGHT = 2,
    CHOIR__JINJA_BOTH = 3
} choir__jinja_side;
/* Strips white space, or the characters of `set`, which may be NULL. */
choir__jinja_value choir__jinja_strip(choir__jinja_run *r, choir__jinja_text *text,
    const choir__jinja_text *set, choir__jinja_side side);
/* Splits at white space, or at `by`, at most `most` times; most < 0: always. right: from the
 * right. */
choir__jinja_value choir__jinja_split(choir__jinja_run *r, choir__jinja_text *text,
    const choir__jinja_text *by, int64_t most, bool right);
choir__jinja_value choir__jinja_split_lines(
    choir__jinja_run *r, choir__jinja_text *t, bool keep);
choir__jinja_value choir__jinja_replace(choir__jinja_run *r, choir__jinja_text *text,
    const choir__jinja_text *old, const choir__jinja_text *by, int64_t most);
/* Returns the first or last place of `part` in [from, to), or NULL. */
const char *choir__jinja_find(choir__jinja_run *r, const choir__jinja_text *part,
    const char *from, const char *to, bool last);

typedef enum choir__jinja_case {
    CHOIR__JINJA_LOWER,
    CHOIR__JINJA_UPPER,
    CHOIR__JINJA_SWAP,
    CHOIR__JINJA_CAPITAL, /* the first character is in upper case, the others in lower */
    CHOIR__JINJA_TITLE, /* the same for each word, which begins behind a character without case
                         */
    CHOIR__JINJA_WORDS  /* Jinja's filter title: words behind blanks, - ( { [ < */
} choir__jinja_case;
choir__jinja_value choir__jinja_cased(
    choir__jinja_run *r, const choir__jinja_text *text, choir__jinja_case how);
bool choir__jinja_is_lower(const choir__jinja_text *text);
bool choir__jinja_is_upper(const choir__jinja_text *text);

#endif
