/* Reading and writing state.json through one table of fields. */
#include "checkpoint/state.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/floats.h"
#include "base/options.h"
#include "checkpoint/format/file.h"
#include "checkpoint/folder.h"
#include "data/dataset.h"

/* Counts beyond these come from no training, and would overflow where they are added up. */
static const int64_t highest_count = INT64_C(1) << 40, highest_position = INT64_MAX,
                     highest_dim = INT64_C(1) << 31;

enum { VERSION = 1, MAX_STATE = 16 << 20 };

static const char *const indices[] = {
    CHOIR__MODEL_FILE ".index.json", CHOIR__OPTIM_FILE ".index.json"};

choir_train_state choir_train_state_none(void)
{
    return (choir_train_state){.loss = (double)NAN,
        .eval_loss = (double)NAN,
        .best_loss = (double)NAN,
        .best = (double)NAN,
        .best_regular = (double)NAN,
        .base_lr = (double)NAN,
        .plateau_best = (double)NAN};
}

/* --- the fields --- */

typedef enum field_type { TEXT, COUNT, POSITION, TASK, SEED, NUMBER, SHAPE } field_type;

typedef struct field {
    const char *key;
    field_type type;
    size_t at, size;
    bool optional; /* missing in old files */
} field;

#define FIELD(name, type) OPTIONAL(name, type, false)
#define OPTIONAL(name, type, optional)                                                         \
    {                                                                                          \
#name, type, offsetof(choir_train_state, name),                                        \
            sizeof(((choir_train_state *)0)->name), optional                                   \
    }

static const field fields[] = {
    FIELD(model, TEXT),
    FIELD(step, COUNT),
    FIELD(position, POSITION),
    FIELD(seed, SEED),
    FIELD(batch_size, COUNT),
    FIELD(microbatches, COUNT),
    FIELD(optimizer_steps, COUNT),
    FIELD(optimizer, TEXT),
    FIELD(loss, NUMBER),
    FIELD(eval_loss, NUMBER),
    FIELD(best_loss, NUMBER),
    FIELD(input, SHAPE),
    FIELD(output, SHAPE),
    FIELD(classes, COUNT),
    FIELD(task, TASK),
    OPTIONAL(slices, COUNT, true),
    OPTIONAL(strategy, TEXT, true),
    OPTIONAL(world, COUNT, true),
    OPTIONAL(amp, TEXT, true),
    OPTIONAL(bits, TEXT, true),
    OPTIONAL(loss_scale, NUMBER, true),
    OPTIONAL(scale_clean, COUNT, true),
    OPTIONAL(scale_in_a_row, COUNT, true),
    OPTIONAL(skipped_steps, COUNT, true),
    OPTIONAL(best, NUMBER, true),
    OPTIONAL(best_regular, NUMBER, true),
    OPTIONAL(stale, COUNT, true),
    OPTIONAL(base_lr, NUMBER, true),
    OPTIONAL(plateau_best, NUMBER, true),
    OPTIONAL(plateau_bad, COUNT, true),
    OPTIONAL(plateau_cooling, COUNT, true),
    OPTIONAL(epoch_loss, NUMBER, true),
    OPTIONAL(eval_due, COUNT, true),
    OPTIONAL(epoch_without, COUNT, true),
    OPTIONAL(pixel_mean, NUMBER, true),
    OPTIONAL(pixel_deviation, NUMBER, true),
    OPTIONAL(pixel_resize, COUNT, true),
};

/* --- writing --- */

static json_t *shape_json(const choir_shape *shape)
{
    json_t *array = json_array();
    for (int i = 0; i < shape->ndim && i < CHOIR_MAX_DIMS; i++)
        json_array_append_new(array, json_integer(shape->dim[i]));
    return array;
}

/* JSON has neither NaN nor infinity nor unsigned 64-bit integers: null, "inf" or "-inf", text.
 */
static json_t *field_json(field_type type, const void *value)
{
    double number;
    char digits[24];
    switch (type) {
    case TEXT: return json_string(value);
    case COUNT:
    case POSITION: return json_integer(*(const int64_t *)value);
    case TASK: return json_integer(*(const int *)value);
    case SEED:
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)*(const uint64_t *)value);
        return json_string(digits);
    case NUMBER:
        number = *(const double *)value;
        return isnan(number)   ? json_null()
               : isinf(number) ? json_string(number > 0 ? "inf" : "-inf")
                               : json_real(number);
    case SHAPE: return shape_json(value);
    }
    return NULL;
}

/* Hashes everything but the hash itself, in one fixed spelling. */
static void hash_state(json_t *root, char *hex)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    choir__sha256(text, strlen(text), hex);
    free(text);
}

/* Files that are added to a list. */
typedef struct adding {
    const char *folder;
    json_t *files;
} adding;

/* Adds a file of the folder, if it is there. */
static choir_status add_small_file(const char *name, void *arg)
{
    const adding *to = arg;
    choir__digest digest;
    choir_status status = CHOIR_OK;
    char *path = choir__format("%s/%s", to->folder, name);
    if (access(path, F_OK) == 0) {
        status = choir__sha256_file(path, &digest);
        choir__state_add_file(to->files, name, &digest);
    }
    free(path);
    return status;
}

/* Adds the files of the folder that are not in files yet. */
static choir_status add_small_files(const char *folder, json_t *files)
{
    adding to = {folder, files};
    choir_status status = choir__small_files(folder, add_small_file, &to);
    for (size_t i = 0; i < CHOIR_COUNT(indices) && status == CHOIR_OK; i++)
        status = add_small_file(indices[i], &to);
    return status;
}

void choir__state_add_file(json_t *files, const char *name, const choir__digest *digest)
{
    json_object_set_new(files, name,
        json_pack("{s:I, s:s}", "bytes", (json_int_t)digest->bytes, "sha256", digest->sha256));
}

static choir_status put_fields(json_t *root, const choir_train_state *state)
{
    for (size_t i = 0; i < CHOIR_COUNT(fields); i++) {
        const field *f = &fields[i];
        json_t *value = field_json(f->type, (const char *)state + f->at);
        if (json_object_set_new(root, f->key, value) != 0)
            return choir__error(CHOIR_ERR_ARGUMENT, "checkpoint: %s is not UTF-8", f->key);
    }
    return CHOIR_OK;
}

choir_status choir__state_digest(const choir_train_state *state, char *hex)
{
    CHOIR__DEFAULT_FLOATS;
    json_t *root = json_object();
    choir_status status = put_fields(root, state);
    hash_state(root, hex);
    json_decref(root);
    return status;
}

choir_status choir__state_write(
    const char *folder, const choir_train_state *state, json_t *files)
{
    CHOIR__DEFAULT_FLOATS;
    char hex[CHOIR__SHA256_HEX];
    json_t *root = json_pack("{s:s, s:i}", "format", "choir-checkpoint", "version", VERSION);
    choir_status status = put_fields(root, state);
    if (status == CHOIR_OK)
        status = add_small_files(folder, files);
    json_object_set(root, "files", files);
    if (status == CHOIR_OK) {
        hash_state(root, hex);
        json_object_set_new(root, "sha256", json_string(hex));
        char *text = json_dumps(root, JSON_INDENT(2));
        char *path = choir__format("%s/%s", folder, CHOIR__STATE_FILE);
        status = choir__write_file(path, text, strlen(text));
        free(path);
        free(text);
    }
    json_decref(root);
    return status;
}

/* --- reading --- */

static bool read_shape(const json_t *array, choir_shape *shape)
{
    if (!json_is_array(array) || json_array_size(array) > CHOIR_MAX_DIMS)
        return false;
    *shape = (choir_shape){.ndim = (int)json_array_size(array)};
    for (int i = 0; i < shape->ndim; i++) {
        const json_t *dim = json_array_get(array, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0 ||
            json_integer_value(dim) > highest_dim)
            return false;
        shape->dim[i] = json_integer_value(dim);
    }
    return true;
}

static bool read_number(const json_t *json, double *number)
{
    const char *text = json_string_value(json);
    bool infinite = text && (!strcmp(text, "inf") || !strcmp(text, "-inf"));
    *number = infinite             ? (*text == '-' ? -(double)INFINITY : (double)INFINITY)
              : json_is_null(json) ? (double)NAN
                                   : json_number_value(json);
    return infinite || json_is_null(json) || json_is_number(json);
}

static bool read_seed(const json_t *json, uint64_t *seed)
{
    char back[24];
    const char *text = json_string_value(json);
    if (!text)
        return false;
    *seed = strtoull(text, NULL, 10);
    snprintf(back, sizeof back, "%llu", (unsigned long long)*seed);
    return !strcmp(back, text);
}

static bool read_field(const json_t *json, const field *f, void *value)
{
    switch (f->type) {
    case TEXT:
        if (!json_is_string(json) || json_string_length(json) >= f->size)
            return false;
        memcpy(value, json_string_value(json), json_string_length(json) + 1);
        return true;
    case COUNT:
    case TASK:
    case POSITION:
        if (!json_is_integer(json) || json_integer_value(json) < 0 ||
            json_integer_value(json) > (f->type == POSITION  ? highest_position
                                           : f->type == TASK ? CHOIR_MULTI_LABEL
                                                             : highest_count))
            return false;
        if (f->type == TASK)
            *(int *)value = (int)json_integer_value(json);
        else
            *(int64_t *)value = json_integer_value(json);
        return true;
    case SEED: return read_seed(json, value);
    case NUMBER: return read_number(json, value);
    case SHAPE: return read_shape(json, value);
    }
    return false;
}

static choir_status check_root(const char *path, json_t *root)
{
    char hex[CHOIR__SHA256_HEX];
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "choir-checkpoint") != 0)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: key 'format': expected \"choir-checkpoint\"", path);
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (version != VERSION)
        return choir__error(CHOIR_ERR_FORMAT, "%s: key 'version' is %lld, this Choir reads %d",
            path, (long long)version, VERSION);
    json_t *hash = json_incref(json_object_get(root, "sha256"));
    json_object_del(root, "sha256");
    hash_state(root, hex);
    bool good = json_is_string(hash) && !strcmp(hex, json_string_value(hash));
    json_decref(hash);
    if (!good)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s is damaged: its contents do not have the SHA-256 under key 'sha256'", path);
    return CHOIR_OK;
}

static choir_status check_files(const char *path, json_t *files)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(files))
        return choir__error(CHOIR_ERR_FORMAT, "%s: missing key 'files'", path);
    json_object_foreach(files, name, entry)
    {
        if (!choir__is_part_name(name) || !json_is_integer(json_object_get(entry, "bytes")) ||
            !json_is_string(json_object_get(entry, "sha256")))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: key 'files': expected files of a checkpoint, got '%.200s'", path, name);
    }
    return CHOIR_OK;
}

static choir_status parse_state(const char *path, json_t *root, choir_train_state *state)
{
    choir_status status = check_root(path, root);
    for (size_t i = 0; i < CHOIR_COUNT(fields) && status == CHOIR_OK; i++) {
        const field *f = &fields[i];
        const json_t *value = json_object_get(root, f->key);
        if (!(f->optional && !value) && !read_field(value, f, (char *)state + f->at))
            status = choir__error(
                CHOIR_ERR_FORMAT, "%s: key '%s' is missing or malformed", path, f->key);
    }
    return status == CHOIR_OK ? check_files(path, json_object_get(root, "files")) : status;
}

choir_status choir__state_read(const char *folder, choir_train_state *state, json_t **files)
{
    CHOIR__DEFAULT_FLOATS;
    choir_train_state found = choir_train_state_none();
    json_error_t why;
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes = 0;
    char *path = choir__format("%s/%s", folder, CHOIR__STATE_FILE);
    choir_status status = choir__read_file(path, MAX_STATE, &text, &bytes);
    if (status == CHOIR_OK) {
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
        status = root ? parse_state(path, root, &found)
                      : choir__error(CHOIR_ERR_FORMAT, "%s is not valid JSON: line %d: %s",
                            path, why.line, why.text);
    }
    if (status == CHOIR_OK) {
        *state = found;
        *files = json_incref(json_object_get(root, "files"));
    }
    json_decref(root);
    free(text);
    free(path);
    return status;
}

/* --- the files beside it --- */

#define OR_CONTINUE ", or continue from another checkpoint"

static int64_t bytes_of(const json_t *entry)
{
    return json_integer_value(json_object_get(entry, "bytes"));
}

static choir_status check_size(const char *path, const json_t *entry)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return choir__error(
            CHOIR_ERR_IO, "%s is missing (%s): put it back" OR_CONTINUE, path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return choir__error(CHOIR_ERR_IO, "%s: expected a regular file", path);
    return (long long)info.st_size == bytes_of(entry)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s is damaged or of another checkpoint: it has %lld bytes, not the %lld that "
                     "were saved; put the right file back" OR_CONTINUE,
                     path, (long long)info.st_size, (long long)bytes_of(entry));
}

static choir_status check_hash(const char *path, const json_t *entry)
{
    choir__digest found;
    choir_status status = choir__sha256_file(path, &found);
    if (status == CHOIR_OK &&
        strcmp(json_string_value(json_object_get(entry, "sha256")), found.sha256) != 0)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s is damaged or of another checkpoint: its SHA-256 is not the one that state.json "
            "has of it; put the right file back" OR_CONTINUE,
            path);
    return status;
}

choir_status choir__state_check_file(
    const char *folder, const json_t *files, const char *name, bool hashed)
{
    const json_t *entry = json_object_get(files, name);
    if (!entry)
        return choir__error(CHOIR_ERR_FORMAT, "%s has no %s", folder, name);
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = check_size(path, entry);
    if (status == CHOIR_OK && hashed)
        status = check_hash(path, entry);
    free(path);
    return status;
}

choir_status choir__state_check_sizes(const char *folder, json_t *files)
{
    choir_status status = CHOIR_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry)
    {
        if (status == CHOIR_OK)
            status = choir__state_check_file(folder, files, name, false);
    }
    return status;
}
