/* Recurrent layers. A layer is one entry. For each direction,
 *
 *     X = x W_ih^T + b_ih + b_hh        one product for all steps, into the gates' memory
 *     gates, state, y = recurrent(X)    one kernel: per step, a product with W_hh and a pass
 *
 * In backward, the kernel first turns the gates into their gradients dA, step by step; then
 * each weight has one product over all steps:
 *
 *     gW_ih = dA^T x    gW_hh = dA^T h'    gb = sum dA    gx = dA W_ih
 *
 * h' is y one step earlier: the same memory, B rows away. The GRU's b_hh is inside r's product,
 * so the kernel adds it, and the part of W_hh that computes its n receives other gradients
 * (dU). If the caller asks for the last states, they follow y in the result's memory: the op
 * has one result, which views divide. */
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/cache.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/recurrent.h"
#include "tensor/segment.h"

_Static_assert((int)CHOIR_LSTM == CHOIR__LSTM && (int)CHOIR_GRU == CHOIR__GRU &&
                   (int)CHOIR_RNN_TANH == CHOIR__RNN_TANH &&
                   (int)CHOIR_RNN_RELU == CHOIR__RNN_RELU,
    "the public cells are the kernels'");

/* Returns the reason why the operands are wrong, or NULL. */
static const char *complaint(
    choir_cell cell, choir_tensor *const *in, int directions, struct sizes *n)
{
    const choir_tensor *x = in[X], *w = in[WEIGHTS + W_HH];
    if (x->shape.ndim != 3 || x->shape.dim[0] < 1 || x->shape.dim[1] < 1)
        return "expected x (T, B, I) of at least a step and a sample";
    for (int d = 0; d < directions; d++)
        if (!in[WEIGHTS + A_DIRECTION * d + W_IH] || !in[WEIGHTS + A_DIRECTION * d + W_HH])
            return "expected w_ih and w_hh of every direction";
    if (w->shape.ndim != 2 || w->shape.dim[1] < 1)
        return "expected w_hh (G H, H), with G = 4, 3 or 1 gates of an LSTM, GRU or plain cell";
    *n = (struct sizes){x->shape.dim[0], x->shape.dim[1], x->shape.dim[2], w->shape.dim[1],
        choir__recurrent_cell_gates((choir__recurrent_cell)cell), directions,
        (choir__recurrent_cell)cell, false};
    choir_shape rows = choir_dims(n->g * n->h), state = choir_dims(n->d, n->b, n->h);
    choir_shape w_ih = choir_dims(n->g * n->h, n->i), w_hh = choir_dims(n->g * n->h, n->h);
    for (int i = 0; i < WEIGHTS + A_DIRECTION * directions; i++)
        if (in[i] && (in[i]->dtype != x->dtype || !choir__is_float(x->dtype)))
            return "expected one floating dtype";
    for (int i = H0; i <= C0; i++)
        if (in[i] && !choir__same_shape(in[i]->shape, state))
            return "expected initial states (D, B, H), D being 1, or 2 in both directions";
    if (in[C0] && cell != CHOIR_LSTM)
        return "expected a cell state of an LSTM alone";
    for (int d = 0; d < directions; d++) {
        choir_tensor *const *of = in + WEIGHTS + A_DIRECTION * d;
        if (!choir__same_shape(of[W_IH]->shape, w_ih) ||
            !choir__same_shape(of[W_HH]->shape, w_hh))
            return "expected w_ih (G H, I) and w_hh (G H, H), with G = 4, 3 or 1 gates of "
                   "an LSTM, GRU or plain cell";
        if (!of[B_IH] != !of[B_HH] || (of[B_IH] && !choir__same_shape(of[B_IH]->shape, rows)) ||
            (of[B_HH] && !choir__same_shape(of[B_HH]->shape, rows)))
            return "expected b_ih and b_hh (G H), or neither";
    }
    return NULL;
}

/* Returns the bias that is added in x's product: the sum of both; for the GRU b_ih alone. */
static choir_tensor *bias_of(choir_scope *scope, const struct sizes *n, choir_tensor *const *w)
{
    if (!w[B_IH])
        return NULL;
    choir_tensor *b = choir__wide(scope, choir__dense_rows(scope, w[B_IH]));
    if (n->cell == CHOIR__GRU || b->poisoned)
        return b;
    choir_tensor *b_hh = choir__wide(scope, w[B_HH]), *sum = choir__tensor_like(scope, b);
    if (sum->poisoned || b_hh->poisoned)
        return sum->poisoned ? sum : b_hh;
    choir__launch_add(sum, b, b_hh);
    return sum;
}

/* Returns the GRU's b_hh, or zeros if it has none; NULL for other cells. */
static choir_tensor *hidden_bias(
    choir_scope *scope, const struct sizes *n, choir_tensor *const *w)
{
    if (n->cell != CHOIR__GRU)
        return NULL;
    if (w[B_HH])
        return choir__dense_rows(scope, w[B_HH]);
    choir_tensor *zeros = choir__tensor_new(
        scope, choir__device_of(w[W_HH]), w[W_HH]->dtype, choir_dims(n->g * n->h));
    if (!zeros->poisoned)
        choir__launch_fill(zeros, 0);
    return zeros;
}

/* Copies the last h and c to the memory after y. */
static void keep_last(
    choir_tensor *y, choir_tensor *state, const struct sizes *n, const choir__k_recurrent *k)
{
    int64_t count = n->b * n->h, all = n->t * n->b * n->d * n->h, at = k->reverse ? 1 : 0;
    int64_t t = k->reverse ? 0 : n->t - 1;
    choir__k_copy args = {.y = {element(y, all + at * count), {n->h, 1}},
        .x = {element(y, t * n->b * k->y_row + at * n->h), {k->y_row, 1}},
        .shape = {n->b, n->h},
        .ndim = 2,
        .y_dtype = y->dtype,
        .x_dtype = y->dtype};
    choir__launch(choir__device_of(y), CHOIR_F32, copy, &args);
    if (n->cell == CHOIR__LSTM)
        choir__launch_bytes(choir__device_of(y), element(y, all + (n->d + at) * count),
            element(state, (at * n->t + t) * count),
            (size_t)count * choir_dtype_size(y->dtype));
}

/* Runs one direction. Returns false if memory runs out; the scope has the error. */
static bool forward(choir_scope *scope, const struct sizes *n, int64_t at,
    choir_tensor *const *w, choir_tensor *x, choir_tensor *const *initial, choir_tensor *gates,
    choir_tensor *state, choir_tensor *y)
{
    int64_t rows = n->t * n->b, cols = n->g * n->h, first = at * n->b * n->h;
    choir_device *device = choir__device_of(x);
    choir_tensor *w_ih = choir__dense_rows(scope, w[W_IH]);
    choir_tensor *w_hh = choir__dense_rows(scope, w[W_HH]);
    choir_tensor *bias = bias_of(scope, n, w), *b_hh = hidden_bias(scope, n, w);
    if (w_ih->poisoned || w_hh->poisoned || (bias && bias->poisoned) ||
        (b_hh && b_hh->poisoned))
        return false;
    product(device, x->dtype, x->dtype, rows_at(gates, at * rows * cols, cols),
        rows_at(x, 0, n->i), choir__transposed(rows_at(w_ih, 0, n->i)), element(bias, 0), rows,
        cols, n->i, false);
    choir__k_recurrent args = {.w_hh = choir__data(w_hh),
        .b_hh = element(b_hh, 0),
        .h0 = element(initial[0], first),
        .c0 = element(initial[1], first),
        .gates = element(gates, at * rows * cols),
        .state = element(state, at * rows * n->h),
        .y = element(y, at * n->h),
        .steps = n->t,
        .batch = n->b,
        .width = n->h,
        .y_row = n->d * n->h,
        .cell = n->cell,
        .reverse = at == 1,
        .dtype = x->dtype};
    choir__cache_states before = {NULL, NULL};
    const bool has_c = n->cell == CHOIR__LSTM;
    if (scope->cache &&
        !choir__cache_states_begin(scope, device, x->dtype, n->h, has_c, &before))
        return false;
    if (before.h)
        args.h0 = choir__data(before.h);
    if (before.c)
        args.c0 = choir__data(before.c);
    choir__launch(device, x->dtype, recurrent, &args);
    if (scope->cache)
        choir__cache_states_end(scope, device, x->dtype, n->h,
            element(y, (n->t - 1) * n->b * n->h), n->h,
            has_c ? element(state, (n->t - 1) * n->b * n->h) : NULL);
    if (n->last)
        keep_last(y, state, n, &args);
    return true;
}

/* Runs all directions. Returns false if memory runs out; the scope has the error. */
static bool run(choir_tensor *const *in, const struct sizes *n, choir_tensor *x,
    choir_tensor *gates, choir_tensor *state, choir_tensor *y)
{
    choir_tensor *initial[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        if (in[H0 + i] && (initial[i] = choir__dense_rows(y->scope, in[H0 + i]))->poisoned)
            return false;
    for (int64_t d = 0; d < n->d; d++)
        if (!forward(
                y->scope, n, d, in + WEIGHTS + A_DIRECTION * d, x, initial, gates, state, y))
            return false;
    return true;
}

static void recurrent_again(choir__tape_entry *r)
{
    choir__copy_again(r, X); /* SAVED_X is X */
    run(r->in, r->attrs, r->saved[SAVED_X], r->saved[SAVED_GATES], r->saved[SAVED_STATE],
        r->out);
}

enum { READS_WEIGHTS = 1 << W_IH | 1 << W_HH };

static const choir__op recurrent_op = {
    .name = "recurrent",
    .optional = ~(1u << X),
    .cast = CHOIR__CAST_LOWER,
    .half_native = CHOIR__ALL_IN,
    .backward_input = choir__recurrent_backward_input,
    .backward_weight = choir__recurrent_backward_weight,
    .recompute = recurrent_again,
    .recompute_saved = 1 << SAVED_X | 1 << SAVED_GATES | 1 << SAVED_STATE,
    .reads_in = 1 << X | 1 << H0 | 1 << C0 | READS_WEIGHTS << WEIGHTS |
                READS_WEIGHTS << (WEIGHTS + A_DIRECTION),
    .weights_in = (1 << MOST_IN) - (1 << WEIGHTS),
};

/* Runs the layer on computed dtypes. Returns (T, B, D H), followed by the last states, flat. */
static choir_tensor *layer(choir_scope *scope, choir_tensor *const *in, struct sizes n)
{
    choir_device *device = choir__device_of(in[X]);
    choir_dtype dtype = in[X]->dtype;
    bool lstm = n.cell == CHOIR__LSTM, has_state = lstm || n.cell == CHOIR__GRU;
    int64_t states = n.d * n.b * n.h;
    choir_shape shape = n.last ? choir_dims(n.t * states + (lstm ? 2 : 1) * states)
                               : choir_dims(n.t, n.b, n.d * n.h);
    choir_tensor *y = choir__tensor_new(scope, device, dtype, shape);
    choir_tensor *x = choir__dense_rows(scope, in[X]), *state = NULL;
    choir_tensor *gates =
        choir__tensor_new(scope, device, dtype, choir_dims(n.d, n.t, n.b, n.g * n.h));
    if (has_state)
        state = choir__tensor_new(scope, device, dtype, choir_dims(n.d, n.t, n.b, n.h));
    return choir__computed(&recurrent_op, y, in, WEIGHTS + A_DIRECTION * (int)n.d,
        (choir__keeps){&n, sizeof n,
            {[SAVED_X] = x, [SAVED_Y] = y, [SAVED_GATES] = gates, [SAVED_STATE] = state}});
}

choir_tensor *choir_recurrent(choir_cell cell, choir_tensor *x,
    const choir_cell_weights *weights, int directions, choir_cell_state initial,
    choir_cell_state *last)
{
    x = choir__sound(x, __func__);
    if (!weights)
        return choir__poison_missing(x->scope, __func__, "weights");
    choir_tensor *poisoned, *in[MOST_IN] = {x, initial.h, initial.c};
    if (last)
        *last = (choir_cell_state){NULL, NULL};
    if (directions < 1 || directions > 2 || (unsigned)cell >= CHOIR__CELL_COUNT)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "recurrent: expected 1 or 2 directions of one of %d cells, got %d of cell %d",
            (int)CHOIR__CELL_COUNT, directions, (int)cell);
    int count = WEIGHTS + A_DIRECTION * directions;
    for (int d = 0; d < directions; d++)
        memcpy(in + WEIGHTS + A_DIRECTION * d, &weights[d], sizeof weights[d]);
    choir_scope *scope = choir__begin(&recurrent_op, in, count, &poisoned);
    struct sizes n;
    const char *why = scope ? complaint(cell, in, directions, &n) : NULL;
    if (scope && !why && scope->cache && (directions > 1 || in[H0] || in[C0]))
        why = "with a cache: expected one direction, and states that the cache has";
    if (!scope || why) {
        if (scope)
            poisoned = choir__shape_error(recurrent_op.name, scope, in, count, why);
        if (last)
            *last = (choir_cell_state){poisoned, cell == CHOIR_LSTM ? poisoned : NULL};
        return poisoned;
    }
    n.last = last != NULL;
    choir_tensor *y = layer(scope, in, n);
    if (!last)
        return y;
    int64_t states = n.d * n.b * n.h, all = n.t * states;
    choir_shape shape = choir_dims(n.d, n.b, n.h);
    last->h = choir_reshape(choir_narrow(y, 0, all, states), shape);
    if (cell == CHOIR_LSTM)
        last->c = choir_reshape(choir_narrow(y, 0, all + states, states), shape);
    return choir_reshape(choir_narrow(y, 0, 0, all), choir_dims(n.t, n.b, n.d * n.h));
}
