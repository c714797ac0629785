/* Launches on whole tensors without a tape entry: copies, fills and sums that ops share. */
#include <stdio.h>
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"

static choir__strided strided(const choir_tensor *t)
{
    choir__strided s = {.p = choir__data(t)};
    memcpy(s.stride, t->stride, sizeof t->stride);
    return s;
}

static void copy_on(choir_device *device, choir_tensor *y, const choir_tensor *x)
{
    if (y->count == 0)
        return;
    choir__k_copy args = {.y = strided(y),
        .x = strided(x),
        .ndim = y->shape.ndim,
        .y_dtype = y->dtype,
        .x_dtype = x->dtype};
    memcpy(args.shape, y->shape.dim, sizeof args.shape);
    /* the order does not matter: copy flat memory */
    if (choir__same_layout(x, y) && choir__is_dense(x)) {
        args.ndim = 1;
        args.shape[0] = y->count;
        args.x.stride[0] = args.y.stride[0] = 1;
    }
    choir__launch(device, CHOIR_F32, copy, &args);
}

void choir__launch_copy(choir_tensor *y, const choir_tensor *x)
{
    copy_on(choir__device_of(x), y, x);
}

/* Sends x's bytes to y, which has the same layout. */
static void carry(choir_tensor *y, choir_tensor *x)
{
    choir_device *from = choir__device_of(x);
    choir__carrier *carrier = from->carrier;
    choir__event ready = x->storage->ready, read = {0};
    if (!ready.queue)
        ready = choir__queue_record(from->queue);
    carrier->carry(carrier, from, choir__data(x), choir__device_of(y), choir__data(y),
        (size_t)x->count * choir_dtype_size(x->dtype), ready, &read);
    if (read.queue && (x->storage->block || x->storage->mapping))
        choir__storage_read_by(x->storage, read.queue);
    else if (read.queue)
        choir__queue_wait_event(from->queue, read);
}

struct shortage {
    size_t bytes;
    char name[16];
};

static void run_short(const void *args)
{
    const struct shortage *s = args;
    choir__queue_fail(CHOIR_ERR_MEMORY, "out of memory on %s: %zu bytes, to send a tensor",
        s->name, s->bytes);
}

/* Sends x to y, which is dense. If x has another order or dtype, a copy of it on its own device
 * is converted first. */
static void carry_in_order(choir_tensor *y, choir_tensor *x)
{
    choir_device *from = choir__device_of(x);
    struct shortage need = {.bytes = (size_t)y->count * choir_dtype_size(y->dtype)};
    if (x->dtype == y->dtype && choir__same_layout(x, y)) {
        carry(y, x);
        return;
    }
    choir_tensor sent = *y;
    sent.offset = 0;
    sent.storage = choir__storage_new(from, need.bytes);
    if (!sent.storage) { /* an error of the device, like all others during copies */
        snprintf(need.name, sizeof need.name, "%s", choir_device_name(from));
        choir__queue_issue(from->queue, run_short, &need, sizeof need);
        return;
    }
    copy_on(from, &sent, x);
    choir__storage_tell(sent.storage, CHOIR__FOR_MESSAGES, "(copies for other devices)");
    carry(y, &sent);
    choir__storage_unref(sent.storage);
}

void choir__copy_across(choir_tensor *y, choir_tensor *x)
{
    choir_device *from = choir__device_of(x), *to = choir__device_of(y);
    if (y->count == 0)
        return;
    (void)choir__data(x); /* may gather its values, which the events below then cover */
    choir__storage_claim(y->storage);
    bool carried = choir__carrier_of(from, to) != NULL;
    if (carried)
        carry_in_order(y, x);
    if (carried || to->away)
        return;
    choir__event ready = x->storage->ready;
    choir__queue_wait_event(to->queue, ready.queue ? ready : choir__queue_record(from->queue));
    copy_on(to, y, x);
    /* nothing moves if the device has that memory itself, or is in another process */
    if (!to->carrier || to->carrier->reads)
        choir__queue_moved(
            to->queue, from->queue, (uint64_t)x->count * choir_dtype_size(x->dtype));
    /* the owner may release x before the copy has run */
    choir__storage_read_by(x->storage, to->queue);
}

void choir__launch_fill(choir_tensor *y, double value)
{
    if (y->count == 0)
        return;
    choir__k_fill args = {
        .y = choir__data(y), .n = y->count, .value = value, .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, fill, &args);
}

void choir__launch_upload(choir_device *device, void *y, const void *data, size_t bytes)
{
    choir__k_store args;
    for (size_t at = 0; at < bytes; at += args.bytes) {
        size_t left = bytes - at;
        args.y = (char *)y + at;
        args.bytes = (uint32_t)(left < sizeof args.data ? left : sizeof args.data);
        memcpy(args.data, (const char *)data + at, args.bytes);
        choir__launch(device, CHOIR_F32, store, &args);
    }
}

void choir__launch_bytes(choir_device *device, void *y, const void *x, size_t bytes)
{
    choir__k_copy args = {.y = {.p = y, .stride = {1}},
        .x = {.p = (void *)x, .stride = {1}},
        .shape = {(int64_t)bytes},
        .ndim = 1,
        .y_dtype = CHOIR_U8,
        .x_dtype = CHOIR_U8};
    choir__launch(device, CHOIR_F32, copy, &args);
}

choir__strided choir__stretched(const choir_tensor *t, choir_shape shape)
{
    choir__strided s = {.p = choir__data(t)};
    int missing = shape.ndim - t->shape.ndim;
    for (int i = missing; i < shape.ndim; i++)
        s.stride[i] = t->shape.dim[i - missing] == 1 ? 0 : t->stride[i - missing];
    return s;
}

void choir__launch_binary(
    choir_tensor *y, choir__binary_op op, const choir_tensor *a, const choir_tensor *b)
{
    choir__k_binary args = {.y = choir__stretched(y, y->shape),
        .a = choir__stretched(a, y->shape),
        .b = choir__stretched(b, y->shape),
        .ndim = y->shape.ndim,
        .op = op,
        .dtype = y->dtype};
    memcpy(args.shape, y->shape.dim, sizeof args.shape);
    if (choir__same_layout(a, y) && choir__same_layout(b, y) && choir__is_dense(y)) {
        args.ndim = 1;
        args.shape[0] = y->count;
        args.y.stride[0] = args.a.stride[0] = args.b.stride[0] = 1;
    }
    if (y->count)
        choir__launch(choir__device_of(y), y->dtype, binary, &args);
}

void choir__launch_add(choir_tensor *y, const choir_tensor *a, const choir_tensor *b)
{
    if (a->dtype == b->dtype) {
        choir__launch_binary(y, CHOIR__ADD, a, b);
        return;
    }
    choir__k_add_scaled args = {.a = choir__data(a),
        .b = choir__data(b),
        .y = choir__data(y),
        .n = y->count,
        .scale = 1,
        .dtype = a->dtype,
        .b_half = b->dtype};
    choir__launch(choir__device_of(y), a->dtype, add_scaled, &args);
}

choir_tensor *choir__dense_rows(choir_scope *scope, choir_tensor *x)
{
    if (choir__is_contiguous(x))
        return x;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    if (!y->poisoned)
        choir__launch_copy(y, x);
    return y;
}

enum { LONG_ROW = 512 };

int64_t choir__product_row(const choir_device *device, choir_dtype dtype, int64_t cols)
{
    if (!choir__is_half(dtype) || !device->row_bytes || cols < LONG_ROW)
        return cols;
    int64_t step = device->row_bytes / (int64_t)choir_dtype_size(dtype);
    return (cols + step - 1) / step * step;
}

bool choir__has_product_rows(const choir_tensor *x)
{
    return choir__is_contiguous(x) ||
           (!x->poisoned && choir__row_of(x) == choir__product_row(choir__device_of(x),
                                                    x->dtype, choir__cols(x)));
}

choir_tensor *choir__product_rows(choir_scope *scope, choir_tensor *x)
{
    return choir__has_product_rows(x) ? x : choir__dense_rows(scope, x);
}

static choir_tensor *launch_sum(choir_scope *scope, choir_tensor *x, int64_t rows, int64_t cols,
    bool over_rows, choir_shape shape)
{
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    if (y->poisoned)
        return y;
    choir__k_sum args = {.x = choir__data(x),
        .y = choir__data(y),
        .rows = rows,
        .cols = cols,
        .scale = 1,
        .over_rows = over_rows,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, sum, &args);
    return y;
}

/* Returns x, row-major, with the dimensions of `moved` (a bit mask) last. */
static choir_tensor *move_last(
    choir_scope *scope, choir_tensor *x, unsigned moved, int64_t *kept_count)
{
    choir_tensor *view = choir__tensor_alias(scope, x);
    int at = 0;
    *kept_count = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->shape.ndim; i++)
            if ((moved >> i & 1) == (unsigned)pass) {
                view->shape.dim[at] = x->shape.dim[i];
                view->stride[at++] = x->stride[i];
                if (!pass)
                    *kept_count *= x->shape.dim[i];
            }
    return choir__dense_rows(scope, view);
}

choir_tensor *choir__sum_to(choir_scope *scope, choir_tensor *x, choir_shape shape)
{
    if (choir__same_shape(x->shape, shape))
        return x;
    int missing = x->shape.ndim - shape.ndim;
    unsigned summed = 0;
    for (int i = 0; i < x->shape.ndim; i++)
        if (i < missing || (shape.dim[i - missing] == 1 && x->shape.dim[i] != 1))
            summed |= 1u << i;
    if (!summed) { /* only additional leading dimensions of size 1 */
        choir_tensor *y = choir__tensor_alias(scope, choir__dense_rows(scope, x));
        y->shape = shape;
        choir__set_row_major(y);
        return y;
    }
    int leading = __builtin_ctz(~summed); /* number of leading dimensions that are summed */
    if (summed == (1u << leading) - 1 && choir__is_contiguous(x)) {
        int64_t cols = choir__shape_count(shape);
        return launch_sum(scope, x, cols ? x->count / cols : 0, cols, true, shape);
    }
    int64_t kept;
    choir_tensor *rows = move_last(scope, x, summed, &kept);
    return rows->poisoned
               ? rows
               : launch_sum(scope, rows, kept, kept ? x->count / kept : 0, false, shape);
}
