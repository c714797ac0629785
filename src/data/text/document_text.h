/* Conversion of a JSON value to the text that Donut predicts. */
#ifndef CHOIR_DOCUMENT_TEXT_H
#define CHOIR_DOCUMENT_TEXT_H

#include "base/files/map.h"
#include "data/dataset.h"
#include "data/json.h"

/* Names in order of first appearance, each once. */
typedef struct choir__names {
    char **name;
    int64_t count;
    choir__map places; /* in `name` */
} choir__names;

void choir__names_add(choir__names *names, const char *format, const char *part);
void choir__names_free(choir__names *names);

/* Returns the text of `value`, which the caller frees, and adds the tokens of its fields to
 * `fields`. */
char *choir__document_text(const choir__json *value, choir__names *fields);

#endif
