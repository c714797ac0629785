/* Lookup tables, and dropout. A table's gradient goes to the book as rows (ids, rows), or is
 * summed by id into a dense gradient, a large one in parts of its rows. Rows are copied as
 * words, whatever their dtype, and added in f32. Dropout keeps the key of its mask, not the
 * mask. */
#include "tensor/autocast.h"
#include "tensor/held.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/run.h"
#include "tensor/sequence.h"
#include "tensor/strategy.h"
#include "tensor/tokens.h"

/* --- embedding --- */

choir_status choir__launch_rows(choir_device *device, const choir__leaf_rows *leaf,
    int64_t leaves, void *y, const choir_tensor *table, choir__table_rows of, bool accumulate,
    float scale)
{
    choir_dtype dtype =
        choir__is_half(table->dtype) ? CHOIR_F32 : table->dtype; /* dtype of y */
    /* The lists of pointers are in device memory of their own, ordered like any other. */
    size_t each = (size_t)leaves * sizeof(int64_t);
    choir__storage *lists = choir__storage_new(device, 3 * each);
    if (!lists)
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s", choir_device_name(device));
    char *ids = lists->data, *grads = ids + each, *counts = grads + each;
    int64_t total = 0;
    for (int64_t l = 0; l < leaves; l++) {
        total += leaf[l].count;
        size_t at = (size_t)l * sizeof(int64_t);
        choir__launch_upload(device, ids + at, &leaf[l].ids_data, sizeof(void *));
        choir__launch_upload(device, grads + at, &leaf[l].grads_data, sizeof(void *));
        choir__launch_upload(device, counts + at, &leaf[l].count, sizeof(int64_t));
    }
    choir__k_embedding_backward args = {.ids = (const void *)ids,
        .grads = (const void *)grads,
        .counts = (const void *)counts,
        .leaves = leaves,
        .total = total,
        .y = y,
        .first = of.first,
        .rows = table->shape.dim[0],
        .cols = table->shape.dim[1],
        .padding = of.padding,
        .scale = scale,
        .accumulate = accumulate,
        .dtype = dtype};
    choir__launch(device, dtype, embedding_backward, &args);
    choir__storage_unref(lists);
    return CHOIR_OK;
}

typedef void sum_fn(const choir__tape_entry *r, choir_tensor *ids, choir_tensor *gy,
    choir_tensor *y, int64_t from, bool once);

/* Writes the sums by id of a micro-batch's rows to y, rows of the table from `from` on. once:
 * the rows come from all ranks that have chunks of a sequence. */
static void sum_rows(const choir__tape_entry *r, choir_tensor *ids, choir_tensor *gy,
    choir_tensor *y, int64_t from, bool once)
{
    choir__table_rows of = *(const choir__table_rows *)r->attrs;
    of.first += from;
    choir__leaf_rows leaf = {
        .ids_data = choir__data(ids), .grads_data = choir__data(gy), .count = ids->count};
    choir_status status =
        choir__launch_rows(choir__device_of(y), &leaf, 1, choir__data(y), y, of, false, 1);
    if (status != CHOIR_OK)
        choir__scope_fail(y->scope, status);
    if (once)
        choir__sequence_given_once(y);
}

/* Returns columns [from, from + count) of the rows of all ranks' tokens, f32. */
static choir_tensor *columns_of(
    choir_scope *scope, choir_tensor *rows, int64_t from, int64_t count)
{
    const int last = rows->shape.ndim - 1;
    choir_tensor *view = choir__tensor_alias(scope, rows);
    view->shape.dim[last] = count;
    view->count = choir__shape_count(view->shape);
    view->offset += from;
    choir_tensor *own =
        choir__tensor_new(scope, choir__device_of(rows), rows->dtype, view->shape);
    if (own->poisoned)
        return own;
    choir__launch_copy(own, view);
    choir_tensor *all = choir__sequence_whole(scope, own, last - 1), *wide = all;
    choir__tensor_release(own);
    if (!all->poisoned && (wide = choir__wide(scope, all)) != all)
        choir__tensor_release(all);
    return wide;
}

/* Like sum_rows, where gy has the rows of this rank's tokens and ids are all ranks': a block of
 * columns at a time, and as many rows of the table, so that no rank has more of them than it
 * has tokens. */
static void sum_columns(const choir__tape_entry *r, choir_tensor *ids, choir_tensor *gy,
    choir_tensor *y, int64_t from, bool once)
{
    const choir__sequence *s = r->scope->sequence;
    const int64_t ranks = s->chunks / s->leaves, cols = y->shape.dim[1], rows = y->shape.dim[0],
                  each = cols % ranks ? cols : cols / ranks;
    for (int64_t at = 0; at < cols && choir__scope_status(y->scope) == CHOIR_OK; at += each) {
        choir_tensor *block = columns_of(y->scope, gy, at, each);
        for (int64_t row = 0; row < rows && !block->poisoned; row += ids->count) {
            int64_t n = choir__min(rows - row, ids->count);
            choir_tensor *sums =
                choir__tensor_new(y->scope, choir__device_of(y), y->dtype, choir_dims(n, each));
            if (sums->poisoned)
                break;
            sum_rows(r, ids, block, sums, from + row, false);
            choir_tensor *to = choir__tensor_alias(y->scope, y);
            to->shape = sums->shape;
            to->count = sums->count;
            to->offset += row * cols + at;
            choir__launch_copy(to, sums);
            choir__tensor_release(sums);
        }
        choir__tensor_release(block);
    }
    if (once)
        choir__sequence_given_once(y);
}

/* Gives the table's gradient in parts of its rows, if the sink takes them. */
static bool give_in_parts(choir__tape_entry *r, choir_tensor *ids, choir_tensor *gy,
    choir__sink *sink, sum_fn *sum, bool once)
{
    choir_shape shape = r->in[0]->shape;
    choir_tensor *y = sink->dest_part(sink, r, 0, 0);
    bool parts = y;
    int64_t rows = shape.dim[0], each = choir__part_rows(shape), part = 0;
    for (int64_t from = 0; from < rows && y; from += each) {
        sum(r, ids, gy, y, from, once);
        sink->give_part(sink, r, 0);
        y = from + each < rows ? sink->dest_part(sink, r, 0, ++part) : NULL;
    }
    return parts;
}

static void embedding_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *ids = r->saved[0];
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned || sink->give_rows(sink, r, 0, ids, gy))
        return;
    const choir__sequence *s = r->scope->sequence;
    /* rows are added in the order of tokens, also where a parameter's could have stayed rows */
    bool whole = choir__sequence_is_whole(r->in[0]) || (s && s->by && r->in[0]->param);
    sum_fn *sum_of = whole || (s && s->joins) ? sum_columns : sum_rows;
    if (sum_of == sum_columns)
        ids = choir__sequence_whole(sink->scope, ids, ids->shape.ndim - 1);
    else
        gy = choir__wide(sink->scope, gy); /* rows are added in f32 */
    if (ids->poisoned || gy->poisoned || give_in_parts(r, ids, gy, sink, sum_of, whole))
        return;
    choir_tensor *g = sink->dest(sink, r, 0);
    choir_tensor *sum =
        g && choir__is_half(g->dtype) ? choir__cast_like(sink->scope, g, CHOIR_F32) : g;
    if (!g || sum->poisoned)
        return;
    sum_of(r, ids, gy, sum, 0, whole && sum == g);
    if (sum != g) {
        choir__launch_copy(g, sum);
        if (whole)
            choir__sequence_given_once(g);
    }
    sink->give(sink, r, 0, g);
}

static void embedding_again(choir__tape_entry *r)
{
    const choir__table_rows *of = r->attrs;
    choir_tensor *y = r->out, *table = r->in[0];
    if (table->held) {
        choir__held_rows(y, table, r->saved[0], of->first, of->whole);
        return;
    }
    table = choir__dense_rows(r->scope, table);
    if (table->poisoned)
        return;
    /* rows are copied as words, whatever their dtype */
    int64_t in_one = choir__is_half(y->dtype) ? 2 : 1;
    choir_dtype dtype = in_one == 2 ? CHOIR_F32 : y->dtype;
    choir__k_embedding args = {.table = choir__data(table),
        .ids = choir__data(r->saved[0]),
        .y = choir__data(y),
        .n = r->saved[0]->count,
        .rows = table->shape.dim[0],
        .cols = table->shape.dim[1] / in_one,
        .first = of->first,
        .whole = of->whole,
        .dtype = dtype};
    choir__launch(choir__device_of(y), dtype, embedding, &args);
}

static void embedding_derivative(
    const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_shape rows = choir_dims(r->in[1]->count, r->in[0]->shape.dim[1]);
    choir_tensor *ids = choir_reshape(choir__derive_in(r, 1, gy), choir_dims(-1, 1));
    gx[0] =
        choir__derive_scattered(r->in[0], choir_reshape(gy, rows), 0, choir_expand(ids, rows));
}

static const choir__op embedding_op = {
    .name = "embedding",
    .by_token = true,
    .lookup = true,
    .backward_weight = embedding_backward_weight,
    .derivative = embedding_derivative,
    .recompute = embedding_again,
    .reads_in = 2,
    .rows_in = 1,
    .parts_in = 1,
    .weights_in = 1,
    .slices_in = 1,
};

static choir_tensor *embedding(choir_tensor *table, choir_tensor *ids, choir__table_rows of)
{
    choir_tensor *poisoned, *in[2] = {table, ids};
    choir_scope *scope = choir__begin(&embedding_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    table = in[0], ids = in[1];
    choir_dtype dtype = table->held ? CHOIR_F32 : table->dtype;
    if (table->shape.ndim != 2 || !choir__is_float(dtype) || ids->dtype != CHOIR_I64 ||
        ids->shape.ndim >= CHOIR_MAX_DIMS)
        return choir__shape_error(
            embedding_op.name, scope, in, 2, "expected a table (V, C) and i64 ids");
    choir_shape shape = ids->shape;
    shape.dim[shape.ndim++] = choir__values_shape(table).dim[1];
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(table), dtype, shape);
    return choir__computed(&embedding_op, y, in, 2,
        (choir__keeps){&of, sizeof of, {choir__dense_rows(scope, ids)}});
}

choir_tensor *choir__embedding_padded(choir_tensor *table, choir_tensor *ids, int64_t padding)
{
    table = choir__sound(table, __func__);
    if (choir__is_part(table) && !table->poisoned && !ids->poisoned)
        return table->split->by->ops->parts->embedding(table, ids);
    return embedding(table, ids, (choir__table_rows){.padding = padding});
}

choir_tensor *choir_embedding(choir_tensor *table, choir_tensor *ids)
{
    return choir__embedding_padded(table, ids, -1);
}

choir_tensor *choir__embedding_part(
    choir_tensor *table, choir_tensor *ids, choir__table_rows of)
{
    return embedding(table, ids, of);
}

/* --- dropout: the mask is drawn again in backward, never stored --- */

struct dropout {
    uint64_t key;
    float p;
    /* x is columns [first, first + cols) of rows of `whole` elements; cols 0: x is whole */
    int64_t first, cols, whole;
    bool samples; /* these rows are whole samples; x has some of their tokens */
    bool weight;  /* x has no tokens */
};

/* Returns where x's elements are in the whole, if x has columns of it, or tokens. */
static struct dropout place_of(const choir_tensor *x, const choir__partition *columns)
{
    const choir__partition *part = columns ? columns : choir__tokens_of(x);
    const choir__sequence *s = x->scope->sequence;
    if (columns) { /* matrices side by side: each has rows of its own */
        int64_t side = part->cut.outer;
        return (struct dropout){
            .first = part->at, .cols = choir__cols(x) / side, .whole = part->size / side};
    }
    if (!part)
        return (struct dropout){.weight = choir__is_weight(x)};
    int64_t c = choir__cols(x), before = s ? s->first * (s->length / s->chunks) : 0;
    return (struct dropout){.first = (before + part->at) * c,
        .cols = x->shape.dim[1] * c,
        .whole = (s ? s->length : part->size) * c,
        .samples = true};
}

/* Returns the number of sample b's first element here, of n: one rank may have some leaves of
 * the sequence. */
static int64_t first_of(const struct dropout *d, const choir__sequence *s, int64_t b, int64_t n)
{
    int64_t each = s->length / s->chunks, before = (b * s->chunks + s->first) * each;
    int64_t token = n / choir__sequence_tokens(s);
    return d->first + before * (d->cols ? token / d->cols * d->whole : token);
}

/* An element's number is its place in the whole sequence, so ranks that have leaves of it draw
 * the mask of one device. */
static void launch_dropout(choir_tensor *y, const choir_tensor *x, const struct dropout *d)
{
    choir_device *device = choir__device_of(y);
    const uint64_t *step = choir__step_word(y->scope, device);
    const choir__sequence *s = y->scope->sequence;
    bool apart = s && s->by && !d->samples && !d->weight;
    int64_t samples = apart ? y->shape.dim[0] : 1, n = y->count / choir__max(1, samples);
    size_t bytes = (size_t)n * choir_dtype_size(y->dtype);
    for (int64_t b = 0; b < samples && step; b++) {
        choir__k_dropout args = {.x = (char *)choir__data(x) + (size_t)b * bytes,
            .y = (char *)choir__data(y) + (size_t)b * bytes,
            .step = step,
            .n = n,
            .first = apart ? first_of(d, s, b, n) : d->first,
            .cols = d->cols,
            .whole = d->whole,
            .key = d->key,
            .p = d->p,
            .dtype = y->dtype};
        choir__launch(device, y->dtype, dropout, &args);
    }
}

/* Returns why dropout cannot number the elements of x, or NULL. */
static const char *unnumbered(const choir_tensor *x)
{
    const choir__sequence *s = x->scope->sequence;
    if (!s || choir__tokens_of(x) || choir__is_weight(x))
        return NULL;
    int64_t tokens = choir__sequence_tokens(s);
    bool known = x->shape.ndim > 1 && x->shape.dim[1] == tokens;
    return known && x->count / choir__max(1, x->shape.dim[0] * s->leaves) % 4 == 0
               ? NULL
               : "expected samples of tokens, with a multiple of 4 elements in each chunk";
}

static void dropout_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gx =
        choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, gy->shape);
    gy = choir__dense_rows(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    launch_dropout(gx, gy, r->attrs);
    sink->give(sink, r, 0, gx);
}

static void dropout_again(choir__tape_entry *r)
{
    launch_dropout(r->out, r->in[0], r->attrs);
}

static const choir__op dropout_op = {.name = "dropout",
    .by_token = true,
    .tokens_in = 1,
    .half_native = CHOIR__ALL_IN,
    .backward = dropout_backward,
    .recompute = dropout_again};

choir_tensor *choir_dropout(choir_tensor *x, float p, const char *name)
{
    x = choir__sound(x, __func__);
    return choir__dropout_of(x, p, name, choir__columns_of(x));
}

choir_tensor *choir__dropout_of(
    choir_tensor *x, float p, const char *name, const choir__partition *part)
{
    choir_tensor *poisoned;
    if (p == 0)
        return x;
    /* row-major, so that an element's number does not depend on the layout */
    x = choir_contiguous(x);
    choir_scope *scope = choir__begin(&dropout_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__is_float(x->dtype))
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "dropout: expected a floating tensor, got %s", choir_dtype_name(x->dtype));
    const char *wrong = unnumbered(x);
    if (wrong)
        return choir__shape_error(dropout_op.name, scope, &x, 1, wrong);
    if (!(p > 0 && p < 1))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "dropout: expected a probability in [0, 1), got %g", (double)p);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    if (y->poisoned) /* a poisoned dropout draws no key */
        return y;
    struct dropout d = place_of(x, part);
    d.key = choir__scope_key(scope, name);
    d.p = p;
    return choir__computed(&dropout_op, y, &x, 1, (choir__keeps){&d, sizeof d, {NULL}});
}
