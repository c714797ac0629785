/* Converts a checkpoint, or a folder of another program, tensor by tensor: mapped files are
 * read part by part, converted in one buffer, and written to as many new files as asked for.
 * Types that cannot represent a weight are refused. A checkpoint gets its small files and a
 * state.json with new hashes, too, and the folder appears by one rename. */
#include "checkpoint/weights/convert.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/temp_file.h"
#include "checkpoint/format/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/stored.h"
#include "checkpoint/state.h"
#include "data/beside.h"
#include "data/dataset.h"
#include "tensor/tensor.h"

enum { SMALL_FILE_LIMIT = 256 << 20 };

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* --- opening --- */

/* Opens a folder without a state: all its *.safetensors. */
static choir_status open_foreign(choir__stored *stored, const char *folder)
{
    int count = 0;
    char **paths = NULL;
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)))
        if (ends_with(entry->d_name, ".safetensors")) {
            CHOIR__GROW(paths, count);
            paths[count++] = choir__format("%s/%s", folder, entry->d_name);
        }
    if (stream)
        closedir(stream);
    choir_status status = choir__stored_open(stored, folder, (const char *const *)paths, count);
    for (int i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return status;
}

static bool has_weights(const char *folder)
{
    bool found = false;
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)))
        found |= ends_with(entry->d_name, ".safetensors");
    if (stream)
        closedir(stream);
    return found;
}

static choir_status open_checkpoint(choir__opened *o, bool hashed)
{
    choir_status status = choir__state_read(o->folder, &o->state, &o->files);
    o->has_state = status == CHOIR_OK;
    if (status == CHOIR_OK)
        status = choir__state_check_sizes(o->folder, o->files);
    if (status == CHOIR_OK && hashed)
        status = choir__state_verify(o->folder, o->files, 0, 1);
    if (status == CHOIR_OK)
        status = choir__stored_open_kind(&o->model, o->folder, o->files, false);
    if (status == CHOIR_OK)
        status = choir__stored_open_kind(&o->optimizer, o->folder, o->files, true);
    return status;
}

choir_status choir__opened_open(choir__opened *o, const char *path, bool hashed)
{
    char found[PATH_MAX];
    choir_status status = CHOIR_OK;
    *o = (choir__opened){.folder = NULL};
    bool foreign = choir__is_folder(path) && has_weights(path) &&
                   !choir__folder_has(path, CHOIR__STATE_FILE);
    if (foreign) {
        o->folder = choir__strdup(path);
        status = open_foreign(&o->model, path);
    } else {
        status = choir__checkpoint_find(path, found);
    }
    if (!foreign && status == CHOIR_OK && choir__is_weights_file(found)) {
        const char *file = found;
        status = choir__stored_open(&o->model, found, &file, 1);
    } else if (!foreign && status == CHOIR_OK) {
        o->folder = choir__strdup(found);
        status = open_checkpoint(o, hashed);
    }
    if (status != CHOIR_OK)
        choir__opened_close(o);
    return status;
}

void choir__opened_close(choir__opened *o)
{
    choir__stored_close(&o->model);
    choir__stored_close(&o->optimizer);
    json_decref(o->files);
    free(o->folder);
    *o = (choir__opened){.folder = NULL};
}

/* --- one file --- */

/* Tensors [first, first + count), for one file. */
typedef struct slice {
    const choir__stored *stored;
    const choir__st_tensor *tensors;
    int first;
    void *room;
} slice;

/* Checks that a smaller type can represent all weights: none becomes infinite. */
static choir_status check_range(
    const choir__stored_tensor *t, const slice *s, choir_dtype dtype)
{
    float value;
    int64_t at = choir__is_float(dtype) && dtype != t->dtype
                     ? choir__first_nonfinite(
                           s->room, dtype, (size_t)choir__shape_count(t->whole), &value)
                     : -1;
    return at < 0 ? CHOIR_OK
                  : choir__error(CHOIR_ERR_NONFINITE,
                        "tensor '%s': number %lld is beyond %s, or was no number before; take "
                        "bf16 or f32",
                        t->name, (long long)at, choir_dtype_name(dtype));
}

static choir_status whole_bytes(void *arg, int i, const void **data)
{
    slice *s = arg;
    const choir__stored_tensor *t = &s->stored->tensors[s->first + i];
    choir__box_region whole = choir__box_region_whole(t->whole);
    *data = s->room;
    if (t->part_count == 1 && t->dtype == s->tensors[i].dtype)
        *data = t->parts->tensor->data; /* without conversion */
    else
        choir__stored_read(t, &whole, s->room, s->tensors[i].dtype);
    return *data == s->room ? check_range(t, s, s->tensors[i].dtype) : CHOIR_OK;
}

static choir_dtype dtype_of(const choir__stored_tensor *t, const choir__convert_opts *opts)
{
    return opts->typed && choir__is_float(t->dtype) ? opts->dtype : t->dtype;
}

/* Returns what the files state of blocks among these tensors, or NULL; the caller frees it. */
static char *blocks_of(const choir__stored *stored, int first, int count)
{
    json_t *all = choir__stored_blocks(stored), *some = json_object();
    for (int i = first; i < first + count; i++) {
        const char *name = stored->tensors[i].name;
        json_t *type = json_object_get(all, name);
        if (type)
            json_object_set(some, name, type);
    }
    char *text =
        json_object_size(some) ? json_dumps(some, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(some);
    json_decref(all);
    return text;
}

static choir_status write_slice(const choir__stored *stored, int first, int count,
    const char *path, const choir__convert_opts *opts, choir__digest *digest)
{
    size_t largest = 0;
    choir__st_tensor *tensors = choir__calloc((size_t)count + 1, sizeof *tensors);
    for (int i = 0; i < count; i++) {
        const choir__stored_tensor *t = &stored->tensors[first + i];
        choir_dtype dtype = dtype_of(t, opts);
        tensors[i] =
            (choir__st_tensor){.name = (char *)t->name, .dtype = dtype, .shape = t->whole};
        tensors[i].bytes = (size_t)choir__shape_count(t->whole) * choir_dtype_size(dtype);
        largest = tensors[i].bytes > largest ? tensors[i].bytes : largest;
    }
    slice s = {stored, tensors, first, malloc(largest + 1)};
    char *blocks = blocks_of(stored, first, count);
    const char *metadata[] = {CHOIR__BLOCKS_KEY, blocks, NULL};
    choir_status status = s.room ? choir__st_stream(path, tensors, count,
                                       blocks ? metadata : NULL, whole_bytes, &s, digest)
                                 : choir__error(CHOIR_ERR_MEMORY,
                                       "%s: no host memory for %zu bytes", path, largest);
    free(blocks);
    free(s.room);
    free(tensors);
    return status;
}

/* --- several, with an index --- */

static int64_t bytes_of(const choir__stored_tensor *t)
{
    return choir__shape_count(t->whole) * (int64_t)choir_dtype_size(t->dtype);
}

/* Returns how many tensors from `first` on are a fair share of the rest for `shards` files: at
 * least one, and few enough to leave one per remaining file. */
static int share_of(const choir__stored *s, int first, int shards)
{
    int64_t left = 0, taken = 0;
    int n = 0;
    for (int i = first; i < s->count; i++)
        left += bytes_of(&s->tensors[i]);
    while (first + n < s->count - (shards - 1) &&
           (n == 0 || shards == 1 ||
               taken + bytes_of(&s->tensors[first + n]) / 2 <= left / shards))
        taken += bytes_of(&s->tensors[first + n++]);
    return n;
}

static choir_status write_index(const char *folder, const char *kind, json_t *map,
    const choir__stored *stored, const choir__convert_opts *opts)
{
    int64_t total = 0;
    for (int i = 0; i < stored->count; i++)
        total += choir__shape_count(stored->tensors[i].whole) *
                 (int64_t)choir_dtype_size(dtype_of(&stored->tensors[i], opts));
    json_t *root = json_pack(
        "{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    char *path = choir__format("%s/%s.safetensors.index.json", folder, kind);
    choir_status status = choir__write_file(path, text, strlen(text));
    free(path);
    free(text);
    json_decref(root);
    return status;
}

static choir_status write_kind(const choir__stored *stored, const char *folder,
    const char *kind, const choir__convert_opts *opts, json_t *files)
{
    int shards = (int)choir__max(1, choir__min(opts->shards, stored->count));
    json_t *map = json_object();
    choir_status status = CHOIR_OK;
    for (int k = 0, first = 0, n; k < shards && status == CHOIR_OK; k++, first += n) {
        choir__digest digest;
        n = share_of(stored, first, shards - k);
        char *name = shards == 1
                         ? choir__format("%s.safetensors", kind)
                         : choir__format("%s-%05d-of-%05d.safetensors", kind, k + 1, shards);
        char *path = choir__format("%s/%s", folder, name);
        status = write_slice(stored, first, n, path, opts, &digest);
        choir__state_add_file(files, name, &digest);
        for (int i = first; i < first + n; i++)
            json_object_set_new(map, stored->tensors[i].name, json_string(name));
        free(path);
        free(name);
    }
    if (status == CHOIR_OK && shards > 1)
        status = write_index(folder, kind, map, stored, opts);
    json_decref(map);
    return status;
}

/* --- a folder --- */

/* Sets the dtype that a config.json states; *text is replaced. A file that is no JSON object
 * stays as it is. */
static void set_dtype(char **text, size_t *bytes, const char *dtype)
{
    json_t *root = json_loadb(*text, *bytes, 0, NULL);
    const char *key = json_object_get(root, "dtype") ? "dtype" : "torch_dtype";
    if (json_is_object(root)) {
        json_object_set_new(root, key, json_string(dtype));
        free(*text);
        *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
        *bytes = strlen(*text);
    }
    json_decref(root);
}

choir_status choir__config_state_dtype(const char *folder, choir_dtype dtype)
{
    static const char *const names[] = {[CHOIR_F32] = "float32",
        [CHOIR_F64] = "float64",
        [CHOIR_BF16] = "bfloat16",
        [CHOIR_F16] = "float16"};
    char *path = choir__format("%s/" CHOIR__BESIDE_MODEL, folder), *text = NULL;
    size_t bytes;
    choir_status status = CHOIR_OK;
    if (choir__folder_has(folder, CHOIR__BESIDE_MODEL))
        status = choir__read_file(path, SMALL_FILE_LIMIT, &text, &bytes);
    if (text) {
        set_dtype(&text, &bytes, names[dtype]);
        status = choir__write_file(path, text, bytes);
    }
    free(text);
    free(path);
    return status;
}

struct conversion {
    const choir__opened *from;
    const choir__convert_opts *opts;
};

static choir_status fill(const char *folder, void *arg)
{
    const struct conversion *c = arg;
    const choir__opened *o = c->from;
    const choir__convert_opts *opts = c->opts;
    choir__convert_opts as_is = {.shards = opts->shards}; /* rounded moments change steps */
    json_t *files = json_object();
    choir_status status = write_kind(&o->model, folder, "model", opts, files);
    if (status == CHOIR_OK && o->optimizer.count)
        status = write_kind(&o->optimizer, folder, "optimizer", &as_is, files);
    if (o->folder && status == CHOIR_OK)
        status = choir__small_files_copy(o->folder, folder, false);
    if (status == CHOIR_OK && opts->typed)
        status = choir__config_state_dtype(folder, opts->dtype);
    if (status == CHOIR_OK && o->has_state)
        status = choir__state_write(folder, &o->state, files);
    if (status == CHOIR_OK)
        status = choir__sync_path(folder);
    json_decref(files);
    return status;
}

choir_status choir__checkpoint_convert(
    const choir__opened *o, const char *to, choir__convert_opts opts)
{
    choir__digest digest;
    if (!o->model.count)
        return choir__error(CHOIR_ERR_FORMAT, "%s has no tensors", o->model.where);
    choir_status status = choir__folder_is_free(to);
    if (status != CHOIR_OK)
        return status;
    if (!ends_with(to, ".safetensors"))
        return choir__folder_make(to, fill, &(struct conversion){o, &opts});
    if (opts.shards > 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s is one file, and %d shards are asked for: name a folder", to, opts.shards);
    return write_slice(&o->model, 0, o->model.count, to, &opts, &digest);
}
