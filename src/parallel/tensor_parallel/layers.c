/* Linear layers and embeddings that are distributed over ranks. Each computes its part with the
 * op of the whole layer; tp_copy and tp_reduce do the sums over ranks.
 *
 *    COLUMN, VOCAB   y_r = copy(x) W_r + b_r               dx = sum_r dy_r W_r'
 *    ROW             y = reduce(x_r W_r) + b               dx_r = dy W_r'
 *    embedding       y = reduce(rows of W_r, 0 where another rank has the id) */
#include "parallel/tensor_parallel/tensor_parallel.h"

/* --- a part as a tensor of its own --- */

/* unmark removes the parts' marks, so that ops see this rank's values; mark restores them. */
static void unmark(choir_tensor *const *t, const choir__partition **marks, int count)
{
    for (int i = 0; i < count; i++) {
        marks[i] = t[i] ? t[i]->split : NULL;
        if (t[i])
            t[i]->split = NULL;
    }
}

static void mark(choir_tensor *const *t, const choir__partition *const *marks, int count)
{
    for (int i = 0; i < count; i++)
        if (t[i])
            t[i]->split = marks[i];
}

static choir_tensor *own_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    return in_out ? choir__linear_in_out(x, weight, bias) : choir_linear(x, weight, bias);
}

/* --- linear --- */

/* Ranks with the same part each have a share of its gradient; tp_copy's backward adds them. */
static choir_tensor *with_others(choir_tensor *x, choir_tensor *t, choir_group *sharing)
{
    return t && sharing ? choir_tp_copy(choir_in(x->scope, t), sharing) : t;
}

/* Scores by classes stay in parts; an op that takes them must support that. */
static choir_tensor *as_scores(choir_tensor *y, const choir__tp_part *part)
{
    if (!y->poisoned)
        y->split = &part->base;
    return y;
}

static choir_tensor *column(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    const choir__tp_part *part = choir__tp_part_of(weight);
    if (bias && !bias->split)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: a weight is distributed by columns, but its bias %s is whole: it "
            "needs a rule of the same style",
            choir__shape_text(bias->shape));
    choir_tensor *given[2] = {weight, bias};
    const choir__partition *marks[2];
    x = choir_tp_copy(x, part->group);
    unmark(given, marks, 2);
    choir_tensor *y = own_linear(
        x, with_others(x, weight, part->sharing), with_others(x, bias, part->sharing), in_out);
    mark(given, marks, 2);
    return part->style == CHOIR_TP_VOCAB ? as_scores(y, part) : y;
}

/* A whole input is distributed first. gelu: the layer's input is choir_gelu_tanh(x). */
static choir_tensor *row(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out, bool gelu)
{
    const choir__tp_part *part = choir__tp_part_of(weight);
    int64_t own = weight->shape.dim[!in_out];
    const choir__partition *marks[1];
    if (bias && bias->split)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: a weight is distributed by rows, and so is its bias %s, which must "
            "be whole",
            choir__shape_text(bias->shape));
    if (choir__cols(x) == part->whole && own != part->whole)
        x = choir_tp_split(x, part->group, -1);
    unmark(&weight, marks, 1);
    choir_tensor *product = gelu ? choir__linear_of_gelu(x, weight, NULL, in_out)
                                 : own_linear(x, weight, NULL, in_out);
    mark(&weight, marks, 1);
    choir_tensor *y = choir_tp_reduce(product, part->group);
    if (y != product)
        choir__done_with(product);
    if (!bias || y->poisoned)
        return y;
    choir_dtype dtype = y->dtype; /* may be a 16-bit type, while biases are f32 */
    choir_tensor *wide = dtype == bias->dtype ? y : choir_cast(y, bias->dtype);
    choir_tensor *sum = choir_add(wide, bias);
    choir__done_with(wide);
    return sum->dtype == dtype || sum->poisoned ? sum : choir_cast(sum, dtype);
}

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    return choir__tp_part_of(weight)->style == CHOIR_TP_ROW
               ? row(x, weight, bias, in_out, false)
               : column(x, weight, bias, in_out);
}

choir_tensor *choir__tp_linear_of_gelu(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    return choir__tp_part_of(weight)->style == CHOIR_TP_ROW
               ? row(x, weight, bias, in_out, true)
               : column(choir_gelu_tanh(x), weight, bias, in_out);
}

/* --- embedding --- */

choir_tensor *choir__tp_embedding(choir_tensor *table, choir_tensor *ids)
{
    const choir__tp_part *part = choir__tp_part_of(table);
    const choir__partition *marks[1];
    if (part->style != CHOIR_TP_VOCAB)
        return choir__poison(ids->scope, CHOIR_ERR_ARGUMENT,
            "tensor_parallel: an embedding's table can be distributed by CHOIR_TP_VOCAB only");
    unmark(&table, marks, 1);
    choir_tensor *rows = choir__embedding_part(
        table, ids, (choir__table_rows){part->first, part->whole, table->param->padding});
    mark(&table, marks, 1);
    choir_tensor *y = choir_tp_reduce(rows, part->group);
    if (y != rows)
        choir__done_with(rows);
    return y;
}
