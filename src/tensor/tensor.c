/* Tensors: shapes, layouts, and handles with their memory. values.c moves data in and out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/floats.h"
#include "tensor/run.h"
#include "tensor/strategy.h"

/* --- shapes --- */

int64_t choir__shape_count(choir_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++)
        n *= shape.dim[i];
    return n;
}

bool choir__shape_fits(choir_shape shape)
{
    int64_t count = 1; /* with dimensions of 0 counted as 1, since strides are products, too */
    bool fits = shape.ndim >= 0 && shape.ndim <= CHOIR_MAX_DIMS;
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = shape.dim[i] >= 0 &&
               !__builtin_mul_overflow(count, shape.dim[i] + !shape.dim[i], &count);
    return fits && count <= INT64_MAX / 16;
}

choir_tensor *choir__bad_shape(choir_scope *scope, const char *what, choir_shape shape)
{
    if (shape.ndim < 0 || shape.ndim > CHOIR_MAX_DIMS)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "%sexpected a shape of at most %d dimensions, got %d", what, CHOIR_MAX_DIMS,
            shape.ndim);
    return choir__poison(scope, CHOIR_ERR_SHAPE, "%sno tensor can have the shape %s", what,
        choir__shape_text(shape));
}

bool choir__same_shape(choir_shape a, choir_shape b)
{
    return a.ndim == b.ndim && !memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof a.dim[0]);
}

const char *choir__shape_text(choir_shape shape)
{
    static _Thread_local char texts[8][160];
    static _Thread_local int next;
    char *text = texts[next++ % 8];
    int used = snprintf(text, sizeof texts[0], "(");
    for (int i = 0; i < shape.ndim; i++)
        used += snprintf(text + used, sizeof texts[0] - (size_t)used, "%s%lld", i ? ", " : "",
            (long long)shape.dim[i]);
    snprintf(text + used, sizeof texts[0] - (size_t)used, ")");
    return text;
}

void choir__range_of(choir_dtype dtype, double *least, double *most)
{
    CHOIR__DEFAULT_FLOATS;
    const int bits = 8 * (int)choir_dtype_size(dtype);
    bool natural = dtype == CHOIR_BOOL || dtype == CHOIR_U8;
    *least = natural ? 0 : -ldexp(1, bits - 1);
    *most = dtype == CHOIR_BOOL ? 1
            : natural           ? 255
                                : fmin(ldexp(1, bits - 1) - 1, 0x1p63 - 1024);
}

bool choir__holds(choir_dtype dtype, double value)
{
    double least, most;
    if (choir__is_float(dtype) || dtype == CHOIR_BOOL)
        return true;
    choir__range_of(dtype, &least, &most);
    return trunc(value) >= least && trunc(value) <= most; /* not NaN */
}

choir_tensor *choir__bad_value(
    choir_scope *scope, const char *op, choir_dtype dtype, double value)
{
    return choir__poison(scope, CHOIR_ERR_ARGUMENT,
        "%s: expected a value that %s can hold, got %g", op, choir_dtype_name(dtype), value);
}

bool choir__is_float(choir_dtype dtype)
{
    return dtype == CHOIR_F32 || dtype == CHOIR_F64 || dtype == CHOIR_BF16 ||
           dtype == CHOIR_F16;
}

void choir__set_row_major(choir_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape.dim[i];
    }
}

void choir__set_rows(choir_tensor *t, int64_t row)
{
    choir__set_row_major(t);
    for (int i = t->shape.ndim - 2; i >= 0; i--, row *= t->shape.dim[i + 1])
        t->stride[i] = row;
}

choir_tensor choir__rows_view(const choir_tensor *t, int64_t first, int64_t rows)
{
    choir_tensor view = *t;
    const int64_t all = t->shape.dim[0];
    view.offset += first * t->stride[0];
    view.shape.dim[0] = rows;
    view.count = all ? t->count / all * rows : 0;
    return view;
}

bool choir__is_contiguous(const choir_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        if (t->shape.dim[i] != 1 && t->stride[i] != stride)
            return false;
        stride *= t->shape.dim[i];
    }
    return true;
}

int64_t choir__row_of(const choir_tensor *t)
{
    int last = t->shape.ndim - 1;
    int64_t row = 0,
            step = 0; /* row step, and step of the next dimension, counted from the last */
    if (choir__is_contiguous(t))
        return choir__cols(t);
    if (last < 1 || (t->stride[last] != 1 && t->shape.dim[last] != 1))
        return 0;
    for (int i = last - 1; i >= 0; i--) {
        if (t->shape.dim[i] == 1)
            continue;
        if (!row)
            row = step = t->stride[i];
        if (t->stride[i] != step)
            return 0;
        step *= t->shape.dim[i];
    }
    return row >= choir__cols(t) ? row : 0;
}

bool choir__is_dense(const choir_tensor *t)
{
    if (choir__is_contiguous(t))
        return true;
    int64_t expected = 1;
    unsigned done = 0;
    for (int step = 0; step < t->shape.ndim; step++) {
        int found = -1;
        for (int i = t->shape.ndim - 1; i >= 0 && found < 0; i--)
            if (!(done & 1u << i) && (t->shape.dim[i] == 1 || t->stride[i] == expected))
                found = i;
        if (found < 0)
            return false;
        done |= 1u << found;
        expected *= t->shape.dim[found];
    }
    return true;
}

bool choir__same_layout(const choir_tensor *a, const choir_tensor *b)
{
    if (!choir__same_shape(a->shape, b->shape))
        return false;
    for (int i = 0; i < a->shape.ndim; i++)
        if (a->shape.dim[i] != 1 && a->stride[i] != b->stride[i])
            return false;
    return true;
}

/* --- handles --- */

choir_tensor *choir__tensor_bare(choir_scope *scope, choir_dtype dtype, choir_shape shape)
{
    choir_tensor *t = choir__arena_get(&scope->handles, sizeof *t);
    t->scope = scope;
    t->dtype = dtype;
    if (!choir__shape_fits(shape)) {
        choir__bad_shape(scope, "", shape);
        t->poisoned = true;
        shape = choir_dims(0);
    }
    t->shape = shape;
    t->count = choir__shape_count(shape);
    choir__set_row_major(t);
    t->next = scope->tensors;
    scope->tensors = t;
    if (scope->placement)
        choir__route_of(t)->stage = scope->placement->stage;
    return t;
}

static const char *memory_advice(choir_device *device)
{
    static _Thread_local char text[400];
    choir_device_stats stats;
    choir_device_get_stats(device, &stats);
    int used = stats.bytes_limit
                   ? snprintf(text, sizeof text, "%zu of %zu bytes are taken",
                         stats.bytes_reserved, stats.bytes_limit)
                   : snprintf(text, sizeof text, "%zu bytes are taken", stats.bytes_reserved);
    choir__device_memory_note(device, text + used, sizeof text - (size_t)used);
    return text;
}

/* Elements from the tensor's first to its last. */
static int64_t extent(const choir_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->shape.ndim; i++)
        last += (t->shape.dim[i] - 1) * t->stride[i];
    return t->count ? last + 1 : 0;
}

bool choir__tensor_allocate(choir_tensor *t, choir_device *device)
{
    size_t bytes = (size_t)extent(t) * choir_dtype_size(t->dtype);
    if (t->poisoned) /* a poisoned tensor has no valid shape */
        return false;
    choir__scope_uses(t->scope, device);
    t->storage = choir__storage_new(device, bytes);
    if (!t->storage) {
        choir__poison(t->scope, CHOIR_ERR_MEMORY,
            "out of memory on %s for %s %s, %zu bytes: %s", choir_device_name(device),
            choir_dtype_name(t->dtype), choir__shape_text(t->shape), bytes,
            memory_advice(device));
        t->poisoned = true;
    }
    choir__storage_tell(t->storage, CHOIR__FOR_ACTIVATIONS, choir__run_of(t->scope)->path);
    return t->storage != NULL;
}

choir_tensor *choir__tensor_new(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape)
{
    choir_tensor *t = choir__tensor_bare(scope, dtype, shape);
    choir__tensor_allocate(t, device);
    return t;
}

choir_tensor *choir__tensor_like(choir_scope *scope, const choir_tensor *x)
{
    choir_tensor *t = choir__tensor_bare(scope, x->dtype, x->shape);
    if (choir__is_dense(x))
        memcpy(t->stride, x->stride, sizeof t->stride);
    choir__tensor_allocate(t, choir__device_of(x));
    return t;
}

choir_tensor *choir__tensor_spaced(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape, int64_t row)
{
    choir_tensor *t = choir__tensor_bare(scope, dtype, shape);
    if (!t->poisoned)
        choir__set_rows(t, row);
    choir__tensor_allocate(t, device);
    return t;
}

choir_tensor *choir__tensor_alias(choir_scope *scope, const choir_tensor *x)
{
    choir_tensor *t = choir__tensor_bare(scope, x->dtype, x->shape);
    memcpy(t->stride, x->stride, sizeof t->stride);
    t->offset = x->offset;
    t->poisoned = x->poisoned;
    t->freed = x->freed;
    t->device = x->device;
    t->split = x->split;
    t->held = x->held;
    if (x->storage)
        t->storage = choir__storage_ref(x->storage);
    return t;
}

choir_tensor *choir__tensor_part(
    choir_scope *scope, choir_tensor *x, int dim, int64_t start, int64_t length)
{
    choir_tensor *y = choir__tensor_alias(scope, x);
    y->shape.dim[dim] = length;
    y->offset += start * x->stride[dim];
    y->count = choir__shape_count(y->shape);
    return y;
}

choir_tensor *choir__tensor_wrap(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape, void *data)
{
    choir_tensor *t = choir__tensor_bare(scope, dtype, shape);
    t->storage = choir__storage_wrap(device, data, (size_t)t->count * choir_dtype_size(dtype));
    return t;
}

void choir__tensor_release(choir_tensor *t)
{
    t->device = choir__device_of(t);
    choir__storage_unref(t->storage);
    t->storage = NULL;
    t->freed = true;
    choir__drop_twin(t);
}

void choir__drop_twin(choir_tensor *t)
{
    if (t->twin && t->twin->storage)
        choir__tensor_release(t->twin);
    t->twin = NULL;
}

void *choir__data(const choir_tensor *t)
{
    if (t->storage->holder)
        t->storage->holder->ops->bring(t->storage->holder, t->storage->held);
    return (char *)t->storage->data + (size_t)t->offset * choir_dtype_size(t->dtype);
}

choir_device *choir__device_of(const choir_tensor *t)
{
    return t->storage ? t->storage->device : t->device ? t->device : t->scope->device;
}

const char *choir__missing_device(void)
{
    const char *said = choir__message();
    return said && strstr(said, "no device") ? said : "missing device";
}
