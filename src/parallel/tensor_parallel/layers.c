/* Linear layers and embeddings in slices. A layer's part is computed by the op of the whole
 * layer; sums over slices, and so over ranks, are in tensor/ops/sliced/.
 *
 *    COLUMN, VOCAB   y_t = x W_t + b_t                     dx = sum_t dy_t W_t'
 *    ROW             y = sum_t x_t W_t + b                 dx_t = dy W_t'
 *    embedding       y = the row of W, from the rank that has it */
#include <choir/distributed.h>

#include "base/tree.h"
#include "parallel/blocks.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/sliced.h"

/* --- sums over ranks --- */

/* Returns the slices of each rank if they complete one node of the tree, so that the tree over
 * ranks is its upper part; else 0. */
static bool is_one_node(int64_t slices, int world)
{
    int64_t each = slices / world;
    return slices % world == 0 && (each & (each - 1)) == 0;
}

choir_status choir__tp_join(const choir__partition *p, choir_tensor *nodes, bool sharing)
{
    const choir__tp_part *part = (const choir__tp_part *)p;
    choir_group *group = sharing ? part->sharing : part->group;
    int64_t slices = sharing ? p->shared : p->cut.leaves;
    if (!is_one_node(slices, choir_group_world(group)))
        return choir__nodes_reduce(nodes, group, slices);
    choir_tensor node = *nodes; /* node 0 alone */
    node.count /= node.shape.dim[0];
    node.shape.dim[0] = 1;
    return choir_all_reduce(&node, group, CHOIR_SUM);
}

/* --- linear --- */

/* Returns a weight or bias for this rank's slices, which may share heads. */
static choir_tensor *for_slices(choir_tensor *t, choir_tensor *x)
{
    const choir__partition *part = t ? t->split : NULL;
    return part && part->shared ? choir__repeated_units(t, x, part, part->dim) : t;
}

/* Scores by classes stay in parts; an op that takes them must support that. Other columns of a
 * rank are marked by their places. */
static choir_tensor *as_part(choir_tensor *y, const choir__tp_part *part)
{
    bool beside = part->base.cut.outer == 1 && !part->base.shared;
    if (y->poisoned)
        return y;
    if (part->style == CHOIR_TP_VOCAB)
        y->split = &part->base;
    else if (!part->base.whole && beside)
        y->split = &part->result;
    return y;
}

static choir_tensor *column(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    const choir__tp_part *part = choir__tp_part_of(weight);
    if (bias && !bias->split)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: a weight is distributed by columns, but its bias %s is whole: it "
            "needs a rule of the same style",
            choir__shape_text(bias->shape));
    x = choir__sliced_input(of.gelu ? choir_gelu_tanh(x) : x, &part->base);
    if (x->poisoned)
        return x;
    of.gelu = false;
    of.part = &part->base;
    return as_part(choir__linear_as(x, for_slices(weight, x), for_slices(bias, x), of), part);
}

/* A whole input is distributed first. */
static choir_tensor *row(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    const choir__tp_part *part = choir__tp_part_of(weight);
    int64_t own = weight->shape.dim[!of.in_out];
    if (bias && bias->split)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: a weight is distributed by rows, and so is its bias %s, which must "
            "be whole",
            choir__shape_text(bias->shape));
    if (choir__cols(x) == part->base.size && own != part->base.size)
        x = choir_tp_split(x, part->group, -1);
    of.rows = true;
    of.part = &part->base;
    return choir__linear_as(x, weight, bias, of);
}

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    return choir__tp_part_of(weight)->style == CHOIR_TP_ROW ? row(x, weight, bias, of)
                                                            : column(x, weight, bias, of);
}

/* --- embedding --- */

/* Replaces rows that are 0 on all ranks but one by that rank's. They are added as integers, so
 * that every bit arrives, the sign of -0 among them. */
static void add_words(choir_tensor *y, choir_group *group)
{
    int64_t bytes = y->count * (int64_t)choir_dtype_size(y->dtype);
    choir_tensor words = *y;
    words.dtype = bytes % 4 ? CHOIR_U8 : CHOIR_I32;
    words.count = bytes / (int64_t)choir_dtype_size(words.dtype);
    words.shape = choir_dims(words.count);
    words.stride[0] = 1;
    words.offset = 0;
    choir__blocks_fail(y, choir_all_reduce(&words, group, CHOIR_SUM));
}

static void rows_again(choir__record *r)
{
    choir__launch_copy(r->out, r->in[0]);
    uint32_t version = r->out->storage->version;
    add_words(r->out, *(choir_group *const *)r->attrs);
    r->out->storage->version = version;
}

static void rows_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
}

static const choir__op rows_op = {.name = "tp_embedding",
    .by_token = true,
    .any_dtype = true,
    .backward = rows_backward,
    .recompute = rows_again};

choir_tensor *choir__tp_embedding(choir_tensor *table, choir_tensor *ids)
{
    const choir__tp_part *part = choir__tp_part_of(table);
    if (part->style != CHOIR_TP_VOCAB)
        return choir__poison(ids->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: an embedding's table can be distributed by CHOIR_TP_VOCAB only");
    choir_tensor *rows = choir__embedding_part(
        table, ids, (choir__table_rows){part->base.at, part->base.size, table->param->padding});
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&rows_op, &rows, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(rows), rows->dtype, rows->shape);
    choir_group *group = part->group;
    y = choir__computed(&rows_op, y, &rows, 1, (choir__keeps){&group, sizeof group, {NULL}});
    choir__done_with(rows);
    return y;
}
