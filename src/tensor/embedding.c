/* Lookup tables, and dropout. */
#include "tensor/tensor.h"

/* --- embedding -------------------------------------------------------------------------------- */

static void embedding_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *ids = r->saved[0];
    gy = choir__dense_rows(sink->scope, gy);
    if (sink->give_rows(sink, r, 0, ids, gy))
        return;
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    struct {
        const int64_t *ids;
        const void *grads;
        int64_t count;
    } *leaf = choir__arena_get(&sink->scope->arena, sizeof *leaf);
    leaf->ids = choir__data(ids);
    leaf->grads = choir__data(gy);
    leaf->count = ids->count;
    choir__k_embedding_backward args = {.ids = &leaf->ids, .grads = &leaf->grads,
        .counts = &leaf->count, .leaves = 1, .y = choir__data(g), .rows = g->shape.dim[0],
        .cols = g->shape.dim[1], .scale = 1, .dtype = g->dtype};
    choir__launch(choir__device_of(g), g->dtype, embedding_backward, &args);
    sink->give(sink, r, 0, g);
}

static const choir__op embedding_op = {.name = "embedding", .backward = embedding_backward};

choir_tensor *choir_embedding(choir_tensor *table, choir_tensor *ids)
{
    choir_tensor *poisoned, *in[2] = {table, ids};
    choir_dtype stored = table->dtype;
    in[0] = choir__as_computed(table);
    choir_scope *scope = choir__begin("embedding", in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (table->shape.ndim != 2 || ids->dtype != CHOIR_I64 || ids->shape.ndim >= CHOIR_MAX_DIMS)
        return choir__shape_error("embedding", scope, in, 2, "wants a table (V, C) and i64 ids");
    choir_shape shape = ids->shape;
    shape.dim[shape.ndim++] = table->shape.dim[1];
    choir_tensor *dense_ids = choir__dense_rows(scope, ids);
    choir_tensor *rows = choir__dense_rows(scope, in[0]);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(table), in[0]->dtype, shape);
    if (y->poisoned || dense_ids->poisoned || rows->poisoned)
        return y->poisoned ? y : dense_ids->poisoned ? dense_ids : rows;
    choir__k_embedding args = {.table = choir__data(rows), .ids = choir__data(dense_ids),
        .y = choir__data(y), .n = ids->count, .rows = table->shape.dim[0],
        .cols = table->shape.dim[1], .dtype = y->dtype};
    choir__launch(choir__device_of(table), y->dtype, embedding, &args);
    choir__record *r = choir__record_op(&embedding_op, y, in, 1);
    if (r)
        r->saved[0] = dense_ids;
    return choir__as_stored(y, stored);
}

/* --- dropout: the mask is drawn again in backward, never stored ---------------------------------- */

struct dropout {
    uint64_t key;
    float p;
};

static void launch_dropout(choir_tensor *y, const choir_tensor *x, const struct dropout *d)
{
    choir__k_dropout args = {.x = choir__data(x), .y = choir__data(y),
        .step = y->scope->run->step_word, .n = y->count, .key = d->key, .p = d->p,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, dropout, &args);
}

static void dropout_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gx = choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, gy->shape);
    gy = choir__dense_rows(sink->scope, gy);
    if (gx->poisoned || gy->poisoned)
        return;
    launch_dropout(gx, gy, r->attrs);
    sink->give(sink, r, 0, gx);
}

static const choir__op dropout_op = {.name = "dropout", .backward = dropout_backward};

choir_tensor *choir_dropout(choir_tensor *x, float p, const char *name)
{
    choir_dtype stored = x->dtype;
    choir_tensor *poisoned;
    if (p == 0)
        return x;
    /* Row-major, so that an element's number does not depend on the layout. */
    x = choir_contiguous(choir__as_computed(x));
    choir_scope *scope = choir__begin("dropout", &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!(p > 0 && p < 1))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "dropout: the probability %g is not in [0, 1)", (double)p);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    if (y->poisoned)
        return y;
    struct dropout d = {.key = choir__scope_key(scope, name), .p = p};
    launch_dropout(y, x, &d);
    choir__record *r = choir__record_op(&dropout_op, y, &x, 1);
    if (r)
        choir__record_attrs(r, &d, sizeof d);
    return choir__as_stored(y, stored);
}
