/* Blocks along a dimension. The group moves rows of the first dimension; blocks along another
 * one are packed one after another before, or unpacked after. */
#include "parallel/blocks.h"

#include <choir/distributed.h>

#include "base/tree.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

/* Returns rows [lo, hi) of t along dim: a view on the stack, which keeps no memory. */
static choir_tensor rows_of(const choir_tensor *t, int dim, int64_t lo, int64_t hi)
{
    choir_tensor view = *t;
    view.shape.dim[dim] = hi - lo;
    view.count = choir__shape_count(view.shape);
    view.offset += lo * view.stride[dim];
    return view;
}

/* Returns rank r's part of t along dim, its run of the slices: a view. */
static choir_tensor slices_of(const choir_tensor *t, int dim, int r, int ranks, int64_t slices)
{
    int64_t lo, hi, unused, each = slices / ranks;
    choir__tree_run(t->shape.dim[dim], (int)(r * each), (int)slices, &lo, &unused);
    choir__tree_run(t->shape.dim[dim], (int)((r + 1) * each - 1), (int)slices, &unused, &hi);
    return rows_of(t, dim, lo, hi);
}

static choir_tensor block(const choir_tensor *t, int dim, int r, int ranks)
{
    return slices_of(t, dim, r, ranks, ranks);
}

/* Copies the first rows along dim, as many as the shorter of the two has. */
static void copy_rows(choir_tensor to, choir_tensor from, int dim)
{
    int64_t rows = choir__min(to.shape.dim[dim], from.shape.dim[dim]);
    to = rows_of(&to, dim, 0, rows);
    from = rows_of(&from, dim, 0, rows);
    choir__launch_copy(&to, &from);
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
    copy_rows(*y, *x, dim);
    return y;
}

/* Returns whether no dimension before `dim` has more than one row. */
static bool first_of(choir_shape shape, int dim)
{
    for (int i = 0; i < dim; i++)
        if (shape.dim[i] != 1)
            return false;
    return true;
}

/* The most rows that a rank has: rank 0's slices are the longest. */
static int64_t longest(int64_t whole, int world, int64_t slices)
{
    return choir__min((whole + slices - 1) / slices * (slices / world), whole);
}

choir_tensor *choir__blocks_gather(choir_scope *scope, choir_tensor *x, choir_group *group,
    int dim, int64_t whole, int64_t slices)
{
    int world = choir_group_world(group);
    slices = slices ? slices : world;
    int64_t most = longest(whole, world, slices);
    choir_tensor *own = padded(scope, x, dim, most), *all = choir_all_gather(own, group);
    if (own != x)
        choir__tensor_release(own);
    if (all->poisoned || (dim == 0 && most * world == whole))
        return all;                                         /* (world * N, ...) */
    if (most * world == whole && first_of(x->shape, dim)) { /* the blocks are in order */
        all->shape.dim[0] = x->shape.dim[0];
        all->shape.dim[dim] = whole;
        choir__set_row_major(all);
        return all;
    }
    choir_tensor *y = with_dim(scope, x, dim, whole);
    for (int r = 0; r < world && !y->poisoned; r++)
        copy_rows(slices_of(y, dim, r, world, slices), block(all, 0, r, world), dim);
    choir__tensor_release(all);
    return y;
}

choir_tensor *choir__blocks_own(
    choir_scope *scope, choir_tensor *x, const choir_group *group, int dim, int64_t slices)
{
    int world = choir_group_world(group);
    choir_tensor own =
        slices_of(x, dim, choir_group_rank(group), world, slices ? slices : world);
    choir_tensor *y = with_dim(scope, x, dim, own.shape.dim[dim]);
    if (!y->poisoned)
        choir__launch_copy(y, &own);
    return y;
}

/* Returns the ranks' blocks of x along dim one after another, each padded to `most` rows. */
static choir_tensor *in_blocks(
    choir_scope *scope, choir_tensor *x, int dim, int world, int64_t slices, int64_t most)
{
    choir_shape shape = x->shape;
    shape.dim[dim] = most;
    shape.dim[0] *= world;
    choir_tensor *blocks = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    if (!blocks->poisoned && most * world != x->shape.dim[dim])
        choir__launch_fill(blocks, 0);
    for (int r = 0; r < world && !blocks->poisoned; r++)
        copy_rows(block(blocks, 0, r, world), slices_of(x, dim, r, world, slices), dim);
    return blocks;
}

choir_tensor *choir__blocks_reduce(choir_scope *scope, choir_tensor *x, choir_group *group,
    choir_reduce_op op, int dim, int64_t slices)
{
    int world = choir_group_world(group);
    slices = slices ? slices : world;
    int64_t whole = x->shape.dim[dim], most = longest(whole, world, slices);
    bool dense = dim == 0 && most * world == whole;
    choir_tensor *blocks =
        dense ? choir__dense_rows(scope, x) : in_blocks(scope, x, dim, world, slices, most);
    choir_tensor *own = choir_reduce_scatter(blocks, group, op); /* most rows */
    if (blocks != x)
        choir__tensor_release(blocks);
    choir_tensor here = slices_of(x, dim, choir_group_rank(group), world, slices);
    if (own->poisoned || here.shape.dim[dim] == most)
        return own;
    choir_tensor *y = with_dim(scope, own, dim, here.shape.dim[dim]);
    if (!y->poisoned)
        copy_rows(*y, *own, dim);
    choir__tensor_release(own);
    return y;
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
