/* Inside of choir_beside (choir/beside.h): the names of the files beside a model's weights,
 * and their contents, for readers of configurations and tokenizers and for writers of
 * checkpoints. */
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

/* A checkpoint keeps files unknown to Choir, such as a licence, in this folder: they may have
 * any name, so outside of it they would look like a user's own files. */
#define CHOIR__BESIDE_UNKNOWN "beside"

/* The names of all these files except the others, ended by NULL. */
extern const char *const choir__beside_names[];

/* Like choir_beside_read, but reads files that Choir does not know only if `all` is true,
 * except those that a checkpoint has kept. */
choir_status choir__beside_read(const char *folder, bool all, choir_beside **beside);

/* Returns the contents of other file number i, and its name in a checkpoint,
 * "additional_chat_templates/NAME.jinja" or "beside/NAME"; NULL: there are fewer, or beside is
 * NULL. */
const char *choir__beside_other(
    const choir_beside *beside, int i, const char **name, size_t *bytes);

/* Returns the names of files that Choir does not know and that are not kept, because they are
 * too large or cannot be read, or NULL. */
const char *choir__beside_left_out(const choir_beside *beside);

/* --- names of other files: beside_others.c --- */

/* Lists the names of other files in the two folders of `folder`, in order, as above. The caller
 * frees them and the list. NULL ends the list; an empty one is NULL. */
char **choir__beside_list_others(const char *folder);

/* Lists the files of a published folder whose names are not among these, which NULL ends, in
 * order, likewise. */
char **choir__beside_list_unknown(const char *folder, const char *const *known);

/* Returns whether a name is one of another file, as above. */
bool choir__beside_is_other(const char *name);

/* Returns the name that another file has in a published folder. */
const char *choir__beside_published_name(const char *name);

/* Returns whether a file of a published folder goes through unchanged: it has no weights, and
 * is not about the folder as it was. */
bool choir__beside_goes_through(const char *name);

/* Returns whether the name of a file says that it describes tokens. */
bool choir__beside_is_of_tokens(const char *name);

/* Returns the contents of a file with a '\0' behind them, or NULL if the folder had none, or
 * beside is NULL. */
const char *choir__beside_text(const choir_beside *beside, const char *name, size_t *bytes);

/* Removes a file whose contents no longer hold. beside: may be NULL. */
void choir__beside_drop(choir_beside *beside, const char *name);

/* Returns the contents of a file that is a JSON object, for the caller to release; NULL as
 * above, or if it is not a JSON object. */
json_t *choir__beside_json(const choir_beside *beside, const char *name);

/* Returns the text of a special token, which files write as a text or as an object; or NULL. */
const char *choir__beside_token(const json_t *token);

/* Returns a sentence on a file that Choir reads and that is no JSON object, or NULL. */
const char *choir__beside_wrong(const choir_beside *beside, const char *name);

/* Returns copies of the files of two folders, for choir_beside_free: of each name the one of
 * the tokenizer's folder, or else, if the model's `fits` the tokenizer, the model's; a
 * processor's settings are the model's, and so are unknown files: of a tokenizer's folder only
 * those about tokens come to a model without a folder. Both may be NULL, or the same. */
choir_beside *choir__beside_join(
    const choir_beside *tokens, const choir_beside *model, bool fits);

#endif
