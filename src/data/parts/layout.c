/* Lays out samples of several parts: checks the declared parts, places the parts of one slot
 * behind each other, and pads smaller samples to the sizes of their slot. */
#include "data/parts/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tensor/tensor.h"

/* --- what a dataset declares --- */

static choir_status check_part(const choir_parts_dataset *d, int i)
{
    const choir_part *p = &d->part[i];
    if (!p->name || !*p->name)
        return choir__error(CHOIR_ERR_ARGUMENT, "parts: part %d has no name", i);
    for (int j = 0; j < i; j++)
        if (!strcmp(p->name, d->part[j].name))
            return choir__error(
                CHOIR_ERR_ARGUMENT, "parts: two parts are called '%s'", p->name);
    if ((unsigned)p->dtype >= CHOIR_DTYPE_COUNT)
        return choir__error(CHOIR_ERR_DTYPE, "parts: part '%s' has an unknown dtype, %d",
            p->name, (int)p->dtype);
    bool fits = p->shape.ndim >= 0 && p->shape.ndim < CHOIR_MAX_DIMS;
    for (int k = 0; fits && k < p->shape.ndim; k++)
        fits = p->shape.dim[k] >= -1;
    if (!fits)
        return choir__error(CHOIR_ERR_SHAPE,
            "parts: expected at most %d sizes of 0 or more, or -1, of part '%s', got %s",
            CHOIR_MAX_DIMS - 1, p->name, choir__shape_text(p->shape));
    if (!choir__holds(p->dtype, p->padding))
        return choir__error(CHOIR_ERR_DTYPE,
            "parts: %s of part '%s' cannot hold its padding, %g", choir_dtype_name(p->dtype),
            p->name, p->padding);
    return CHOIR_OK;
}

static bool varies(const choir_part *p)
{
    for (int k = 0; k < p->shape.ndim; k++)
        if (p->shape.dim[k] < 0)
            return true;
    return false;
}

choir_status choir__parts_check(const choir_parts_dataset *d)
{
    if (!d || !d->ops || !d->ops->length || !d->ops->get || !d->part)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: expected a dataset with its parts, and with functions length and get");
    if (d->count < 1 || d->count > CHOIR_MAX_PARTS)
        return choir__error(CHOIR_ERR_ARGUMENT, "parts: expected 1 to %d parts, got %d",
            CHOIR_MAX_PARTS, d->count);
    for (int i = 0; i < d->count; i++) {
        choir_status status = check_part(d, i);
        if (status != CHOIR_OK)
            return status;
        if (varies(&d->part[i]) && !d->ops->sizes)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "parts: part '%s' has a size of -1: expected a dataset with a function sizes",
                d->part[i].name);
    }
    return CHOIR_OK;
}

/* --- sizes --- */

static choir_status check_sizes(const choir_part *p, int64_t index, const choir_shape *shape)
{
    bool fits = shape->ndim == p->shape.ndim, missing = false;
    for (int k = 0; fits && k < shape->ndim; k++) {
        missing |= shape->dim[k] == -1;
        fits = p->shape.dim[k] < 0 ? shape->dim[k] >= -1 : shape->dim[k] == p->shape.dim[k];
    }
    if (fits && missing)
        return choir__error(CHOIR_ERR_SHAPE,
            "sample %lld has no part '%s': expected its size, got %s", (long long)index,
            p->name, choir__shape_text(*shape));
    if (!fits)
        return choir__error(CHOIR_ERR_SHAPE, "sample %lld: expected %s of part '%s', got %s",
            (long long)index, choir__shape_text(p->shape), p->name, choir__shape_text(*shape));
    return CHOIR_OK;
}

choir_status choir__parts_sizes(choir_parts_dataset *d, int64_t index, choir_shape *shape)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < d->count; i++)
        shape[i] = d->part[i].shape;
    if (d->ops->sizes)
        status = d->ops->sizes(d, index, shape);
    for (int i = 0; i < d->count && status == CHOIR_OK; i++)
        status = check_sizes(&d->part[i], index, &shape[i]);
    return status;
}

int64_t choir__parts_length(const choir_parts_dataset *d, const choir_shape *shape, int *part)
{
    int64_t length = 0;
    *part = 0;
    for (int i = 0; i < d->count; i++)
        for (int k = 0; k < shape[i].ndim; k++)
            if (d->part[i].shape.dim[k] < 0 && shape[i].dim[k] > length)
                length = shape[i].dim[k], *part = i;
    return length;
}

/* --- slots --- */

void choir__parts_widen(
    const choir_parts_dataset *d, choir__parts_layout *l, const choir_shape *shape)
{
    for (int i = 0; i < d->count; i++) {
        l->shape[i].ndim = shape[i].ndim;
        for (int k = 0; k < shape[i].ndim; k++)
            l->shape[i].dim[k] = choir__max(l->shape[i].dim[k], shape[i].dim[k]);
    }
}

choir_status choir__parts_place(const choir_parts_dataset *d, choir__parts_layout *l)
{
    const size_t most = (size_t)1 << 40;
    l->bytes = choir__parts_sizes_at(d->count);
    for (int i = 0; i < d->count; i++) {
        l->shape[i].ndim = d->part[i].shape.ndim;
        l->offset[i] = l->bytes;
        size_t bytes = choir_dtype_size(d->part[i].dtype);
        for (int k = 0; k < l->shape[i].ndim; k++)
            if (__builtin_mul_overflow(bytes, (size_t)l->shape[i].dim[k], &bytes) ||
                bytes > most)
                return choir__error(CHOIR_ERR_MEMORY, "parts: part '%s' %s is too large",
                    d->part[i].name, choir__shape_text(l->shape[i]));
        l->bytes += (bytes + 15) / 16 * 16;
    }
    return CHOIR_OK;
}

/* Stores one value of a dtype. */
static void store(void *to, choir_dtype dtype, double value)
{
    float narrow = (float)value;
    uint16_t half = dtype == CHOIR_BF16  ? choir__bf16_from_f32(narrow)
                    : dtype == CHOIR_F16 ? choir__f16_from_f32(narrow)
                                         : 0;
    switch (dtype) {
    case CHOIR_F32: memcpy(to, &narrow, sizeof narrow); break;
    case CHOIR_F64: memcpy(to, &value, sizeof value); break;
    case CHOIR_I64: memcpy(to, &(int64_t){(int64_t)value}, sizeof(int64_t)); break;
    case CHOIR_I32: memcpy(to, &(int32_t){(int32_t)value}, sizeof(int32_t)); break;
    case CHOIR_U8: *(uint8_t *)to = (uint8_t)value; break;
    case CHOIR_BOOL: *(uint8_t *)to = value != 0; break;
    default: memcpy(to, &half, sizeof half); break;
    }
}

static void fill(char *to, size_t each, int64_t n, const char *value)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * each, value, each);
}

/* Copies values of the sizes `has` into a part of the shape `whole`, from dimension `dim` on,
 * and fills the remaining places. Returns the end of the values that were read. */
static const char *pad(char *to, const char *from, const choir_shape *whole,
    const choir_shape *has, int dim, size_t each, const char *value)
{
    size_t row = each;
    for (int k = dim + 1; k < whole->ndim; k++)
        row *= (size_t)whole->dim[k];
    if (dim == whole->ndim) {
        memcpy(to, from, each);
        return from + each;
    }
    bool last = dim == whole->ndim - 1;
    if (last)
        memcpy(to, from, (size_t)has->dim[dim] * each);
    for (int64_t i = 0; i < has->dim[dim] && !last; i++)
        from = pad(to + (size_t)i * row, from, whole, has, dim + 1, each, value);
    fill(to + (size_t)has->dim[dim] * row, each,
        (whole->dim[dim] - has->dim[dim]) * (int64_t)(row / each), value);
    return last ? from + (size_t)has->dim[dim] * each : from;
}

choir_status choir__parts_read(choir_parts_dataset *d, const choir__parts_layout *l,
    int64_t epoch, int64_t index, char *slot)
{
    choir_shape shape[CHOIR_MAX_PARTS];
    void *part[CHOIR_MAX_PARTS];
    choir_status status = choir__parts_sizes(d, index, shape);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; i < d->count; i++)
        for (int k = 0; k < shape[i].ndim; k++)
            if (shape[i].dim[k] > l->shape[i].dim[k])
                return choir__error(CHOIR_ERR_SHAPE,
                    "sample %lld: part '%s' has grown to %s since the loader was made",
                    (long long)index, d->part[i].name, choir__shape_text(shape[i]));
    char *own = choir__calloc(l->bytes + 1, 1);
    for (int i = 0; i < d->count; i++)
        part[i] = own + l->offset[i];
    choir__set_message("");
    status = d->ops->get(d, epoch, index, part);
    if (status != CHOIR_OK) {
        const char *why = choir__message();
        status = choir__error(status, "%s (sample %lld of the dataset)",
            *why ? why : choir_status_text(status), (long long)index);
    }
    for (int i = 0; i < d->count && status == CHOIR_OK; i++) {
        char value[8] = {0};
        int64_t sizes[CHOIR_MAX_DIMS] = {0};
        store(value, d->part[i].dtype, d->part[i].padding);
        memcpy(sizes, shape[i].dim, (size_t)shape[i].ndim * sizeof *sizes);
        memcpy(slot + choir__parts_sizes_at(i), sizes, sizeof sizes);
        pad(slot + l->offset[i], part[i], &l->shape[i], &shape[i], 0,
            choir_dtype_size(d->part[i].dtype), value);
    }
    free(own);
    return status;
}
