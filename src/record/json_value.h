/* Texts as values of JSON, and values as texts. */
#ifndef CHOIR_RECORD_JSON_VALUE_H
#define CHOIR_RECORD_JSON_VALUE_H

#include <jansson.h>

/* Returns a string, in which bytes that are no UTF-8 are U+FFFD. */
json_t *choir__json_string(const char *text);
/* Returns a value as a text without quotation marks: a parameter, for people. The caller frees
 * it. */
char *choir__json_plain(const json_t *value);

#endif
