/* Tensors: making handles, their layouts, and the ways data comes in and out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/launch.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"

/* --- shapes --- */

int64_t choir__shape_count(choir_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++)
        n *= shape.dim[i];
    return n;
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
    choir_tensor *t = choir__arena_get(&scope->arena, sizeof *t);
    t->scope = scope;
    t->dtype = dtype;
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

bool choir__tensor_allocate(choir_tensor *t, choir_device *device)
{
    size_t bytes = (size_t)t->count * choir_dtype_size(t->dtype);
    choir__scope_uses(t->scope, device);
    t->storage = choir__storage_new(device, bytes);
    if (!t->storage) {
        choir__poison(t->scope, CHOIR_ERR_MEMORY,
            "out of memory on %s for %s %s, %zu bytes: %s", choir_device_name(device),
            choir_dtype_name(t->dtype), choir__shape_text(t->shape), bytes,
            memory_advice(device));
        t->poisoned = true;
    }
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

choir_tensor *choir__tensor_alias(choir_scope *scope, const choir_tensor *x)
{
    choir_tensor *t = choir__tensor_bare(scope, x->dtype, x->shape);
    memcpy(t->stride, x->stride, sizeof t->stride);
    t->offset = x->offset;
    t->poisoned = x->poisoned;
    t->freed = x->freed;
    t->device = x->device;
    t->split = x->split;
    if (x->storage)
        t->storage = choir__storage_ref(x->storage);
    return t;
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
    const char *said = choir_error_message();
    return said && !strncmp(said, "no device", 9) ? said : "there is no such device";
}

choir_shape choir_tensor_shape(const choir_tensor *t)
{
    return t->shape;
}

int choir_tensor_ndim(const choir_tensor *t)
{
    return t->shape.ndim;
}

int64_t choir_tensor_size(const choir_tensor *t, int dim)
{
    if (dim < 0)
        dim += t->shape.ndim;
    return dim >= 0 && dim < t->shape.ndim ? t->shape.dim[dim] : 0;
}

int64_t choir_tensor_count(const choir_tensor *t)
{
    return t->count;
}

choir_dtype choir_tensor_dtype(const choir_tensor *t)
{
    return t->dtype;
}

choir_device *choir_tensor_device(const choir_tensor *t)
{
    return choir__device_of(t);
}

choir_scope *choir_tensor_scope(const choir_tensor *t)
{
    return t->scope;
}

/* --- making --- */

static bool valid_shape(choir_scope *scope, choir_shape shape, choir_tensor **poisoned)
{
    int64_t left = INT64_MAX / 16;
    bool fits = shape.ndim >= 0 && shape.ndim <= CHOIR_MAX_DIMS;
    for (int i = 0; fits && i < shape.ndim; i++) {
        fits = shape.dim[i] >= 0 && (shape.dim[i] == 0 || left / shape.dim[i] > 0);
        if (fits && shape.dim[i])
            left /= shape.dim[i];
    }
    if (!fits)
        *poisoned = choir__poison(scope, CHOIR_ERR_SHAPE, "no tensor can have the shape %s",
            shape.ndim >= 0 && shape.ndim <= CHOIR_MAX_DIMS ? choir__shape_text(shape)
                                                            : "with so many dimensions");
    return fits;
}

choir_tensor *choir_full(choir_scope *scope, choir_dtype dtype, choir_shape shape, double value)
{
    choir_tensor *t;
    if (!valid_shape(scope, shape, &t))
        return t;
    t = choir__tensor_new(scope, scope->device, dtype, shape);
    if (!t->poisoned)
        choir__launch_fill(t, value);
    return t;
}

choir_tensor *choir_zeros(choir_scope *scope, choir_dtype dtype, choir_shape shape)
{
    return choir_full(scope, dtype, shape, 0);
}

choir_tensor *choir_from(
    choir_scope *scope, choir_dtype dtype, choir_shape shape, const void *data)
{
    choir_tensor *t;
    if (!valid_shape(scope, shape, &t))
        return t;
    t = choir__tensor_new(scope, scope->device, dtype, shape);
    if (t->poisoned)
        return t;
    choir_status status = choir_write(t, data, (size_t)t->count * choir_dtype_size(dtype));
    if (status != CHOIR_OK) {
        choir__scope_fail(scope, status);
        t->poisoned = true;
    }
    return t;
}

static choir_tensor *random_tensor(
    choir_scope *scope, choir_shape shape, const char *name, double a, double b, bool normal)
{
    choir_tensor *t;
    if (!valid_shape(scope, shape, &t))
        return t;
    if (choir__recording_active())
        return choir__poison(scope, CHOIR_ERR_STATE,
            "'%s': random tensors would be the same in every replay of a recorded step", name);
    t = choir__tensor_new(scope, scope->device, CHOIR_F32, shape);
    if (t->poisoned)
        return t;
    choir__k_random args = {.y = choir__data(t),
        .n = t->count,
        .a = a,
        .b = b,
        .key = choir__scope_key(scope, name) + scope->step,
        .normal = normal,
        .dtype = t->dtype};
    choir__launch(scope->device, t->dtype, random, &args);
    return t;
}

choir_tensor *choir_rand(
    choir_scope *scope, choir_shape shape, const char *name, double low, double high)
{
    return random_tensor(scope, shape, name, low, high, false);
}

choir_tensor *choir_randn(choir_scope *scope, choir_shape shape, const char *name)
{
    return random_tensor(scope, shape, name, 0, 1, true);
}

choir_tensor *choir_require_grad(choir_tensor *t)
{
    if (t->poisoned)
        return t;
    if (t->producer || (t->dtype != CHOIR_F32 && t->dtype != CHOIR_F64))
        return choir__poison(t->scope, CHOIR_ERR_ARGUMENT,
            "choir_require_grad: only leaves of f32 or f64 can, not %s %s",
            choir_dtype_name(t->dtype), t->producer ? "results of an op" : "leaves");
    t->requires_grad = true;
    return t;
}

/* --- reading and writing --- */

/* Copies from and to the host's memory would be made again at each replay, wherever that is
 * then. */
static choir_status unrecorded(const char *what)
{
    if (!choir__recording_active())
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "%s: a recorded step touches no host memory; choir_keep it, and read it after the step",
        what);
}

static choir_status readable(const choir_tensor *t, const char *what)
{
    choir_status status = choir_scope_status(t->scope);
    if (status != CHOIR_OK)
        return status;
    if (t->poisoned)
        return choir__error(CHOIR_ERR_STATE, "%s: this tensor was never computed", what);
    if ((status = choir__bring_back((choir_tensor *)t)) !=
        CHOIR_OK) /* the values are its own */
        return status;
    if (t->freed)
        return choir__error(CHOIR_ERR_STATE,
            "%s: backward has freed this tensor's memory; choir_keep it before", what);
    return CHOIR_OK;
}

/* What host memory may be filled from: a tensor with values, in this process. */
static choir_status has_values(const choir_tensor *t, const char *what)
{
    choir_status status = readable(t, what);
    if (status == CHOIR_OK && choir__device_of(t)->away)
        status = choir__error(CHOIR_ERR_STATE,
            "%s: this tensor is on %s, another process; choir_pipeline_gather brings parameters "
            "and buffers home",
            what, choir_device_name(choir__device_of(t)));
    return status == CHOIR_OK ? unrecorded(what) : status;
}

choir_status choir_read(const choir_tensor *t, void *data, size_t bytes)
{
    choir_status status = has_values(t, "choir_read");
    if (status != CHOIR_OK)
        return status;
    if (bytes != (size_t)t->count * choir_dtype_size(t->dtype))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_read: %zu bytes asked of %s %s, which has %zu", bytes,
            choir_dtype_name(t->dtype), choir__shape_text(t->shape),
            (size_t)t->count * choir_dtype_size(t->dtype));
    choir_device *device = choir__device_of(t);
    choir_tensor host = {
        .scope = t->scope, .dtype = t->dtype, .shape = t->shape, .count = t->count};
    choir__storage memory = {.refs = 1, .device = device, .data = data, .bytes = bytes};
    host.storage = &memory;
    choir__set_row_major(&host);
    choir__launch_copy(&host, t);
    return choir_device_sync(device);
}

double choir_item(const choir_tensor *t)
{
    double value = NAN;
    if (t->count != 1) {
        choir__error(CHOIR_ERR_SHAPE, "choir_item: a tensor of %s has not one value",
            choir__shape_text(t->shape));
        choir__scope_fail(t->scope, CHOIR_ERR_SHAPE);
        return NAN;
    }
    choir_tensor host = {.scope = t->scope, .dtype = CHOIR_F64, .shape = t->shape, .count = 1};
    choir_status status = has_values(t, "choir_item");
    if (status == CHOIR_OK) {
        choir__storage memory = {
            .refs = 1, .device = choir__device_of(t), .data = &value, .bytes = sizeof value};
        host.storage = &memory;
        choir__set_row_major(&host);
        choir__launch_copy(&host, t);
        status = choir_device_sync(choir__device_of(t));
    }
    if (status != CHOIR_OK)
        choir__scope_fail(t->scope, status);
    return status == CHOIR_OK ? value : NAN;
}

choir_status choir_write(choir_tensor *t, const void *data, size_t bytes)
{
    choir_status status = readable(t, "choir_write");
    if (status != CHOIR_OK)
        return status;
    if (bytes != (size_t)t->count * choir_dtype_size(t->dtype))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_write: %zu bytes for %s %s, which has %zu", bytes,
            choir_dtype_name(t->dtype), choir__shape_text(t->shape),
            (size_t)t->count * choir_dtype_size(t->dtype));
    choir_device *device = choir__device_of(t);
    choir__storage_claim(t->storage);
    t->storage->version++;
    if (bytes <= sizeof((choir__k_store *)0)->data && choir__is_contiguous(t)) {
        choir__k_store args = {.y = choir__data(t), .bytes = (uint32_t)bytes};
        memcpy(args.data, data, bytes);
        choir__launch(device, t->dtype, store, &args);
        return CHOIR_OK;
    }
    if ((status = unrecorded("choir_write")) != CHOIR_OK)
        return status;
    choir_tensor host = {
        .scope = t->scope, .dtype = t->dtype, .shape = t->shape, .count = t->count};
    choir__storage memory = {.refs = 1, .device = device, .data = (void *)data, .bytes = bytes};
    host.storage = &memory;
    choir__set_row_major(&host);
    choir__launch_copy(t, &host);
    return choir_device_sync(device); /* the caller's memory may go when we return */
}
