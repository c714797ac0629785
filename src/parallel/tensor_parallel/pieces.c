/* Queries, keys and values in one matrix, with fewer heads of keys than of queries:
 *
 *     rows       q q q q q q q q | k k | v v        8 heads of queries, 2 of keys and values
 *     slice 0    q q q q           k     v          of two slices; each has its own heads
 *
 * The matrices have unequal widths, so each is a column layer by itself, as if a model had one
 * module for each: they read one input, whose gradient is a sum over them, slice by slice. */
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"
#include "tensor/ops/sliced/sliced.h"
#include "tensor/sequence.h"

void choir__tp_piece_boxes(
    const choir__tp_entry *e, int64_t first, int64_t own, int64_t slices, choir__box *boxes)
{
    int64_t from = 0, at = 0;
    for (int i = 0; i < CHOIR__TP_PIECES; i++) {
        const int64_t slice = e->widths[i] / slices;
        boxes[i].size[0] = slice * own;
        boxes[i].from[0] = from + slice * first;
        boxes[i].at[0] = at;
        from += e->widths[i];
        at += slice * own;
    }
}

void choir__tp_make_pieces(
    const choir__tp_entry *e, choir_scope *run, int64_t slices, choir__tp_part *mark)
{
    choir__tp_part *pieces = choir__arena_get(&run->arena, CHOIR__TP_PIECES * sizeof *pieces);
    const int64_t own = mark->base.whole ? slices : mark->base.own;
    int64_t row = 0;
    for (int i = 0; i < CHOIR__TP_PIECES; i++) {
        const int64_t slice = e->widths[i] / slices;
        pieces[i] = *mark;
        pieces[i].base.cut = (choir__cut){1, slices};
        pieces[i].base.at = slice * mark->base.first;
        pieces[i].base.size = e->widths[i];
        pieces[i].row = row;
        pieces[i].rows = slice * own;
        row += slice * own;
    }
    mark->pieces = pieces;
}

/* Returns a matrix of the weight or bias, without a mark; NULL: there is no bias. */
static choir_tensor *piece_of(choir_scope *scope, choir_tensor *t, const choir__tp_part *piece)
{
    if (!t)
        return NULL;
    choir_tensor *whole = choir_in(scope, t);
    whole->split = NULL; /* the view sees this rank's rows as whole */
    return choir_narrow(whole, 0, piece->row, piece->rows);
}

choir_tensor *choir__tp_linear_pieces(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    const choir__tp_part *part = choir__tp_part_of(weight);
    choir_tensor *y[CHOIR__TP_PIECES];
    if (x->scope->sequence && x->scope->sequence->by) /* ranks share the chunks */
        return choir__poison(x->scope, CHOIR_ERR_UNSUPPORTED,
            "tensor_parallel: queries, keys and values of different numbers of heads are in one "
            "matrix: its gradients are not summed over chunks of a sequence");
    x = of.gelu ? choir_gelu_tanh(x) : x;
    of.gelu = false;
    for (int i = 0; i < CHOIR__TP_PIECES; i++) {
        const choir__tp_part *piece = &part->pieces[i];
        choir_tensor *in = choir__sliced_input(x, &piece->base);
        of.part = &piece->base;
        y[i] = choir__linear_as(
            in, piece_of(in->scope, weight, piece), piece_of(in->scope, bias, piece), of);
    }
    choir_tensor *all = choir__cat_features(y, CHOIR__TP_PIECES, y[0]->shape.ndim - 1);
    for (int i = 0; i < CHOIR__TP_PIECES; i++)
        choir__done_with(y[i]);
    if (!part->base.whole && !all->poisoned)
        all->split = &part->result;
    return all;
}
