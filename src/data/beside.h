/* The files beside a model's weights: see choir/beside.h. */
#ifndef CHOIR_DATA_BESIDE_H
#define CHOIR_DATA_BESIDE_H

#include <choir/beside.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CHOIR__BESIDE_MODEL  "config.json" /* merged by nn/models/config_write.c */
#define CHOIR__BESIDE_WORDS  "tokenizer_config.json"
#define CHOIR__BESIDE_NAMES  "special_tokens_map.json"
#define CHOIR__BESIDE_WRITE  "generation_config.json"
#define CHOIR__BESIDE_PIECES "tokenizer.model"
#define CHOIR__BESIDE_IMAGES "preprocessor_config.json"

/* The file of a chat template, and the folder of others, which are NAME.jinja. */
#define CHOIR__BESIDE_CHAT   "chat_template.jinja"
#define CHOIR__BESIDE_OTHERS "additional_chat_templates"
#define CHOIR__BESIDE_END    ".jinja"

/* The names of all these files except other chat templates, ended by NULL. */
extern const char *const choir__beside_names[];

/* Returns the contents of other chat template number i in order of names, and its name,
 * "additional_chat_templates/NAME.jinja"; NULL: there are fewer, or beside is NULL. */
const char *choir__beside_other(
    const choir_beside *beside, int i, const char **name, size_t *bytes);

/* Lists the names of other chat templates in a folder, in order, as above; the caller frees
 * them and the list, which NULL ends. NULL: it has none. */
char **choir__beside_list_others(const char *folder);

/* Returns whether a name is one of another chat template, as above. */
bool choir__beside_is_other(const char *name);

/* Returns the contents of a file with a '\0' behind them, or NULL if the folder had none, or
 * beside is NULL. */
const char *choir__beside_text(const choir_beside *beside, const char *name, size_t *bytes);

/* Removes a file whose contents no longer hold. beside: may be NULL. */
void choir__beside_drop(choir_beside *beside, const char *name);

/* Returns the contents of a file that is a JSON object, for the caller to release; NULL as
 * above, or if it is not a JSON object. */
json_t *choir__beside_json(const choir_beside *beside, const char *name);

/* Returns a sentence on a file that Choir reads and that is no JSON object, or NULL. */
const char *choir__beside_wrong(const choir_beside *beside, const char *name);

/* Returns copies of the files of two folders, for choir_beside_free: of each name the one of
 * the tokenizer's folder, or else, if the model's `fits` the tokenizer, the model's; a
 * processor's settings are the model's. Both may be NULL. */
choir_beside *choir__beside_join(
    const choir_beside *tokens, const choir_beside *model, bool fits);

#endif
