/* Backward of recurrent layers. First the gates are turned into their gradients dA, step by
 * step from the end; x and the initial states wait for this. Then each weight has one product
 * over all steps, which may run later. */
#include "tensor/launch.h"
#include "tensor/ops/recurrent.h"

/* Writes the gradients of the last state, or zeros, into the memory where the kernel makes the
 * gradients of the initial state. */
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

static void step_back(choir__tape_entry *r, const struct sizes *n, int64_t at,
    choir_tensor *w_hh, choir_tensor *gy, choir_tensor *gh, choir_tensor *gc,
    choir_tensor *initial[2])
{
    int64_t rows = n->t * n->b, first = at * n->b * n->h;
    choir_tensor *y = r->saved[SAVED_Y], *state = r->saved[SAVED_STATE];
    begin_state(gh, n, gy, 0, at);
    if (gc)
        begin_state(gc, n, gy, 1, at);
    choir__k_recurrent_backward args = {.w_hh = choir__data(w_hh),
        .h0 = element(initial[0], first),
        .c0 = element(initial[1], first),
        .y = element(y, at * n->h),
        .gy = element(gy, at * n->h),
        .gates = element(r->saved[SAVED_GATES], at * rows * n->g * n->h),
        .state = element(state, at * rows * n->h),
        .gh = element(gh, first),
        .gc = element(gc, first),
        .steps = n->t,
        .batch = n->b,
        .width = n->h,
        .y_row = n->d * n->h,
        .cell = n->cell,
        .reverse = at == 1,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, recurrent_backward, &args);
}

/* Computes rows [row, row + count) of gW_hh = dA^T h'; dA is `count` columns wide at a. All
 * steps use the previous y, except for the direction's first, which uses h0. */
static void hidden_weight(const struct sizes *n, int64_t at, choir_tensor *gw, int64_t row,
    int64_t count, choir__matrix a, const choir_tensor *y, const choir_tensor *h0)
{
    choir_device *device = choir__device_of(gw);
    choir_dtype dtype = y->dtype, to = gw->dtype; /* f32 for a parameter */
    int64_t k = (n->t - 1) * n->b, y_row = n->d * n->h;
    size_t size = choir_dtype_size(dtype);
    choir__matrix c = rows_at(gw, row * n->h, n->h), later = a, first = a;
    choir__matrix before = rows_at(y, at * n->h + (at ? n->b * y_row : 0), y_row);
    if (at)
        first.p = (char *)a.p + (size_t)(k * a.row) * size;
    else
        later.p = (char *)a.p + (size_t)(n->b * a.row) * size;
    if (k)
        product(device, dtype, to, c, choir__transposed(later), before, NULL, count, n->h, k,
            false);
    if (h0)
        product(device, dtype, to, c, choir__transposed(first),
            rows_at(h0, at * n->b * n->h, n->h), NULL, count, n->h, n->b, k > 0);
    if (!k && !h0) {
        choir__k_fill args = {.y = c.p, .n = count * n->h, .dtype = gw->dtype};
        choir__launch(device, gw->dtype, fill, &args);
    }
}

static void sum_rows(
    choir_tensor *y, int64_t at, choir_dtype dtype, const void *x, int64_t rows, int64_t cols)
{
    choir__k_sum args = {.x = x,
        .y = element(y, at),
        .rows = rows,
        .cols = cols,
        .scale = 1,
        .over_rows = true,
        .wide = y->dtype != dtype,
        .dtype = dtype};
    choir__launch(choir__device_of(y), dtype, sum, &args);
}

/* Computes gb_ih = gb_hh = sum dA; for the GRU's n, gb_hh is the sum of dU. */
static void biases(
    choir__tape_entry *r, const struct sizes *n, int64_t at, choir_tensor *const *g)
{
    int64_t rows = n->t * n->b, cols = n->g * n->h;
    choir_tensor *gates = r->saved[SAVED_GATES], *state = r->saved[SAVED_STATE];
    choir_tensor *first = g[B_IH] ? g[B_IH] : g[B_HH];
    if (!first)
        return;
    sum_rows(first, 0, gates->dtype, element(gates, at * rows * cols), rows, cols);
    if (g[B_HH] && g[B_HH] != first)
        choir__launch_copy(g[B_HH], first);
    if (g[B_HH] && n->cell == CHOIR__GRU)
        sum_rows(g[B_HH], 2 * n->h, state->dtype, element(state, at * rows * n->h), rows, n->h);
}

/* Computes the weights' gradients from all steps' dA. */
static void weights_back(choir__tape_entry *r, const struct sizes *n, int64_t at,
    choir_tensor *const *g, const choir_tensor *h0)
{
    int64_t rows = n->t * n->b, cols = n->g * n->h;
    choir_tensor *x = r->saved[SAVED_X], *y = r->saved[SAVED_Y];
    bool gated = n->cell == CHOIR__GRU;
    choir__matrix a = rows_at(r->saved[SAVED_GATES], at * rows * cols, cols);
    if (g[W_HH])
        hidden_weight(n, at, g[W_HH], 0, gated ? 2 * n->h : cols, a, y, h0);
    if (g[W_HH] && gated)
        hidden_weight(n, at, g[W_HH], 2 * n->h, n->h,
            rows_at(r->saved[SAVED_STATE], at * rows * n->h, n->h), y, h0);
    if (g[W_IH])
        product(choir__device_of(x), x->dtype, g[W_IH]->dtype, rows_at(g[W_IH], 0, n->i),
            choir__transposed(a), rows_at(x, 0, n->i), NULL, cols, n->i, rows, false);
    biases(r, n, at, g);
}

static choir_tensor *state_gradient(
    choir__tape_entry *r, choir__sink *sink, int which, const struct sizes *n)
{
    choir_tensor *g = sink->dest(sink, r, which), *x = r->saved[SAVED_X];
    return g && g->dtype == x->dtype ? g
                                     : choir__tensor_new(sink->scope, choir__device_of(x),
                                           x->dtype, choir_dims(n->d, n->b, n->h));
}

/* Makes the given initial states row-major. Returns false if memory runs out. */
static bool initial_states(choir__tape_entry *r, choir_scope *scope, choir_tensor *initial[2])
{
    for (int i = 0; i < 2; i++) {
        initial[i] = r->in[H0 + i] ? choir__dense_rows(scope, r->in[H0 + i]) : NULL;
        if (initial[i] && initial[i]->poisoned)
            return false;
    }
    return true;
}

/* Runs step by step and computes the gradients of x and of the initial states. It runs even if
 * none of these is needed, because dA replaces the gates in their memory. */
void choir__recurrent_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct sizes *n = r->attrs;
    int64_t rows = n->t * n->b, cols = n->g * n->h;
    choir_tensor *x = r->saved[SAVED_X], *initial[2];
    gy = choir__dense_rows(sink->scope, gy);
    choir_tensor *gh = state_gradient(r, sink, H0, n);
    choir_tensor *gc = n->cell == CHOIR__LSTM ? state_gradient(r, sink, C0, n) : NULL;
    choir_tensor *gx = sink->dest(sink, r, X);
    if (!initial_states(r, sink->scope, initial) || gy->poisoned || gh->poisoned ||
        (gc && gc->poisoned))
        return;
    for (int64_t at = 0; at < n->d; at++) {
        int base = WEIGHTS + A_DIRECTION * (int)at;
        choir_tensor *w_ih = choir__dense_rows(sink->scope, r->in[base + W_IH]);
        choir_tensor *w_hh = choir__dense_rows(sink->scope, r->in[base + W_HH]);
        if (w_ih->poisoned || w_hh->poisoned)
            return;
        step_back(r, n, at, w_hh, gy, gh, gc, initial);
        if (gx)
            product(choir__device_of(x), x->dtype, gx->dtype, rows_at(gx, 0, n->i),
                rows_at(r->saved[SAVED_GATES], at * rows * cols, cols), rows_at(w_ih, 0, n->i),
                NULL, rows, n->i, cols, at == 1);
    }
    if (choir__wanted(r, H0))
        sink->give(sink, r, H0, gh);
    if (choir__wanted(r, C0))
        sink->give(sink, r, C0, gc);
    if (gx)
        sink->give(sink, r, X, gx);
}

void choir__recurrent_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct sizes *n = r->attrs;
    choir_tensor *initial[2];
    (void)gy; /* dA contains it */
    if (!initial_states(r, sink->scope, initial))
        return;
    for (int64_t at = 0; at < n->d; at++) {
        int base = WEIGHTS + A_DIRECTION * (int)at;
        choir_tensor *g[A_DIRECTION];
        for (int j = 0; j < A_DIRECTION; j++)
            g[j] = sink->dest(sink, r, base + j);
        weights_back(r, n, at, g, initial[0]);
        for (int j = A_DIRECTION - 1; j >= 0; j--)
            if (g[j])
                sink->give(sink, r, base + j, g[j]);
    }
}
