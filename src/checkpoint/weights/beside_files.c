/* The files beside a published model's weights on their way into checkpoints: see
 * beside_files.h.
 *
 * If the tokenizer is not the folder's, the model's files about tokens are copied only if they
 * fit it. They do not if they name a token that it lacks, or an end of texts other than the
 * tokenizer's. If they have no names, they do not fit by an id beyond the tokenizer's or of a
 * single character, which a special token never is; beside names that fit, such an id is old.
 * One contradiction shows that all of them describe other tokens. */
#include "checkpoint/weights/beside_files.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "data/beside.h"
#include "data/chats/chat.h"

/* --- whether a model's files fit another tokenizer --- */

/* Returns a sentence if the special tokens that a file names are not the tokenizer's, else
 * NULL. *named: the file names some. */
static char *wrong_name(const choir_tokenizer *t, const json_t *root, bool *named)
{
    static const char *const keys[] = {"bos_token", "eos_token", "pad_token"};
    for (size_t i = 0; i < CHOIR_COUNT(keys); i++) {
        const char *text = choir__beside_token(json_object_get(root, keys[i]));
        *named |= text != NULL;
        if (text && choir_tokenizer_id(t, text) < 0)
            return choir__format("'%s' is no token of the tokenizer", text);
    }
    const char *id;
    json_t *token;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), id, token)
    {
        size_t bytes;
        int64_t at = strtoll(id, NULL, 10);
        const char *text = json_string_value(json_object_get(token, "content"));
        const char *own = choir__vocab_text(&t->decoded, at, &bytes);
        if (text && json_is_true(json_object_get(token, "special")) &&
            (!own || strlen(text) != bytes || memcmp(own, text, bytes) != 0))
            return choir__format("token %s of the tokenizer is not '%s'", id, text);
    }
    return NULL;
}

/* Returns why the ids of a file are not the tokenizer's, or NULL. */
static char *wrong_id(const choir_tokenizer *t, const json_t *root)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"}; /* many pad with any */
    for (size_t i = 0; i < CHOIR_COUNT(keys); i++) {
        json_t *ids = json_object_get(root, keys[i]);
        for (size_t k = 0; k < (json_is_array(ids) ? json_array_size(ids) : 1); k++) {
            const json_t *number = json_is_array(ids) ? json_array_get(ids, k) : ids;
            int64_t id = json_is_integer(number) ? json_integer_value(number) : -1;
            size_t bytes = 0;
            if (id >= t->size)
                return choir__format("the tokenizer has no token %lld", (long long)id);
            if (choir__vocab_text(&t->decoded, id, &bytes) && bytes == 1)
                return choir__format(
                    "token %lld of the tokenizer is a character", (long long)id);
        }
    }
    return NULL;
}

/* Returns why the model's files do not fit a tokenizer, or NULL. settled: texts end already. */
static char *why_other(const choir_tokenizer *t, const choir_beside *model, bool settled)
{
    static const char *const with_names[] = {CHOIR__BESIDE_WORDS, CHOIR__BESIDE_NAMES};
    static const char *const with_ids[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE};
    char *why = NULL;
    bool named = false;
    for (size_t i = 0; i < CHOIR_COUNT(with_names) && !why; i++) {
        json_t *root = choir__beside_json(model, with_names[i]);
        why = wrong_name(t, root, &named);
        json_decref(root);
    }
    for (size_t i = 0; i < CHOIR_COUNT(with_ids) && !why && !named; i++) {
        json_t *root = choir__beside_json(model, with_ids[i]);
        why = wrong_id(t, root);
        json_decref(root);
    }
    int64_t own = settled ? choir__end_of_text(t) : choir__end_named(t, t->beside);
    choir_beside *all = choir__beside_join(t->beside, model, true);
    int64_t end = choir__end_named(t, all);
    if (!why && own >= 0 && end >= 0 && end != own)
        why = choir__format("the tokenizer's folder names another token that ends a text");
    choir_beside_free(all);
    return why;
}

/* Returns the files to be copied, for choir_beside_free. *why: as above, if not NULL. */
static choir_beside *join(
    const choir_tokenizer *t, const choir_beside *model, bool settled, char **why)
{
    char *other = t && model ? why_other(t, model, settled) : NULL;
    choir_beside *all = t ? choir__beside_join(t->beside, model, !other)
                          : choir__beside_join(model, model, true);
    if (why)
        *why = other;
    else
        free(other);
    return all;
}

void choir__beside_lend(choir_tokenizer *t, const choir_beside *model)
{
    if (!t)
        return;
    choir_beside *all = join(t, model, false, NULL);
    choir_beside_free(t->beside);
    t->beside = all;
}

/* --- the files --- */

static int64_t end_of(const choir__beside_parts *k)
{
    return k->tokenizer ? choir__end_of_text(k->tokenizer) : -1;
}

static choir_status write_file(
    const char *folder, const char *name, const char *text, size_t bytes)
{
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = choir__folder_of(folder, name);
    if (status == CHOIR_OK)
        status = choir__write_file(path, text, bytes);
    free(path);
    return status;
}

/* Writes the file from which other programs recognise the model. */
static choir_status save_config(const choir__beside_parts *k, const choir_beside *files,
    choir__config_ends ends, const char *folder)
{
    json_t *model = choir__beside_json(k->beside, CHOIR__BESIDE_MODEL);
    json_t *tokens = choir__beside_json(files, CHOIR__BESIDE_MODEL);
    choir__config_origin origin = {model, tokens, ends};
    char *json = *k->text ? choir__config_json(k->text, k->classes, &origin) : NULL;
    choir_status status =
        json ? write_file(folder, CHOIR__BESIDE_MODEL, json, strlen(json)) : CHOIR_OK;
    free(json);
    json_decref(tokens);
    json_decref(model);
    return status;
}

/* Returns the new contents of generation_config.json, or NULL: they stay. */
static char *generation_of(
    const choir__beside_parts *k, const choir_beside *files, choir__config_ends ends)
{
    json_t *before = choir__beside_json(files, CHOIR__BESIDE_WRITE);
    char *json = *k->text ? choir__config_generation(k->text, before, ends) : NULL;
    json_decref(before);
    return json;
}

choir_status choir__beside_save(const choir__beside_parts *k, const char *folder)
{
    static const char *const inner[] = {CHOIR__BESIDE_OTHERS, CHOIR__BESIDE_UNKNOWN};
    choir_beside *files = join(k->tokenizer, k->beside, true, NULL);
    const choir__config_ends ends = {end_of(k), choir__chat_end_of(k->tokenizer)};
    choir_status status = save_config(k, files, ends, folder);
    const char *name, *other;
    size_t size;
    for (int i = 0; (name = choir__beside_names[i]) && status == CHOIR_OK; i++) {
        size_t bytes;
        const char *text = choir__beside_text(files, name, &bytes);
        char *now = strcmp(name, CHOIR__BESIDE_WRITE) ? NULL : generation_of(k, files, ends);
        if (now)
            status = write_file(folder, name, now, strlen(now));
        else if (text && strcmp(name, CHOIR__BESIDE_MODEL) != 0)
            status = write_file(folder, name, text, bytes);
        free(now);
    }
    for (int i = 0; status == CHOIR_OK && (other = choir__beside_other(files, i, &name, &size));
         i++)
        status = write_file(folder, name, other, size);
    for (size_t i = 0; i < CHOIR_COUNT(inner) && status == CHOIR_OK; i++) {
        char *path = choir__format("%s/%s", folder, inner[i]);
        if (choir__is_folder(path))
            status = choir__sync_path(path);
        free(path);
    }
    choir_beside_free(files);
    return status;
}

/* --- notes --- */

static void add(char **notes, char *line)
{
    choir__config_append(notes, "\n", line);
    free(line);
}

/* Returns whether a file names ends of texts, but not `end`. */
static bool lacks_end(const choir_beside *files, const char *name, int64_t end)
{
    json_t *root = choir__beside_json(files, name);
    json_t *ids = json_object_get(root, "eos_token_id");
    bool lacks = json_is_integer(ids) ? json_integer_value(ids) != end : json_is_array(ids);
    for (size_t i = 0; i < json_array_size(ids); i++)
        lacks &= json_integer_value(json_array_get(ids, i)) != end;
    json_decref(root);
    return lacks;
}

static void note_end(const choir__beside_parts *k, const choir_beside *files, char **notes)
{
    static const char *const names[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE};
    size_t bytes;
    int64_t end = end_of(k);
    /* the writer of the second file knows whether the model ends texts */
    json_t *none = json_object();
    char *ends =
        end < 0 ? NULL : choir__config_generation(k->text, none, (choir__config_ends){end, -1});
    for (size_t i = 0; ends && i < CHOIR_COUNT(names); i++)
        if (lacks_end(files, names[i], end))
            add(notes, choir__format(
                           "texts end with '%s', token %lld, which is not the eos_token_id of "
                           "%s: checkpoints have it there, too",
                           choir__vocab_text(&k->tokenizer->decoded, end, &bytes),
                           (long long)end, names[i]));
    free(ends);
    json_decref(none);
}

static bool has_other(const choir_beside *files, const char *wanted)
{
    const char *name;
    size_t bytes;
    for (int i = 0; choir__beside_other(files, i, &name, &bytes); i++)
        if (!strcmp(name, wanted))
            return true;
    return false;
}

char *choir__beside_notes(const choir__beside_parts *k)
{
    char *notes = choir__strdup(""), *why = NULL, *left_out = choir__strdup("");
    choir_beside *files = join(k->tokenizer, k->beside, true, &why);
    const char *name;
    size_t size;
    for (int i = 0; (name = choir__beside_names[i]); i++) {
        size_t bytes;
        const char *wrong = choir__beside_wrong(files, name);
        if (wrong && k->tokenizer)
            add(&notes, choir__format("%s: it names no tokens here", wrong));
        if (why && strcmp(name, CHOIR__BESIDE_MODEL) != 0 &&
            choir__beside_text(k->beside, name, &bytes) &&
            !choir__beside_text(files, name, &bytes))
            choir__config_append(&left_out, ", ", name);
    }
    for (int i = 0; why && choir__beside_other(k->beside, i, &name, &size); i++)
        if (!has_other(files, name))
            choir__config_append(&left_out, ", ", choir__beside_published_name(name));
    if (*left_out)
        add(&notes, choir__format("checkpoints do not have the model's %s: %s", left_out, why));
    if (choir__beside_left_out(files))
        add(&notes,
            choir__format("checkpoints do not have the model's %s: files unknown to Choir are "
                          "kept if they can be read, up to 16 MiB each and 64 MiB together",
                choir__beside_left_out(files)));
    note_end(k, files, &notes);
    choir_beside_free(files);
    free(left_out);
    free(why);
    return notes;
}
