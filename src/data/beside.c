/* The files beside a model's weights, in memory: see choir/beside.h. Their contents are kept as
 * they are, so a folder that passes through a training has the same bytes afterwards. */
#include "data/beside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/dataset.h"

enum { FILE_LIMIT = 64 << 20 };

const char *const choir__beside_names[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE,
    CHOIR__BESIDE_WORDS, CHOIR__BESIDE_NAMES, "added_tokens.json", "chat_template.jinja",
    "chat_template.json", "preprocessor_config.json", "processor_config.json",
    CHOIR__BESIDE_PIECES, NULL};

enum { COUNT = CHOIR_COUNT(choir__beside_names) - 1 };

struct choir_beside {
    struct {
        char *text; /* NULL: the folder has no such file */
        size_t bytes;
    } file[COUNT];
};

/* transformers writes 10^30 for a tokenizer without a longest text: such whole numbers are
 * reals here. */
static json_t *parse(const char *text, size_t bytes, json_error_t *why)
{
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, why);
    return root ? root : json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, why);
}

/* Any program may have a config.json of its own beside a tokenizer, in a form of its own: the
 * reader of a model refuses it, this one does not know it. */
static choir_status check_json(const char *path, const char *name, char **text, size_t bytes)
{
    json_error_t why;
    size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 5, ".json") != 0)
        return CHOIR_OK;
    json_t *root = parse(*text, bytes, &why);
    choir_status status = CHOIR_OK;
    if (!json_is_object(root) && !strcmp(name, CHOIR__BESIDE_MODEL)) {
        free(*text);
        *text = NULL;
    } else if (!root) {
        status = choir__error(CHOIR_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s",
            path, why.line, why.column, why.text);
    } else if (!json_is_object(root)) {
        status = choir__error(CHOIR_ERR_FORMAT, "%s: expected a JSON object {...}", path);
    }
    json_decref(root);
    return status;
}

static choir_status read_one(const char *folder, int i, choir_beside *b)
{
    struct stat info;
    const char *name = choir__beside_names[i];
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = CHOIR_OK;
    if (stat(path, &info) == 0) {
        status = choir__read_file(path, FILE_LIMIT, &b->file[i].text, &b->file[i].bytes);
        if (status == CHOIR_OK)
            status = check_json(path, name, &b->file[i].text, b->file[i].bytes);
    }
    free(path);
    return status;
}

choir_status choir_beside_read(const char *folder, choir_beside **beside)
{
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
    for (int i = 0; beside && i < COUNT; i++)
        free(beside->file[i].text);
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
        beside->file[i].text = NULL;
    }
}

json_t *choir__beside_json(const choir_beside *beside, const char *name)
{
    json_error_t why;
    size_t bytes;
    const char *text = choir__beside_text(beside, name, &bytes);
    return text ? parse(text, bytes, &why) : NULL;
}
