/* Weights whose units several slices share: the keys and values of grouped heads.
 *
 *     heads of keys      0         1            two
 *     slices           0   1     2   3          four
 *     repeated         0   0     1   1          a copy per slice
 *
 * So each slice computes with weights of its own, and the gradient of a head's weight is the
 * sum over its slices, in the fixed tree. Ranks that share a head join what their slices have.
 * Sums over the tokens of a sequence are complete before that: the tree over slices is above
 * the one over leaves of tokens. */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/slabs.h"
#include "tensor/sequence.h"

typedef struct repeats {
    const choir__partition *part;
    int dim;
} repeats;

/* Returns `count` units along dim from unit `from` on, of `all` units: a view. */
static choir_tensor *units(choir_tensor *t, int dim, int64_t from, int64_t count, int64_t all)
{
    int64_t each = t->shape.dim[dim] / all;
    choir_tensor *view = choir__tensor_alias(t->scope, t);
    view->split = NULL;
    view->shape.dim[dim] = each * count;
    view->count = choir__shape_count(view->shape);
    view->offset += from * each * t->stride[dim];
    return view;
}

/* The number of the first unit that this rank's slices have, and of those units. */
static int64_t first_unit(const choir__partition *p)
{
    return p->first / p->shared;
}

static int64_t own_units(const choir__partition *p)
{
    return (p->first + p->own - 1) / p->shared - first_unit(p) + 1;
}

static void repeat_again(choir__tape_entry *r)
{
    const repeats *a = r->attrs;
    const choir__partition *p = a->part;
    for (int64_t l = 0; l < p->own; l++) {
        int64_t unit = (p->first + l) / p->shared - first_unit(p);
        choir_tensor *to = units(r->out, a->dim, l, 1, p->own),
                     *from = units(r->in[0], a->dim, unit, 1, own_units(p));
        choir__launch_copy(to, from);
        choir__tensor_release(to);
        choir__tensor_release(from);
    }
}

static void repeat_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const repeats *a = r->attrs;
    const choir__partition *p = a->part;
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    choir_shape one = gy->shape;
    one.dim[a->dim] /= p->own;
    choir_tensor *slab =
        choir__new_slab(sink->scope, choir__device_of(gy), gy->dtype, p->own, one);
    if (slab->poisoned)
        return;
    choir__arrays s;
    for (int64_t l = 0; l < p->own; l++)
        choir__launch_copy(choir__slab_array(slab, l, one), units(gy, a->dim, l, 1, p->own));
    const bool in_parts = !r->out->of_params; /* else ranks have summed it already */
    if (in_parts && choir__sequence_parts(r->scope->sequence))
        slab = choir__sequence_sum(slab);
    if (slab->poisoned)
        return;
    s = choir__arrays_of(slab);
    if (p->own < p->shared) { /* ranks share the unit */
        choir__node nodes[CHOIR__MAX_NODES];
        int64_t from = p->first % p->shared;
        int count = choir__tree_nodes(from, from + p->own, nodes);
        choir__arrays_fold_nodes(&s, from, nodes, count);
        if (!choir__slices_join(p, slab, true))
            return;
        choir__launch_copy(g, choir__slab_array(slab, 0, one));
    } else {
        for (int64_t u = 0; u < own_units(p); u++) {
            choir__arrays_fold(&s, u * p->shared, p->shared);
            choir__launch_copy(units(g, a->dim, u, 1, own_units(p)),
                choir__slab_array(slab, u * p->shared, one));
        }
    }
    if (in_parts)
        choir__sequence_given_once(g);
    sink->give(sink, r, 0, g);
}

static const choir__op repeat_op = {.name = "repeated_units",
    .by_token = true,
    .per_slice = true,
    .any_dtype = true,
    .slices_in = 1,
    .backward = repeat_backward,
    .recompute = repeat_again};

/* count: the operands that the tape knows. With x, a product's gradient comes as a part of a
 * sum over tokens; with the weight alone, gradients are summed and rounded before they come
 * here. */
static choir_tensor *repeated(
    choir_tensor *weight, choir_tensor *x, const choir__partition *part, int dim, int count)
{
    choir_tensor *poisoned, *in[2] = {weight, x};
    choir_scope *scope = choir__begin(&repeat_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = in[0]->shape;
    shape.dim[dim] = shape.dim[dim] / own_units(part) * part->own;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, shape);
    repeats a = {part, dim};
    y->held = weight->held;
    return choir__computed(&repeat_op, y, in, count, (choir__keeps){&a, sizeof a, {NULL}});
}

choir_tensor *choir__repeated_units(
    choir_tensor *weight, choir_tensor *x, const choir__partition *part, int dim)
{
    /* copies of a frozen weight get no gradient because x has one */
    return repeated(weight, x, part, dim, weight->requires_grad ? 2 : 1);
}

choir_tensor *choir__repeated_factors(
    choir_tensor *weight, choir_tensor *x, const choir__partition *part)
{
    return repeated(weight, x, part, 0, 1);
}

bool choir__has_wide_gradient(const choir_tensor *t)
{
    choir__tape_entry *of, r = {.in = {(choir_tensor *)(uintptr_t)t}};
    int input;
    return t->param || choir__made_by(&repeat_op, &r, 0, &of, &input);
}

choir_tensor *choir__operand_dest(
    choir__sink *sink, choir__tape_entry *r, int i, choir__tape_entry **of, int *input)
{
    choir__tape_entry *made = choir__made_by(&repeat_op, r, i, of, input);
    const choir_tensor *t = (*of)->in[*input];
    if (!made || !choir__is_half(r->in[i]->dtype)) {
        *of = r;
        *input = i;
        return sink->dest(sink, r, i);
    }
    if (!choir__wanted(r, i))
        return NULL;
    choir_tensor *g = choir__tensor_new(sink->scope, choir__device_of(t), CHOIR_F32, t->shape);
    g->grad_owned = true;
    return g->poisoned ? NULL : g;
}
