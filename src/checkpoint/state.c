/* state.json, both ways, through one table of fields. */
#include "checkpoint/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "checkpoint/file.h"
#include "data/dataset.h"

enum { VERSION = 1, MAX_STATE = 1 << 20 };

static const char *const file_names[] = {
    CHOIR__MODEL_FILE, CHOIR__OPTIM_FILE, CHOIR__TOKENIZER_FILE, CHOIR__CONFIG_FILE};

/* --- the fields --- */

typedef enum field_type { TEXT, COUNT, TASK, SEED, NUMBER, SHAPE } field_type;

typedef struct field {
    const char *key;
    field_type type;
    size_t at, size;
} field;

#define FIELD(name, type)                                                                      \
    {                                                                                          \
#name, type, offsetof(choir__train_state, name),                                       \
            sizeof(((choir__train_state *)0)->name)                                            \
    }

static const field fields[] = {
    FIELD(model, TEXT),
    FIELD(step, COUNT),
    FIELD(position, COUNT),
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
};

/* --- out --- */

static json_t *shape_json(const choir_shape *shape)
{
    json_t *array = json_array();
    for (int i = 0; i < shape->ndim && i < CHOIR_MAX_DIMS; i++)
        json_array_append_new(array, json_integer(shape->dim[i]));
    return array;
}

/* JSON has neither NaN nor infinity nor integers of 64 bits without a sign. */
static json_t *field_json(field_type type, const void *value)
{
    double number;
    char digits[24];
    switch (type) {
    case TEXT: return json_string(value);
    case COUNT: return json_integer(*(const int64_t *)value);
    case TASK: return json_integer(*(const int *)value);
    case SEED:
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)*(const uint64_t *)value);
        return json_string(digits);
    case NUMBER:
        number = *(const double *)value;
        return isfinite(number) ? json_real(number) : json_null();
    case SHAPE: return shape_json(value);
    }
    return NULL;
}

/* Of everything but the hash itself, in one fixed spelling. */
static void hash_state(json_t *root, char *hex)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    choir__sha256(text, strlen(text), hex);
    free(text);
}

static choir_status files_json(const char *folder, json_t *files)
{
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(file_names) && status == CHOIR_OK; i++) {
        char hex[CHOIR__SHA256_HEX];
        int64_t bytes;
        char *path = choir__format("%s/%s", folder, file_names[i]);
        if (access(path, F_OK) == 0) {
            status = choir__sha256_file(path, hex, &bytes);
            json_object_set_new(files, file_names[i],
                json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "sha256", hex));
        }
        free(path);
    }
    return status;
}

choir_status choir__state_write(const char *folder, const choir__train_state *state)
{
    char hex[CHOIR__SHA256_HEX];
    json_t *root = json_pack("{s:s, s:i}", "format", "choir-checkpoint", "version", VERSION);
    json_t *files = json_object();
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(fields) && status == CHOIR_OK; i++) {
        const field *f = &fields[i];
        json_t *value = field_json(f->type, (const char *)state + f->at);
        if (json_object_set_new(root, f->key, value) != 0)
            status = choir__error(CHOIR_ERR_ARGUMENT, "checkpoint: %s is not UTF-8", f->key);
    }
    if (status == CHOIR_OK)
        status = files_json(folder, files);
    json_object_set_new(root, "files", files);
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

/* --- in --- */

static bool read_shape(const json_t *array, choir_shape *shape)
{
    if (!json_is_array(array) || json_array_size(array) > CHOIR_MAX_DIMS)
        return false;
    *shape = (choir_shape){.ndim = (int)json_array_size(array)};
    for (int i = 0; i < shape->ndim; i++) {
        const json_t *dim = json_array_get(array, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return false;
        shape->dim[i] = json_integer_value(dim);
    }
    return true;
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
        if (!json_is_integer(json) || json_integer_value(json) < 0)
            return false;
        if (f->type == COUNT)
            *(int64_t *)value = json_integer_value(json);
        else
            *(int *)value = (int)choir__min(json_integer_value(json), INT32_MAX);
        return true;
    case SEED: return read_seed(json, value);
    case NUMBER:
        *(double *)value = json_is_null(json) ? NAN : json_number_value(json);
        return json_is_null(json) || json_is_number(json);
    case SHAPE: return read_shape(json, value);
    }
    return false;
}

static choir_status check_root(const char *path, json_t *root)
{
    char hex[CHOIR__SHA256_HEX];
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "choir-checkpoint") != 0)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: key 'format' is not \"choir-checkpoint\": this is no state of Choir's", path);
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

static choir_status parse_state(const char *path, json_t *root, choir__train_state *state)
{
    choir_status status = check_root(path, root);
    for (size_t i = 0; i < CHOIR_COUNT(fields) && status == CHOIR_OK; i++) {
        const field *f = &fields[i];
        if (!read_field(json_object_get(root, f->key), f, (char *)state + f->at))
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s: key '%s' is missing or not what it should be", path, f->key);
    }
    if (status == CHOIR_OK && !json_is_object(json_object_get(root, "files")))
        status = choir__error(CHOIR_ERR_FORMAT, "%s: key 'files' is missing", path);
    return status;
}

choir_status choir__state_read(const char *folder, choir__train_state *state, json_t **files)
{
    choir__train_state found = {0};
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

static choir_status verify_file(const char *folder, const char *name, const json_t *entry)
{
    char hex[CHOIR__SHA256_HEX];
    int64_t bytes;
    char *path = choir__format("%s/%s", folder, name);
    long long want = json_integer_value(json_object_get(entry, "bytes"));
    const char *hash = json_string_value(json_object_get(entry, "sha256"));
    choir_status status = choir__sha256_file(path, hex, &bytes);
    if (status == CHOIR_OK && bytes != want)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s is damaged: it has %lld bytes, not the %lld "
            "that were saved",
            path, (long long)bytes, want);
    else if (status == CHOIR_OK && (!hash || strcmp(hash, hex) != 0))
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s is damaged: its SHA-256 is not the one that state.json has of it", path);
    free(path);
    return status;
}

choir_status choir__state_verify(const char *folder, const json_t *files, const char *name)
{
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(file_names) && status == CHOIR_OK; i++) {
        const json_t *entry = json_object_get(files, file_names[i]);
        if (name ? !strcmp(name, file_names[i]) : entry != NULL)
            status = entry ? verify_file(folder, file_names[i], entry)
                           : choir__error(CHOIR_ERR_FORMAT, "%s has no %s", folder, name);
    }
    return status;
}
