/* Collectives with gradients: each is an op whose backward is the transposed collective. As a
 * map of all ranks' x to all ranks' y each is linear, and backward applies its transpose to all
 * ranks' gradients, in the same fixed order of summation.
 *
 * All go through the group's queue, between two waits (distributed.c); the host continues at
 * once. Ranks that pass tensors of other shapes, or without a gradient, would wait for each
 * other in vain in backward, so the forward's call compares both. */
#include <choir/distributed.h>
#include <choir/distributed_nn.h>

#include "base/hash.h"
#include "comm/group.h"
#include "parallel/blocks.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

typedef struct attributes {
    choir_group *group;
    choir_reduce_op op;
    int dim, root;
    int64_t whole; /* size along dim, over all ranks */
} attributes;

/* --- what all of them share --- */

/* Has the ranks compare x's shape, the dimension, and whether x requires a gradient. */
static void expect(const choir_scope *scope, const choir_tensor *x, const attributes *a)
{
    uint64_t h = choir__hash_step(CHOIR__HASH_SEED, (uint64_t)a->dim);
    for (int d = 0; d < x->shape.ndim; d++)
        h = choir__hash_step(h, (uint64_t)x->shape.dim[d]);
    choir__group_expect(
        a->group, (uint16_t)(h ^ h >> 16 ^ h >> 32), scope->grad && x->requires_grad);
}

static choir_tensor *recorded(
    const choir__op *op, choir_tensor *y, choir_tensor *x, const attributes *a)
{
    choir__tape_entry *r = choir__tape_entry_new(op, y, &x, 1);
    if (r)
        choir__tape_entry_attrs(r, a, sizeof *a);
    return y;
}

static void give_new(choir__tape_entry *r, choir_tensor *g, choir__sink *sink)
{
    g->grad_owned = true;
    sink->give(sink, r, 0, g); /* gives nothing if g is poisoned */
}

/* Returns NULL, or a poisoned tensor if the operation has no transpose. */
static choir_tensor *check_op(
    const char *name, choir_scope *scope, const choir_tensor *x, choir_reduce_op op)
{
    if (op != CHOIR_SUM && op != CHOIR_MEAN)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected CHOIR_SUM or CHOIR_MEAN, which have a gradient, got operation %d",
            name, (int)op);
    if (!choir__is_float(x->dtype))
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "%s: expected floating numbers, got %s: choir_all_reduce adds integers", name,
            choir_dtype_name(x->dtype));
    return NULL;
}

/* --- along a dimension --- */

static void all_gather_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, choir__blocks_reduce(sink->scope, gy, a->group, CHOIR_SUM, a->dim, 0), sink);
}

/* Recomputation is collective: all ranks recompute the same segments in the same order. */
static void all_gather_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(
        r->out, choir__blocks_gather(r->scope, r->in[0], a->group, a->dim, a->whole, 0));
}

static const choir__op all_gather_op = {.name = "all_gather",
    .any_dtype = true,
    .backward = all_gather_backward,
    .recompute = all_gather_again};

choir_tensor *choir_nn_all_gather(choir_tensor *x, choir_group *group, int dim)
{
    choir_tensor *instead;
    choir_scope *scope = choir__blocks_begin(&all_gather_op, &x, group, &dim, false, &instead);
    if (!scope)
        return instead;
    attributes a = {
        .group = group, .dim = dim, .whole = x->shape.dim[dim] * choir_group_world(group)};
    expect(scope, x, &a);
    return recorded(
        &all_gather_op, choir__blocks_gather(scope, x, group, dim, a.whole, 0), x, &a);
}

static void reduce_scatter_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    if (a->op == CHOIR_MEAN) {
        double share = 1.0 / choir_group_world(a->group);
        choir_tensor *number = choir__number_like(sink->scope, gy, share);
        choir_tensor *own = choir__tensor_like(sink->scope, gy);
        if (own->poisoned || number->poisoned)
            return;
        choir__launch_binary(own, CHOIR__MUL, gy, number);
        gy = own;
    }
    give_new(r, choir__blocks_gather(sink->scope, gy, a->group, a->dim, a->whole, 0), sink);
}

static void reduce_scatter_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(
        r->out, choir__blocks_reduce(r->scope, r->in[0], a->group, a->op, a->dim, 0));
}

static const choir__op reduce_scatter_op = {.name = "reduce_scatter",
    .any_dtype = true,
    .backward = reduce_scatter_backward,
    .recompute = reduce_scatter_again};

choir_tensor *choir_nn_reduce_scatter(
    choir_tensor *x, choir_group *group, choir_reduce_op op, int dim)
{
    choir_tensor *instead, *bad = NULL;
    choir_scope *scope =
        choir__blocks_begin(&reduce_scatter_op, &x, group, &dim, true, &instead);
    if (!instead->poisoned)
        bad = check_op(reduce_scatter_op.name, instead->scope, x, op);
    if (!scope || bad)
        return bad ? bad : instead;
    attributes a = {.group = group, .op = op, .dim = dim, .whole = x->shape.dim[dim]};
    expect(scope, x, &a);
    return recorded(
        &reduce_scatter_op, choir__blocks_reduce(scope, x, group, op, dim, 0), x, &a);
}

/* --- of whole tensors: y is a copy of x, which the group then changes in place --- */

/* Applies the op's collective to t. */
typedef choir_status in_place_fn(choir_tensor *t, const attributes *a);

static choir_status all_reduce(choir_tensor *t, const attributes *a)
{
    return choir_all_reduce(t, a->group, a->op);
}

static choir_status broadcast(choir_tensor *t, const attributes *a)
{
    return choir_broadcast(t, a->group, a->root);
}

/* Copies x to y and applies the collective, which leaves y's version as it is. */
static void launch(choir_tensor *y, choir_tensor *x, in_place_fn *fn, const attributes *a)
{
    uint32_t version = y->storage->version;
    choir__launch_copy(y, x);
    choir__blocks_fail(y, fn(y, a));
    y->storage->version = version;
}

static void all_reduce_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    gy = choir__blocks_writable(sink->scope, gy);
    if (!gy->poisoned)
        choir__blocks_fail(gy, all_reduce(gy, r->attrs));
    sink->give(sink, r, 0, gy);
}

static void all_reduce_again(choir__tape_entry *r)
{
    launch(r->out, r->in[0], all_reduce, r->attrs);
}

static void broadcast_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    gy = choir__blocks_writable(sink->scope, gy);
    if (!gy->poisoned)
        choir__blocks_fail(gy, choir_reduce(gy, a->group, CHOIR_SUM, a->root));
    if (!gy->poisoned && choir_group_rank(a->group) != a->root)
        choir__launch_fill(gy, 0);
    sink->give(sink, r, 0, gy);
}

static void broadcast_again(choir__tape_entry *r)
{
    launch(r->out, r->in[0], broadcast, r->attrs);
}

static const choir__op all_reduce_op = {.name = "all_reduce",
    .any_dtype = true,
    .backward = all_reduce_backward,
    .recompute = all_reduce_again};
static const choir__op broadcast_op = {.name = "broadcast",
    .any_dtype = true,
    .backward = broadcast_backward,
    .recompute = broadcast_again};

static choir_tensor *in_place(const choir__op *op, choir_scope *scope, choir_tensor *x,
    in_place_fn *fn, const attributes *a)
{
    choir_tensor *y = choir__tensor_like(scope, x);
    if (y->poisoned)
        return y;
    expect(scope, x, a);
    launch(y, x, fn, a);
    return recorded(op, y, x, a);
}

/* Like choir__begin, and also refuses a missing group. */
static choir_scope *begin(
    const choir__op *op, choir_tensor **x, const choir_group *group, choir_tensor **instead)
{
    if (group)
        return choir__begin(op, x, 1, instead);
    *instead = choir__poison_missing(choir__sound(*x, op->name)->scope, op->name, "group");
    return NULL;
}

choir_tensor *choir_nn_all_reduce(choir_tensor *x, choir_group *group, choir_reduce_op op)
{
    choir_tensor *poisoned;
    choir_scope *scope = begin(&all_reduce_op, &x, group, &poisoned);
    if (!scope || (poisoned = check_op(all_reduce_op.name, scope, x, op)))
        return poisoned;
    attributes a = {.group = group, .op = op};
    return choir_group_world(group) == 1 ? x
                                         : in_place(&all_reduce_op, scope, x, all_reduce, &a);
}

choir_tensor *choir_nn_broadcast(choir_tensor *x, choir_group *group, int root)
{
    choir_tensor *poisoned;
    choir_scope *scope = begin(&broadcast_op, &x, group, &poisoned);
    if (!scope)
        return poisoned;
    int world = choir_group_world(group);
    if (root < 0 || root >= world)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "broadcast: expected a rank from 0 to %d, got %d", world - 1, root);
    attributes a = {.group = group, .root = root};
    return world == 1 ? x : in_place(&broadcast_op, scope, x, broadcast, &a);
}

/* --- all to all --- */

static void all_to_all_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, choir_all_to_all(choir__dense_rows(sink->scope, gy), a->group), sink);
}

static void all_to_all_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(
        r->out, choir_all_to_all(choir__dense_rows(r->scope, r->in[0]), a->group));
}

static const choir__op all_to_all_op = {.name = "all_to_all",
    .any_dtype = true,
    .backward = all_to_all_backward,
    .recompute = all_to_all_again};

choir_tensor *choir_nn_all_to_all(choir_tensor *x, choir_group *group)
{
    choir_tensor *instead;
    attributes a = {.group = group};
    choir_scope *scope = choir__blocks_begin(&all_to_all_op, &x, group, &a.dim, true, &instead);
    if (!scope)
        return instead;
    choir_tensor *dense = choir__dense_rows(scope, x);
    if (dense->poisoned)
        return dense;
    expect(scope, x, &a);
    return recorded(&all_to_all_op, choir_all_to_all(dense, group), x, &a);
}
