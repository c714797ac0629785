/* The files beside a model's weights, in memory: see choir/beside.h. Their contents are kept as
 * they are, so a folder that passes through a training has the same bytes afterwards. */
#include "data/beside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/floats.h"
#include "data/dataset.h"

enum { FILE_LIMIT = 64 << 20 };

const char *const choir__beside_names[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE,
    CHOIR__BESIDE_WORDS, CHOIR__BESIDE_NAMES, "added_tokens.json", "chat_template.jinja",
    "chat_template.json", CHOIR__BESIDE_IMAGES, "processor_config.json", CHOIR__BESIDE_PIECES,
    NULL};

enum { COUNT = CHOIR_COUNT(choir__beside_names) - 1 };

struct choir_beside {
    struct {
        char *text; /* NULL: the folder has no such file */
        size_t bytes;
        char *wrong; /* why a file that Choir reads cannot be read; NULL: it can */
    } file[COUNT];
};

/* transformers writes 10^30 for a tokenizer without a longest text: such whole numbers are
 * reals here. */
static json_t *parse(const char *text, size_t bytes, json_error_t *why)
{
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, why);
    if (!root)
        root = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, why);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

static bool is_read(const char *name)
{
    return !strcmp(name, CHOIR__BESIDE_MODEL) || !strcmp(name, CHOIR__BESIDE_WRITE) ||
           !strcmp(name, CHOIR__BESIDE_WORDS) || !strcmp(name, CHOIR__BESIDE_NAMES);
}

/* Returns why a file is no JSON object, or NULL. Other programs write forms of their own, as
 * Python's NaN, and read them again: what Choir does not know is no error. */
static char *why_wrong(const char *path, const char *text, size_t bytes)
{
    json_error_t why = {.line = -1};
    json_t *root = parse(text, bytes, &why);
    json_decref(root);
    return root          ? NULL
           : why.text[0] ? choir__format("%s is not valid JSON: line %d, column %d: %s", path,
                               why.line, why.column, why.text)
                         : choir__format("%s is not a JSON object {...}", path);
}

static choir_status read_one(const char *folder, int i, choir_beside *b)
{
    struct stat info;
    const char *name = choir__beside_names[i];
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = CHOIR_OK;
    if (stat(path, &info) == 0) {
        status = choir__read_file(path, FILE_LIMIT, &b->file[i].text, &b->file[i].bytes);
        if (status == CHOIR_OK && is_read(name))
            b->file[i].wrong = why_wrong(path, b->file[i].text, b->file[i].bytes);
    }
    free(path);
    return status;
}

choir_status choir_beside_read(const char *folder, choir_beside **beside)
{
    CHOIR__DEFAULT_FLOATS;
    if (!folder || !beside)
        return choir__missing(__func__, folder ? "beside" : "folder");
    choir_beside *b = choir__calloc(1, sizeof *b);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < COUNT && status == CHOIR_OK; i++)
        status = read_one(folder, i, b);
    if (status == CHOIR_OK)
        *beside = b;
    else
        choir_beside_free(b);
    return status;
}

void choir_beside_free(choir_beside *beside)
{
    for (int i = 0; beside && i < COUNT; i++) {
        free(beside->file[i].text);
        free(beside->file[i].wrong);
    }
    free(beside);
}

static int index_of(const char *name)
{
    int i = 0;
    while (strcmp(choir__beside_names[i], name) != 0)
        i++;
    return i;
}

const char *choir__beside_text(const choir_beside *beside, const char *name, size_t *bytes)
{
    int i = index_of(name);
    *bytes = beside ? beside->file[i].bytes : 0;
    return beside ? beside->file[i].text : NULL;
}

void choir__beside_drop(choir_beside *beside, const char *name)
{
    int i = index_of(name);
    if (beside) {
        free(beside->file[i].text);
        free(beside->file[i].wrong);
        beside->file[i].text = beside->file[i].wrong = NULL;
    }
}

json_t *choir__beside_json(const choir_beside *beside, const char *name)
{
    json_error_t why;
    size_t bytes;
    const char *text = choir__beside_text(beside, name, &bytes);
    return text ? parse(text, bytes, &why) : NULL;
}

const char *choir__beside_wrong(const choir_beside *beside, const char *name)
{
    return beside ? beside->file[index_of(name)].wrong : NULL;
}

/* --- the files of two folders --- */

/* Returns the folder, of two, whose file is copied. The pieces are a tokenizer themselves, and
 * a processor's settings have no tokens. */
static const choir_beside *owner(
    const choir_beside *tokens, const choir_beside *model, int i, bool fits)
{
    const char *name = choir__beside_names[i];
    if (strstr(name, "processor_config"))
        return model && model->file[i].text ? model : tokens;
    bool own = tokens && tokens->file[i].text;
    return own || !fits || !strcmp(name, CHOIR__BESIDE_PIECES) ? tokens : model;
}

choir_beside *choir__beside_join(
    const choir_beside *tokens, const choir_beside *model, bool fits)
{
    choir_beside *b = choir__calloc(1, sizeof *b);
    json_t *words = choir__beside_json(tokens, CHOIR__BESIDE_WORDS);
    bool chats = json_object_get(words, "chat_template"); /* a file of its own would win */
    json_decref(words);
    for (int i = 0; i < COUNT; i++) {
        bool template = strstr(choir__beside_names[i], "chat_template");
        const choir_beside *from = owner(tokens, model, i, fits && !(chats && template));
        if (!from || !from->file[i].text)
            continue;
        b->file[i].bytes = from->file[i].bytes;
        b->file[i].text = choir__alloc(from->file[i].bytes + 1);
        memcpy(b->file[i].text, from->file[i].text, from->file[i].bytes);
        b->file[i].text[from->file[i].bytes] = '\0';
        if (from->file[i].wrong)
            b->file[i].wrong = choir__strdup(from->file[i].wrong);
    }
    return b;
}
