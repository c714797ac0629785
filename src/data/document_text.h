/* A JSON value as the text that Donut predicts. */
#ifndef CHOIR_DOCUMENT_TEXT_H
#define CHOIR_DOCUMENT_TEXT_H

#include <jansson.h>
#include "data/dataset.h"

/* Names in the order they came, each once. */
typedef struct choir__names {
    char **name;
    int64_t count, room;
} choir__names;

void choir__names_add(choir__names *names, const char *format, const char *part);
void choir__names_free(choir__names *names);

/* The text of `value`; the tokens of its fields are added to `fields`. The caller frees it. */
char *choir__document_text(const json_t *value, choir__names *fields);

#endif
