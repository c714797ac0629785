/* A text that grows. */
#ifndef CHOIR_RECORD_TEXT_H
#define CHOIR_RECORD_TEXT_H

#include <jansson.h>

#include "base/base.h"
#include "base/number.h"

typedef struct choir__text {
    char *bytes; /* ends with '\0'; NULL: nothing was added yet */
    size_t used, room;
} choir__text;

/* Empties the text; its memory stays. */
void choir__text_clear(choir__text *t);
void choir__text_add(choir__text *t, const char *bytes, size_t count);
void choir__text_put(choir__text *t, const char *text);
/* Removes the first `count` bytes. */
void choir__text_drop(choir__text *t, size_t count);
/* Adds a string of JSON with its quotation marks. Bytes that are no UTF-8 become U+FFFD. */
void choir__text_json(choir__text *t, const char *text);
/* Returns such a string as a new value. */
json_t *choir__json_string(const char *text);
/* Returns a value as a text without quotation marks: a parameter, for people. The caller frees
 * it. */
char *choir__json_plain(const json_t *value);
void choir__text_free(choir__text *t);

/* Adds x as JSON, in which numbers are finite: null otherwise. */
void choir__text_number(choir__text *t, double x);

#endif
