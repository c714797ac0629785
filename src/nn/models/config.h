/* Reading and writing a config.json of any model. published.h describes its contents. */
#ifndef CHOIR_MODELS_CONFIG_H
#define CHOIR_MODELS_CONFIG_H

#include "nn/models/published.h"

/* Returns the path in "PATH:key=value,...", which need not have options; the caller frees it.
 */
char *choir__config_path(const char *model);

/* Translates PATH, a config.json or a folder that contains one, to a model's text. Options
 * after a colon override the file's values. notes: one line for each setting that does not
 * apply here, or "". The caller frees both. Errors: io, format (broken JSON by line and column;
 * unknown or contradictory values by key); argument (a model_type that is not built). */
choir_status choir__config_read(const char *path, char **text, char **notes);

/* Like choir__config_read, where the file of PATH is of another kind, and this its config.json.
 */
choir_status choir__config_read_text(
    const char *model, const char *json, char **text, char **notes);

/* Like choir__config_read, but from memory; path is for messages. Tests call it, too. */
choir_status choir__config_parse(
    const char *path, const char *json, size_t bytes, char **text, char **notes);

/* Returns whether a --model is a file or folder instead of a name. */
bool choir__config_is_path(const char *model);

/* The tokens at which a model stops; -1: unknown. */
typedef struct choir__config_ends {
    int64_t text, turn; /* the end of a text; the end of an answer, by the chat template */
} choir__config_ends;

/* The objects that a config.json continues. */
typedef struct choir__config_origin {
    const json_t *model;  /* the model's before; NULL: it had none */
    const json_t *tokens; /* the config.json of the tokenizer's folder; NULL: it has none */
    choir__config_ends ends;
} choir__config_origin;

/* Returns the config.json of a model's full text, or NULL if the model is not published in this
 * form. classes: the names of a classifier's classes; may be NULL. origin: NULL: none. The
 * caller frees it. (config_write.c) */
char *choir__config_json(
    const char *text, const choir_class_names *classes, const choir__config_origin *origin);

/* Returns a generation_config.json with the ids of the model's tokens, or NULL if they are in
 * `before` (may be NULL), or the model ends no text. The caller frees it. (config_write.c) */
char *choir__config_generation(const char *text, const json_t *before, choir__config_ends ends);

/* --- the names of classes, id2label and label2id: class_names.c --- */

/* Reads the names of classes from PATH, a config.json or a folder with one; an empty list if
 * the classes have no names. The caller frees them. Errors: io, format. */
choir_status choir__config_classes(const char *path, choir_class_names *names);

/* Writes the names of `count` classes; a class that `names` (may be NULL) lacks is LABEL_i. */
void choir__config_set_classes(json_t *root, int64_t count, const choir_class_names *names);

#endif
