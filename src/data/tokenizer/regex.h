/* Regular expressions of pre-tokenizers. Oniguruma finds the matches, as it does in Hugging
 * Face's tokenizers; the library is opened for the first expression. An expression may be used
 * by one thread at a time. */
#ifndef CHOIR_DATA_REGEX_H
#define CHOIR_DATA_REGEX_H

#include "base/base.h"

typedef struct choir__regex choir__regex;

/* A text that is searched, which is UTF-8. steps: how much searches in it may still cost. */
typedef struct choir__regex_text {
    const char *begin, *end;
    int64_t steps;
} choir__regex_text;

/* name: the file's, for messages. Errors: format (not a regular expression, with Oniguruma's
 * reason); unsupported (no Oniguruma). */
choir_status choir__regex_new(const char *name, const char *pattern, choir__regex **regex);
void choir__regex_free(choir__regex *regex);

/* Gives a text its steps: a number for each byte. */
choir__regex_text choir__regex_text_of(const char *begin, const char *end);

/* Finds the first match that begins at `at` or behind it, and may be empty. Without a match,
 * *from is NULL. Error: range (the search takes too many steps). */
choir_status choir__regex_search(choir__regex *regex, choir__regex_text *text, const char *at,
    const char **from, const char **to);

/* Returns the version of Oniguruma, or NULL without it. */
const char *choir__regex_version(void);

#endif
