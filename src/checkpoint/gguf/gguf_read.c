/* Reading: map the file, parse keys and the list of tensors, trust nothing.
 *
 * A cursor knows the bytes that are left, and everything that is made of the file's claims is
 * bounded by them: an array of n entries has at least n bytes. Values are copied; tensors stay
 * where they are, once their places are known to be in the file. */
#include "checkpoint/gguf/gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/map.h"
#include "base/text.h"
#include "tensor/tensor.h"

enum { ALIGNMENT = 32, TEXT = 8, ARRAY = 9, TYPES = 13, MOST_DIMS = 4 };

/* Bytes of a value of each type; 0: a text or an array. */
static const int sizes[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* A value: one number or text, or an array of them. */
typedef struct value {
    char *key;
    uint32_t type; /* the type of the value, or of its entries */
    bool array;
    int64_t count;
    double *numbers; /* (count) */
    char **texts;    /* (count) */
} value;

struct choir__gguf_in {
    char *path;
    uint8_t *map;
    size_t size;
    value *values;
    int value_count;
    choir__gguf_tensor_info *tensors;
    int tensor_count;
    choir__map keys, names; /* indices of values, of tensors */
};

/* --- bytes that are left --- */

typedef struct cursor {
    const char *path;
    const uint8_t *at, *end;
    choir_status status;
} cursor;

static bool fail(cursor *c, const char *what)
{
    if (c->status == CHOIR_OK)
        c->status = choir__error(CHOIR_ERR_FORMAT, "%s: %s", c->path, what);
    return false;
}

static bool has(cursor *c, uint64_t bytes)
{
    return c->status == CHOIR_OK && (bytes <= (uint64_t)(c->end - c->at) ||
                                        fail(c, "the file is cut short, or damaged"));
}

static uint64_t take(cursor *c, int bytes)
{
    uint64_t x = 0;
    if (!has(c, (uint64_t)bytes))
        return 0;
    for (int i = bytes; i-- > 0;)
        x = x << 8 | c->at[i];
    c->at += bytes;
    return x;
}

/* Returns a text, which the caller frees, or NULL. */
static char *take_text(cursor *c)
{
    uint64_t n = take(c, 8);
    if (!has(c, n))
        return NULL;
    if (memchr(c->at, 0, n)) {
        fail(c, "a text has a zero byte");
        return NULL;
    }
    char *text = choir__alloc(n + 1);
    memcpy(text, c->at, n);
    text[n] = '\0';
    c->at += n;
    return text;
}

static double take_number(cursor *c, uint32_t type)
{
    const uint64_t x = take(c, sizes[type]);
    float f;
    double d;
    switch (type) {
    case 1: return (int8_t)x;
    case 3: return (int16_t)x;
    case 5: return (int32_t)x;
    case 6: {
        const uint32_t bits = (uint32_t)x;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    case 11: return (double)(int64_t)x;
    case 12: memcpy(&d, &x, sizeof d); return d;
    default: return (double)x;
    }
}

/* --- keys --- */

static void take_value(cursor *c, value *v)
{
    v->type = (uint32_t)take(c, 4);
    v->count = 1;
    if (v->type == ARRAY) {
        v->array = true;
        v->type = (uint32_t)take(c, 4);
        const uint64_t n = take(c, 8);
        if (!has(c, n))
            return;
        v->count = (int64_t)n;
    }
    if (v->type >= TYPES || v->type == ARRAY) {
        fail(c, "a value is of an unknown type");
        return;
    }
    if (v->type == TEXT ? !has(c, 8 * (uint64_t)v->count)
                        : !has(c, (uint64_t)sizes[v->type] * (uint64_t)v->count))
        return;
    if (v->type == TEXT)
        v->texts = choir__calloc((size_t)v->count + 1, sizeof *v->texts);
    else
        v->numbers = choir__calloc((size_t)v->count + 1, sizeof *v->numbers);
    for (int64_t i = 0; i < v->count && c->status == CHOIR_OK; i++)
        if (v->type == TEXT)
            v->texts[i] = take_text(c);
        else
            v->numbers[i] = take_number(c, v->type);
}

static void take_keys(cursor *c, choir__gguf_in *in, uint64_t count)
{
    if (!has(c, 13 * count)) /* a key has at least as many bytes */
        return;
    in->values = choir__calloc((size_t)count + 1, sizeof *in->values);
    for (uint64_t i = 0; i < count && c->status == CHOIR_OK; i++) {
        value *v = &in->values[in->value_count++];
        v->key = take_text(c);
        if (v->key)
            take_value(c, v);
        if (v->key && choir__map_put(&in->keys, v->key, (int64_t)i) >= 0)
            fail(c, "a key is there twice");
    }
}

/* --- tensors --- */

/* Refuses a tensor of a type that is not read. */
static choir_status refuse(const cursor *c, const char *tensor, uint32_t type)
{
    const char *name = choir__quant_stranger(type);
    choir__text_buffer read = {0};
    for (int i = 0; i < CHOIR__QUANT_COUNT; i++)
        choir__text_format(&read, i ? ", %s" : "%s", choir__quant_types[i].name);
    choir_status status = choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: tensor '%.200s' is of GGUF's type %s (number %u), which is not read here: %s are; "
        "'llama-quantize --allow-requantize FILE NEW q8_0' makes such a file",
        c->path, tensor, name ? name : "unknown", type, read.bytes);
    choir__text_buffer_free(&read);
    return status;
}

/* Reads one row of the list; its data's place is in bytes of all data. */
static void take_tensor(cursor *c, choir__gguf_tensor_info *t, uint64_t *place)
{
    t->name = take_text(c);
    const uint64_t ndim = take(c, 4);
    if (!t->name || ndim < 1 || ndim > MOST_DIMS) {
        fail(c, "a tensor has no dimensions, or more than 4");
        return;
    }
    t->shape.ndim = (int)ndim;
    for (int d = t->shape.ndim - 1; d >= 0; d--) {
        const uint64_t size = take(c, 8);
        if (size > INT64_MAX / 16)
            fail(c, "a tensor is larger than any file");
        t->shape.dim[d] = (int64_t)size;
    }
    const uint32_t type = (uint32_t)take(c, 4);
    *place = take(c, 8);
    t->type = choir__quant_of_gguf(type);
    if (c->status != CHOIR_OK)
        return;
    if (t->type == CHOIR__QUANT_COUNT) {
        c->status = refuse(c, t->name, type);
        return;
    }
    if (!choir__shape_fits(t->shape) ||
        t->shape.dim[t->shape.ndim - 1] % choir__quant_types[t->type].values)
        fail(c, "a tensor's rows are not whole blocks of its type");
}

static void take_tensors(cursor *c, choir__gguf_in *in, uint64_t count)
{
    enum { LEAST = 32 }; /* bytes of a row */
    if (!has(c, LEAST * count))
        return;
    in->tensors = choir__calloc((size_t)count + 1, sizeof *in->tensors);
    uint64_t *places = choir__calloc((size_t)count + 1, sizeof *places);
    for (uint64_t i = 0; i < count && c->status == CHOIR_OK; i++) {
        choir__gguf_tensor_info *t = &in->tensors[in->tensor_count++];
        take_tensor(c, t, &places[i]);
        if (t->name && choir__map_put(&in->names, t->name, (int64_t)i) >= 0)
            fail(c, "a tensor is there twice");
    }
    double alignment = ALIGNMENT;
    choir__gguf_number(in, "general.alignment", &alignment);
    if (!(alignment >= 1 && alignment <= 1 << 20) || alignment != (double)(uint64_t)alignment)
        fail(c, "key 'general.alignment' is no sensible number");
    if (c->status == CHOIR_OK) {
        const uint64_t each = (uint64_t)alignment, head = (uint64_t)(c->at - in->map);
        const uint64_t begin = (head + each - 1) / each * each;
        for (int i = 0; i < in->tensor_count && c->status == CHOIR_OK; i++) {
            choir__gguf_tensor_info *t = &in->tensors[i];
            t->bytes = choir__quant_bytes(t->type, choir__shape_count(t->shape));
            if (begin > in->size || places[i] > in->size - begin ||
                (uint64_t)t->bytes > in->size - begin - places[i])
                fail(c, "the file ends before a tensor's data does: it is cut short");
            else
                t->data = in->map + begin + places[i];
        }
    }
    free(places);
}

/* --- the file --- */

static choir_status map_file(choir__gguf_in *in)
{
    struct stat info;
    int fd;
    choir_status status = choir__file_open(in->path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    if (fstat(fd, &info) != 0 || info.st_size < 24) {
        status = choir__error(CHOIR_ERR_FORMAT, "%s: no GGUF file: it is too short", in->path);
    } else {
        in->size = (size_t)info.st_size;
        void *map = mmap(NULL, in->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            status = choir__error(
                CHOIR_ERR_IO, "%s: cannot be mapped: %s", in->path, strerror(errno));
        else
            in->map = map;
    }
    close(fd);
    return status;
}

static choir_status parse(choir__gguf_in *in)
{
    cursor c = {in->path, in->map, in->map + in->size, CHOIR_OK};
    if (memcmp(c.at, "GGUF", 4) != 0)
        return choir__error(CHOIR_ERR_FORMAT, "%s: no GGUF file", in->path);
    c.at += 4;
    const uint32_t version = (uint32_t)take(&c, 4);
    if (version != 2 && version != 3)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: GGUF of version %u; 2 and 3 are read, of little-endian machines", in->path,
            version);
    const uint64_t tensors = take(&c, 8), keys = take(&c, 8);
    if (tensors > in->size || keys > in->size)
        fail(&c, "the file is cut short, or damaged");
    if (c.status == CHOIR_OK)
        take_keys(&c, in, keys);
    if (c.status == CHOIR_OK)
        take_tensors(&c, in, tensors);
    return c.status;
}

choir_status choir__gguf_open(choir__gguf_in **in, const char *path)
{
    choir__gguf_in *f = choir__calloc(1, sizeof *f);
    f->path = choir__strdup(path);
    choir_status status = map_file(f);
    if (status == CHOIR_OK)
        status = parse(f);
    if (status == CHOIR_OK)
        *in = f;
    else
        choir__gguf_close(f);
    return status;
}

void choir__gguf_close(choir__gguf_in *in)
{
    if (!in)
        return;
    for (int i = 0; i < in->value_count; i++) {
        value *v = &in->values[i];
        for (int64_t k = 0; v->texts && k < v->count; k++)
            free(v->texts[k]);
        free(v->texts);
        free(v->numbers);
        free(v->key);
    }
    for (int i = 0; i < in->tensor_count; i++)
        free((char *)(uintptr_t)in->tensors[i].name);
    free(in->values);
    free(in->tensors);
    choir__map_free(&in->keys);
    choir__map_free(&in->names);
    if (in->map)
        munmap(in->map, in->size);
    free(in->path);
    free(in);
}

uint8_t *choir__gguf_take_map(choir__gguf_in *in, size_t *size)
{
    uint8_t *map = in->map;
    *size = in->size;
    in->map = NULL;
    return map;
}

int choir__gguf_count(const choir__gguf_in *in)
{
    return in->tensor_count;
}

const choir__gguf_tensor_info *choir__gguf_get(const choir__gguf_in *in, int i)
{
    return &in->tensors[i];
}

const char *choir__gguf_path(const choir__gguf_in *in)
{
    return in->path;
}

const char *choir__gguf_key_at(const choir__gguf_in *in, int i)
{
    return i < in->value_count ? in->values[i].key : NULL;
}

static const value *find(const choir__gguf_in *in, const char *key, bool array)
{
    const int64_t i = choir__map_find(&in->keys, key);
    return i >= 0 && in->values[i].array == array ? &in->values[i] : NULL;
}

bool choir__gguf_number(const choir__gguf_in *in, const char *key, double *number)
{
    const value *v = find(in, key, false);
    if (!v || !v->numbers)
        return false;
    *number = v->numbers[0];
    return true;
}

const char *choir__gguf_string(const choir__gguf_in *in, const char *key)
{
    const value *v = find(in, key, false);
    return v && v->texts ? v->texts[0] : NULL;
}

const char *const *choir__gguf_strings(
    const choir__gguf_in *in, const char *key, int64_t *count)
{
    const value *v = find(in, key, true);
    *count = v && v->texts ? v->count : 0;
    return v ? (const char *const *)v->texts : NULL;
}

const double *choir__gguf_numbers(const choir__gguf_in *in, const char *key, int64_t *count)
{
    const value *v = find(in, key, true);
    *count = v && v->numbers ? v->count : 0;
    return v ? v->numbers : NULL;
}
