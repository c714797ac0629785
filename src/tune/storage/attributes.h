/* Attributes of studies and trials: JSON under a key. */
#ifndef CHOIR_TUNE_STORAGE_ATTRIBUTES_H
#define CHOIR_TUNE_STORAGE_ATTRIBUTES_H

#include "base/base.h"
#include "base/files/map.h"

typedef struct choir__stored_attribute {
    char *key, *json;
    bool system; /* an attribute of the program, not of the user */
} choir__stored_attribute;

typedef struct choir__stored_attributes {
    choir__stored_attribute *at; /* (count) in the order in which they came */
    int count;
    choir__map places[2]; /* indices into `at` by key: the user's, the program's */
} choir__stored_attributes;

/* Takes copies of the texts. An attribute that is there already is replaced. */
void choir__attribute_set(
    choir__stored_attributes *a, bool system, const char *key, const char *json);
/* Returns the attribute's JSON, or NULL. */
const char *choir__attribute_get(
    const choir__stored_attributes *a, bool system, const char *key);
void choir__attributes_free(choir__stored_attributes *a);

#endif
