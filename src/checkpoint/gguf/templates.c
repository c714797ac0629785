/* Chat templates: a folder's, which are a file, or several with names, and a GGUF file's.
 *
 *     chat_template.jinja                        tokenizer.chat_template
 *     additional_chat_templates/NAME.jinja       tokenizer.chat_template.NAME
 *     "chat_template": "..." or                  tokenizer.chat_templates: the names
 *         [{"name": NAME, "template": "..."}]
 *
 * The template named "default" is the one without a name; if no template has that name, it is
 * the first one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/map.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "checkpoint/gguf/vocab.h"
#include "data/beside.h"
#include "data/dataset.h"

#define KEY     "tokenizer.chat_template"
#define NAMES   KEY "s"
#define DEFAULT "default"
#define END     CHOIR__BESIDE_END
#define FILE_OF CHOIR__BESIDE_CHAT
#define OTHERS  CHOIR__BESIDE_OTHERS
#define LEGACY  "chat_template.json"

enum { LIMIT = 16 << 20 }; /* bytes of a template */

/* --- out of a folder: a list of names and templates --- */

typedef struct templates {
    json_t *list;
    choir_status status;
} templates;

static void add(templates *t, const char *name, const json_t *text)
{
    if (json_is_string(text))
        json_array_append_new(t->list, json_pack("{s:s, s:O}", "name", name, "template", text));
}

static void add_file(templates *t, const char *folder, const char *file, const char *name)
{
    char *path = choir__format("%s/%s", folder, file), *text = NULL;
    size_t bytes = 0;
    if (t->status == CHOIR_OK)
        t->status = choir__read_file(path, LIMIT, &text, &bytes);
    json_t *value = text ? json_string(text) : NULL;
    if (text && !value)
        t->status = choir__error(CHOIR_ERR_FORMAT, "%s: expected UTF-8", path);
    add(t, name, value);
    json_decref(value);
    free(text);
    free(path);
}

static void add_other(const char *folder, const char *file, void *arg)
{
    const size_t n = strlen(file), end = strlen(END);
    if (n <= end || strcmp(file + n - end, END) != 0)
        return;
    char *name = choir__format("%.*s", (int)(n - end), file);
    add_file(arg, folder, file, name);
    free(name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(json_string_value(json_object_get(*(json_t *const *)a, "name")),
        json_string_value(json_object_get(*(json_t *const *)b, "name")));
}

/* Files are listed in no order. */
static void sort(json_t *list)
{
    const size_t n = json_array_size(list);
    json_t **all = choir__calloc(n + 1, sizeof(json_t *));
    for (size_t i = 0; i < n; i++)
        all[i] = json_incref(json_array_get(list, i));
    if (n)
        qsort(all, n, sizeof(json_t *), by_name);
    for (size_t i = 0; i < n; i++)
        json_array_set_new(list, i, all[i]);
    free(all);
}

static void add_value(templates *t, const json_t *value)
{
    size_t i;
    json_t *one;
    add(t, DEFAULT, value);
    json_array_foreach((json_t *)(uintptr_t)value, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        add(t, name ? name : DEFAULT, json_object_get(one, "template"));
    }
}

static templates of_folder(const char *folder, const json_t *config)
{
    templates t = {json_array(), CHOIR_OK};
    char *others = choir__format("%s/" OTHERS, folder);
    if (choir__folder_has(folder, FILE_OF)) {
        if (choir__is_folder(others))
            choir__folder_walk(others, add_other, &t);
        sort(t.list);
        add_file(&t, folder, FILE_OF, DEFAULT);
    } else {
        add_value(&t, json_object_get(config, "chat_template"));
    }
    if (!json_array_size(t.list) && choir__folder_has(folder, LEGACY)) {
        json_t *root = choir__file_json_in(folder, LEGACY);
        add_value(&t, json_object_get(root, "chat_template"));
        json_decref(root);
    }
    free(others);
    return t;
}

/* --- into a GGUF file --- */

/* Returns the place of the template without a name. */
static size_t default_of(const json_t *list)
{
    size_t at = 0;
    for (size_t i = json_array_size(list); i-- > 0;)
        if (!strcmp(
                json_string_value(json_object_get(json_array_get(list, i), "name")), DEFAULT))
            at = i;
    return at;
}

/* A key's end: other programs take letters and digits there. */
static char *key_name(const char *name)
{
    char *own = choir__strdup(name);
    for (char *c = own; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
    return own;
}

choir_status choir__gguf_add_templates(
    choir__gguf_out *out, const char *folder, const json_t *config)
{
    templates t = of_folder(folder, config);
    const size_t n = json_array_size(t.list), chosen = default_of(t.list);
    const char **names = choir__calloc(n + 1, sizeof *names);
    choir__map keys = {0};
    int64_t count = 0;
    for (size_t i = 0; i < n && t.status == CHOIR_OK; i++) {
        const json_t *one = json_array_get(t.list, i);
        const char *text = json_string_value(json_object_get(one, "template"));
        char *name = key_name(json_string_value(json_object_get(one, "name")));
        char *key = choir__format(KEY ".%s", name);
        if (i == chosen)
            choir__gguf_text(out, KEY, text);
        else if (*name && choir__map_put(&keys, name, count) < 0)
            choir__gguf_text(out, key, text);
        free(key);
        if (i != chosen && *name && choir__map_find(&keys, name) == count)
            names[count++] = name;
        else
            free(name);
    }
    if (count)
        choir__gguf_texts(out, NAMES, names, count);
    for (int64_t i = 0; i < count; i++)
        free((char *)(uintptr_t)names[i]);
    free(names);
    choir__map_free(&keys);
    json_decref(t.list);
    return t.status;
}

/* --- out of a GGUF file --- */

json_t *choir__gguf_templates(const choir__gguf_in *in)
{
    const char *text = choir__gguf_string(in, KEY), *key;
    templates t = {json_array(), CHOIR_OK};
    json_t *value = text ? json_string(text) : NULL;
    add(&t, DEFAULT, value);
    for (int i = 0; (key = choir__gguf_key_at(in, i)); i++) {
        if (strncmp(key, KEY ".", strlen(KEY ".")) != 0 || !choir__gguf_string(in, key))
            continue;
        json_t *named = json_string(choir__gguf_string(in, key));
        add(&t, key + strlen(KEY "."), named);
        json_decref(named);
    }
    if (json_array_size(t.list) == (value ? 1 : 0)) {
        json_decref(t.list);
        return value;
    }
    json_decref(value);
    return t.list;
}
