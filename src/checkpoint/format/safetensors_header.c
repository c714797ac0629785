/* The header of a safetensors file: JSON from an unknown source, read one entry at a time, so
 * that memory holds the JSON of only one entry and of the metadata. */
#include "checkpoint/format/safetensors.h"

#include <string.h>

#include "tensor/tensor.h"

/* --- one tensor --- */

static bool dtype_by_name(const char *name, choir_dtype *dtype)
{
#define X(id, text, bytes, safetensors)                                                        \
    if (!strcmp(name, safetensors)) {                                                          \
        *dtype = CHOIR_##id;                                                                   \
        return true;                                                                           \
    }
    CHOIR_DTYPE_LIST(X)
#undef X
    return false;
}

static choir_status read_dtype(
    const choir__st_file *f, choir__st_tensor *t, const json_t *dtype)
{
    if (!json_is_string(dtype))
        return choir__error(
            CHOIR_ERR_FORMAT, CHOIR__ST_TENSOR "has no dtype", f->path, t->name);
    if (!dtype_by_name(json_string_value(dtype), &t->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "has the dtype '%.40s', which is not known", f->path, t->name,
            json_string_value(dtype));
    return CHOIR_OK;
}

/* Reads the shape and computes t->bytes. Sizes of 0 count as 1 in the check, so that no partial
 * product overflows. */
static choir_status read_shape(
    const choir__st_file *f, choir__st_tensor *t, const json_t *shape)
{
    if (!json_is_array(shape))
        return choir__error(
            CHOIR_ERR_FORMAT, CHOIR__ST_TENSOR "has no shape", f->path, t->name);
    if (json_array_size(shape) > CHOIR_MAX_DIMS)
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "has %zu dimensions; at most %d are supported", f->path, t->name,
            json_array_size(shape), CHOIR_MAX_DIMS);
    t->shape.ndim = (int)json_array_size(shape);
    int64_t total = (int64_t)choir_dtype_size(t->dtype);
    for (int i = 0; i < t->shape.ndim; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return choir__error(CHOIR_ERR_FORMAT,
                CHOIR__ST_TENSOR "has a shape with something that is no size at dimension %d",
                f->path, t->name, i);
        t->shape.dim[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(total, choir__max(t->shape.dim[i], 1), &total))
            return choir__error(CHOIR_ERR_FORMAT,
                CHOIR__ST_TENSOR "has a shape of more elements than can be counted", f->path,
                t->name);
    }
    t->bytes = (size_t)choir__shape_count(t->shape) * choir_dtype_size(t->dtype);
    return CHOIR_OK;
}

static choir_status read_offsets(
    const choir__st_file *f, choir__st_tensor *t, const json_t *pair)
{
    const char *data = f->map + CHOIR__ST_LENGTH + f->header_bytes;
    const uint64_t data_bytes = f->size - CHOIR__ST_LENGTH - f->header_bytes;
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "has no data_offsets of two integers", f->path, t->name);
    long long begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin)
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "has the data_offsets [%lld, %lld]", f->path, t->name, begin, end);
    if ((uint64_t)end > data_bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR
            "ends at byte %lld of the data, which has %llu: the file is truncated",
            f->path, t->name, end, (unsigned long long)data_bytes);
    if ((uint64_t)(end - begin) != t->bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "is %s %s, %zu bytes, but its data_offsets "
                             "span %lld",
            f->path, t->name, choir_dtype_name(t->dtype), choir__shape_text(t->shape), t->bytes,
            end - begin);
    t->data = data + begin;
    return CHOIR_OK;
}

static choir_status read_tensor(
    const choir__st_file *f, choir__st_tensor *t, const char *name, const json_t *entry)
{
    if (!*name)
        return choir__error(CHOIR_ERR_FORMAT, "%s: a tensor has an empty name", f->path);
    t->name = choir__strdup(name);
    if (!json_is_object(entry))
        return choir__error(CHOIR_ERR_FORMAT,
            CHOIR__ST_TENSOR "is not described by a JSON object", f->path, name);
    choir_status status = read_dtype(f, t, json_object_get(entry, "dtype"));
    if (status == CHOIR_OK)
        status = read_shape(f, t, json_object_get(entry, "shape"));
    if (status == CHOIR_OK)
        status = read_offsets(f, t, json_object_get(entry, "data_offsets"));
    return status;
}

static choir_status check_metadata(const choir__st_file *f, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return choir__error(CHOIR_ERR_FORMAT, "%s: __metadata__ is not a JSON object", f->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: '%.200s' of the __metadata__: expected a string", f->path, key);
    }
    return CHOIR_OK;
}

/* --- its size --- */

/* The parts of a header, counted outside its strings. */
typedef struct census {
    size_t members, containers;
    int depth, deepest;
    size_t elements, most_elements; /* elements of an array: its commas */
} census;

static census count_header(const char *text, size_t bytes)
{
    census c = {0};
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (quoted && text[i] == '\\') {
            i++;
            continue;
        }
        quoted ^= text[i] == '"';
        if (quoted)
            continue;
        c.members += text[i] == ':';
        c.elements = text[i] == '[' ? 0 : c.elements + (text[i] == ',' && c.depth > 2);
        if (text[i] == '[' || text[i] == '{') {
            c.containers++;
            c.deepest = ++c.depth > c.deepest ? c.depth : c.deepest;
        }
        c.depth -= text[i] == ']' || text[i] == '}';
        c.most_elements = c.elements > c.most_elements ? c.elements : c.most_elements;
    }
    return c;
}

/* Refuses a header that would take far more memory than its text: deeper than {"tensor":
 * {"shape":
 * [...]}}, or of members and lists that are too short to describe tensors. */
static choir_status check_size(const choir__st_file *f)
{
    enum { MOST_DEPTH = 3, MOST_ELEMENTS = 64, MEMBER = 12, CONTAINER = 12, FREE = 4096 };
    census c = count_header(f->map + CHOIR__ST_LENGTH, f->header_bytes);
    size_t room = f->header_bytes + FREE;
    if (c.deepest <= MOST_DEPTH && c.most_elements < MOST_ELEMENTS &&
        c.members <= room / MEMBER && c.containers <= room / CONTAINER)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: the header of %zu bytes has %zu member%s and %zu list%s, %d deep: expected a "
        "description of tensors",
        f->path, f->header_bytes, c.members, c.members == 1 ? "" : "s", c.containers,
        c.containers == 1 ? "" : "s", c.deepest);
}

/* --- entries --- */

typedef struct cursor {
    const choir__st_file *f;
    const char *text; /* the header */
    size_t at;        /* offset of the next byte */
} cursor;

static choir_status no_json(const cursor *c, const char *why, size_t at)
{
    return choir__error(CHOIR_ERR_FORMAT, "%s: the header is not valid JSON: %s, at byte %zu",
        c->f->path, why, at);
}

static void skip_space(cursor *c)
{
    while (c->at < c->f->header_bytes && strchr(" \t\r\n", c->text[c->at]) && c->text[c->at])
        c->at++;
}

/* Takes the character; returns false if another one comes. */
static bool take(cursor *c, char sign)
{
    skip_space(c);
    if (c->at == c->f->header_bytes || c->text[c->at] != sign)
        return false;
    c->at++;
    return true;
}

/* Takes a value of any type; the caller releases it. */
static choir_status take_value(cursor *c, json_t **value)
{
    json_error_t why;
    skip_space(c);
    *value = json_loadb(c->text + c->at, c->f->header_bytes - c->at,
        JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &why);
    if (!*value && json_error_code(&why) == json_error_null_character)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: a text in the header has the character NUL, which no name may have",
            c->f->path);
    if (!*value)
        return no_json(c, why.text, c->at + (size_t)why.position);
    c->at += (size_t)why.position;
    return CHOIR_OK;
}

static choir_status add_entry(choir__st_file *f, const char *name, json_t *entry)
{
    if (strcmp(name, "__metadata__") != 0) {
        CHOIR__GROW(f->tensors, f->count);
        f->tensors[f->count] = (choir__st_tensor){0};
        return read_tensor(f, &f->tensors[f->count++], name, entry);
    }
    if (f->metadata)
        return choir__error(CHOIR_ERR_FORMAT, "%s: the header has two __metadata__", f->path);
    f->metadata = json_incref(entry);
    return check_metadata(f, entry);
}

static choir_status take_entry(choir__st_file *f, cursor *c)
{
    json_t *name = NULL, *entry = NULL;
    skip_space(c);
    if (c->at == f->header_bytes || c->text[c->at] != '"')
        return no_json(c, "expected a name", c->at);
    choir_status status = take_value(c, &name);
    if (status == CHOIR_OK && !take(c, ':'))
        status = no_json(c, "expected ':'", c->at);
    if (status == CHOIR_OK)
        status = take_value(c, &entry);
    if (status == CHOIR_OK)
        status = add_entry(f, json_string_value(name), entry);
    json_decref(name);
    json_decref(entry);
    return status;
}

choir_status choir__st_read_header(choir__st_file *f)
{
    cursor c = {f, f->map + CHOIR__ST_LENGTH, 0};
    if (!f->header_bytes || c.text[0] != '{')
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a safetensors file, whose header begins with '{'", f->path);
    choir_status status = check_size(f);
    c.at = 1;
    if (status == CHOIR_OK && !take(&c, '}')) {
        do
            status = take_entry(f, &c);
        while (status == CHOIR_OK && take(&c, ','));
        if (status == CHOIR_OK && !take(&c, '}'))
            status = no_json(&c, "expected ',' or '}'", c.at);
    }
    skip_space(&c);
    return status == CHOIR_OK && c.at < f->header_bytes
               ? no_json(&c, "expected the end of the header", c.at)
               : status;
}
