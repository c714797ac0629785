/* Linear layers and embeddings in slices. A layer's part is computed by the op of the whole
 * layer; sums over slices, and so over ranks, are in tensor/ops/sliced/.
 *
 *    COLUMN, VOCAB   y_t = x W_t + b_t                     dx = sum_t dy_t W_t'
 *    ROW             y = sum_t x_t W_t + b                 dx_t = dy W_t'
 *    embedding       y = the row of W, from the rank that has it */
#include <choir/distributed.h>

#include "parallel/blocks.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"
#include "tensor/held.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/sliced.h"
#include "tensor/tokens.h"

/* --- linear --- */

/* Returns a weight or bias for this rank's slices, which may share heads. */
static choir_tensor *for_slices(choir_tensor *t, choir_tensor *x)
{
    const choir__partition *part = t ? t->split : NULL;
    if (!part || !part->shared)
        return t;
    return choir_tensor_ndim(t) == 1 ? choir__repeated_factors(t, x, part)
                                     : choir__repeated_units(t, x, part, part->dim);
}

/* Scores by classes stay in parts; an op that takes them must support that. Other columns of a
 * rank are marked by their places. */
static choir_tensor *as_part(choir_tensor *y, const choir__tp_part *part)
{
    if (y->poisoned)
        return y;
    if (part->style == CHOIR_TP_VOCAB)
        y->split = &part->base;
    else if (!part->base.whole)
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
    if (part->pieces)
        return choir__tp_linear_pieces(x, weight, bias, of);
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
    int64_t own = choir__values_shape(weight).dim[!of.in_out];
    if (bias && bias->split)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: a weight is distributed by rows, and so is its bias %s, which must "
            "be whole",
            choir__shape_text(bias->shape));
    if (choir__cols(x) == part->base.size && own != part->base.size)
        x = choir_tp_split(x, part->group, -1);
    of.rows = true;
    of.part = &part->base;
    of.tokens = choir__tp_tokens(x, part);
    return choir__linear_as(x, weight, bias, of);
}

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    return choir__tp_part_of(weight)->style == CHOIR_TP_ROW ? row(x, weight, bias, of)
                                                            : column(x, weight, bias, of);
}

/* --- embedding --- */

/* The group, and the mark of this rank's tokens or NULL. */
typedef struct lookup {
    choir_group *group;
    const choir__partition *tokens;
} lookup;

/* Returns t's memory as integers, (..., words of a row): a view on the stack. */
static choir_tensor as_words(const choir_tensor *t)
{
    choir_tensor words = *t;
    int64_t size = (int64_t)choir_dtype_size(t->dtype), row = choir__cols(t) * size;
    words.dtype = row % 4 ? CHOIR_U8 : CHOIR_I32;
    int64_t word = (int64_t)choir_dtype_size(words.dtype);
    words.shape.dim[t->shape.ndim - 1] = row / word;
    words.count = choir__shape_count(words.shape);
    words.offset = t->offset * size / word;
    choir__set_row_major(&words);
    return words;
}

/* Writes rows that are 0 on all ranks but one, whose rows y receives: of all tokens, or of this
 * rank's. They are added as integers, so that every bit arrives, the sign of -0 among them. */
static void add_words(choir_tensor *y, choir_tensor *rows, const lookup *l)
{
    choir_tensor to = as_words(y), from = as_words(rows);
    if (!l->tokens) {
        choir__launch_copy(y, rows);
        choir__blocks_fail(y, choir_all_reduce(&to, l->group, CHOIR_SUM));
        return;
    }
    choir_tensor *own = choir__blocks_reduce(
        y->scope, &from, l->group, CHOIR_SUM, l->tokens->dim, l->tokens->cut.leaves);
    y->poisoned |= own->poisoned;
    if (own->poisoned)
        return;
    choir__launch_copy(&to, own);
    choir__tensor_release(own);
}

static void rows_again(choir__tape_entry *r)
{
    uint32_t version = r->out->storage->version;
    add_words(r->out, choir__dense_rows(r->scope, r->in[0]), r->attrs);
    r->out->storage->version = version;
}

static void rows_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const lookup *l = r->attrs;
    if (l->tokens)
        gy = choir__tp_all_tokens(l->tokens, sink->scope, gy);
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
    lookup l = {part->group, choir__tp_tokens(rows, part)};
    choir_shape shape = rows->shape;
    if (l.tokens)
        shape.dim[l.tokens->dim] = choir__tokens_here(l.tokens);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(rows), rows->dtype, shape);
    y = choir__computed(&rows_op, y, &rows, 1, (choir__keeps){&l, sizeof l, {NULL}});
    y->split = l.tokens;
    choir__done_with(rows);
    return y;
}
