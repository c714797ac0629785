/* Broadcasting: choir_expand, and the gradients of operands that an op has broadcast, which are
 * sums over the dimensions that they lack.
 *
 * Where sequences are cut into chunks (tensor/sequence.h), a sum over tokens has a leaf for
 * each chunk, so ranks that have some of them add to the bits of one device:
 *
 *     g (B, T, C)  --tokens of leaf l, of all samples-->  (B, T / S, C)  --sum-->  (C)
 *
 * The dimension of the tokens is the one with as many elements: the second of (B, T, ...), the
 * third of (B, H, T, D), or the first of rows (B T, C). */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/op.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/ops/sliced/nodes.h"
#include "tensor/ops/sliced/slabs.h"
#include "tensor/sequence.h"

/* --- sums --- */

/* Returns whether a sum of x to `shape` runs over dimension d of x. */
static bool is_summed(const choir_tensor *x, choir_shape shape, int d)
{
    int own = d - (x->shape.ndim - shape.ndim);
    return own < 0 || (shape.dim[own] == 1 && x->shape.dim[d] != 1);
}

/* Returns rows (B T, ...) as (B, T, ...). */
static choir_tensor *by_sample(choir_scope *scope, choir_tensor *x, int64_t tokens)
{
    choir_tensor *view = choir__tensor_alias(scope, choir__dense_rows(scope, x));
    view->shape.ndim = x->shape.ndim + 1;
    view->shape.dim[0] = x->shape.dim[0] / tokens;
    view->shape.dim[1] = tokens;
    for (int d = 1; d < x->shape.ndim; d++)
        view->shape.dim[d + 1] = x->shape.dim[d];
    choir__set_row_major(view);
    return view;
}

/* Returns the dimension of x's tokens over which the sum runs; -1: none; -2: several may be. */
static int dim_of_tokens(const choir_tensor *x, choir_shape shape, int64_t tokens)
{
    int found = -1, last = x->shape.ndim > 2 ? x->shape.ndim - 1 : x->shape.ndim;
    bool other = false; /* another dimension, over which no sum runs, may have the tokens */
    for (int d = 1; d < last; d++) {
        if (x->shape.dim[d] != tokens)
            continue;
        if (found >= 0)
            return -2;
        if (is_summed(x, shape, d))
            found = d;
        else
            other = true;
    }
    return found >= 0 && other ? -2 : found;
}

/* Returns the sum over the leaves of x's tokens, which are dimension d. */
static choir_tensor *sum_of_leaves(
    choir_scope *scope, choir_tensor *x, int d, choir_shape shape, const choir__sequence *s)
{
    const int64_t leaves = s->leaves, each = x->shape.dim[d] / leaves;
    x = choir__wide(scope, x);
    choir_tensor *slab = choir__new_slab(scope, choir__device_of(x), x->dtype, leaves, shape);
    if (x->poisoned || slab->poisoned)
        return x->poisoned ? x : slab;
    for (int64_t l = 0; l < leaves; l++) {
        choir_tensor *leaf = choir__tensor_alias(scope, x);
        leaf->shape.dim[d] = each;
        leaf->count = choir__shape_count(leaf->shape);
        leaf->offset += l * each * leaf->stride[d];
        leaf = choir__dense_rows(scope, leaf); /* the order of a sum depends on the layout */
        choir_tensor *sum = leaf->poisoned ? leaf : choir__sum_to(scope, leaf, shape);
        if (sum->poisoned)
            return sum;
        choir__launch_copy(choir__slab_array(slab, l, shape), sum);
        choir__tensor_release(leaf);
    }
    choir__fold_leaves(s, slab);
    return choir__slab_array(slab, 0, shape);
}

void choir__give_summed(choir__tape_entry *r, int i, choir_tensor *g, choir__sink *sink)
{
    const choir__sequence *s = choir__sequence_of(r->scope, r->out);
    const choir_shape shape = r->in[i]->shape;
    int d = -1;
    if (s && !g->poisoned && !choir__same_shape(g->shape, shape)) {
        int64_t tokens = choir__sequence_tokens(s);
        bool rows =
            g->shape.ndim == 2 && g->shape.dim[1] != tokens && g->shape.dim[0] % tokens == 0;
        if (rows)
            g = by_sample(sink->scope, g, tokens);
        d = dim_of_tokens(g, shape, tokens);
        if (d == -2)
            g = choir__poison(sink->scope, CHOIR_ERR_SHAPE,
                "%s: backward of a sequence that is cut into chunks expected one dimension of %lld "
                "tokens, got the gradient %s: make the heads differ in number, or broadcast by "
                "choir_linear",
                r->op->name, (long long)tokens, choir__shape_text(g->shape));
    }
    if (g->poisoned)
        return;
    choir_tensor *y = d < 0 ? choir__sum_to(sink->scope, g, shape)
                            : sum_of_leaves(sink->scope, g, d, shape, s);
    const choir_tensor *x = r->in[i];
    if (!y->poisoned && y->dtype != x->dtype && !x->param && !choir__sequence_is_whole(x))
        y = choir__cast_in_place(sink->scope, y, x->dtype);
    sink->give(sink, r, i, y);
}

/* --- the view --- */

static void expand_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir__give_summed(r, 0, gy, sink);
}

static const choir__op expand_op = {.name = "expand",
    .by_token = true,
    .spreads = true,
    .any_dtype = true,
    .backward = expand_backward,
    .view = true};

choir_tensor *choir_expand(choir_tensor *x, choir_shape shape)
{
    choir_tensor *poisoned, *y = choir__begin_view(&expand_op, &x, &poisoned);
    if (!y)
        return poisoned;
    int missing = shape.ndim - x->shape.ndim;
    bool fits = missing >= 0 && shape.ndim <= CHOIR_MAX_DIMS;
    for (int i = 0; i < shape.ndim && fits; i++) {
        int64_t have = i < missing ? 1 : x->shape.dim[i - missing];
        fits = have == shape.dim[i] || have == 1;
        y->stride[i] = have == 1 ? 0 : x->stride[i - missing];
    }
    if (!fits || !choir__shape_fits(shape))
        return choir__poison(x->scope, CHOIR_ERR_SHAPE, "expand: %s does not stretch to %s",
            choir__shape_text(x->shape), choir__shape_text(shape));
    y->shape = shape;
    y->count = choir__shape_count(shape);
    choir__tape_entry_new(&expand_op, y, &x, 1);
    return y;
}
