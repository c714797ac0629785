/* Collectives with gradients. Each is an op whose backward is another of them:
 *
 *    copy            x           <-->  reduce          sum of x
 *    gather          side by side <-->  split           own part
 *    all_gather      side by side <-->  reduce_scatter  own part of the sum
 *
 * All go through the group's queue, between two waits (distributed.c); the host goes on at
 * once. */
#include <choir/distributed.h>

#include "comm/pattern/tree.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/launch.h"

typedef struct attributes {
    choir_group *group;
    int dim;
    int64_t whole; /* size along dim, over all ranks */
} attributes;

static void fail(choir_tensor *t, choir_status status)
{
    if (status == CHOIR_OK)
        return;
    choir__scope_fail(t->scope, status);
    t->poisoned = true;
}

/* --- on values, without records --- */

/* Returns rows [lo, hi) of t along dim: a view. */
static choir_tensor *rows_of(choir_tensor *t, int dim, int64_t lo, int64_t hi)
{
    choir_tensor *view = choir__tensor_alias(t->scope, t);
    view->split = NULL;
    view->shape.dim[dim] = hi - lo;
    view->count = choir__shape_count(view->shape);
    view->offset += lo * view->stride[dim];
    return view;
}

/* Returns rank r's part of t along dim: a view. */
static choir_tensor *block(choir_tensor *t, int dim, int r, int ranks)
{
    int64_t lo, hi;
    choir__tree_run(t->shape.dim[dim], r, ranks, &lo, &hi);
    return rows_of(t, dim, lo, hi);
}

static choir_tensor *with_dim(choir_scope *scope, choir_tensor *x, int dim, int64_t size)
{
    choir_shape shape = x->shape;
    shape.dim[dim] = size;
    return choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
}

/* Returns x in dense memory, padded to `size`, the largest part along dim. */
static choir_tensor *padded(choir_scope *scope, choir_tensor *x, int dim, int64_t size)
{
    if (x->shape.dim[dim] == size)
        return choir__dense_rows(scope, x);
    choir_tensor *y = with_dim(scope, x, dim, size);
    if (y->poisoned)
        return y;
    choir__launch_fill(y, 0);
    choir__launch_copy(rows_of(y, dim, 0, x->shape.dim[dim]), x);
    return y;
}

/* Joins the ranks' x side by side along dim, to the size `whole`. */
static choir_tensor *gathered(
    choir_scope *scope, choir_tensor *x, choir_group *group, int dim, int64_t whole)
{
    int world = choir_group_world(group);
    int64_t most = (whole + world - 1) / world;
    choir_tensor *all = choir_all_gather(padded(scope, x, dim, most), group);
    if (all->poisoned || (dim == 0 && most * world == whole))
        return all; /* (world * N, ...) */
    choir_tensor *y = with_dim(scope, x, dim, whole);
    for (int r = 0; r < world && !y->poisoned; r++) {
        choir_tensor *to = block(y, dim, r, world);
        choir_tensor *from = block(all, 0, r, world);
        choir__launch_copy(to, rows_of(from, dim, 0, to->shape.dim[dim]));
    }
    choir__tensor_release(all);
    return y;
}

static choir_tensor *own_block(
    choir_scope *scope, choir_tensor *x, const choir_group *group, int dim)
{
    choir_tensor *own = block(x, dim, choir_group_rank(group), choir_group_world(group));
    choir_tensor *y = with_dim(scope, x, dim, own->shape.dim[dim]);
    if (!y->poisoned)
        choir__launch_copy(y, own);
    return y;
}

/* Returns this rank's block along dim of the sum of the ranks' x. */
static choir_tensor *scattered(choir_scope *scope, choir_tensor *x, choir_group *group, int dim)
{
    int world = choir_group_world(group);
    choir_tensor *blocks = x;
    if (dim > 0) { /* the blocks one after another: (world * N / world...) */
        choir_shape shape = x->shape;
        shape.dim[dim] /= world;
        shape.dim[0] *= world;
        blocks = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
        for (int r = 0; r < world && !blocks->poisoned; r++)
            choir__launch_copy(block(blocks, 0, r, world), block(x, dim, r, world));
    }
    return choir_reduce_scatter(choir__dense_rows(scope, blocks), group, CHOIR_SUM);
}

/* --- gradients --- */

/* Sums the ranks' gy, in its own memory if no other tensor shares that. */
static void sum_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    bool ours = gy->grad_owned && choir__is_dense(gy) && choir__storage_is_ours(gy->storage);
    if (!ours) {
        choir_tensor *copy = choir__tensor_like(sink->scope, gy);
        if (copy->poisoned)
            return;
        choir__launch_copy(copy, gy);
        copy->grad_owned = true;
        gy = copy;
    }
    choir_status status = choir_all_reduce(gy, a->group, CHOIR_SUM);
    if (status != CHOIR_OK)
        choir__scope_fail(sink->scope, status);
    else
        sink->give(sink, r, 0, gy);
}

static void pass_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
}

static void give_new(choir__record *r, choir_tensor *g, choir__sink *sink)
{
    g->grad_owned = true;
    sink->give(sink, r, 0, g); /* gives nothing if g is poisoned */
}

static void own_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, own_block(sink->scope, gy, a->group, a->dim), sink);
}

static void gather_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, gathered(sink->scope, gy, a->group, a->dim, a->whole), sink);
}

static void scatter_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, scattered(sink->scope, gy, a->group, a->dim), sink);
}

/* Recomputation is collective: all ranks recompute the same segments in the same order. */
static void reduce_again(choir__record *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out, r->in[0]);
    uint32_t version = r->out->storage->version;
    fail(r->out, choir_all_reduce(r->out, a->group, CHOIR_SUM));
    r->out->storage->version = version;
}

static void gather_again(choir__record *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out, gathered(r->scope, r->in[0], a->group, a->dim, a->whole));
}

static void split_again(choir__record *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out, own_block(r->scope, r->in[0], a->group, a->dim));
}

static void scatter_again(choir__record *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out, scattered(r->scope, r->in[0], a->group, a->dim));
}

static const choir__op copy_op = {
    .name = "tp_copy", .any_dtype = true, .backward = sum_backward, .view = true};
static const choir__op reduce_op = {
    .name = "tp_reduce", .any_dtype = true, .backward = pass_backward, .again = reduce_again};
static const choir__op gather_op = {
    .name = "tp_gather", .any_dtype = true, .backward = own_backward, .again = gather_again};
static const choir__op split_op = {
    .name = "tp_split", .any_dtype = true, .backward = gather_backward, .again = split_again};
static const choir__op all_gather_op = {.name = "tp_all_gather",
    .any_dtype = true,
    .backward = scatter_backward,
    .again = gather_again};
static const choir__op reduce_scatter_op = {.name = "tp_reduce_scatter",
    .any_dtype = true,
    .backward = gather_backward,
    .again = scatter_again};

/* --- the ops --- */

static choir_tensor *recorded(
    const choir__op *op, choir_tensor *y, choir_tensor *x, attributes a)
{
    choir__record *r = choir__record_op(op, y, &x, 1);
    if (r)
        choir__record_attrs(r, &a, sizeof a);
    return y;
}

/* Returns the copy of x that an earlier layer made, so that the gradients of both are added
 * first and reduced once. */
static choir_tensor *copied_before(
    const choir_scope *scope, const choir_tensor *x, const choir_group *group)
{
    for (choir__record *r = scope->tape_tail; r && r != x->producer; r = r->previous)
        if (r->op == &copy_op && r->in[0] == x && r->segment == scope->segment &&
            ((const attributes *)r->attrs)->group == group && r->out->storage)
            return r->out;
    return NULL;
}

choir_tensor *choir_tp_copy(choir_tensor *x, choir_group *group)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&copy_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (choir_group_world(group) == 1 || !x->requires_grad || !scope->grad)
        return x;
    choir_tensor *before = copied_before(scope, x, group);
    return before ? before
                  : recorded(&copy_op, choir__tensor_alias(scope, x), x,
                        (attributes){.group = group});
}

choir_tensor *choir_tp_reduce(choir_tensor *x, choir_group *group)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&reduce_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (choir_group_world(group) == 1)
        return x;
    choir_tensor *y = choir__tensor_like(scope, x);
    if (y->poisoned)
        return y;
    choir__launch_copy(y, x);
    fail(y, choir_all_reduce(y, group, CHOIR_SUM));
    return recorded(&reduce_op, y, x, (attributes){.group = group});
}

/* Begins an op along a dimension, which it normalizes. deals: the dimension is distributed over
 * the ranks. NULL: *instead is the result. */
static choir_scope *begin_along(const choir__op *op, choir_tensor **x, const choir_group *group,
    int *dim, bool deals, choir_tensor **instead)
{
    int world = choir_group_world(group);
    choir_scope *scope = choir__begin(op, x, 1, instead);
    if (!scope)
        return NULL;
    *instead = *x;
    if (!choir__fix_dim(*x, dim))
        *instead = choir__bad_dim(op->name, *x, *dim);
    else if (deals && (*x)->shape.dim[*dim] % world)
        *instead = choir__poison(scope, CHOIR_ERR_SHAPE,
            "%s: dimension %d of %s cannot be dealt out to %d ranks: it must be a multiple of "
            "them",
            op->name, *dim, choir__shape_text((*x)->shape), world);
    return *instead == *x && world > 1 ? scope : NULL;
}

/* Joins the ranks' x side by side, with the backward of op. */
static choir_tensor *side_by_side(
    const choir__op *op, choir_tensor *x, choir_group *group, int dim, int64_t whole)
{
    choir_tensor *instead;
    choir_scope *scope = begin_along(op, &x, group, &dim, false, &instead);
    if (!scope)
        return instead;
    if (!whole)
        whole = x->shape.dim[dim] * choir_group_world(group);
    choir_tensor *y = gathered(scope, x, group, dim, whole);
    return recorded(op, y, x, (attributes){group, dim, whole});
}

/* Scores in parts may have different sizes per rank; the result is whole. */
choir_tensor *choir_tp_gather(choir_tensor *x, choir_group *group, int dim)
{
    const choir__partition *mark = x->split;
    int64_t whole = mark ? choir__tp_part_of(x)->whole : 0;
    if (mark && (x->param || (dim != -1 && dim != x->shape.ndim - 1)))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tp_gather: of what is in parts, scores alone are gathered, along their classes");
    x->split = NULL;
    choir_tensor *y = side_by_side(&gather_op, x, group, dim, whole);
    if (y != x)
        x->split = mark;
    return y;
}

choir_tensor *choir_tp_all_gather(choir_tensor *x, choir_group *group, int dim)
{
    return side_by_side(&all_gather_op, x, group, dim, 0);
}

choir_tensor *choir_tp_split(choir_tensor *x, choir_group *group, int dim)
{
    choir_tensor *instead;
    choir_scope *scope = begin_along(&split_op, &x, group, &dim, true, &instead);
    if (!scope)
        return instead;
    return recorded(&split_op, own_block(scope, x, group, dim), x,
        (attributes){group, dim, x->shape.dim[dim]});
}

choir_tensor *choir_tp_reduce_scatter(choir_tensor *x, choir_group *group, int dim)
{
    choir_tensor *instead;
    choir_scope *scope = begin_along(&reduce_scatter_op, &x, group, &dim, true, &instead);
    if (!scope)
        return instead;
    return recorded(&reduce_scatter_op, scattered(scope, x, group, dim), x,
        (attributes){group, dim, x->shape.dim[dim]});
}
