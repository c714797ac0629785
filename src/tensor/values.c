/* Tensors from values and values from tensors: constants, random numbers, and copies from and
 * to the host. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/dry/dry.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/run.h"
#include "tensor/segment.h"

/* --- making --- */

static bool valid_shape(choir_scope *scope, choir_shape shape, choir_tensor **poisoned)
{
    if (scope->run->lost) {
        *poisoned = scope->run->lost;
        return false;
    }
    if (choir__shape_fits(shape))
        return true;
    *poisoned = choir__bad_shape(scope, "", shape);
    return false;
}

choir_tensor *choir_full(choir_scope *scope, choir_dtype dtype, choir_shape shape, double value)
{
    choir_tensor *t;
    scope = choir__open_scope(scope, __func__);
    if (!valid_shape(scope, shape, &t))
        return t;
    if (!choir__holds(dtype, value))
        return choir__bad_value(scope, "full", dtype, value);
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
    scope = choir__open_scope(scope, __func__);
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
    const char *function = normal ? "choir_randn" : "choir_rand";
    scope = choir__open_scope(scope, function);
    if (!name)
        return choir__poison(scope, choir__missing(function, "name"), "%s", choir__message());
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
    t = choir__sound(t, __func__);
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

/* Refuses copies from and to host memory in a recorded step: each replay would repeat them,
 * even if the memory has become invalid. */
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
    choir_status status = choir__use_tensor(t, what);
    if (status == CHOIR_OK)
        status = choir__scope_status(t->scope);
    if (status != CHOIR_OK)
        return status;
    if (t->poisoned)
        return choir__error(CHOIR_ERR_STATE, "%s: this tensor was never computed", what);
    if ((status = choir__bring_back((choir_tensor *)t)) !=
        CHOIR_OK) /* fetches values that were released */
        return status;
    if (t->freed)
        return choir__error(CHOIR_ERR_STATE,
            "%s: backward has freed this tensor's memory; choir_keep it before", what);
    return CHOIR_OK;
}

/* Checks that t has values in this process, so that host memory can be filled from it. */
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
    if (!data && bytes)
        return choir__missing(__func__, "memory");
    if (bytes != (size_t)t->count * choir_dtype_size(t->dtype))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_read: %zu bytes asked of %s %s, which has %zu", bytes,
            choir_dtype_name(t->dtype), choir__shape_text(t->shape),
            (size_t)t->count * choir_dtype_size(t->dtype));
    choir_device *device = choir__device_of(t);
    if (choir_device_is_dry(device))
        return choir__dry_read(device, t->dtype, data, t->count, "choir_read");
    choir_tensor host = {
        .scope = t->scope, .dtype = t->dtype, .shape = t->shape, .count = t->count};
    choir__storage memory = {.refs = 1, .device = device, .data = data, .bytes = bytes};
    host.storage = &memory;
    choir__set_row_major(&host);
    choir__launch_copy(&host, t);
    return choir_device_sync(device);
}

/* Copies the value of a tensor of one element. */
static choir_status item(const choir_tensor *t, double *value)
{
    choir_status status = has_values(t, "choir_item");
    if (status != CHOIR_OK)
        return status;
    if (t->count != 1)
        return choir__error(CHOIR_ERR_SHAPE,
            "choir_item: expected a tensor of one value, got %s", choir__shape_text(t->shape));
    if (choir_device_is_dry(choir__device_of(t)))
        return choir__dry_read(choir__device_of(t), CHOIR_F64, value, 1, "choir_item");
    choir_tensor host = {.scope = t->scope, .dtype = CHOIR_F64, .shape = t->shape, .count = 1};
    choir__storage memory = {
        .refs = 1, .device = choir__device_of(t), .data = value, .bytes = sizeof *value};
    host.storage = &memory;
    choir__set_row_major(&host);
    choir__launch_copy(&host, t);
    return choir_device_sync(choir__device_of(t));
}

double choir_item(const choir_tensor *t)
{
    double value = NAN;
    choir_status status = item(t, &value);
    if (status == CHOIR_OK)
        return value;
    if (choir__is_sound(t))
        choir__scope_fail(t->scope, status);
    else
        choir__unsound((choir_tensor *)t, "choir_item");
    return NAN;
}

choir_status choir_write(choir_tensor *t, const void *data, size_t bytes)
{
    choir_status status = readable(t, "choir_write");
    if (status != CHOIR_OK)
        return status;
    if (!data && bytes)
        return choir__missing(__func__, "memory");
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
    return choir_device_sync(device); /* the caller may free its memory after the return */
}
