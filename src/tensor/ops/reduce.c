/* Sums and means, over everything or over one dimension; argmax. */
#include <string.h>

#include "base/floats.h"
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/strategy.h"

static void sum_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const choir_shape *with_ones = r->attrs;
    choir_tensor *g = choir__tensor_alias(sink->scope, choir__dense_rows(sink->scope, gy));
    choir_shape full = r->in[0]->shape;
    if (g->poisoned)
        return;
    g->shape = *with_ones;
    choir__set_row_major(g);
    for (int i = 0; i < full.ndim; i++)
        if (with_ones->dim[i] == 1)
            g->stride[i] = 0;
    g->shape = full;
    g->count = r->in[0]->count;
    sink->give(sink, r, 0, g);
}

static void sum_again(choir__tape_entry *r)
{
    choir_tensor *y = choir__sum_to(r->scope, r->in[0], *(const choir_shape *)r->attrs);
    if (y->poisoned || (y = choir__dense_rows(r->scope, y))->poisoned)
        return;
    choir__launch_bytes(choir__device_of(y), choir__data(r->out), choir__data(y),
        (size_t)y->count * choir_dtype_size(y->dtype));
}

static const choir__op sum_op = {
    .name = "sum", .cast = CHOIR__CAST_F32, .backward = sum_backward, .recompute = sum_again};
/* The op of a sum over dimensions of size 1: the result is x's memory. */
static const choir__op sum_view_op = {.name = "sum", .backward = sum_backward, .view = true};

/* Sums x to `with_ones` (1 in the summed dimensions), as a tensor of shape `out`. */
static choir_tensor *sum(choir_tensor *x, choir_shape with_ones, choir_shape out)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&sum_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (x->dtype != CHOIR_F32 && x->dtype != CHOIR_F64)
        return choir__poison(scope, CHOIR_ERR_DTYPE, "%s: expected a floating tensor, got %s",
            sum_op.name, choir_dtype_name(x->dtype));
    choir_tensor *y = choir__sum_to(scope, x, with_ones);
    if (y->poisoned)
        return y;
    y = choir__tensor_alias(scope, choir__dense_rows(scope, y));
    y->shape = out;
    choir__set_row_major(y);
    choir__tape_entry *r =
        choir__tape_entry_new(y->storage == x->storage ? &sum_view_op : &sum_op, y, &x, 1);
    if (r)
        choir__tape_entry_attrs(r, &with_ones, sizeof with_ones);
    return choir__as_stored(y);
}

choir_tensor *choir_sum(choir_tensor *x)
{
    x = choir__sound(x, sum_op.name);
    choir_shape ones = x->shape;
    for (int i = 0; i < ones.ndim; i++)
        ones.dim[i] = 1;
    return sum(x, ones, CHOIR_SCALAR);
}

choir_tensor *choir_mean(choir_tensor *x)
{
    CHOIR__DEFAULT_FLOATS;
    x = choir__sound(x, "mean");
    return choir_scale(choir_sum(x), 1.0 / (double)x->count); /* without entries: 0 * inf */
}

choir_tensor *choir_sum_dim(choir_tensor *x, int dim)
{
    x = choir__sound(x, sum_op.name);
    int at = dim < 0 ? dim + x->shape.ndim : dim;
    if (x->poisoned)
        return x;
    if (at < 0 || at >= x->shape.ndim)
        return choir__poison(x->scope, CHOIR_ERR_SHAPE, "sum: %s has no dimension %d",
            choir__shape_text(x->shape), dim);
    choir_shape ones = x->shape, out = x->shape;
    ones.dim[at] = 1;
    out.ndim--;
    memmove(&out.dim[at], &out.dim[at + 1], (size_t)(out.ndim - at) * sizeof out.dim[0]);
    return sum(x, ones, out);
}

choir_tensor *choir_mean_dim(choir_tensor *x, int dim)
{
    CHOIR__DEFAULT_FLOATS;
    x = choir__sound(x, "mean");
    int64_t n = choir_tensor_size(x, dim);
    return choir_scale(choir_sum_dim(x, dim), 1.0 / (double)n);
}

const choir__op choir__argmax_op = {
    .name = "argmax", .by_token = true, .half_native = CHOIR__ALL_IN, .slices_in = 1};

choir_tensor *choir_argmax(choir_tensor *x)
{
    choir_tensor *poisoned;
    x = choir__sound(x, choir__argmax_op.name);
    if (choir__is_part(x) && !x->poisoned)
        return x->split->by->ops->parts->argmax(x);
    choir_scope *scope = choir__begin(&choir__argmax_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (x->shape.ndim < 1 || choir__cols(x) < 1 || !choir__is_float(x->dtype))
        return choir__shape_error(
            choir__argmax_op.name, scope, &x, 1, "expected 1 value or more to choose from");
    choir_tensor *dense = choir__dense_rows(scope, x);
    choir_shape shape = x->shape;
    shape.ndim--;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), CHOIR_I64, shape);
    if (y->poisoned || dense->poisoned)
        return y->poisoned ? y : dense;
    choir__k_max_rows args = {.x = choir__data(dense),
        .index = choir__data(y),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, max_rows, &args);
    return y;
}
