/* Casts of parameters under autocast.
 *
 * A parameter's cast is not an op: it is another handle of the parameter. So its gradient is
 * the parameter's, f32, in the book, and uses are counted and added as if there were no casts.
 * It is made once per scope, i.e. per micro-batch, and released with the last entry that has
 * it. While a cache writes text, weights do not change, and it is made once for all forwards.
 *
 * A scope is expected to need the casts that the scope before it on that device needed. On a
 * device whose kernels all take 16 bits, the first of them makes them all, with one kernel for
 * many parameters: to begin a kernel takes a GPU longer than to round most of the parameters.
 */
#include "autograd/book.h"
#include "tensor/autocast.h"
#include "tensor/cache.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

choir_tensor *choir__cast_like(choir_scope *scope, const choir_tensor *x, choir_dtype dtype)
{
    choir_tensor like = *x;
    like.dtype = dtype;
    return choir__tensor_like(scope, &like);
}

/* Makes the handle of a cast, whose values are still to be written. */
static choir_tensor *new_cast(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    choir_tensor *y = choir__cast_like(scope, x, dtype);
    if (y->poisoned)
        return y;
    y->cast = choir__arena_get(&scope->arena, sizeof *y->cast);
    *y->cast =
        (choir__param_cast){.of = x, .values = choir__values_of(x), .next = scope->casts};
    y->param = x->param;
    y->requires_grad = x->requires_grad;
    return scope->casts = y;
}

/* True if scope number `scope` used a cast of the parameter, and another can be made on the
 * device with the casts of others: the values are there, dense and in f32. */
static bool is_expected(const choir__param *p, uint64_t scope, const choir_device *device)
{
    const choir_tensor *x = p->tensor;
    return p->cast_scope == scope && choir__is_half(p->cast_dtype) && x->dtype == CHOIR_F32 &&
           x->storage && !x->storage->holder && choir__device_of(x) == device &&
           choir__is_dense(x);
}

static void flush(choir_device *device, choir__k_round *batch)
{
    if (batch->count)
        choir__launch(device, batch->dtype, round, batch);
    batch->count = 0;
}

static choir__run_device *place_of(choir_scope *scope, const choir_device *device)
{
    choir__run_device *d = choir__run_of(scope)->devices;
    while (d && d->device != device)
        d = d->next;
    return d;
}

/* Makes the casts that the scope is expected to need on the device. */
static void make_expected(choir_scope *scope, choir__run_device *place)
{
    choir_device *device = place->device;
    uint64_t before = place->cast_scopes++;
    choir__k_round batch = {.count = 0};
    choir__param *p = choir__run_of(scope)->params;
    for (; p && device->half && before; p = p->next) {
        if (!is_expected(p, before, device))
            continue;
        choir_tensor *y = new_cast(scope, p->tensor, p->cast_dtype);
        if (y->poisoned)
            break;
        if (batch.count == CHOIR__ROUNDED_RUNS || batch.dtype != y->dtype)
            flush(device, &batch);
        batch.dtype = y->dtype;
        batch.run[batch.count].x = choir__data(p->tensor);
        batch.run[batch.count].y = choir__data(y);
        batch.run[batch.count++].n = y->count;
    }
    flush(device, &batch);
}

/* Returns the scope's cast of x as it is now, or NULL. */
static choir_tensor *find(choir_scope *scope, const choir_tensor *x, choir_dtype dtype)
{
    for (choir_tensor *t = scope->casts; t; t = t->cast->next)
        if (t->cast->of == x && t->dtype == dtype && t->storage &&
            t->requires_grad == x->requires_grad && t->cast->values == choir__values_of(x) &&
            choir__device_of(t) == choir__device_of(x))
            return t;
    return NULL;
}

choir_tensor *choir__cast_param(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    scope = choir__cache_casts(scope);
    choir__run_device *place = place_of(scope, choir__device_of(x));
    if (place && !scope->casts)
        make_expected(scope, place);
    x->param->cast_scope = place ? place->cast_scopes : 0;
    x->param->cast_dtype = dtype;
    choir_tensor *y = find(scope, x, dtype);
    if (!y && !(y = new_cast(scope, x, dtype))->poisoned)
        choir__launch_copy(y, x);
    return y;
}

choir_status choir__cast_again(choir_tensor *t)
{
    if (!t || !t->cast || t->storage)
        return CHOIR_OK;
    choir_status status = choir__cast_again(t->cast->of);
    if (status != CHOIR_OK)
        return status;
    if (!choir__tensor_allocate(t, choir__device_of(t->cast->of)))
        return choir__scope_status(t->scope);
    t->freed = false;
    choir__launch_copy(t, t->cast->of);
    return CHOIR_OK;
}
