/* Reading and writing a config.json, whichever model it describes (published.h has what it is
 * made of). */
#ifndef CHOIR_MODELS_CONFIG_H
#define CHOIR_MODELS_CONFIG_H

#include "nn/models/published.h"

/* "PATH" is a config.json or a folder that has one: the text it means (the caller frees it).
 * notes: what it says that does not hold here, a line each, "" for none (the caller frees it).
 * Errors: io, format (broken JSON by line and column; unknown or contradictory values by key);
 * argument (a model_type that is not built). */
choir_status choir__config_read(const char *path, char **text, char **notes);

/* The same from memory; path is for messages. */
choir_status choir__config_parse(
    const char *path, const char *json, size_t bytes, char **text, char **notes);

/* Whether a --model means a file or folder and not a name. */
bool choir__config_is_path(const char *model);

/* The config.json of a model's full text; NULL for a model that is not published in this form.
 * The caller frees it. */
char *choir__config_json(const char *text);

#endif
