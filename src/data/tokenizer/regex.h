/* Regular expressions of pre-tokenizers: the part of Oniguruma's language that published files
 * use, with the matches that Hugging Face's tokenizers find.
 *
 *     a|b                  alternatives, tried in order        (?:a) (?i:a)   groups; a? of one
 *     x x? x* x+ x{2,3}    one character, repeated; x*+ never gives back, x*? takes few
 *     [^\s\p{Lu}a-z]       classes                             (?=a) (?!a)    what follows
 *     \p{L} \P{N} \s \S \d \D . $ \r \n \t \x41 \x{41} \u0041
 *
 * A byte that is not UTF-8 counts as U+FFFD. Repeats of groups, references and the like are
 * refused, so that a match needs no memory. */
#ifndef CHOIR_DATA_REGEX_H
#define CHOIR_DATA_REGEX_H

#include "base/base.h"

typedef struct choir__regex choir__regex;

/* Error: format (no expression that is known here, quoting the part; or one that matches an
 * empty text). name: the file's, for messages. */
choir_status choir__regex_new(const char *name, const char *pattern, choir__regex **regex);
void choir__regex_free(choir__regex *regex);

/* Returns the end of the match that begins at `at`, or NULL. *steps: the steps that may still
 * be taken; at 0 nothing matches. */
const char *choir__regex_match(
    const choir__regex *regex, const char *at, const char *end, uint64_t *steps);

#endif
