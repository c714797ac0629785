/* JSON that others have written, which is parsed and shown within bounds: a text may ask for
 * any depth and any size, and the parser and the printer call themselves for each level. */
#ifndef CHOIR_CLI_WATCH_JSON_H
#define CHOIR_CLI_WATCH_JSON_H

#include <jansson.h>

/* Returns the value, or NULL if the text (bytes) is no JSON or nests deeper than records do. */
json_t *choir__watch_json(const char *text, size_t bytes);
/* Reads a regular file of at most `most` bytes as such a value; returns NULL also if it cannot
 * be read. */
json_t *choir__watch_json_file(const char *path, size_t most);

/* Returns an event as one line of JSON, of some kilobytes at most; it cuts the event's texts.
 * An event that is longer even so keeps its "event", "step" and "time", with
 * "too_long":true. The caller frees it. */
char *choir__watch_json_event(json_t *event);

#endif
