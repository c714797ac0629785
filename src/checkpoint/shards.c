/* One safetensors file or several as one sorted list of whole tensors. An index is checked in
 * both directions: its files are beside it, and each has the tensors that it names. Tensors in
 * parts are joined in memory when they are read. */
#include "checkpoint/shards.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/map.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/weights/weight_files.h"
#include "data/dataset.h"
#include "tensor/tensor.h"

enum { INDEX_LIMIT = 64 << 20 };

/* --- an index --- */

/* Adds the file that one line of the weight_map names, if it is new. */
static choir_status add_mapped(
    choir__weight_files *f, choir__map *names, const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value), *slash = strrchr(f->path, '/');
    if (!name || !*name || strchr(name, '/') || *name == '.')
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s': expected the name of a file beside it", f->path, tensor);
    if (choir__map_put(names, name, f->count) < 0)
        choir__weight_files_add(
            f, choir__format("%.*s%s", slash ? (int)(slash + 1 - f->path) : 0, f->path, name));
    return CHOIR_OK;
}

static choir_status read_map(choir__weight_files *f, json_t **root)
{
    char *text = NULL;
    size_t bytes = 0;
    json_error_t why;
    json_t *value;
    const char *tensor;
    choir_status status = choir__read_file(f->path, INDEX_LIMIT, &text, &bytes);
    if (status != CHOIR_OK)
        return status;
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    free(text);
    json_t *map = json_object_get(*root, "weight_map");
    if (!*root)
        return choir__error(CHOIR_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s",
            f->path, why.line, why.column, why.text);
    if (!json_object_size(map))
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: key 'weight_map' is missing or names no tensor", f->path);
    choir__map names = {0};
    json_object_foreach(map, tensor, value)
    {
        if (status == CHOIR_OK)
            status = add_mapped(f, &names, tensor, value);
    }
    choir__map_free(&names);
    return status;
}

/* Checks that every tensor of the weight_map is in the file that it is mapped to. */
static choir_status check_map(const choir__file_shards *s, const json_t *root)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(json_object_get(root, "weight_map"), tensor, value)
    {
        const choir__stored_tensor *t = choir__stored_find(&s->stored, tensor);
        const char *name = json_string_value(value);
        bool found = false;
        for (int p = 0; t && p < t->part_count && !found; p++) {
            const char *path = s->stored.paths[t->parts[p].file], *slash = strrchr(path, '/');
            found = !strcmp(slash ? slash + 1 : path, name);
        }
        if (!found)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: tensor '%.200s' should be in %s, which does not have it", s->path, tensor,
                name);
    }
    return CHOIR_OK;
}

/* An index names one file per tensor. If these hold parts of tensors, the other files beside it
 * hold the rest. */
static choir_status add_other_parts(choir__weight_files *f)
{
    choir__st_file *file = NULL;
    choir_status status = choir__st_open(f->files[0], &file);
    if (status != CHOIR_OK)
        return status;
    bool parted = choir__st_metadata(file, CHOIR__SHARDING_KEY) != NULL;
    choir__st_close(file);
    if (parted) {
        choir__weight_files all = {.path = f->path};
        choir__weight_files_match(&all, f->path, "model-*.safetensors");
        f->path = NULL;
        choir__weight_files_free(f);
        *f = all;
    }
    return CHOIR_OK;
}

/* --- whole tensors --- */

static choir_status make_whole(
    const choir__file_shards *s, const choir__stored_tensor *t, choir__st_tensor *whole)
{
    choir__box_region region = choir__box_region_whole(t->whole);
    *whole = *t->parts->tensor;
    if (t->part_count == 1)
        return CHOIR_OK;
    whole->shape = t->whole;
    whole->bytes = (size_t)choir__shape_count(t->whole) * choir_dtype_size(t->dtype);
    void *data = malloc(whole->bytes + 1);
    whole->data = data;
    if (!data)
        return choir__error(CHOIR_ERR_MEMORY,
            "%s: no host memory for the %zu bytes of tensor '%.200s'", s->path, whole->bytes,
            t->name);
    choir__stored_read(t, &region, data, t->dtype);
    return CHOIR_OK;
}

static choir_status make_entries(choir__file_shards *s)
{
    size_t room = (size_t)s->stored.count + 1;
    choir_status status = CHOIR_OK;
    s->tensors = choir__calloc(room, sizeof *s->tensors);
    s->entries = choir__calloc(room, sizeof *s->entries);
    for (; s->count < s->stored.count && status == CHOIR_OK; s->count++) {
        s->entries[s->count].tensor = &s->tensors[s->count];
        status = make_whole(s, &s->stored.tensors[s->count], &s->tensors[s->count]);
    }
    return status;
}

/* --- opening --- */

static choir_status open_files(choir__file_shards *s, const char *path)
{
    choir__weight_files f;
    json_t *index = NULL;
    *s = (choir__file_shards){0};
    choir_status status = choir__weight_files_find(path, &f);
    if (status == CHOIR_OK && !f.count) {
        status = read_map(&f, &index);
        if (status == CHOIR_OK)
            status = add_other_parts(&f);
    }
    if (status == CHOIR_OK) {
        s->path = choir__strdup(f.path);
        status = choir__stored_open_as(&s->stored, f.path, (const char *const *)f.files,
            f.count, choir__is_gguf_file(f.path) ? choir__gguf_tensors_open : choir__st_open);
    }
    if (status == CHOIR_OK && index)
        status = check_map(s, index);
    json_decref(index);
    choir__weight_files_free(&f);
    return status;
}

choir_status choir__file_shards_open(choir__file_shards *s, const char *path)
{
    choir_status status = open_files(s, path);
    if (status == CHOIR_OK)
        status = make_entries(s);
    if (status != CHOIR_OK)
        choir__file_shards_close(s);
    return status;
}

choir_status choir__file_shards_check(const char *path)
{
    choir__file_shards s;
    choir_status status = open_files(&s, path);
    choir__file_shards_close(&s);
    return status;
}

void choir__file_shards_close(choir__file_shards *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->stored.tensors[i].part_count > 1)
            free((void *)s->tensors[i].data);
    choir__stored_close(&s->stored);
    free(s->tensors);
    free(s->entries);
    free(s->path);
    *s = (choir__file_shards){0};
}

static int by_name(const void *a, const void *b)
{
    const choir__shard_entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

choir__shard_entry *choir__file_shards_find(const choir__file_shards *s, const char *name)
{
    choir__st_tensor named = {.name = (char *)name};
    choir__shard_entry key = {.tensor = &named};
    return s->count ? bsearch(&key, s->entries, (size_t)s->count, sizeof key, by_name) : NULL;
}

const char *choir__file_shards_path(
    const choir__file_shards *s, const choir__shard_entry *entry)
{
    return choir__stored_path(&s->stored, &s->stored.tensors[entry - s->entries]);
}
