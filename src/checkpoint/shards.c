/* One safetensors file or several: see shards.h. */
#include "checkpoint/shards.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/state.h"
#include "checkpoint/stored.h"
#include "data/dataset.h"

#define INDEX_FILE CHOIR__MODEL_FILE ".index.json"

enum { INDEX_LIMIT = 64 << 20 };

static int by_name(const void *a, const void *b)
{
    const choir__shard_entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* --- which files --- */

static bool has(const char *folder, const char *name, char **path)
{
    *path = choir__format("%s/%s", folder, name);
    if (access(*path, F_OK) == 0)
        return true;
    free(*path);
    *path = NULL;
    return false;
}

bool choir__shards_present(const char *folder)
{
    char *path;
    bool found = has(folder, CHOIR__MODEL_FILE, &path) || has(folder, INDEX_FILE, &path);
    if (found)
        free(path);
    return found;
}

/* Finds the file that a path refers to; the caller frees it. */
static choir_status find_file(const char *path, char **file)
{
    if (!is_folder(path)) {
        *file = choir__strdup(path);
        return CHOIR_OK;
    }
    if (has(path, CHOIR__MODEL_FILE, file) || has(path, INDEX_FILE, file) ||
        has(path, "latest/" CHOIR__MODEL_FILE, file))
        return CHOIR_OK;
    bool pickled = has(path, "pytorch_model.bin", file);
    free(*file);
    *file = NULL;
    return choir__error(CHOIR_ERR_IO,
        "%s: the folder has neither " CHOIR__MODEL_FILE " nor " INDEX_FILE "%s", path,
        pickled
            ? "; pytorch_model.bin is a pickled program and not read: save it as safetensors"
            : "");
}

/* --- opening them --- */

static choir_status add_file(choir__shards *s, const char *path)
{
    size_t room = (size_t)s->file_count + 1;
    s->files = choir__realloc(s->files, room * sizeof *s->files);
    s->paths = choir__realloc(s->paths, room * sizeof *s->paths);
    choir__st_file *file = NULL;
    choir_status status = choir__st_open(path, &file);
    if (status != CHOIR_OK)
        return status;
    if (choir__st_metadata(file, CHOIR__SHARDING_KEY)) {
        choir__st_close(file);
        return choir__error(CHOIR_ERR_FORMAT,
            "%s holds parts of tensors: 'choir checkpoint convert' makes whole ones of its folder",
            path);
    }
    int n = choir__st_count(file);
    s->entries = choir__realloc(s->entries, (size_t)(s->count + n + 1) * sizeof *s->entries);
    for (int i = 0; i < n; i++)
        s->entries[s->count++] =
            (choir__shard_entry){choir__st_get(file, i), s->file_count, false};
    s->files[s->file_count] = file;
    s->paths[s->file_count++] = choir__strdup(path);
    return CHOIR_OK;
}

/* Reads one line of the weight_map, and opens its file if it is new. */
static choir_status add_mapped(
    choir__shards *s, const char *index, const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value), *slash = strrchr(index, '/');
    if (!name || !*name || strchr(name, '/') || *name == '.')
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s': expected the name of a file beside it", index, tensor);
    char *path = choir__format("%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, name);
    int f = 0;
    while (f < s->file_count && strcmp(s->paths[f], path) != 0)
        f++;
    choir_status status = f < s->file_count ? CHOIR_OK : add_file(s, path);
    if (status == CHOIR_OK && !choir__st_find(s->files[f], tensor))
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' should be in %s, which does not have it", index, tensor, name);
    free(path);
    return status;
}

static choir_status open_index(choir__shards *s, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    json_error_t why;
    json_t *root = NULL, *value;
    const char *tensor;
    choir_status status = choir__read_file(path, INDEX_LIMIT, &text, &bytes);
    if (status != CHOIR_OK)
        return status;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    json_t *map = json_object_get(root, "weight_map");
    if (!root)
        status = choir__error(CHOIR_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s",
            path, why.line, why.column, why.text);
    else if (!json_object_size(map))
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: key 'weight_map' is missing or names no tensor", path);
    if (status == CHOIR_OK)
        json_object_foreach(map, tensor, value)
        {
            if ((status = add_mapped(s, path, tensor, value)) != CHOIR_OK)
                break;
        }
    json_decref(root);
    free(text);
    return status;
}

static choir_status check_twice(const choir__shards *s)
{
    for (int i = 1; i < s->count; i++)
        if (!by_name(&s->entries[i - 1], &s->entries[i]))
            return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' is in %s and in %s",
                s->path, s->entries[i].tensor->name, s->paths[s->entries[i - 1].file],
                s->paths[s->entries[i].file]);
    return CHOIR_OK;
}

choir_status choir__shards_open(choir__shards *s, const char *path)
{
    *s = (choir__shards){0};
    choir_status status = find_file(path, &s->path);
    if (status == CHOIR_OK)
        status = ends_with(s->path, ".json") ? open_index(s, s->path) : add_file(s, s->path);
    if (status == CHOIR_OK && s->count)
        qsort(s->entries, (size_t)s->count, sizeof *s->entries, by_name);
    if (status == CHOIR_OK)
        status = check_twice(s);
    if (status != CHOIR_OK)
        choir__shards_close(s);
    return status;
}

void choir__shards_close(choir__shards *s)
{
    for (int i = 0; i < s->file_count; i++) {
        choir__st_close(s->files[i]);
        free(s->paths[i]);
    }
    free(s->files);
    free(s->paths);
    free(s->entries);
    free(s->path);
    *s = (choir__shards){0};
}

choir__shard_entry *choir__shards_find(const choir__shards *s, const char *name)
{
    choir__st_tensor named = {.name = (char *)name};
    choir__shard_entry key = {.tensor = &named};
    return s->count ? bsearch(&key, s->entries, (size_t)s->count, sizeof key, by_name) : NULL;
}

const char *choir__shards_path(const choir__shards *s, const choir__shard_entry *entry)
{
    return s->paths[entry->file];
}
