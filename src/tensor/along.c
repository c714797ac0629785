/* Reductions along one dimension that also know where: the greatest and least entries and their
 * indices; and running sums, variances and norms. */
#include <math.h>
#include <string.h>

#include <choir/select.h>

#include "base/floats.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/ops/lookup.h"

/* Returns x's shape with size 1 in dimension dim, or without that dimension. */
static choir_shape without_dim(choir_shape shape, int dim, bool keep)
{
    if (keep) {
        shape.dim[dim] = 1;
        return shape;
    }
    shape.ndim--;
    memmove(
        &shape.dim[dim], &shape.dim[dim + 1], (size_t)(shape.ndim - dim) * sizeof shape.dim[0]);
    return shape;
}

/* The dimension of a dense tensor as (outer, n, inner). */
struct lines {
    int64_t outer, n, inner;
};

static struct lines lines_of(const choir_tensor *x, int dim)
{
    struct lines l = {1, x->shape.dim[dim], 1};
    for (int d = 0; d < x->shape.ndim; d++)
        if (d < dim)
            l.outer *= x->shape.dim[d];
        else if (d > dim)
            l.inner *= x->shape.dim[d];
    return l;
}

/* --- the greatest and the least --- */

struct extreme {
    int dim;
    bool least;
};

static void launch_extreme(
    choir_tensor *y, const choir_tensor *x, choir_tensor *index, struct extreme e)
{
    struct lines l = lines_of(x, e.dim);
    choir__k_extreme args = {.x = choir__data(x),
        .y = choir__data(y),
        .index = index ? choir__data(index) : NULL,
        .outer = l.outer,
        .n = l.n,
        .inner = l.inner,
        .least = e.least,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, extreme, &args);
}

static void extreme_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct extreme *e = r->attrs;
    choir_tensor *g = choir__tensor_alias(sink->scope, choir__dense_rows(sink->scope, gy));
    g->shape = without_dim(r->in[0]->shape, e->dim, true);
    choir__set_row_major(g);
    choir_tensor *index = choir__tensor_alias(sink->scope, r->saved[0]);
    index->shape = g->shape;
    choir__set_row_major(index);
    choir__give_picked(r, g, index, e->dim, sink);
}

static void extreme_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct extreme *e = r->attrs;
    choir_shape kept = without_dim(r->in[0]->shape, e->dim, true);
    gx[0] = choir__derive_scattered(
        r->in[0], choir_reshape(gy, kept), e->dim, choir_reshape(r->saved[0], kept));
}

static void extreme_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (!x->poisoned)
        launch_extreme(r->out, x, NULL, *(const struct extreme *)r->attrs);
}

static const choir__op extreme_ops[2] = {
    {.name = "max",
        .half_native = CHOIR__ALL_IN,
        .backward = extreme_backward,
        .derivative = extreme_derivative,
        .recompute = extreme_again},
    {.name = "min",
        .half_native = CHOIR__ALL_IN,
        .backward = extreme_backward,
        .derivative = extreme_derivative,
        .recompute = extreme_again},
};

/* Returns the values, and stores the indices; both may be wanted alone, so index may be NULL.
 */
static choir_tensor *extreme(
    choir_tensor *x, int dim, bool keep, bool least, choir_tensor **index, bool records)
{
    const choir__op *op = &extreme_ops[least];
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(op, &x, 1, &poisoned);
    if (index)
        *index = poisoned;
    if (!scope)
        return poisoned;
    int at = dim;
    if (!choir__fix_dim(x, &at))
        return choir__bad_dim(op->name, x, dim);
    if (!choir__is_float(x->dtype) || x->shape.dim[at] < 1)
        return choir__shape_error(
            op->name, scope, &x, 1, "expected a floating tensor and at least one entry");
    choir_tensor *dense = choir__dense_rows(scope, x);
    choir_shape shape = without_dim(x->shape, at, keep);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    choir_tensor *places = choir__tensor_new(scope, choir__device_of(x), CHOIR_I64, shape);
    if (dense->poisoned || y->poisoned || places->poisoned)
        return dense->poisoned ? dense : y->poisoned ? y : places;
    struct extreme e = {at, least};
    launch_extreme(y, dense, places, e);
    if (index)
        *index = places;
    choir__tape_entry *r = records ? choir__tape_entry_new(op, y, &x, 1) : NULL;
    if (r) {
        choir__tape_entry_attrs(r, &e, sizeof e);
        r->saved[0] = choir__tensor_alias(scope, places); /* the caller's handle stays */
    }
    return choir__as_stored(y);
}

/* Stores a poisoned result as the indices, too, so that they are never NULL. */
static choir_tensor *with_index(
    choir_tensor *x, int dim, bool keep, bool least, choir_tensor **index)
{
    choir_tensor *places = NULL, *y = extreme(x, dim, keep, least, &places, true);
    if (index)
        *index = y->poisoned ? y : places;
    return y;
}

choir_tensor *choir_max_dim(choir_tensor *x, int dim, bool keepdim, choir_tensor **index)
{
    return with_index(x, dim, keepdim, false, index);
}

choir_tensor *choir_min_dim(choir_tensor *x, int dim, bool keepdim, choir_tensor **index)
{
    return with_index(x, dim, keepdim, true, index);
}

static choir_tensor *index_of(choir_tensor *x, int dim, bool keep, bool least)
{
    choir_tensor *places = NULL, *y = extreme(x, dim, keep, least, &places, false);
    return y->poisoned ? y : places;
}

choir_tensor *choir_argmax_dim(choir_tensor *x, int dim, bool keepdim)
{
    return index_of(x, dim, keepdim, false);
}

choir_tensor *choir_argmin_dim(choir_tensor *x, int dim, bool keepdim)
{
    return index_of(x, dim, keepdim, true);
}

/* --- running sums --- */

static void launch_cumsum(choir_tensor *y, const choir_tensor *x, int dim, bool back)
{
    struct lines l = lines_of(x, dim);
    choir__k_cumsum args = {.x = choir__data(x),
        .y = choir__data(y),
        .outer = l.outer,
        .n = l.n,
        .inner = l.inner,
        .back = back,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, cumsum, &args);
}

static void cumsum_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    gy = choir__dense_rows(sink->scope, gy);
    choir_tensor *g =
        choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, gy->shape);
    if (g->poisoned || gy->poisoned)
        return;
    launch_cumsum(g, gy, *(const int *)r->attrs, true);
    sink->give(sink, r, 0, g);
}

static void cumsum_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (!x->poisoned)
        launch_cumsum(r->out, x, *(const int *)r->attrs, false);
}

static const choir__op cumsum_op = {.name = "cumsum",
    .cast = CHOIR__CAST_F32,
    .half_native = CHOIR__ALL_IN,
    .backward = cumsum_backward,
    .recompute = cumsum_again};

choir_tensor *choir_cumsum(choir_tensor *x, int dim)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&cumsum_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(x, &dim))
        return choir__bad_dim("cumsum", x, dim);
    if (!choir__is_float(x->dtype))
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "cumsum: expected a floating tensor, got %s", choir_dtype_name(x->dtype));
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    return choir__computed(&cumsum_op, y, &x, 1, (choir__keeps){&dim, sizeof dim, {NULL}});
}

/* --- compositions: they begin as ops of their own, which checks x --- */

/* Sums along dim, which stays with size 1. */
static choir_tensor *sum_kept(choir_tensor *x, int dim)
{
    choir_tensor *y = choir_sum_dim(x, dim);
    return y->poisoned ? y : choir_reshape(y, without_dim(x->shape, dim, true));
}

choir_tensor *choir_var_dim(choir_tensor *x, int dim, int64_t correction, bool keepdim)
{
    CHOIR__DEFAULT_FLOATS;
    const choir__op begun = {.name = "var", .any_dtype = true};
    choir_tensor *poisoned;
    int at = dim;
    if (!choir__begin(&begun, &x, 1, &poisoned))
        return poisoned;
    if (!choir__fix_dim(x, &at))
        return choir__bad_dim("var", x, dim);
    if (choir__is_half(x->dtype)) {
        choir_tensor *wide = choir_var_dim(choir_cast(x, CHOIR_F32), dim, correction, keepdim);
        return x->scope->autocast.on ? wide : choir_cast(wide, x->dtype);
    }
    double n = (double)x->shape.dim[at];
    choir_tensor *mean = choir_scale(sum_kept(x, at), 1 / n);
    choir_tensor *squares = choir_sum_dim(choir_square(choir_sub(x, mean)), at);
    choir_tensor *y = choir_scale(squares, 1 / fmax(0, n - (double)correction));
    return keepdim && !y->poisoned ? choir_reshape(y, without_dim(x->shape, at, true)) : y;
}

/* --- norms: (sum |x|^p)^(1/p), whose gradient is 0 where the norm is 0 --- */

/* Returns 1 where the comparison holds, of x's dtype. */
static choir_tensor *ones_where(choir_tensor *x, choir_comparison how, double value)
{
    return choir_cast(choir_compare(x, how, value), x->dtype);
}

struct norm {
    double p;
    int dim;
};

static choir_tensor *norm_forward(choir_tensor *const *in, int count, const void *arg)
{
    const struct norm *n = arg;
    (void)count;
    if (n->p == 0)
        return sum_kept(ones_where(in[0], CHOIR_NE, 0), n->dim);
    if (isinf(n->p))
        return n->p > 0 ? choir_max_dim(choir_abs(in[0]), n->dim, true, NULL)
                        : choir_min_dim(choir_abs(in[0]), n->dim, true, NULL);
    if (n->p == 2)
        return choir_sqrt(sum_kept(choir_square(in[0]), n->dim));
    return choir_pow(sum_kept(choir_pow(choir_abs(in[0]), n->p), n->dim), 1 / n->p);
}

/* sign(x) gy, divided among the |x| that are y */
static choir_tensor *extreme_gradient(
    choir_tensor *x, choir_tensor *y, choir_tensor *gy, int dim)
{
    choir_tensor *at = choir_cast(choir_eq(choir_abs(x), y), x->dtype);
    choir_tensor *sign = choir_sub(ones_where(x, CHOIR_GT, 0), ones_where(x, CHOIR_LT, 0));
    return choir_mul(
        choir_mul(at, sign), choir_div(gy, choir_clamp(sum_kept(at, dim), 1, INFINITY)));
}

/* x |x|^(p-2) gy / y^(p-1) */
static void norm_backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    const struct norm *n = arg;
    choir_tensor *x = in[0], *g = x;
    (void)count;
    if (n->p == 0) {
        grad_in[0] = choir_zeros(x->scope, x->dtype, x->shape);
        return;
    }
    if (isinf(n->p)) {
        grad_in[0] = extreme_gradient(x, out, grad_out, n->dim);
        return;
    }
    if (n->p != 2) {
        g = choir_mul(x, choir_pow(choir_abs(x), n->p - 2));
        g = choir_masked_fill(g, choir_compare(x, CHOIR_EQ, 0), 0);
    }
    choir_tensor *share = choir_div(grad_out, n->p == 2 ? out : choir_pow(out, n->p - 1));
    share = choir_masked_fill(share, choir_compare(out, CHOIR_EQ, 0), 0);
    grad_in[0] = choir_mul(g, share);
}

static const choir_custom_op norm_op = {"norm", norm_forward, norm_backward};

/* Returns the norm along dim, which stays with size 1. */
static choir_tensor *norm_kept(choir_tensor *x, double p, int dim)
{
    if (p == 1)
        return sum_kept(choir_abs(x), dim);
    struct norm *n = choir__arena_get(&x->scope->arena, sizeof *n);
    *n = (struct norm){p, dim};
    return choir_custom(&norm_op, &x, 1, n);
}

choir_tensor *choir_norm_dim(choir_tensor *x, double p, int dim, bool keepdim)
{
    CHOIR__DEFAULT_FLOATS;
    const choir__op begun = {.name = "norm", .any_dtype = true};
    choir_tensor *poisoned;
    int at = dim;
    if (!choir__begin(&begun, &x, 1, &poisoned))
        return poisoned;
    if (!choir__fix_dim(x, &at))
        return choir__bad_dim("norm", x, dim);
    if (isnan(p) || !choir__is_float(x->dtype))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "norm: expected a floating tensor and a number p, got %s and %g",
            choir_dtype_name(x->dtype), p);
    choir_tensor *wide = choir__is_half(x->dtype) ? choir_cast(x, CHOIR_F32) : x;
    choir_tensor *y = norm_kept(wide, p, at);
    if (!keepdim && !y->poisoned)
        y = choir_reshape(y, without_dim(x->shape, at, false));
    return wide == x || x->scope->autocast.on ? y : choir_cast(y, x->dtype);
}
