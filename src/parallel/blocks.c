/* Blocks along a dimension. The group moves rows of the first dimension; blocks along another
 * one are packed one after another before, or unpacked after. */
#include "parallel/blocks.h"

#include <choir/distributed.h>

#include "base/tree.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

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

/* Returns rank r's part of t along dim, its run of the slices: a view. */
static choir_tensor *slices_of(choir_tensor *t, int dim, int r, int ranks, int64_t slices)
{
    int64_t lo, hi, unused, each = slices / ranks;
    choir__tree_run(t->shape.dim[dim], (int)(r * each), (int)slices, &lo, &unused);
    choir__tree_run(t->shape.dim[dim], (int)((r + 1) * each - 1), (int)slices, &unused, &hi);
    return rows_of(t, dim, lo, hi);
}

static choir_tensor *block(choir_tensor *t, int dim, int r, int ranks)
{
    return slices_of(t, dim, r, ranks, ranks);
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

choir_tensor *choir__blocks_gather(choir_scope *scope, choir_tensor *x, choir_group *group,
    int dim, int64_t whole, int64_t slices)
{
    int world = choir_group_world(group);
    slices = slices ? slices : world;
    /* rank 0's slices are the longest */
    int64_t most = choir__min((whole + slices - 1) / slices * (slices / world), whole);
    choir_tensor *all = choir_all_gather(padded(scope, x, dim, most), group);
    if (all->poisoned || (dim == 0 && most * world == whole))
        return all; /* (world * N, ...) */
    choir_tensor *y = with_dim(scope, x, dim, whole);
    for (int r = 0; r < world && !y->poisoned; r++) {
        choir_tensor *to = slices_of(y, dim, r, world, slices);
        choir_tensor *from = block(all, 0, r, world);
        choir__launch_copy(to, rows_of(from, dim, 0, to->shape.dim[dim]));
    }
    choir__tensor_release(all);
    return y;
}

choir_tensor *choir__blocks_own(
    choir_scope *scope, choir_tensor *x, const choir_group *group, int dim, int64_t slices)
{
    int world = choir_group_world(group);
    choir_tensor *own =
        slices_of(x, dim, choir_group_rank(group), world, slices ? slices : world);
    choir_tensor *y = with_dim(scope, x, dim, own->shape.dim[dim]);
    if (!y->poisoned)
        choir__launch_copy(y, own);
    return y;
}

choir_tensor *choir__blocks_reduce(
    choir_scope *scope, choir_tensor *x, choir_group *group, choir_reduce_op op, int dim)
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
    return choir_reduce_scatter(choir__dense_rows(scope, blocks), group, op);
}

choir_tensor *choir__blocks_writable(choir_scope *scope, choir_tensor *gy)
{
    if (gy->grad_owned && choir__is_dense(gy) && choir__storage_is_ours(gy->storage))
        return gy;
    choir_tensor *copy = choir__tensor_like(scope, gy);
    if (!copy->poisoned)
        choir__launch_copy(copy, gy);
    copy->grad_owned = true;
    return copy;
}

choir_scope *choir__blocks_begin(const choir__op *op, choir_tensor **x,
    const choir_group *group, int *dim, bool deals, choir_tensor **instead)
{
    if (!group) {
        *instead = choir__poison_missing(choir__sound(*x, op->name)->scope, op->name, "group");
        return NULL;
    }
    int world = choir_group_world(group);
    choir_scope *scope = choir__begin(op, x, 1, instead);
    if (!scope)
        return NULL;
    *instead = *x;
    if (!choir__fix_dim(*x, dim))
        *instead = choir__bad_dim(op->name, *x, *dim);
    else if (deals && (*x)->shape.dim[*dim] % world)
        *instead = choir__poison(scope, CHOIR_ERR_SHAPE,
            "%s: dimension %d of %s must be a multiple of %d, the number of ranks", op->name,
            *dim, choir__shape_text((*x)->shape), world);
    return *instead == *x && world > 1 ? scope : NULL;
}

void choir__blocks_fail(choir_tensor *t, choir_status status)
{
    if (status == CHOIR_OK)
        return;
    choir__scope_fail(t->scope, status);
    t->poisoned = true;
}
