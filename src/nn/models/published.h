/* Models in their published form: a config.json, and weights under published names.
 *
 * A config.json is translated to Choir's text ("gpt2:layers=12,heads=12,...") and back by one
 * table per model, in that model's file. A row holds a JSON key and either the text's option or
 * the value that the key must have because no other is built. Two functions beside the table
 * cover what a row cannot express: keys that must agree, values that depend on one another. */
#ifndef CHOIR_MODELS_PUBLISHED_H
#define CHOIR_MODELS_PUBLISHED_H

#include <jansson.h>
#include <string.h>
#include "base/options.h"
#include "nn/models/spec.h"

typedef struct choir__config_key {
    const char *key;
    /* Option of the text: whole numbers of 1 or more, numbers of 0 or more, flags, words. */
    const char *option;
    choir__option_type type;
    /* The default of the library that wrote the file, if the file lacks this key. NULL:
     * the text's default, or one of `values`. */
    const char *absent;
    /* Without an option: allowed JSON values, "false" or "gelu_new|gelu"; the first is written.
     * NULL: any value is allowed, and the key is not written. */
    const char *values;
    /* If set, another value is not an error but adds this note, which states the
     * consequence. */
    const char *note;
} choir__config_key;

/* The table of the object under a key. */
typedef struct choir__config_part_keys {
    const char *part;
    const choir__config_key *keys;
} choir__config_part_keys;

/* A name that weights had in older files. `older` and `name` are the ends of names. */
typedef struct choir__older_name {
    const char *older, *name;
} choir__older_name;

typedef struct choir__config {
    const char *path, *part; /* for messages; part: "encoder." within such an object, or "" */
    json_t *root;
    const char *const *written; /* keys for the model's function `read` */
    char *text;                 /* text translated so far */
    char *notes;
} choir__config;

typedef struct choir__published {
    const char *type; /* "model_type" in the JSON; NULL: weights only, no config.json */
    const char *const
        *architectures;            /* names of this model; the first one is written; or NULL */
    const choir__config_key *keys; /* ended by a NULL key */
    const char *const *inert;      /* keys without effect here, or NULL */
    /* Checks what rows cannot express, and adds options with choir__config_set. May be NULL. */
    choir_status (*read)(choir__config *config);
    /* Adds keys that rows cannot express to the JSON. May be NULL. */
    void (*write)(const char *text, json_t *root);
    /* written: keys for `read` that only `write` writes; they are never copied.
     * parts: objects within the file, whose other keys are kept. Both may be NULL. */
    const char *const *written;
    const choir__config_part_keys *parts;
    /* the library assumes ids of tokens that begin and end a text if the file lacks them */
    bool has_ends;

    /* Prefix of all weights' names except the head's ("transformer."). Files of the model
     * without a head omit it. */
    const char *prefix;
    /* ignored: entries of published files that are not parameters here ("*.attn.bias", as
     * fnmatch). fresh: parts that may be missing when training starts from the file
     * ("classifier.*"). Both may be NULL. */
    const char *const *ignored, *const *fresh;
    /* Fills in the values of a tensor that the files have in another shape, because the model
     * is for inputs of another size. Returns false if it cannot. May be NULL. */
    bool (*fit)(const char *name, const float *stored, choir_shape from, choir_shape wanted,
        float *values);
    /* names that the weights have in older files, ended by a NULL name; or NULL */
    const choir__older_name *older;
} choir__published;

/* Reads the keys of c->root, each by its row. Keys that neither the rows, `also_inert` nor the
 * list of inert keys has become a note. */
choir_status choir__config_keys(
    choir__config *config, const choir__config_key *keys, const char *const *also_inert);
/* Like choir__config_keys, for the object under the key `part`. */
choir_status choir__config_part(choir__config *config, const char *part,
    const choir__config_key *keys, const char *const *also_inert);

/* Returns the keys that the rows write for a model's text. */
json_t *choir__config_part_json(const char *text, const choir__config_key *keys);

/* Reads pad_token_id, whose row of the embedding is not trained, to the option "pad". `absent`
 * is the library's default; -1: none. Negative ids count from the vocabulary's end, as they do
 * in PyTorch. */
choir_status choir__config_read_pad(
    choir__config *config, const char *vocab_key, int64_t vocab_absent, int64_t absent);
/* Writes the option "pad" as pad_token_id, or null. */
void choir__config_write_pad(const char *text, json_t *root);

/* Returns the name that the file gives its model, or "". */
const char *choir__config_architecture(const choir__config *config);

/* Reads the number of a classifier's classes, which are as many as their names and `least` at
 * least, and adds it to the text. */
choir_status choir__config_read_classes(choir__config *config, int64_t least, int64_t *classes);

/* Returns whether a list, ended by NULL, has the word. The list may be NULL. */
static inline bool choir__config_among(const char *const *list, const char *word)
{
    for (; list && *list; list++)
        if (!strcmp(*list, word))
            return true;
    return false;
}

/* Returns a key's whole number, or `other` if the key is absent, null or not a number. */
int64_t choir__config_int(const choir__config *config, const char *key, int64_t other);
/* Appends `more` to the text, after the separator unless the text is empty. */
void choir__config_append(char **text, const char *separator, const char *more);
/* Returns a value as the file spells it, shortened for a message; the caller frees it. */
char *choir__config_spelled(const json_t *value);
/* Adds an option to the text. */
void choir__config_set(choir__config *config, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a line to the notes. */
void choir__config_note(choir__config *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the value of an option in the text, or NULL; the caller frees it. */
char *choir__config_option(const char *text, const char *option);
/* Returns CHOIR_ERR_FORMAT with the message "PATH: key 'KEY' is VALUE; ...". */
choir_status choir__config_bad(const choir__config *config, const char *key, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

#endif
