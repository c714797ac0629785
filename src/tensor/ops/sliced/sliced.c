/* Products in T slices: see sliced.h.
 *
 *     slices     0   1   2 | 3   4   5      six, on two ranks
 *     nodes     (0 + 1)  2 | 3  (4 + 5)     this rank's slices complete one node or several
 *     sum       ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * One device computes the whole sum as one product, whose K is cut. A rank computes a product
 * per node, in f32, and the ranks' nodes are joined; then come the bias and the one rounding.
 *
 * Several layers may read one input (queries, keys and values): then a rank must not reduce for
 * each of them, so slice t's gradient is the sum over the layers, and the tree is over these.
 * The handle's gradient is such a slab: (slices, ...), f32. With one layer, it has nodes. */
#include "tensor/ops/sliced/sliced.h"

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/product.h"
#include "tensor/ops/sliced/slabs.h"
#include "tensor/segment.h"
#include "tensor/tokens.h"

/* --- products of some slices --- */

/* Writes one product per node to the arrays of a slab, or adds it there. */
static void multiply(choir_tensor *slab, choir__k_matmul product, const choir__partition *part,
    const choir__node *nodes, int count, bool adds)
{
    choir_device *device = choir__device_of(slab);
    choir__arrays s = choir__arrays_of(slab);
    product.bias = NULL;
    product.wide = slab->dtype != product.dtype;
    product.accumulate = adds;
    product.c_row = product.n;
    product.cut = (choir__cut){part->cut.outer, part->own};
    for (int i = 0; i < count; i++) {
        product.c = choir__array_of(&s, i);
        product.node = (choir__node){nodes[i].start - part->first, nodes[i].leaves};
        choir__launch(device, product.dtype, matmul, &product);
    }
}

/* Returns the sum of all ranks' nodes in the slab, each of this shape: in node 0, or this
 * rank's tokens of it in memory of their own. Returns NULL if the scope has an error. */
static choir_tensor *joined(choir_tensor *slab, choir_shape shape, const choir__partition *part,
    const choir__partition *tokens)
{
    if (!tokens)
        return part->whole || choir__slices_join(part, slab, false)
                   ? choir__slab_array(slab, 0, shape)
                   : NULL;
    choir_tensor *sum = part->by->ops->parts->join_tokens(part, tokens, slab);
    return sum->poisoned ? NULL : sum;
}

void choir__sliced_product(choir_tensor *y, choir__k_matmul product, const choir_tensor *bias,
    const choir__linear_of *of)
{
    const choir__partition *part = of->part;
    choir__node nodes[CHOIR__MAX_NODES];
    choir_device *device = choir__device_of(y);
    product.cut = part->cut;
    if (part->whole) {
        choir__launch(device, product.dtype, matmul, &product);
        return;
    }
    int count = choir__slices_nodes(part, nodes);
    choir_shape shape = y->shape;
    if (of->tokens)
        shape.dim[of->tokens->dim] = of->tokens->size;
    if (shape.ndim == CHOIR_MAX_DIMS)
        shape = choir_dims(product.m, product.n);
    choir_tensor *slab = choir__new_slab(y->scope, device, product.dtype, count, shape);
    if (slab->poisoned)
        return;
    multiply(slab, product, part, nodes, count, false);
    choir_tensor *sum = joined(slab, y->shape, part, of->tokens);
    if (!sum)
        return;
    if (bias && choir__is_half(bias->dtype))
        bias = choir__wide(y->scope, (choir_tensor *)(uintptr_t)bias);
    if (bias && !bias->poisoned)
        choir__launch_binary(sum, CHOIR__ADD, sum, bias);
    choir__launch_copy(y, sum);
    choir__tensor_release(sum);
    choir__tensor_release(slab);
}

/* --- inputs of layers whose outputs are in slices --- */

typedef struct handle {
    const choir__partition *part;
    int readers;
} handle;

/* Gives the sum of the slab, rounded once. */
static void give_sum(choir__tape_entry *r, choir_tensor *sum, choir__sink *sink)
{
    choir__tape_entry *of = r;
    bool adds = false;
    choir_tensor *g = sink->dest_wide(sink, r, 0, &of, &adds);
    if (!g && !(g = sink->dest(sink, r, 0)))
        return;
    if (adds)
        choir__launch_add(g, g, sum);
    else
        choir__launch_copy(g, sum);
    sink->give(sink, of, 0, g);
}

static void input_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const handle *h = r->attrs;
    const choir__partition *part = h->part;
    choir__node nodes[CHOIR__MAX_NODES];
    int count = choir__slices_nodes(part, nodes);
    if (gy->shape.ndim == r->out->shape.ndim) { /* the sum itself */
        give_sum(r, gy, sink);
        return;
    }
    if (h->readers > 1) {
        choir__arrays s = choir__arrays_of(gy);
        choir__arrays_fold_nodes(&s, part->first, nodes, count);
    }
    const choir__partition *tokens = choir__tokens_of(r->in[0]);
    choir_tensor *sum = joined(gy, r->out->shape, part, tokens);
    if (!sum)
        return;
    if ((!tokens && gy->shape.dim[0] > 1) || r->in[0]->dtype != gy->dtype) {
        give_sum(r, sum, sink);
        return;
    }
    sum->grad_owned = true;
    sink->give(sink, r, 0, sum);
}

static const choir__op input_op = {.name = "sliced_input",
    .by_token = true,
    .any_dtype = true,
    .backward = input_backward,
    .cheap = true,
    .along = true,
    .view = true};

static void gather_again(choir__tape_entry *r)
{
    const choir__partition *tokens = choir__tokens_of(r->in[0]);
    choir__launch_copy(r->out, tokens->by->ops->parts->all_tokens(tokens, r->scope, r->in[0]));
}

/* Handles of inputs whose tokens ranks share. */
static const choir__op gathered_op = {.name = "sliced_input",
    .by_token = true,
    .tokens_in = 1,
    .any_dtype = true,
    .backward = input_backward,
    .recompute = gather_again,
    .cheap = true,
    .along = true};

static bool is_handle(const choir__op *op)
{
    return op == &input_op || op == &gathered_op;
}

/* Returns the tensor that t is a copy of, which a pipeline has made on another device. */
static const choir_tensor *unmoved(const choir_tensor *t)
{
    while (t->producer && t->producer->op == &choir__to_op)
        t = t->producer->in[0];
    return t;
}

/* Returns the entry of the handle that an earlier layer made of x, perhaps on another device.
 */
static choir__tape_entry *handle_before(const choir_scope *scope, const choir_tensor *x)
{
    const choir_tensor *first = unmoved(x);
    for (choir__tape_entry *r = scope->tape_tail; r && r != first->producer; r = r->previous)
        if (is_handle(r->op) && r->in[0] && unmoved(r->in[0]) == first &&
            r->segment == scope->segment && r->out->storage)
            return r;
    return NULL;
}

/* Releases the input that was gathered last: the layers that follow read another one. */
static void release_gathered(const choir_scope *scope)
{
    choir__tape_entry *r = scope->tape_tail;
    while (r && r->op != &gathered_op)
        r = r->previous;
    if (r && r->out->storage)
        choir__done_with(r->out);
}

/* Makes the first handle of x; *x is what the layers read. Returns NULL without a gradient. */
static choir__tape_entry *new_handle(choir_tensor **x, const choir__partition *part)
{
    choir_tensor *instead, *in = *x;
    const choir__partition *tokens = choir__tokens_of(in);
    const choir__op *op = tokens ? &gathered_op : &input_op;
    choir_scope *scope = choir__begin(op, &in, 1, &instead);
    *x = scope ? in : instead;
    if (!scope || (!tokens && (!in->requires_grad || !scope->grad)))
        return NULL;
    if (tokens)
        release_gathered(scope);
    choir_tensor *y = tokens ? tokens->by->ops->parts->all_tokens(tokens, scope, in)
                             : choir__tensor_alias(scope, in);
    *x = y;
    choir__tape_entry *r = y->poisoned ? NULL : choir__tape_entry_new(op, y, &in, 1);
    y->split = tokens ? NULL : y->split;
    if (r)
        choir__tape_entry_attrs(r, &(handle){part, 0}, sizeof(handle));
    return r;
}

choir_tensor *choir__sliced_input(choir_tensor *x, const choir__partition *part)
{
    choir__tape_entry *r = x->poisoned ? NULL : handle_before(x->scope, x);
    if (!r)
        r = new_handle(&x, part);
    if (!r)
        return x;
    ((handle *)(uintptr_t)r->attrs)->readers++;
    return r->out;
}

/* Returns the entry of the handle that made r's input 0: see choir__made_by. */
static choir__tape_entry *made_handle(choir__tape_entry *r, choir__tape_entry **of, int *input)
{
    choir__tape_entry *made = choir__made_by(&input_op, r, 0, of, input);
    return made ? made : choir__made_by(&gathered_op, r, 0, of, input);
}

choir__tape_entry *choir__sliced_record(const choir__tape_entry *r)
{
    choir__tape_entry *of;
    int input;
    return made_handle((choir__tape_entry *)(uintptr_t)r, &of, &input);
}

/* One device has all slices, and one layer reads the handle: the product is the sum, which goes
 * to the handle's own input, or back to the device where that is. */
static void whole_gradient(choir__tape_entry *made, choir__tape_entry *of, int input,
    choir__k_matmul p, choir__sink *sink)
{
    bool adds = false, moved = of->in[input] != made->out;
    choir_tensor *g = NULL;
    if (!moved) {
        of = made;
        input = 0;
        g = sink->dest_wide(sink, made, 0, &of, &adds);
    }
    if (!g && !(g = sink->dest(sink, of, input)))
        return;
    p.c = choir__data(g);
    p.c_row = choir__row_of(g);
    p.wide = g->dtype != p.dtype;
    p.accumulate = adds;
    choir__launch(choir__device_of(g), p.dtype, matmul, &p);
    sink->give(sink, of, input, g);
}

void choir__sliced_gradient(choir__tape_entry *r, choir__k_matmul product,
    const choir__partition *part, choir__sink *sink)
{
    choir__node nodes[CHOIR__MAX_NODES];
    choir__tape_entry *of;
    int input, count;
    choir__tape_entry *made = made_handle(r, &of, &input);
    const handle *h = made->attrs;
    product.cut = part->cut;
    if (h->readers == 1 && part->whole) {
        whole_gradient(made, of, input, product, sink);
        return;
    }
    if (h->readers == 1)
        count = choir__slices_nodes(part, nodes);
    else
        for (count = 0; count < part->own; count++)
            nodes[count] = (choir__node){part->first + count, 1};
    choir_tensor *x = of->in[input], *have = x->grad;
    choir_tensor *slab = have ? have
                              : choir__new_slab(sink->scope, choir__device_of(x), product.dtype,
                                    count, x->shape);
    if (slab->poisoned)
        return;
    multiply(slab, product, part, nodes, count, have);
    if (have)
        return;
    slab->grad_owned = true;
    sink->give(sink, of, input, slab);
}
