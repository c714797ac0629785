/* Recurrent layers. A layer is one record: of a direction,
 *
 *     X = x W_ih^T + b_ih + b_hh        one product for all steps, into the gates' memory
 *     gates, state, y = recurrent(X)    one kernel: a product with W_hh and a pass, step by
 * step
 *
 * and backward, after the kernel has turned the gates into their gradients dA step by step, one
 * product over all steps for each weight:
 *
 *     gW_ih = dA^T x    gW_hh = dA^T h'    gb = sum dA    gx = dA W_ih
 *
 * h' is y a step earlier: the same memory, B rows off. The GRU's b_hh is within r's product, so
 * it stays with the kernel, and the share of W_hh that makes its n sees other gradients (dU).
 * Where the last states are asked for they lie behind y in the result's memory: one result, cut
 * by views. */
#include <string.h>

#include "tensor/tensor.h"

_Static_assert((int)CHOIR_LSTM == CHOIR__LSTM && (int)CHOIR_GRU == CHOIR__GRU &&
                   (int)CHOIR_RNN_TANH == CHOIR__RNN_TANH &&
                   (int)CHOIR_RNN_RELU == CHOIR__RNN_RELU,
    "the public cells are the kernels'");

enum { X, H0, C0, WEIGHTS, A_DIRECTION = 4, MOST_IN = WEIGHTS + 2 * A_DIRECTION };
enum { W_IH, W_HH, B_IH, B_HH };

/* Saved for backward: x (T, B, I); y, in the result; gates (D, T, B, G H); state (D, T, B, H).
 */
enum { SAVED_X, SAVED_Y, SAVED_GATES, SAVED_STATE };

struct sizes {
    int64_t t, b, i, h, g, d; /* steps, batch, input, hidden, gates, directions */
    choir__cell cell;
    bool last; /* the last states are behind y */
};

/* Element `at` of row-major t; NULL: NULL. */
static void *element(const choir_tensor *t, int64_t at)
{
    return t ? (char *)choir__data(t) + (size_t)at * choir_dtype_size(t->dtype) : NULL;
}

/* --- products of row-major matrices --- */

struct matrix {
    void *p;
    int64_t row, col;
};

static struct matrix rows_at(const choir_tensor *t, int64_t at, int64_t row)
{
    return (struct matrix){element(t, at), row, 1};
}

static struct matrix turned(struct matrix m)
{
    return (struct matrix){m.p, m.col, m.row};
}

/* c (m, n) = a (m, k) b (k, n) + bias, onto c if accumulate. */
static void product(choir_device *device, choir_dtype dtype, struct matrix c, struct matrix a,
    struct matrix b, const void *bias, int64_t m, int64_t n, int64_t k, bool accumulate)
{
    choir__k_matmul args = {.a = a.p,
        .b = b.p,
        .bias = bias,
        .c = c.p,
        .batch0 = 1,
        .batch1 = 1,
        .m = m,
        .n = n,
        .k = k,
        .a_row = a.row,
        .a_col = a.col,
        .b_row = b.row,
        .b_col = b.col,
        .c_row = c.row,
        .accumulate = accumulate,
        .dtype = dtype};
    choir__launch(device, dtype, matmul, &args);
}

/* --- backward --- */

/* One direction's tensors, of the forward pass or the gradients wanted (NULL: not). */
struct direction {
    int64_t at; /* 0, or 1: from the end */
    choir_tensor *w[A_DIRECTION];
};

/* The gradients of the last state, or zeros, to where the kernel makes those of the initial
 * one.
 */
static void begin_state(choir_tensor *g, const struct sizes *n, const choir_tensor *gy,
    int64_t which, int64_t direction)
{
    int64_t count = n->b * n->h, all = n->t * n->b * n->d * n->h;
    size_t size = choir_dtype_size(gy->dtype);
    void *to = element(g, direction * count);
    if (n->last) {
        choir__launch_bytes(choir__device_of(gy), to,
            element(gy, all + (which * n->d + direction) * count), (size_t)count * size);
    } else {
        choir__k_fill args = {.y = to, .n = count, .dtype = gy->dtype};
        choir__launch(choir__device_of(gy), gy->dtype, fill, &args);
    }
}

static void step_back(choir__record *r, const struct sizes *n, const struct direction *d,
    choir_tensor *w_hh, choir_tensor *gy, choir_tensor *gh, choir_tensor *gc,
    choir_tensor *initial[2])
{
    int64_t rows = n->t * n->b, first = d->at * n->b * n->h;
    choir_tensor *y = r->saved[SAVED_Y], *state = r->saved[SAVED_STATE];
    begin_state(gh, n, gy, 0, d->at);
    if (gc)
        begin_state(gc, n, gy, 1, d->at);
    choir__k_recurrent_backward args = {.w_hh = choir__data(w_hh),
        .h0 = element(initial[0], first),
        .c0 = element(initial[1], first),
        .y = element(y, d->at * n->h),
        .gy = element(gy, d->at * n->h),
        .gates = element(r->saved[SAVED_GATES], d->at * rows * n->g * n->h),
        .state = element(state, d->at * rows * n->h),
        .gh = element(gh, first),
        .gc = element(gc, first),
        .steps = n->t,
        .batch = n->b,
        .width = n->h,
        .y_row = n->d * n->h,
        .cell = n->cell,
        .reverse = d->at == 1,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, recurrent_backward, &args);
}

/* Rows [row, row + count) of gW_hh = dA^T h', dA being `count` columns wide at a: all steps but
 * the direction's first see y, that one sees h0. */
static void hidden_weight(const struct sizes *n, const struct direction *d, choir_tensor *gw,
    int64_t row, int64_t count, struct matrix a, const choir_tensor *y, const choir_tensor *h0)
{
    choir_device *device = choir__device_of(gw);
    int64_t k = (n->t - 1) * n->b, y_row = n->d * n->h;
    size_t size = choir_dtype_size(gw->dtype);
    struct matrix c = rows_at(gw, row * n->h, n->h), later = a, first = a;
    struct matrix before = rows_at(y, d->at * n->h + (d->at ? n->b * y_row : 0), y_row);
    if (d->at)
        first.p = (char *)a.p + (size_t)(k * a.row) * size;
    else
        later.p = (char *)a.p + (size_t)(n->b * a.row) * size;
    if (k)
        product(device, gw->dtype, c, turned(later), before, NULL, count, n->h, k, false);
    if (h0)
        product(device, gw->dtype, c, turned(first), rows_at(h0, d->at * n->b * n->h, n->h),
            NULL, count, n->h, n->b, k > 0);
    if (!k && !h0) {
        choir__k_fill args = {.y = c.p, .n = count * n->h, .dtype = gw->dtype};
        choir__launch(device, gw->dtype, fill, &args);
    }
}

static void sum_rows(choir_tensor *y, int64_t at, const void *x, int64_t rows, int64_t cols)
{
    choir__k_sum args = {.x = x,
        .y = element(y, at),
        .rows = rows,
        .cols = cols,
        .scale = 1,
        .over_rows = true,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, sum, &args);
}

/* gb_ih = sum dA, and gb_hh the same; but the GRU's n has dU. */
static void biases(
    choir__record *r, const struct sizes *n, const struct direction *d, choir_tensor *const *g)
{
    int64_t rows = n->t * n->b, cols = n->g * n->h;
    const void *a = element(r->saved[SAVED_GATES], d->at * rows * cols);
    choir_tensor *first = g[B_IH] ? g[B_IH] : g[B_HH];
    if (!first)
        return;
    sum_rows(first, 0, a, rows, cols);
    if (g[B_HH] && g[B_HH] != first)
        choir__launch_copy(g[B_HH], first);
    if (g[B_HH] && n->cell == CHOIR__GRU)
        sum_rows(
            g[B_HH], 2 * n->h, element(r->saved[SAVED_STATE], d->at * rows * n->h), rows, n->h);
}

/* What needs all steps' dA: the weights' gradients, and x's. */
static void products_back(choir__record *r, const struct sizes *n, const struct direction *d,
    choir_tensor *w_ih, choir_tensor *gx, choir_tensor *const *g, const choir_tensor *h0)
{
    int64_t rows = n->t * n->b, cols = n->g * n->h;
    choir_tensor *x = r->saved[SAVED_X], *y = r->saved[SAVED_Y];
    choir_device *device = choir__device_of(x);
    bool gated = n->cell == CHOIR__GRU;
    struct matrix a = rows_at(r->saved[SAVED_GATES], d->at * rows * cols, cols);
    if (g[W_HH])
        hidden_weight(n, d, g[W_HH], 0, gated ? 2 * n->h : cols, a, y, h0);
    if (g[W_HH] && gated)
        hidden_weight(n, d, g[W_HH], 2 * n->h, n->h,
            rows_at(r->saved[SAVED_STATE], d->at * rows * n->h, n->h), y, h0);
    if (g[W_IH])
        product(device, x->dtype, rows_at(g[W_IH], 0, n->i), turned(a), rows_at(x, 0, n->i),
            NULL, cols, n->i, rows, false);
    biases(r, n, d, g);
    if (gx)
        product(device, x->dtype, rows_at(gx, 0, n->i), a, rows_at(w_ih, 0, n->i), NULL, rows,
            n->i, cols, d->at == 1);
}

static choir_tensor *state_gradient(
    choir__record *r, choir__sink *sink, int which, const struct sizes *n)
{
    choir_tensor *g = sink->dest(sink, r, which), *x = r->saved[SAVED_X];
    return g ? g
             : choir__tensor_new(
                   sink->scope, choir__device_of(x), x->dtype, choir_dims(n->d, n->b, n->h));
}

static void recurrent_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct sizes *n = r->attrs;
    choir_tensor *initial[2] = {NULL, NULL}, *g[MOST_IN] = {NULL};
    gy = choir__dense_rows(sink->scope, gy);
    for (int i = 0; i < 2; i++)
        if (r->in[H0 + i])
            initial[i] = choir__dense_rows(sink->scope, r->in[H0 + i]);
    choir_tensor *gh = state_gradient(r, sink, H0, n);
    choir_tensor *gc = n->cell == CHOIR__LSTM ? state_gradient(r, sink, C0, n) : NULL;
    choir_tensor *gx = sink->dest(sink, r, X);
    if (gy->poisoned || gh->poisoned || (gc && gc->poisoned) ||
        (initial[0] && initial[0]->poisoned) || (initial[1] && initial[1]->poisoned))
        return;
    for (int64_t at = 0; at < n->d; at++) {
        int base = WEIGHTS + A_DIRECTION * (int)at;
        struct direction d = {.at = at};
        choir_tensor *w_ih = choir__dense_rows(sink->scope, r->in[base + W_IH]);
        choir_tensor *w_hh = choir__dense_rows(sink->scope, r->in[base + W_HH]);
        if (w_ih->poisoned || w_hh->poisoned)
            return;
        for (int j = 0; j < A_DIRECTION; j++)
            g[base + j] = sink->dest(sink, r, base + j);
        step_back(r, n, &d, w_hh, gy, gh, gc, initial);
        products_back(r, n, &d, w_ih, gx, g + base, initial[0]);
        for (int j = A_DIRECTION - 1; j >= 0; j--)
            if (g[base + j])
                sink->give(sink, r, base + j, g[base + j]);
    }
    if (choir__wanted(r, H0))
        sink->give(sink, r, H0, gh);
    if (choir__wanted(r, C0))
        sink->give(sink, r, C0, gc);
    if (gx)
        sink->give(sink, r, X, gx);
}

enum { READS_WEIGHTS = 1 << W_IH | 1 << W_HH };

static const choir__op recurrent_op = {
    .name = "recurrent",
    .backward = recurrent_backward,
    .reads_in = 1 << X | 1 << H0 | 1 << C0 | READS_WEIGHTS << WEIGHTS |
                READS_WEIGHTS << (WEIGHTS + A_DIRECTION),
};

/* --- forward --- */

/* What is wrong with the operands; NULL: nothing. */
static const char *complaint(
    choir_cell cell, choir_tensor *const *in, int directions, struct sizes *n)
{
    const choir_tensor *x = in[X], *w = in[WEIGHTS + W_HH];
    if (x->shape.ndim != 3 || x->shape.dim[0] < 1 || x->shape.dim[1] < 1)
        return "wants x (T, B, I) of at least a step and a sample";
    for (int d = 0; d < directions; d++)
        if (!in[WEIGHTS + A_DIRECTION * d + W_IH] || !in[WEIGHTS + A_DIRECTION * d + W_HH])
            return "wants w_ih and w_hh of every direction";
    if (w->shape.ndim != 2 || w->shape.dim[1] < 1)
        return "wants w_hh (G H, H), with G = 4, 3 or 1 gates of an LSTM, GRU or plain cell";
    *n = (struct sizes){x->shape.dim[0], x->shape.dim[1], x->shape.dim[2], w->shape.dim[1],
        choir__cell_gates((choir__cell)cell), directions, (choir__cell)cell, false};
    choir_shape rows = choir_dims(n->g * n->h), state = choir_dims(n->d, n->b, n->h);
    choir_shape w_ih = choir_dims(n->g * n->h, n->i), w_hh = choir_dims(n->g * n->h, n->h);
    for (int i = 0; i < WEIGHTS + A_DIRECTION * directions; i++)
        if (in[i] && (in[i]->dtype != x->dtype || !choir__is_float(x->dtype)))
            return "wants one floating dtype";
    for (int i = H0; i <= C0; i++)
        if (in[i] && !choir__same_shape(in[i]->shape, state))
            return "wants initial states (D, B, H), D being 1, or 2 in both directions";
    if (in[C0] && cell != CHOIR_LSTM)
        return "only an LSTM has a cell state";
    for (int d = 0; d < directions; d++) {
        choir_tensor *const *of = in + WEIGHTS + A_DIRECTION * d;
        if (!choir__same_shape(of[W_IH]->shape, w_ih) ||
            !choir__same_shape(of[W_HH]->shape, w_hh))
            return "wants w_ih (G H, I) and w_hh (G H, H), with G = 4, 3 or 1 gates of an LSTM, "
                   "GRU or plain cell";
        if (!of[B_IH] != !of[B_HH] || (of[B_IH] && !choir__same_shape(of[B_IH]->shape, rows)) ||
            (of[B_HH] && !choir__same_shape(of[B_HH]->shape, rows)))
            return "wants b_ih and b_hh (G H), or neither";
    }
    return NULL;
}

/* The bias that goes in with x: both, but of the GRU b_ih alone. */
static choir_tensor *bias_of(choir_scope *scope, const struct sizes *n, choir_tensor *const *w)
{
    if (!w[B_IH])
        return NULL;
    choir_tensor *b = choir__dense_rows(scope, w[B_IH]);
    if (n->cell == CHOIR__GRU || b->poisoned)
        return b;
    choir_tensor *sum = choir__tensor_like(scope, b);
    if (!sum->poisoned)
        choir__launch_add(sum, b, w[B_HH]);
    return sum;
}

/* The GRU's b_hh, zeros if it has none; else NULL. */
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

/* The last h and c to behind y. */
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

/* One direction; false: out of memory, which the scope knows. */
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
    product(device, x->dtype, rows_at(gates, at * rows * cols, cols), rows_at(x, 0, n->i),
        turned(rows_at(w_ih, 0, n->i)), element(bias, 0), rows, cols, n->i, false);
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
    choir__launch(device, x->dtype, recurrent, &args);
    if (n->last)
        keep_last(y, state, n, &args);
    return true;
}

/* The whole layer on computed dtypes: (T, B, D H), with the last states flat behind it. */
static choir_tensor *layer(choir_scope *scope, choir_tensor *const *in, struct sizes n)
{
    choir_device *device = choir__device_of(in[X]);
    choir_dtype dtype = in[X]->dtype;
    bool lstm = n.cell == CHOIR__LSTM, has_state = lstm || n.cell == CHOIR__GRU;
    int64_t states = n.d * n.b * n.h;
    choir_shape shape = n.last ? choir_dims(n.t * states + (lstm ? 2 : 1) * states)
                               : choir_dims(n.t, n.b, n.d * n.h);
    choir_tensor *y = choir__tensor_new(scope, device, dtype, shape), *initial[2] = {NULL};
    choir_tensor *x = choir__dense_rows(scope, in[X]), *state = NULL;
    choir_tensor *gates =
        choir__tensor_new(scope, device, dtype, choir_dims(n.d, n.t, n.b, n.g * n.h));
    if (has_state)
        state = choir__tensor_new(scope, device, dtype, choir_dims(n.d, n.t, n.b, n.h));
    if (y->poisoned || x->poisoned || gates->poisoned || (state && state->poisoned))
        return y->poisoned ? y : x->poisoned ? x : gates->poisoned ? gates : state;
    for (int i = 0; i < 2; i++)
        if (in[H0 + i] && (initial[i] = choir__dense_rows(scope, in[H0 + i]))->poisoned)
            return initial[i];
    for (int64_t d = 0; d < n.d; d++)
        if (!forward(scope, &n, d, in + WEIGHTS + A_DIRECTION * d, x, initial, gates, state, y))
            return choir__poison(scope, CHOIR_ERR_MEMORY, "recurrent: no memory for a bias");
    choir__record *r = choir__record_op(&recurrent_op, y, in, WEIGHTS + A_DIRECTION * (int)n.d);
    if (r) {
        choir__record_attrs(r, &n, sizeof n);
        r->saved[SAVED_X] = x;
        r->saved[SAVED_Y] = y;
        r->saved[SAVED_GATES] = gates;
        r->saved[SAVED_STATE] = state;
    } else {
        choir__tensor_release(gates);
        if (state)
            choir__tensor_release(state);
    }
    return y;
}

choir_tensor *choir_recurrent(choir_cell cell, choir_tensor *x,
    const choir_cell_weights *weights, int directions, choir_cell_state initial,
    choir_cell_state *last)
{
    choir_dtype stored = x->dtype;
    choir_tensor *poisoned, *in[MOST_IN] = {x, initial.h, initial.c};
    if (last)
        *last = (choir_cell_state){NULL, NULL};
    if (directions < 1 || directions > 2 || (unsigned)cell >= CHOIR__CELL_COUNT)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "recurrent: there are 1 and 2 directions and %d cells, not %d directions of cell %d",
            (int)CHOIR__CELL_COUNT, directions, (int)cell);
    int count = WEIGHTS + A_DIRECTION * directions;
    for (int d = 0; d < directions; d++)
        memcpy(in + WEIGHTS + A_DIRECTION * d, &weights[d], sizeof weights[d]);
    for (int i = 0; i < count; i++)
        in[i] = in[i] ? choir__as_computed(in[i]) : NULL;
    choir_scope *scope = choir__begin("recurrent", in, count, &poisoned);
    struct sizes n;
    const char *why = scope ? complaint(cell, in, directions, &n) : NULL;
    if (!scope || why) {
        if (scope)
            poisoned = choir__shape_error("recurrent", scope, in, count, why);
        if (last)
            *last = (choir_cell_state){poisoned, cell == CHOIR_LSTM ? poisoned : NULL};
        return poisoned;
    }
    n.last = last != NULL;
    choir_tensor *y = choir__as_stored(layer(scope, in, n), stored);
    if (!last)
        return y;
    int64_t states = n.d * n.b * n.h, all = n.t * states;
    choir_shape shape = choir_dims(n.d, n.b, n.h);
    last->h = choir_reshape(choir_narrow(y, 0, all, states), shape);
    if (cell == CHOIR_LSTM)
        last->c = choir_reshape(choir_narrow(y, 0, all + states, states), shape);
    return choir_reshape(choir_narrow(y, 0, 0, all), choir_dims(n.t, n.b, n.d * n.h));
}
