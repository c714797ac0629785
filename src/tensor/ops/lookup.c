/* Lookups along a dimension: gather and index_select, whose gradients are sums into the places
 * that were looked up, and scatter_add, whose gradient is a lookup. */
#include <string.h>

#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/ops/lookup.h"

struct lookup {
    int dim;
    choir__lookup what;
    bool distinct; /* no index is in a line twice */
};

/* part: x or y, which has an entry for each index; whole: the other one */
static choir__k_gather arguments(const choir_tensor *part, const choir_tensor *whole,
    const choir_tensor *index, struct lookup l)
{
    choir__k_gather args = {.index = choir__stretched(index, part->shape),
        .size = whole->shape.dim[l.dim],
        .ndim = part->shape.ndim,
        .dim = l.dim,
        .lookup = l.what,
        .distinct = l.distinct,
        .dtype = whole->dtype};
    memcpy(args.shape, part->shape.dim, sizeof args.shape);
    return args;
}

static void launch_gather(
    choir_tensor *y, const choir_tensor *x, const choir_tensor *index, struct lookup l)
{
    choir__k_gather args = arguments(y, x, index, l);
    args.y = choir__stretched(y, y->shape);
    args.x = choir__stretched(x, x->shape);
    if (y->count)
        choir__launch(choir__device_of(y), CHOIR_F32, gather, &args);
}

/* Adds x into y; x and index have one shape. */
static void launch_scatter_add(
    choir_tensor *y, const choir_tensor *x, const choir_tensor *index, struct lookup l)
{
    choir__k_gather args = arguments(x, y, index, l);
    args.y = choir__stretched(y, y->shape);
    args.x = choir__stretched(x, x->shape);
    if (x->count)
        choir__launch(choir__device_of(y), y->dtype, scatter_add, &args);
}

/* Gives r's input 0 zeros, with gy added at the places that the index names. 16-bit gradients
 * are added in f32. */
static void give_scattered(choir__tape_entry *r, choir_tensor *gy, const choir_tensor *index,
    struct lookup l, choir__sink *sink)
{
    choir_tensor *dest = sink->dest(sink, r, 0), *sums = dest;
    if (!dest)
        return;
    choir_tensor *terms = choir__wide(sink->scope, gy);
    if (choir__is_half(dest->dtype))
        sums = choir__tensor_new(sink->scope, choir__device_of(dest), CHOIR_F32, dest->shape);
    if (sums->poisoned || terms->poisoned)
        return;
    choir__launch_fill(sums, 0);
    launch_scatter_add(sums, terms, index, l);
    if (sums != dest)
        choir__launch_copy(dest, sums);
    sink->give(sink, r, 0, dest);
}

void choir__give_picked(choir__tape_entry *r, choir_tensor *gy, const choir_tensor *index,
    int dim, choir__sink *sink)
{
    give_scattered(
        r, gy, index, (struct lookup){.dim = dim, .what = CHOIR__FOR_SCATTER_ADD}, sink);
}

choir_tensor *choir__derive_scattered(
    choir_tensor *x, choir_tensor *g, int dim, choir_tensor *index)
{
    choir_tensor *zeros = choir__tensor_new(g->scope, choir__device_of(g), g->dtype, x->shape);
    if (zeros->poisoned)
        return zeros;
    choir__launch_fill(zeros, 0);
    return choir_scatter_add(zeros, dim, index, g);
}

/* --- gather --- */

static void gather_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    give_scattered(r, gy, r->saved[0], *(const struct lookup *)r->attrs, sink);
}

static void gather_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct lookup *l = r->attrs;
    gx[0] = choir__derive_scattered(r->in[0], gy, l->dim, r->saved[0]);
}

static void gather_again(choir__tape_entry *r)
{
    launch_gather(r->out, r->in[0], r->saved[0], *(const struct lookup *)r->attrs);
}

/* Elements move as they are, in any dtype. */
#define LOOKUP_OP(title)                                                                       \
    {                                                                                          \
        .name = title, .half = 1, .half_native = 1, .backward = gather_backward,               \
        .derivative = gather_derivative, .recompute = gather_again, .reads_in = 2              \
    }
static const choir__op gather_op = LOOKUP_OP("gather");
static const choir__op index_select_op = LOOKUP_OP("index_select");

/* Returns row-major indices for x that fit in all dimensions except dim, or NULL with the error
 * in *poisoned. */
static choir_tensor *indices_for(const char *op, choir_scope *scope, choir_tensor **in,
    int count, int *dim, choir_tensor **poisoned)
{
    choir_tensor *x = in[0], *index = in[1];
    *poisoned = NULL;
    if (!choir__fix_dim(x, dim)) {
        *poisoned = choir__bad_dim(op, x, *dim);
        return NULL;
    }
    bool fits = index->dtype == CHOIR_I64 && index->shape.ndim == x->shape.ndim;
    for (int d = 0; fits && d < x->shape.ndim; d++)
        fits = d == *dim || index->shape.dim[d] <= x->shape.dim[d];
    if (!fits) {
        *poisoned = choir__shape_error(op, scope, in, count,
            "expected i64 indices with as many dimensions, none longer except dim");
        return NULL;
    }
    index = choir__tensor_alias(scope, choir__dense_rows(scope, index));
    if (index->poisoned)
        *poisoned = index;
    return index->poisoned ? NULL : index;
}

static choir_tensor *looked_up(const choir__op *op, choir_scope *scope, choir_tensor **in,
    choir_tensor *index, struct lookup l)
{
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, index->shape);
    return choir__computed(op, y, in, 2, (choir__keeps){&l, sizeof l, {index}});
}

static choir_tensor *gathered(choir_tensor *x, int dim, choir_tensor *index, bool distinct)
{
    choir_tensor *in[2] = {x, index}, *poisoned;
    choir_scope *scope = choir__begin(&gather_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    index = indices_for("gather", scope, in, 2, &dim, &poisoned);
    if (!index)
        return poisoned;
    struct lookup l = {dim, CHOIR__FOR_GATHER, distinct};
    return looked_up(&gather_op, scope, in, index, l);
}

choir_tensor *choir_gather_dim(choir_tensor *x, int dim, choir_tensor *index)
{
    return gathered(x, dim, index, false);
}

choir_tensor *choir__gather_distinct(choir_tensor *x, int dim, choir_tensor *index)
{
    return gathered(x, dim, index, true);
}

choir_tensor *choir_index_select(choir_tensor *x, int dim, choir_tensor *ids)
{
    choir_tensor *in[2] = {x, ids}, *poisoned;
    choir_scope *scope = choir__begin(&index_select_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(in[0], &dim))
        return choir__bad_dim("index_select", in[0], dim);
    if (in[1]->dtype != CHOIR_I64 || in[1]->shape.ndim != 1)
        return choir__shape_error("index_select", scope, in, 2, "expected i64 indices (n)");
    /* one index for all places of the other dimensions */
    choir_tensor *index = choir__tensor_alias(scope, choir__dense_rows(scope, in[1]));
    index->shape = in[0]->shape;
    index->shape.dim[dim] = in[1]->count;
    index->count = choir__shape_count(index->shape);
    memset(index->stride, 0, sizeof index->stride);
    index->stride[dim] = 1;
    if (index->poisoned)
        return index;
    return looked_up(&index_select_op, scope, in, index,
        (struct lookup){.dim = dim, .what = CHOIR__FOR_INDEX_SELECT});
}

/* --- scatter_add: the operands are x, the indices, and the terms --- */

static void scatter_add_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    struct lookup l = *(const struct lookup *)r->attrs;
    if (choir__wanted(r, 0))
        sink->give(sink, r, 0, gy);
    choir_tensor *g = sink->dest(sink, r, 2);
    if (!g)
        return;
    choir_tensor *part = choir__tensor_alias(sink->scope, g);
    launch_gather(part, gy, r->saved[0], l);
    sink->give(sink, r, 2, g);
}

static void scatter_add_derivative(
    const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct lookup *l = r->attrs;
    if (choir__wanted(r, 0))
        gx[0] = gy;
    if (choir__wanted(r, 2))
        gx[2] = choir_gather_dim(gy, l->dim, r->saved[0]);
}

static void scatter_add_again(choir__tape_entry *r)
{
    const choir_tensor *index = r->saved[0];
    choir_tensor part = *r->in[2]; /* the entries that have an index */
    part.shape = index->shape;
    part.count = index->count;
    choir__launch_copy(r->out, r->in[0]);
    launch_scatter_add(r->out, &part, index, *(const struct lookup *)r->attrs);
}

static const choir__op scatter_add_op = {.name = "scatter_add",
    .cast = CHOIR__CAST_WIDEST,
    .backward = scatter_add_backward,
    .derivative = scatter_add_derivative,
    .recompute = scatter_add_again,
    .reads_in = 2};

choir_tensor *choir_scatter_add(
    choir_tensor *x, int dim, choir_tensor *index, choir_tensor *from)
{
    choir_tensor *in[3] = {x, index, from}, *poisoned;
    choir_scope *scope = choir__begin(&scatter_add_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    index = indices_for("scatter_add", scope, in, 3, &dim, &poisoned);
    if (!index)
        return poisoned;
    if (!choir__same_shape(in[2]->shape, index->shape) || in[2]->dtype != in[0]->dtype)
        return choir__shape_error(
            "scatter_add", scope, in, 3, "expected values of the indices' shape and x's dtype");
    if (!choir__is_float(in[0]->dtype) && in[0]->dtype != CHOIR_I64)
        return choir__shape_error("scatter_add", scope, in, 3, "expected floating or i64 sums");
    struct lookup l = {.dim = dim, .what = CHOIR__FOR_SCATTER_ADD};
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, in[0]->shape);
    return choir__computed(&scatter_add_op, y, in, 3, (choir__keeps){&l, sizeof l, {index}});
}

/* --- one_hot: ones, added to zeros --- */

static const choir__op one_hot_op = {.name = "one_hot", .any_dtype = true};

choir_tensor *choir_one_hot(choir_tensor *ids, int64_t classes)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&one_hot_op, &ids, 1, &poisoned);
    if (!scope)
        return poisoned;
    int dim = ids->shape.ndim;
    if (ids->dtype != CHOIR_I64 || dim >= CHOIR_MAX_DIMS || classes < 1)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "one_hot: expected i64 ids of at most %d dimensions and at least one class, got %s "
            "%s and %lld classes",
            CHOIR_MAX_DIMS - 1, choir_dtype_name(ids->dtype), choir__shape_text(ids->shape),
            (long long)classes);
    choir_shape shape = ids->shape, ones = ids->shape;
    shape.dim[shape.ndim++] = classes;
    ones.dim[ones.ndim++] = 1;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(ids), CHOIR_I64, shape);
    choir_tensor *index = choir__tensor_alias(scope, choir__dense_rows(scope, ids));
    choir_tensor *one = y->poisoned ? y : choir__number_like(scope, y, 1);
    if (y->poisoned || index->poisoned || one->poisoned)
        return y->poisoned ? y : index->poisoned ? index : one;
    index->shape = ones;
    index->stride[dim] = 1;
    one = choir__tensor_alias(scope, one);
    one->shape = ones;
    one->count = ids->count;
    memset(one->stride, 0, sizeof one->stride);
    choir__launch_fill(y, 0);
    launch_scatter_add(y, one, index, (struct lookup){.dim = dim, .what = CHOIR__FOR_ONE_HOT});
    return y;
}
