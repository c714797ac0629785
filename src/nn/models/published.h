/* Models as others publish them: a config.json, and weights under names of its own habits.
 *
 * A config.json is translated to Choir's text ("gpt2:layers=12,heads=12,...") and back by one
 * table a model, which stands in that model's file: JSON key, option of the text, or the value
 * that the key must have because nothing else is built. What a row cannot say (keys that must
 * agree, values that depend on one another) is in two functions beside it. */
#ifndef CHOIR_MODELS_PUBLISHED_H
#define CHOIR_MODELS_PUBLISHED_H

#include <jansson.h>
#include "base/options.h"
#include "nn/models/spec.h"

typedef struct choir__config_key {
    const char *key;
    /* Of the text: whole numbers of 1 or more, numbers of 0 or more, flags, words. */
    const char *option;
    choir__option_type type;
    const char
        *absent; /* the option's value where the file has no such key; NULL: the text's */
    /* Without an option: JSON values that it may have, "false" or "gelu_new|gelu"; the first
     * is written. NULL: anything, and it is not written. */
    const char *values;
    /* Another value is no error, only a note: what follows from it. */
    const char *note;
} choir__config_key;

typedef struct choir__config {
    const char *path; /* for messages */
    json_t *root;
    char *text; /* so far */
    char *notes;
} choir__config;

typedef struct choir__published {
    const char *type; /* "model_type" in the JSON; NULL: there is none, only weights */
    const char *const *architectures; /* that are this model; the first is written. NULL */
    const choir__config_key *keys;    /* ended by a NULL key */
    const char *const *inert;         /* keys that change nothing here. NULL */
    /* Checks what the rows cannot, and adds options by choir__config_set. May be NULL. */
    choir_status (*read)(choir__config *config);
    /* Adds to the JSON what the rows cannot say. May be NULL. */
    void (*write)(const char *text, json_t *root);

    /* Weights: what stands before all names but the head's ("transformer."); files of the model
     * without a head leave it out. */
    const char *prefix;
    /* Entries of published files that are no parameters here ("*.attn.bias", as fnmatch), and
     * parts that may be missing when training starts from them ("classifier.*"). NULL. */
    const char *const *ignored, *const *fresh;
} choir__published;

/* A whole number, or `other` if the key is absent, null or no number. */
int64_t choir__config_int(const choir__config *config, const char *key, int64_t other);
/* Appends `more` to the text, behind the separator unless the text is empty. */
void choir__config_append(char **text, const char *separator, const char *more);
/* Returns a value as the file spells it, cut to what a message holds; the caller frees it. */
char *choir__config_spelled(const json_t *value);
/* Adds an option to the text. */
void choir__config_set(choir__config *config, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line to the notes. */
void choir__config_note(choir__config *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The value that the text gives to an option, or NULL; the caller frees it. */
char *choir__config_option(const char *text, const char *option);
/* CHOIR_ERR_FORMAT "PATH: key 'KEY' is VALUE; ..." */
choir_status choir__config_bad(const choir__config *config, const char *key, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

#endif
