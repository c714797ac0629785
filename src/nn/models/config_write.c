/* Translation of a model's text to its config.json: see config.h.
 *
 * The file has three kinds of keys. Those that the model's table has, or that its functions
 * write, are Choir's own: an older value never comes back, since the model may have changed.
 * The ids of special tokens come from the tokenizer. All others have no effect here, and are
 * kept as the model's folder had them. */
#include "nn/models/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "nn/models/models.h"

/* Keys that describe Choir's own output, or files that are not copied (code, "auto_map"). */
static const char *const own[] = {"torch_dtype", "dtype", "num_labels", "_num_labels",
    "id2label", "label2id", "problem_type", "auto_map", NULL};

/* --- ids of special tokens --- */

#define END "eos_token_id" /* the tokens at which a model stops */

/* Returns whether a key has the id of a special token, or several. */
static bool is_token(const char *key)
{
    static const char end[] = "_token_id";
    size_t n = strlen(key), m = strlen(end);
    return n > m && !strcmp(key + n - m, end);
}

/* Returns whether an id, or each of a list, is one of the vocabulary; 0: of unknown size. */
static bool are_ids(const json_t *value, int64_t vocab)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!are_ids(json_array_get(value, i), vocab))
            return false;
    return !json_is_integer(value) || !vocab || json_integer_value(value) < vocab;
}

/* Makes `from` the source of the ids that are not the model's own. */
static void set_tokens(json_t *root, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (is_token(key) && !json_object_get(root, key))
            json_object_set_new(root, key, json_deep_copy(value));
    }
}

/* Returns `ids`, one or several, without those beyond the vocabulary, and with `end` behind
 * them. */
static json_t *mended_ends(const json_t *ids, int64_t vocab, int64_t end)
{
    json_t *list = json_is_array(ids)  ? json_incref((json_t *)(uintptr_t)ids)
                   : json_is_null(ids) ? json_array()
                                       : json_pack("[O]", ids);
    json_t *kept = json_array();
    bool has_end = end < 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *id = json_array_get(list, i);
        if (json_is_integer(id) && are_ids(id, vocab))
            json_array_append(kept, id);
        has_end |= json_is_integer(id) && json_integer_value(id) == end;
    }
    if (!has_end)
        json_array_append_new(kept, json_integer(end));
    size_t count = json_array_size(kept);
    json_t *mended = json_equal(kept, list) ? json_deep_copy(ids)
                     : count > 1            ? json_incref(kept)
                     : count                ? json_incref(json_array_get(kept, 0))
                                            : json_null();
    json_decref(kept);
    json_decref(list);
    return mended;
}

/* Replaces the ids of a file by a vocabulary's, with the ends of texts and turns. */
static void mend_tokens(json_t *root, int64_t vocab, choir__config_ends ends)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(root, next, key, value)
    {
        if (is_token(key) && strcmp(key, END) != 0 && !are_ids(value, vocab))
            json_object_set_new(root, key, json_null());
    }
    const int64_t end[] = {ends.text, ends.turn};
    for (size_t i = 0; i < CHOIR_COUNT(end); i++) {
        value = json_object_get(root, END);
        bool known = end[i] >= 0 && (!vocab || end[i] < vocab);
        if (value || known)
            json_object_set_new(root, END,
                mended_ends(value ? value : json_null(), vocab, known ? end[i] : -1));
    }
}

/* Writes the ids that the library which the file is for takes from a vocabulary of its own if
 * the file lacks them. */
static void set_ends(json_t *root)
{
    static const char *const keys[] = {END, "bos_token_id"};
    for (size_t i = 0; i < CHOIR_COUNT(keys); i++)
        if (!json_object_get(root, keys[i]))
            json_object_set_new(root, keys[i], json_null());
}

static int64_t vocab_of(const char *text)
{
    char *option = choir__config_option(text, "vocab");
    int64_t vocab = option ? strtoll(option, NULL, 10) : 0;
    free(option);
    return vocab;
}

/* --- keys that Choir does not use --- */

static bool is_listed(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (!strcmp(*list, key))
            return true;
    return false;
}

static bool is_in_table(const choir__config_key *keys, const char *key)
{
    for (; keys && keys->key; keys++)
        if (!strcmp(keys->key, key))
            return true;
    return false;
}

/* Adds the keys of `from` that the table, `written` and the file's own keys leave free. */
static void keep_keys(json_t *root, const json_t *from, const choir__config_key *table,
    const char *const *written)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (!json_object_get(root, key) && !is_in_table(table, key) && !is_token(key) &&
            !is_listed(written, key) && !is_listed(own, key))
            json_object_set_new(root, key, json_deep_copy(value));
    }
}

/* A part keeps the tokens of the model that the part was, which has its own tokens. */
static void keep_parts(json_t *root, const json_t *from, const choir__config_part_keys *parts)
{
    for (; parts && parts->part; parts++) {
        const json_t *part = json_object_get(from, parts->part);
        json_t *to = json_object_get(root, parts->part);
        keep_keys(to, part, parts->keys, NULL);
        set_tokens(to, part);
    }
}

/* --- the file --- */

static json_t *config_of(const char *text, const choir__published *p)
{
    json_t *root = choir__config_part_json(text, p->keys);
    json_object_set_new(root, "architectures", json_pack("[s]", p->architectures[0]));
    json_object_set_new(root, "model_type", json_string(p->type));
    if (p->write)
        p->write(text, root);
    return root;
}

static void add_origin(
    const char *text, json_t *root, const choir__published *p, const choir__config_origin *o)
{
    keep_keys(root, o->model, p->keys, p->written);
    keep_parts(root, o->model, p->parts);
    set_tokens(root, o->tokens);
    mend_tokens(root, vocab_of(text), p->has_ends ? o->ends : (choir__config_ends){-1, -1});
    if (p->has_ends && !o->tokens)
        set_ends(root);
}

char *choir__config_json(
    const char *text, const choir_class_names *classes, const choir__config_origin *origin)
{
    CHOIR__DEFAULT_FLOATS;
    const choir__model_spec *spec;
    if (choir__model_find(text, &spec) != CHOIR_OK || !spec->published ||
        !spec->published->type)
        return NULL;
    json_t *root = config_of(text, spec->published);
    add_origin(text, root, spec->published,
        origin ? origin : &(choir__config_origin){.ends = {-1, -1}});
    if (json_object_get(root, "id2label"))
        choir__config_set_classes(
            root, (int64_t)json_object_size(json_object_get(root, "id2label")), classes);
    json_object_set_new(root, "torch_dtype", json_string("float32"));
    char *json = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    choir__config_append(&json, "\n", "");
    return json;
}

char *choir__config_generation(const char *text, const json_t *before, choir__config_ends ends)
{
    CHOIR__DEFAULT_FLOATS;
    const choir__model_spec *spec;
    if (choir__model_find(text, &spec) != CHOIR_OK || !spec->published ||
        !spec->published->has_ends || !before)
        return NULL;
    json_t *now = json_deep_copy(before);
    mend_tokens(now, vocab_of(text), ends);
    char *json = json_equal(now, before)
                     ? NULL
                     : json_dumps(now, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(now);
    if (json)
        choir__config_append(&json, "\n", "");
    return json;
}
