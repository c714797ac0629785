/* Writing: keys and the list of tensors are made in memory, as their sizes are small; then one
 * tensor after another is encoded and appended. */
#include "checkpoint/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "checkpoint/format/file.h"
#include "tensor/tensor.h"

enum { VERSION = 3, ALIGNMENT = 32, ROWS_AT_ONCE = 64 };
enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY = 9 }; /* types of values */

typedef struct tensor {
    char *name;
    choir_shape shape;
    choir__quant type;
    int64_t at, size; /* in the data */
} tensor;

struct choir__gguf_out {
    choir__text_buffer keys;
    int64_t key_count;
    tensor *tensors;
    int tensor_count;
    int64_t data; /* bytes of all tensors */
};

static void put_u64(choir__text_buffer *b, uint64_t x, int size)
{
    char little[8];
    for (int i = 0; i < size; i++)
        little[i] = (char)(x >> 8 * i);
    choir__text_buffer_add(b, little, (size_t)size);
}

static void put_text(choir__text_buffer *b, const char *text)
{
    put_u64(b, strlen(text), 8);
    choir__text_buffer_put(b, text);
}

static void put_f32(choir__text_buffer *b, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u64(b, bits, 4);
}

choir__gguf_out *choir__gguf_new(void)
{
    return choir__calloc(1, sizeof(choir__gguf_out));
}

void choir__gguf_free(choir__gguf_out *out)
{
    if (!out)
        return;
    for (int i = 0; i < out->tensor_count; i++)
        free(out->tensors[i].name);
    free(out->tensors);
    choir__text_buffer_free(&out->keys);
    free(out);
}

/* --- values --- */

static choir__text_buffer *key(choir__gguf_out *out, const char *name, uint32_t type)
{
    out->key_count++;
    put_text(&out->keys, name);
    put_u64(&out->keys, type, 4);
    return &out->keys;
}

static choir__text_buffer *array(
    choir__gguf_out *out, const char *name, uint32_t type, int64_t count)
{
    choir__text_buffer *b = key(out, name, ARRAY);
    put_u64(b, type, 4);
    put_u64(b, (uint64_t)count, 8);
    return b;
}

void choir__gguf_u32(choir__gguf_out *out, const char *name, uint32_t value)
{
    put_u64(key(out, name, U32), value, 4);
}

void choir__gguf_f32(choir__gguf_out *out, const char *name, float value)
{
    put_f32(key(out, name, F32), value);
}

void choir__gguf_bool(choir__gguf_out *out, const char *name, bool value)
{
    put_u64(key(out, name, BOOL), value, 1);
}

void choir__gguf_text(choir__gguf_out *out, const char *name, const char *value)
{
    put_text(key(out, name, TEXT), value);
}

void choir__gguf_texts(
    choir__gguf_out *out, const char *name, const char *const *values, int64_t count)
{
    choir__text_buffer *b = array(out, name, TEXT, count);
    for (int64_t i = 0; i < count; i++)
        put_text(b, values[i]);
}

void choir__gguf_i32s(
    choir__gguf_out *out, const char *name, const int32_t *values, int64_t count)
{
    choir__text_buffer *b = array(out, name, I32, count);
    for (int64_t i = 0; i < count; i++)
        put_u64(b, (uint32_t)values[i], 4);
}

void choir__gguf_f32s(
    choir__gguf_out *out, const char *name, const float *values, int64_t count)
{
    choir__text_buffer *b = array(out, name, F32, count);
    for (int64_t i = 0; i < count; i++)
        put_f32(b, values[i]);
}

void choir__gguf_tensor(
    choir__gguf_out *out, const char *name, choir_shape shape, choir__quant type)
{
    CHOIR__GROW(out->tensors, out->tensor_count);
    tensor *t = &out->tensors[out->tensor_count++];
    *t = (tensor){choir__strdup(name), shape, type, out->data,
        choir__quant_bytes(type, choir__shape_count(shape))};
    out->data += (t->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- the file --- */

static choir__text_buffer header(const choir__gguf_out *out)
{
    choir__text_buffer b = {0};
    choir__text_buffer_put(&b, "GGUF");
    put_u64(&b, VERSION, 4);
    put_u64(&b, (uint64_t)out->tensor_count, 8);
    put_u64(&b, (uint64_t)out->key_count, 8);
    choir__text_buffer_add(&b, out->keys.bytes, out->keys.used);
    for (int i = 0; i < out->tensor_count; i++) {
        const tensor *t = &out->tensors[i];
        put_text(&b, t->name);
        put_u64(&b, (uint64_t)t->shape.ndim, 4);
        for (int d = t->shape.ndim - 1; d >= 0; d--)
            put_u64(&b, (uint64_t)t->shape.dim[d], 8);
        put_u64(&b, choir__quant_types[t->type].gguf, 4);
        put_u64(&b, (uint64_t)t->at, 8);
    }
    while (b.used % ALIGNMENT)
        put_u64(&b, 0, 1);
    return b;
}

static choir_status check(const char *path, const tensor *t, const float *x, int64_t n)
{
    if (choir__quant_fits(t->type, x, n))
        return CHOIR_OK;
    int64_t i = 0;
    while (choir__quant_fits(t->type, x + i, 1))
        i++;
    return choir__error(CHOIR_ERR_NONFINITE,
        "%s: tensor '%s': %g cannot be written as %s; take --dtype f32", path, t->name,
        (double)x[i], choir__quant_types[t->type].name);
}

static choir_status write_tensor(
    choir__draft *draft, const char *path, const tensor *t, const float *x, uint8_t *room)
{
    const int64_t cols = t->shape.ndim ? t->shape.dim[t->shape.ndim - 1] : 1,
                  rows = cols ? choir__shape_count(t->shape) / cols : 0;
    choir_status status = CHOIR_OK;
    for (int64_t r = 0; r < rows && status == CHOIR_OK; r += ROWS_AT_ONCE) {
        const int64_t n = choir__min(ROWS_AT_ONCE, rows - r) * cols;
        status = check(path, t, x + r * cols, n);
        if (status != CHOIR_OK)
            break;
        choir__quant_encode(t->type, room, x + r * cols, n);
        status = choir__draft_write(draft, room, (size_t)choir__quant_bytes(t->type, n));
    }
    return status;
}

static choir_status fill_up(choir__draft *draft, const tensor *t)
{
    static const uint8_t zeros[ALIGNMENT];
    const int64_t more = (ALIGNMENT - t->size % ALIGNMENT) % ALIGNMENT;
    return more ? choir__draft_write(draft, zeros, (size_t)more) : CHOIR_OK;
}

choir_status choir__gguf_write(
    const choir__gguf_out *out, const char *path, choir__gguf_source *source, void *arg)
{
    choir__draft draft;
    int64_t widest = 1;
    for (int i = 0; i < out->tensor_count; i++) {
        const choir_shape *s = &out->tensors[i].shape;
        widest = choir__max(widest, s->ndim ? s->dim[s->ndim - 1] : 1);
    }
    uint8_t *room = malloc((size_t)widest * ROWS_AT_ONCE * sizeof(float));
    if (!room)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for a row of %lld numbers",
            path, (long long)widest);
    choir__text_buffer head = header(out);
    choir_status status = choir__draft_open(&draft, path);
    if (status == CHOIR_OK)
        status = choir__draft_write(&draft, head.bytes, head.used);
    for (int i = 0; i < out->tensor_count && status == CHOIR_OK; i++) {
        const float *values = NULL;
        const uint8_t *blocks = NULL;
        const tensor *t = &out->tensors[i];
        status = source(arg, i, &values, &blocks);
        if (status == CHOIR_OK)
            status = blocks ? choir__draft_write(&draft, blocks, (size_t)t->size)
                            : write_tensor(&draft, path, t, values, room);
        if (status == CHOIR_OK)
            status = fill_up(&draft, t);
    }
    status = choir__draft_close(&draft, status, NULL);
    choir__text_buffer_free(&head);
    free(room);
    return status;
}
