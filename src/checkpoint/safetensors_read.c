/* Reading safetensors: map the file, parse the header, trust nothing.
 *
 * The header's claims about a tensor are checked against the file before they are used: offsets
 * are within the data, agree with dtype and shape, and together cover the data once, without
 * overlap or gap. So a truncated or inconsistent file is an error here, and never an invalid
 * read later. */
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/tensor.h"

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000 };

struct choir__st_file {
    char *path;
    char *map;
    size_t size, header_bytes;
    json_t *header; /* owns the metadata */
    choir__st_tensor *tensors;
    int count;
};

/* "PATH: tensor 'NAME'", with a name of any length shortened for a message. */
#define TENSOR "%s: tensor '%.200s' "

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
        return choir__error(CHOIR_ERR_FORMAT, TENSOR "has no dtype", f->path, t->name);
    if (!dtype_by_name(json_string_value(dtype), &t->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            TENSOR "has the dtype '%.40s', which is not known", f->path, t->name,
            json_string_value(dtype));
    return CHOIR_OK;
}

/* Reads the shape and computes t->bytes. Sizes of 0 count as 1 in the check, so that no partial
 * product overflows. */
static choir_status read_shape(
    const choir__st_file *f, choir__st_tensor *t, const json_t *shape)
{
    if (!json_is_array(shape))
        return choir__error(CHOIR_ERR_FORMAT, TENSOR "has no shape", f->path, t->name);
    if (json_array_size(shape) > CHOIR_MAX_DIMS)
        return choir__error(CHOIR_ERR_FORMAT,
            TENSOR "has %zu dimensions; at most %d are supported", f->path, t->name,
            json_array_size(shape), CHOIR_MAX_DIMS);
    t->shape.ndim = (int)json_array_size(shape);
    int64_t total = (int64_t)choir_dtype_size(t->dtype);
    for (int i = 0; i < t->shape.ndim; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return choir__error(CHOIR_ERR_FORMAT,
                TENSOR "has a shape with something that is no size at dimension %d", f->path,
                t->name, i);
        t->shape.dim[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(total, choir__max(t->shape.dim[i], 1), &total))
            return choir__error(CHOIR_ERR_FORMAT,
                TENSOR "has a shape of more elements than can be counted", f->path, t->name);
    }
    t->bytes = (size_t)choir__shape_count(t->shape) * choir_dtype_size(t->dtype);
    return CHOIR_OK;
}

static choir_status read_offsets(
    const choir__st_file *f, choir__st_tensor *t, const json_t *pair)
{
    const char *data = f->map + LENGTH_BYTES + f->header_bytes;
    const uint64_t data_bytes = f->size - LENGTH_BYTES - f->header_bytes;
    const json_t *first = json_array_get(pair, 0), *second = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return choir__error(
            CHOIR_ERR_FORMAT, TENSOR "has no data_offsets of two integers", f->path, t->name);
    long long begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin)
        return choir__error(CHOIR_ERR_FORMAT, TENSOR "has the data_offsets [%lld, %lld]",
            f->path, t->name, begin, end);
    if ((uint64_t)end > data_bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            TENSOR "ends at byte %lld of the data, which has %llu: the file is truncated",
            f->path, t->name, end, (unsigned long long)data_bytes);
    if ((uint64_t)(end - begin) != t->bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            TENSOR "is %s %s, %zu bytes, but its data_offsets "
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
        return choir__error(
            CHOIR_ERR_FORMAT, TENSOR "is not described by a JSON object", f->path, name);
    choir_status status = read_dtype(f, t, json_object_get(entry, "dtype"));
    if (status == CHOIR_OK)
        status = read_shape(f, t, json_object_get(entry, "shape"));
    if (status == CHOIR_OK)
        status = read_offsets(f, t, json_object_get(entry, "data_offsets"));
    return status;
}

/* --- all of them --- */

static int by_offset(const void *a, const void *b)
{
    const choir__st_tensor *x = a, *y = b;
    const char *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first, because they overlap nothing */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const choir__st_tensor *)a)->name, ((const choir__st_tensor *)b)->name);
}

static choir_status check_cover(choir__st_file *f)
{
    const char *data = f->map + LENGTH_BYTES + f->header_bytes;
    size_t data_bytes = f->size - LENGTH_BYTES - f->header_bytes, covered = 0;
    if (f->count)
        qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_offset);
    for (int i = 0; i < f->count; i++) {
        const choir__st_tensor *t = &f->tensors[i];
        size_t begin = (size_t)((const char *)t->data - data);
        if (begin < covered)
            return choir__error(CHOIR_ERR_FORMAT, TENSOR "overlaps tensor '%.200s'", f->path,
                t->name, f->tensors[i - 1].name);
        if (begin > covered)
            return choir__error(CHOIR_ERR_FORMAT,
                TENSOR "begins at byte %zu of the data; bytes %zu to %zu belong to no tensor",
                f->path, t->name, begin, covered, begin);
        covered = begin + t->bytes;
    }
    if (covered != data_bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: %zu bytes behind the last tensor belong to no tensor", f->path,
            data_bytes - covered);
    return CHOIR_OK;
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

/* The parts of a header, counted outside its strings. */
typedef struct census {
    size_t members, containers;
    int depth, deepest;
    size_t elements, most_elements; /* of an array: commas */
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
    enum { MOST_DEPTH = 3, MOST_ELEMENTS = 64, MEMBER = 8, CONTAINER = 12, FREE = 4096 };
    census c = count_header(f->map + LENGTH_BYTES, f->header_bytes);
    size_t room = f->header_bytes + FREE;
    if (c.deepest <= MOST_DEPTH && c.most_elements < MOST_ELEMENTS &&
        c.members <= room / MEMBER && c.containers <= room / CONTAINER)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: the header of %zu bytes has %zu members and %zu lists, %d deep: expected a "
        "description of tensors",
        f->path, f->header_bytes, c.members, c.containers, c.deepest);
}

static choir_status parse_header(choir__st_file *f)
{
    json_error_t why;
    const char *text = f->map + LENGTH_BYTES, *name;
    json_t *entry;
    if (!f->header_bytes || text[0] != '{')
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a safetensors file, whose header begins with '{'", f->path);
    choir_status small = check_size(f);
    if (small != CHOIR_OK)
        return small;
    f->header = json_loadb(text, f->header_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!f->header)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the header is not valid JSON: %s, at byte %d", f->path, why.text,
            why.position);
    f->tensors = choir__calloc(json_object_size(f->header) + 1, sizeof *f->tensors);
    json_object_foreach(f->header, name, entry)
    {
        bool metadata = !strcmp(name, "__metadata__");
        choir_status status = metadata ? check_metadata(f, entry)
                                       : read_tensor(f, &f->tensors[f->count++], name, entry);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

static choir_status read_length(choir__st_file *f)
{
    uint64_t length = 0;
    for (int i = LENGTH_BYTES; i-- > 0;)
        length = length << 8 | (unsigned char)f->map[i];
    if (length > MAX_HEADER)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the header would have %llu bytes; at most %d are allowed: this is no safetensors "
            "file, or it is damaged",
            f->path, (unsigned long long)length, MAX_HEADER);
    if (length > f->size - LENGTH_BYTES)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the header should have %llu bytes, but the file ends after %zu: it is truncated",
            f->path, (unsigned long long)length, f->size - LENGTH_BYTES);
    f->header_bytes = (size_t)length;
    return CHOIR_OK;
}

static choir_status map_file(choir__st_file *f)
{
    choir_status status = CHOIR_OK;
    struct stat info;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0 || fstat(fd, &info) != 0) {
        status =
            choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", f->path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = choir__error(CHOIR_ERR_IO, "%s is not a regular file", f->path);
    } else if (info.st_size < LENGTH_BYTES) {
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: %lld bytes are no safetensors file: it begins "
            "with the %d bytes of a length",
            f->path, (long long)info.st_size, LENGTH_BYTES);
    } else {
        f->size = (size_t)info.st_size;
        void *map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            status = choir__error(
                CHOIR_ERR_IO, "%s: cannot be mapped: %s", f->path, strerror(errno));
        else
            f->map = map;
    }
    if (fd >= 0)
        close(fd);
    return status;
}

choir_status choir__st_open(const char *path, choir__st_file **file)
{
    choir__st_file *f = choir__calloc(1, sizeof *f);
    f->path = choir__strdup(path);
    choir_status status = map_file(f);
    if (status == CHOIR_OK)
        status = read_length(f);
    if (status == CHOIR_OK)
        status = parse_header(f);
    if (status == CHOIR_OK)
        status = check_cover(f);
    if (status != CHOIR_OK) {
        choir__st_close(f);
        return status;
    }
    if (f->count)
        qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_name);
    *file = f;
    return CHOIR_OK;
}

void choir__st_close(choir__st_file *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->count; i++)
        free(f->tensors[i].name);
    free(f->tensors);
    json_decref(f->header);
    if (f->map)
        munmap(f->map, f->size);
    free(f->path);
    free(f);
}

int choir__st_count(const choir__st_file *f)
{
    return f->count;
}

const choir__st_tensor *choir__st_get(const choir__st_file *f, int i)
{
    return i >= 0 && i < f->count ? &f->tensors[i] : NULL;
}

const choir__st_tensor *choir__st_find(const choir__st_file *f, const char *name)
{
    choir__st_tensor key = {.name = (char *)name};
    if (!f->count)
        return NULL;
    return bsearch(&key, f->tensors, (size_t)f->count, sizeof key, by_name);
}

const char *choir__st_metadata(const choir__st_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}
