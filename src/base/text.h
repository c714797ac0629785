/* A text that grows, and JSON in it: the one writer of JSON texts that are not built as values.
 *
 *     choir__text_open(t, NULL, '{');             {
 *     choir__text_string(t, "event", "trial");    {"event":"trial"
 *     choir__text_value(t, "step", "%d", 3);      {"event":"trial","step":3
 *     choir__text_close(t, '}');                  {"event":"trial","step":3}
 *
 * A value comes behind a comma where another value precedes it in the same object or list. The
 * key of a list's element is NULL. */
#ifndef CHOIR_BASE_TEXT_H
#define CHOIR_BASE_TEXT_H

#include <stdio.h>

#include "base/base.h"
#include "base/number.h"

typedef struct choir__text_buffer {
    char *bytes; /* ends with '\0'; NULL: nothing was added yet */
    size_t used, room;
} choir__text_buffer;

/* Empties the text; its memory stays. */
void choir__text_buffer_clear(choir__text_buffer *t);
void choir__text_buffer_add(choir__text_buffer *t, const char *bytes, size_t count);
void choir__text_buffer_add_code(choir__text_buffer *t, uint32_t code); /* in UTF-8 */
void choir__text_buffer_put(choir__text_buffer *t, const char *text);
__attribute__((format(printf, 2, 3))) void choir__text_format(
    choir__text_buffer *t, const char *format, ...);
/* Removes the first `count` bytes. */
void choir__text_buffer_drop(choir__text_buffer *t, size_t count);
void choir__text_buffer_free(choir__text_buffer *t);

/* Begins an object or a list: bracket is '{' or '['. */
void choir__text_open(choir__text_buffer *t, const char *key, char bracket);
void choir__text_close(choir__text_buffer *t, char bracket);
/* Adds a string, or null for NULL. Bytes that are no UTF-8 become U+FFFD; characters that
 * command a terminal (choir__clean) are escaped. */
void choir__text_string(choir__text_buffer *t, const char *key, const char *text);
/* Adds x with as many digits as read back exactly, or null if it is not finite. */
void choir__text_buffer_number(choir__text_buffer *t, const char *key, double x);
/* Adds a value that printf's format spells as JSON. */
__attribute__((format(printf, 3, 4))) void choir__text_value(
    choir__text_buffer *t, const char *key, const char *format, ...);
/* Writes the text and the end of the line, and empties the text. */
void choir__text_print(choir__text_buffer *t, FILE *out);
/* Ends an object, writes it as a line, and frees the text. */
void choir__text_finish(choir__text_buffer *t, FILE *out);

/* Compares two texts, for qsort. */
int choir__by_text(const void *a, const void *b);

/* Returns a copy of the text in which bytes that are not UTF-8 are U+FFFD; the caller frees it.
 */
char *choir__text_mended(const char *text);

/* Returns the divisors of n that are multiples of `of`, in words: "2, 4 or 8". A long list ends
 * with "..."; free frees it. */
char *choir__divisors(int64_t n, int64_t of);

#endif
