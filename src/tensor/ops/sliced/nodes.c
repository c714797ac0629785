/* Sums over tokens whose leaves here are several nodes of the tree: see nodes.h.
 *
 *     leaves     0   1   2 | 3   4   5      six chunks, on two ranks
 *     nodes     (0 + 1)  2 | 3  (4 + 5)     arrays of a slab on each rank
 *     sum       ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * Only one weight's nodes are in memory at a time, where a bucket of gradients would have as
 * many copies as a rank has nodes. */
#include "tensor/ops/sliced/nodes.h"

#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/op.h"
#include "tensor/ops/sliced/slabs.h"

/* --- nodes --- */

int choir__sequence_nodes(const choir__sequence *s, choir__node nodes[CHOIR__MAX_NODES])
{
    int count = choir__tree_nodes(s->first, s->first + s->leaves, nodes);
    for (int i = 0; i < count; i++)
        nodes[i].start -= s->first;
    return count;
}

bool choir__sequence_join(const choir__sequence *s, choir_tensor *slab)
{
    choir_status status = s->by->ops->chunks->join(s->by, slab);
    if (status != CHOIR_OK)
        choir__scope_fail(slab->scope, status);
    return status == CHOIR_OK;
}

void choir__fold_leaves(const choir__sequence *s, choir_tensor *slab)
{
    choir__arrays arrays = choir__arrays_of(slab);
    if (!s->joins) {
        choir__arrays_fold(&arrays, 0, s->leaves);
        return;
    }
    choir__node nodes[CHOIR__MAX_NODES];
    int count = choir__sequence_nodes(s, nodes);
    choir__arrays_fold_nodes(&arrays, 0, nodes, count);
    choir__sequence_join(s, slab);
}

choir_tensor *choir__rows_of_block(
    choir_scope *scope, choir_tensor *t, int64_t rows, choir__block block)
{
    if (!t)
        return NULL;
    const int64_t cols = t->count / rows,
                  step = cols == choir__cols(t) ? choir__row_of(t) : cols;
    choir_tensor *view = choir__tensor_alias(scope, t);
    view->split = NULL;
    view->shape = choir_dims(rows / block.each, block.end - block.from, cols);
    view->stride[0] = block.each * step, view->stride[1] = step, view->stride[2] = 1;
    view->offset += block.from * step;
    view->count = choir__shape_count(view->shape);
    return choir__dense_rows(scope, view);
}

/* --- gradients of weights --- */

/* Copies the sum to memory that looks like `to`. */
static void give_sum(choir_tensor *slab, choir_tensor *to)
{
    choir__launch_copy(to, choir__slab_array(slab, 0, to->shape));
    choir__tensor_release(slab);
}

void choir__joined_product(
    const choir__sequence *s, choir__k_matmul product, const choir_tensor *g)
{
    choir__node nodes[CHOIR__MAX_NODES];
    const int count = choir__sequence_nodes(s, nodes);
    choir_device *device = choir__device_of(g);
    const choir_shape shape = choir_dims(product.m, product.n);
    choir_tensor *to = choir__tensor_wrap(g->scope, device, g->dtype, shape, product.c);
    choir_tensor *slab = choir__new_slab(g->scope, device, product.dtype, count, shape);
    if (slab->poisoned)
        return;
    choir__arrays arrays = choir__arrays_of(slab);
    to->stride[0] = product.c_row;
    product.wide = slab->dtype != product.dtype;
    product.c_row = product.n;
    for (int i = 0; i < count; i++) {
        product.c = choir__array_of(&arrays, i);
        product.node = nodes[i];
        choir__launch(device, product.dtype, matmul, &product);
    }
    if (choir__sequence_join(s, slab))
        give_sum(slab, to);
}

void choir__joined_columns(
    const choir__sequence *s, choir__k_sum sum, choir_tensor *gy, choir_tensor *g)
{
    choir__node nodes[CHOIR__MAX_NODES];
    const int count = choir__sequence_nodes(s, nodes);
    const int64_t each = sum.rows / choir__cut_outer(sum.cut), leaf = each / s->leaves;
    choir_device *device = choir__device_of(g);
    choir_tensor *slab =
        choir__new_slab(g->scope, device, gy->dtype, count, choir_dims(sum.cols));
    if (slab->poisoned)
        return;
    choir__arrays arrays = choir__arrays_of(slab);
    for (int i = 0; i < count; i++) {
        const int64_t from = nodes[i].start * leaf, end = from + nodes[i].leaves * leaf;
        choir_tensor *own =
            choir__rows_of_block(g->scope, gy, sum.rows, (choir__block){each, from, end});
        if (own->poisoned)
            return;
        choir__k_sum part = sum;
        part.x = choir__data(own);
        part.y = choir__array_of(&arrays, i);
        part.rows = own->count / sum.cols;
        part.row = sum.cols;
        part.wide = slab->dtype != gy->dtype;
        part.cut.leaves = nodes[i].leaves;
        choir__launch(device, part.dtype, sum, &part);
        choir__tensor_release(own);
    }
    if (choir__sequence_join(s, slab))
        give_sum(slab, g);
}

/* --- losses --- */

/* Writes leaf l's sum to the slab: losses are added in f64, sample by sample, and rounded. */
static void loss_of_leaf(
    const choir__sequence *s, choir_tensor *losses, int64_t l, choir_tensor *slab)
{
    choir_device *device = choir__device_of(slab);
    const int64_t own = choir__sequence_tokens(s), each = own / s->leaves;
    choir_tensor *rows = choir__rows_of_block(
        slab->scope, losses, losses->count, (choir__block){own, l * each, (l + 1) * each});
    choir_tensor *sum = choir__tensor_new(slab->scope, device, CHOIR_F64, CHOIR_SCALAR);
    if (rows->poisoned || sum->poisoned)
        return;
    choir__k_sum args = {.x = choir__data(rows),
        .y = choir__data(sum),
        .rows = rows->count,
        .cols = 1,
        .row = 1,
        .scale = 1,
        .over_rows = true,
        .in_f64 = rows->dtype == CHOIR_F32,
        .dtype = rows->dtype};
    choir__launch(device, rows->dtype, sum, &args);
    choir__launch_copy(choir__slab_array(slab, l, CHOIR_SCALAR), sum);
    choir__tensor_release(rows);
    choir__tensor_release(sum);
}

static void sum_of_tokens_again(choir__tape_entry *r)
{
    const choir__sequence *s = r->scope->sequence;
    choir_tensor *losses = choir__dense_rows(r->scope, r->in[0]);
    choir_tensor *slab = choir__new_slab(
        r->scope, choir__device_of(r->out), losses->dtype, s->leaves, CHOIR_SCALAR);
    if (losses->poisoned || slab->poisoned)
        return;
    for (int64_t l = 0; l < s->leaves; l++)
        loss_of_leaf(s, losses, l, slab);
    choir__fold_leaves(s, slab);
    give_sum(slab, r->out);
}

static void sum_of_tokens_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    choir_tensor *one = choir__tensor_alias(sink->scope, gy);
    one->shape = g->shape;
    one->count = g->count;
    memset(one->stride, 0, sizeof one->stride);
    choir__launch_copy(g, one);
    sink->give(sink, r, 0, g);
}

static const choir__op sum_of_tokens_op = {.name = "sum_of_tokens",
    .by_token = true,
    .loss = true,
    .cast = CHOIR__CAST_F32,
    .backward = sum_of_tokens_backward,
    .recompute = sum_of_tokens_again};

choir_tensor *choir__sum_of_tokens(choir_tensor *losses)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&sum_of_tokens_op, &losses, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(losses), losses->dtype, CHOIR_SCALAR);
    return choir__computed(&sum_of_tokens_op, y, &losses, 1, (choir__keeps){0});
}
