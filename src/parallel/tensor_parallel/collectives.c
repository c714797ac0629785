/* Collectives with the gradients of layers that all ranks compute together. Each is an
 * op whose backward is another of them:
 *
 *    copy            x            <-->  reduce          sum of x
 *    gather          side by side <-->  split           own part
 *
 * The pair for ranks that use results differently, all_gather and reduce_scatter, is in
 * parallel/distributed_nn.c.
 *
 * All go through the group's queue, between two waits (parallel/distributed.c); the host
 * continues at once. */
#include <choir/distributed.h>
#include <choir/distributed_nn.h>

#include "parallel/blocks.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"
#include "tensor/tokens.h"

typedef struct attributes {
    choir_group *group;
    int dim;
    int64_t whole;  /* size along dim, over all ranks */
    int64_t slices; /* 0: one per rank; a rank's block consists of whole ones */
} attributes;

/* --- gradients --- */

/* Sums the ranks' gy, in its own memory if no other tensor shares that. */
static void sum_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    gy = choir__blocks_writable(sink->scope, gy);
    if (!gy->poisoned)
        choir__blocks_fail(gy, choir_all_reduce(gy, a->group, CHOIR_SUM));
    sink->give(sink, r, 0, gy); /* gives nothing if gy is poisoned */
}

static void pass_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
}

static void give_new(choir__tape_entry *r, choir_tensor *g, choir__sink *sink)
{
    g->grad_owned = true;
    sink->give(sink, r, 0, g); /* gives nothing if g is poisoned */
}

static void own_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(r, choir__blocks_own(sink->scope, gy, a->group, a->dim, a->slices), sink);
}

static void gather_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const attributes *a = r->attrs;
    give_new(
        r, choir__blocks_gather(sink->scope, gy, a->group, a->dim, a->whole, a->slices), sink);
}

/* Recomputation is collective: all ranks recompute the same segments in the same order. */
static void reduce_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out, r->in[0]);
    uint32_t version = r->out->storage->version;
    choir__blocks_fail(r->out, choir_all_reduce(r->out, a->group, CHOIR_SUM));
    r->out->storage->version = version;
}

static void gather_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(r->out,
        choir__blocks_gather(r->scope, r->in[0], a->group, a->dim, a->whole, a->slices));
}

static void split_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    choir__launch_copy(
        r->out, choir__blocks_own(r->scope, r->in[0], a->group, a->dim, a->slices));
}

static const choir__op copy_op = {.name = "tp_copy",
    .by_token = true,
    .any_dtype = true,
    .backward = sum_backward,
    .view = true};
static const choir__op reduce_op = {.name = "tp_reduce",
    .by_token = true,
    .any_dtype = true,
    .backward = pass_backward,
    .recompute = reduce_again};
static const choir__op gather_op = {.name = "tp_gather",
    .any_dtype = true,
    .backward = own_backward,
    .recompute = gather_again};
static const choir__op split_op = {.name = "tp_split",
    .any_dtype = true,
    .backward = gather_backward,
    .recompute = split_again};

/* --- the ops --- */

static choir_tensor *recorded(
    const choir__op *op, choir_tensor *y, choir_tensor *x, attributes a)
{
    choir__tape_entry *r = choir__tape_entry_new(op, y, &x, 1);
    if (r)
        choir__tape_entry_attrs(r, &a, sizeof a);
    return y;
}

/* Returns the copy of x that an earlier layer made, so that the gradients of both are added
 * first and reduced once. */
static choir_tensor *copied_before(
    const choir_scope *scope, const choir_tensor *x, const choir_group *group)
{
    for (choir__tape_entry *r = scope->tape_tail; r && r != x->producer; r = r->previous)
        if (r->op == &copy_op && r->in[0] == x && r->segment == scope->segment &&
            ((const attributes *)r->attrs)->group == group && r->out->storage)
            return r->out;
    return NULL;
}

choir_tensor *choir_tp_copy(choir_tensor *x, choir_group *group)
{
    choir_tensor *poisoned;
    if (!group)
        return choir__poison_missing(choir__sound(x, __func__)->scope, __func__, "group");
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
    if (!group)
        return choir__poison_missing(choir__sound(x, __func__)->scope, __func__, "group");
    choir_scope *scope = choir__begin(&reduce_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (choir_group_world(group) == 1)
        return x;
    choir_tensor *y = choir__tensor_like(scope, x);
    if (y->poisoned)
        return y;
    choir__launch_copy(y, x);
    choir__blocks_fail(y, choir_all_reduce(y, group, CHOIR_SUM));
    return recorded(&reduce_op, y, x, (attributes){.group = group});
}

/* Joins the ranks' x side by side; whole 0: parts of equal size. */
static choir_tensor *side_by_side(
    choir_tensor *x, choir_group *group, int dim, int64_t whole, int64_t slices)
{
    choir_tensor *instead;
    choir_scope *scope = choir__blocks_begin(&gather_op, &x, group, &dim, false, &instead);
    if (!scope)
        return instead;
    if (!whole)
        whole = x->shape.dim[dim] * choir_group_world(group);
    choir_tensor *y = choir__blocks_gather(scope, x, group, dim, whole, slices);
    return recorded(&gather_op, y, x, (attributes){group, dim, whole, slices});
}

/* Scores in parts may have different sizes per rank; the result is whole. */
choir_tensor *choir_tp_gather(choir_tensor *x, choir_group *group, int dim)
{
    x = choir__sound(x, __func__);
    if (choir__tokens_of(x) && !x->poisoned && (dim == 1 || dim == -2))
        return choir__tokens_all(x);
    const choir__partition *had = x->split, *mark = had && !had->among ? had : NULL;
    int64_t whole = mark ? choir__tp_part_of(x)->base.size : 0;
    if (mark && (x->param || (dim != -1 && dim != x->shape.ndim - 1)))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tp_gather: of distributed tensors, only scores can be gathered, along their classes, "
            "and results of row layers along their tokens");
    x->split = NULL;
    choir_tensor *y = side_by_side(x, group, dim, whole, mark ? mark->cut.leaves : 0);
    if (y != x)
        x->split = had;
    return y;
}

choir_tensor *choir_tp_split(choir_tensor *x, choir_group *group, int dim)
{
    choir_tensor *instead;
    choir_scope *scope = choir__blocks_begin(&split_op, &x, group, &dim, true, &instead);
    if (!scope)
        return instead;
    return recorded(&split_op, choir__blocks_own(scope, x, group, dim, 0), x,
        (attributes){group, dim, x->shape.dim[dim], 0});
}

/* --- sums over the slices of all ranks --- */

bool choir__tp_one_node(int64_t slices, int world)
{
    int64_t each = slices / world;
    return slices % world == 0 && (each & (each - 1)) == 0;
}

choir_status choir__tp_join(const choir__partition *p, choir_tensor *nodes, bool sharing)
{
    const choir__tp_part *part = (const choir__tp_part *)p;
    choir_group *group = sharing ? part->sharing : part->group;
    int64_t slices = sharing ? p->shared : p->cut.leaves;
    const choir__sequence *s = p->tokens ? nodes->scope->sequence : NULL;
    if (s && s->joins) /* the chunks here are a part of the tree */
        return choir__nodes_meet(nodes, group, s->first, s->leaves);
    if (!choir__tp_one_node(slices, choir_group_world(group)))
        return choir__nodes_reduce(nodes, group, slices);
    choir_tensor node = *nodes; /* node 0 alone */
    node.count /= node.shape.dim[0];
    node.shape.dim[0] = 1;
    return choir_all_reduce(&node, group, CHOIR_SUM);
}

choir_tensor *choir_tp_all_gather(choir_tensor *x, choir_group *group, int dim)
{
    return choir_nn_all_gather(x, group, dim);
}

choir_tensor *choir_tp_reduce_scatter(choir_tensor *x, choir_group *group, int dim)
{
    return choir_nn_reduce_scatter(x, group, CHOIR_SUM, dim);
}
