/* Numbers in a row, and ops by them: triangles, reversed and turned dimensions, places. */
#include "tensor/ops/made/places.h"

#include <math.h>
#include <stdlib.h>

#include <choir/make.h>
#include <choir/select.h>

#include "base/floats.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

choir_tensor *choir__places(choir_scope *scope, choir_device *device, int64_t count)
{
    if (scope->run->lost)
        return scope->run->lost;
    choir_tensor *ones = choir__tensor_new(scope, device, CHOIR_F64, choir_dims(count));
    if (ones->poisoned)
        return ones;
    choir__launch_fill(ones, 1);
    return choir_affine(choir_cumsum(ones, 0), 1, -1);
}

/* --- in a row --- */

static choir_tensor *empty(choir_scope *scope, choir_dtype dtype)
{
    return choir_zeros(scope, dtype, choir_dims(0));
}

choir_tensor *choir_arange(
    choir_scope *scope, choir_dtype dtype, double start, double end, double step)
{
    CHOIR__DEFAULT_FLOATS;
    scope = choir__open_scope(scope, __func__);
    double count = ceil((end - start) / step);
    if (!(count >= 0 && count < 0x1p53)) /* NaN too */
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "arange: expected a step that leads from %g to %g, got %g", start, end, step);
    if (count == 0)
        return empty(scope, dtype);
    choir_tensor *y = choir__places(scope, scope->device, (int64_t)count);
    return choir_cast(choir_affine(y, step, start), dtype);
}

choir_tensor *choir_linspace(
    choir_scope *scope, choir_dtype dtype, double start, double end, int64_t count)
{
    CHOIR__DEFAULT_FLOATS;
    scope = choir__open_scope(scope, __func__);
    if (count < 0 || !isfinite(start) || !isfinite(end))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "linspace: expected finite ends and a count of 0 or more, got %g, %g and %lld",
            start, end, (long long)count);
    if (count == 0)
        return empty(scope, dtype);
    double step = count > 1 ? (end - start) / (double)(count - 1) : 0;
    choir_tensor *at = choir__places(scope, scope->device, count);
    choir_tensor *up = choir_affine(at, step, start); /* exact at the start */
    choir_tensor *down = choir_affine(at, step, end - step * (double)(count - 1));
    choir_tensor *low = choir_compare(at, CHOIR_LT, (double)count / 2);
    return choir_cast(choir_where(low, up, down), dtype);
}

/* --- triangles: entry (i, j) by j - i --- */

static const choir__op tril_op = {.name = "tril", .any_dtype = true, .composed = true};
static const choir__op triu_op = {.name = "triu", .any_dtype = true, .composed = true};

/* Returns j - i of a matrix: (rows, cols) f64. */
static choir_tensor *offsets(
    choir_scope *scope, choir_device *device, int64_t rows, int64_t cols)
{
    choir_tensor *i = choir__places(scope, device, rows);
    return choir_sub(choir__places(scope, device, cols), choir_reshape(i, choir_dims(rows, 1)));
}

static choir_tensor *triangle(
    const choir__op *op, choir_tensor *x, choir_comparison drops, int64_t diagonal)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (x->shape.ndim < 2 || !choir__is_float(x->dtype))
        return choir__shape_error(
            op->name, scope, &x, 1, "expected floating matrices (..., M, N)");
    if (!x->count)
        return x;
    choir_tensor *at =
        offsets(scope, choir__device_of(x), x->shape.dim[x->shape.ndim - 2], choir__cols(x));
    return choir_masked_fill(x, choir_compare(at, drops, (double)diagonal), 0);
}

choir_tensor *choir_tril(choir_tensor *x, int64_t diagonal)
{
    return triangle(&tril_op, x, CHOIR_GT, diagonal);
}

choir_tensor *choir_triu(choir_tensor *x, int64_t diagonal)
{
    return triangle(&triu_op, x, CHOIR_LT, diagonal);
}

choir_tensor *choir_eye(choir_scope *scope, choir_dtype dtype, int64_t rows, int64_t cols)
{
    scope = choir__open_scope(scope, __func__);
    if (rows < 1 || cols < 1)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "eye: expected positive sizes, got %lld and %lld", (long long)rows,
            (long long)cols);
    choir_tensor *at = offsets(scope, scope->device, rows, cols);
    return choir_cast(choir_compare(at, CHOIR_EQ, 0), dtype);
}

/* --- reversed and turned --- */

static const choir__op flip_op = {.name = "flip", .any_dtype = true, .composed = true};
static const choir__op roll_op = {.name = "roll", .any_dtype = true, .composed = true};

choir_tensor *choir_flip(choir_tensor *x, int dim)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&flip_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(x, &dim))
        return choir__bad_dim(flip_op.name, x, dim);
    int64_t n = x->shape.dim[dim];
    if (n < 2)
        return x;
    choir_tensor *back =
        choir_affine(choir__places(scope, choir__device_of(x), n), -1, (double)(n - 1));
    return choir_index_select(x, dim, choir_cast(back, CHOIR_I64));
}

choir_tensor *choir_roll(choir_tensor *x, int64_t shift, int dim)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&roll_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(x, &dim))
        return choir__bad_dim(roll_op.name, x, dim);
    int64_t n = x->shape.dim[dim];
    shift = n ? (shift % n + n) % n : 0;
    if (!shift)
        return x;
    return choir_cat((choir_tensor *[]){choir_narrow(x, dim, n - shift, shift),
                         choir_narrow(x, dim, 0, n - shift)},
        2, dim);
}

/* --- places of entries that are not 0 --- */

static const choir__op nonzero_op = {.name = "nonzero", .any_dtype = true, .composed = true};

/* Writes the place of entry number `at` of the shape. */
static void place_of(choir_shape shape, int64_t at, int64_t *place)
{
    for (int d = shape.ndim - 1; d >= 0; d--) {
        place[d] = at % shape.dim[d];
        at /= shape.dim[d];
    }
}

choir_tensor *choir_nonzero(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&nonzero_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *mask = choir_contiguous(choir_compare(x, CHOIR_NE, 0));
    int64_t count = x->count, n = 0, ndim = x->shape.ndim;
    unsigned char *set = choir__calloc((size_t)count + 1, 1);
    choir_status status =
        mask->poisoned ? choir__scope_status(scope) : choir_read(mask, set, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        n += set[i];
    int64_t *places = choir__calloc((size_t)(n * ndim) + 1, sizeof *places), at = 0;
    for (int64_t i = 0; i < count; i++)
        if (set[i])
            place_of(x->shape, i, places + at++ * ndim);
    choir_tensor *y = NULL;
    if (status == CHOIR_OK)
        y = choir_to(
            choir_from(scope, CHOIR_I64, choir_dims(n, ndim), places), choir__device_of(x));
    free(places);
    free(set);
    if (y)
        return y;
    choir__scope_fail(scope, status);
    return choir__failed_in(scope);
}
