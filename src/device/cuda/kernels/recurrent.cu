/* Recurrent layers: per step a product by the library and one kernel for the cells.
 *
 * The steps follow each other on the stream, and the host waits for nothing in between, so they
 * are captured like any other kernel: in a recorded step the graph absorbs the cost of 2 T
 * launches.
 *
 * In the forward the product h' W_hh^T (B, G H) goes to scratch memory, in f32 if the operands
 * have 16 bits, and the cells' kernel adds x to it: a sum is rounded once, when the gate is
 * stored. In the backward the cells' kernel writes the gates' gradients, and the product adds
 * dA W_hh to gh. The GRU's n uses the gradient of u in place of dA; its row is assembled in
 * scratch memory.
 *
 * cuDNN's recurrent nets do not fit this table: they take a whole layer, W_ih, W_hh and both
 * directions in one packed block of weights, and keep the backward's operands in a reserve of
 * their own. Here x W_ih^T is one product over all steps beforehand, which is as good; theirs
 * would add a persistent kernel that keeps W_hh on the chip. */
#include "device/cuda/kit/kernel.cuh"
#include "device/cuda/kernels/matmul.h"

enum { SUM_SLOT };

/* One step of all samples: cell (b, c) of (B, H). */
typedef struct cells_args {
    void *gates, *state;   /* (B, G H), (B, H), of this step */
    void *y;               /* rows y_row apart */
    const void *h, *c;     /* h', rows h_row apart, and c'; NULL: zeros */
    const void *gy, *b_hh; /* gy for the backward, b_hh for the forward */
    void *gh, *gc;         /* backward */
    void *sum;             /* forward: h' W_hh^T, NULL: 0; backward: the GRU's dA */
    int64_t batch, width, g, y_row, h_row; /* g: gates per cell */
    choir__recurrent_cell cell;
} cells_args;

/* --- forward --- */

template <class T> static __global__ void step_forward(cells_args k)
{
    typedef wide<T> V;
    int64_t n = k.width, gates = k.g;
    for (int64_t i = first_thread(); i < k.batch * n; i += all_threads()) {
        int64_t b = i / n, c = i % n;
        T *gate = (T *)k.gates + b * gates * n + c;
        V a[4], u[4], y;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool there = j < gates;
            a[j] = there ? get(gate + j * n) : V(0);
            u[j] = there && k.sum ? ((const V *)k.sum)[(b * gates + j) * n + c] : V(0);
            u[j] += there && k.b_hh ? get((const T *)k.b_hh + j * n + c) : V(0);
        }
        if (k.cell == CHOIR__LSTM) {
            V before = k.c ? get((const T *)k.c + i) : V(0);
            a[0] = sigmoid(a[0] + u[0]);
            a[1] = sigmoid(a[1] + u[1]);
            a[2] = tanh(a[2] + u[2]);
            a[3] = sigmoid(a[3] + u[3]);
            V state = a[1] * before + a[0] * a[2];
            put((T *)k.state + i, state);
            y = a[3] * tanh(state);
        } else if (k.cell == CHOIR__GRU) {
            V before = k.h ? get((const T *)k.h + b * k.h_row + c) : V(0);
            a[0] = sigmoid(a[0] + u[0]);
            a[1] = sigmoid(a[1] + u[1]);
            put((T *)k.state + i, u[2]);
            a[2] = tanh(a[2] + a[0] * u[2]);
            y = a[2] + a[1] * (before - a[2]);
        } else {
            a[0] += u[0];
            y = k.cell == CHOIR__RNN_TANH ? V(tanh(a[0])) : a[0] < 0 ? V(0) : a[0];
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < gates)
                put(gate + j * n, a[j]);
        put((T *)k.y + b * k.y_row + c, y);
    }
}

/* The layout of steps in one kernel's arguments. */
typedef struct sequence {
    int64_t steps, batch, width, y_row;
    bool reverse;
    size_t size; /* bytes per element */
} sequence;

static const char *at(const void *p, int64_t element, const sequence *s)
{
    return p ? (const char *)p + (size_t)element * s->size : NULL;
}

/* Returns the row of sample 0 at step i of the direction. */
static int64_t row_of(const sequence *s, int64_t i)
{
    return (s->reverse ? s->steps - 1 - i : i) * s->batch;
}

/* Returns the pointers for step i that forward and backward share. */
static cells_args step_of(const sequence *s, choir__recurrent_cell cell, int64_t i, void *gates,
    void *state, const void *y, const void *h0, const void *c0)
{
    int64_t n = s->width, row = row_of(s, i), last = i ? row_of(s, i - 1) : 0;
    cells_args k = {};
    k.g = choir__recurrent_cell_gates(cell);
    k.gates = (void *)at(gates, row * k.g * n, s);
    k.state = (void *)at(state, row * n, s);
    k.y = (void *)at(y, row * s->y_row, s);
    k.h = i ? at(y, last * s->y_row, s) : (const char *)h0;
    k.h_row = i ? s->y_row : n;
    k.c = i ? at(state, last * n, s) : (const char *)c0;
    k.batch = s->batch, k.width = n, k.y_row = s->y_row, k.cell = cell;
    return k;
}

template <class K> static sequence sequence_of(const K *k)
{
    return {k->steps, k->batch, k->width, k->y_row, k->reverse, choir_dtype_size(k->dtype)};
}

extern "C" void choir__cuda_recurrent(const choir__k_recurrent *k)
{
    sequence s = sequence_of(k);
    int64_t wide_gates = choir__recurrent_cell_gates(k->cell) * k->width;
    size_t of_sum = wide_size(k->dtype);
    if (!k->steps || !k->batch || !k->width)
        return;
    void *sum = choir__cuda_scratch(SUM_SLOT, (size_t)(k->batch * wide_gates) * of_sum);
    for (int64_t i = 0; sum && i < k->steps; i++) {
        cells_args args = step_of(&s, k->cell, i, k->gates, k->state, k->y, k->h0, k->c0);
        args.b_hh = k->b_hh;
        if (args.h) {
            choir__k_matmul p = choir__product(k->dtype, k->batch, wide_gates, k->width);
            p.a = args.h, p.a_row = args.h_row;
            p.b = k->w_hh, p.b_row = 1, p.b_col = k->width;
            p.c = args.sum = sum;
            p.wide = of_sum != s.size;
            choir__cuda_matmul(&p);
        }
        choose(k->dtype, [&](auto t) {
            launch(step_forward<decltype(t)>, grid_for(k->batch * k->width), BLOCK, 0, args);
        });
    }
}

/* --- backward --- */

template <class T> static __global__ void step_backward(cells_args k)
{
    typedef wide<T> V;
    int64_t n = k.width, gates = k.g;
    for (int64_t i = first_thread(); i < k.batch * n; i += all_threads()) {
        int64_t b = i / n, c = i % n;
        T *gate = (T *)k.gates + b * gates * n + c;
        V g = get((const T *)k.gh + i) + get((const T *)k.gy + b * k.y_row + c), beside = 0;
        V a[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = j < gates ? get(gate + j * n) : V(0);
        if (k.cell == CHOIR__LSTM) {
            V before = k.c ? get((const T *)k.c + i) : V(0);
            V t = tanh(get((const T *)k.state + i)), in = a[0], forget = a[1];
            V gc = get((const T *)k.gc + i) + g * a[3] * (1 - t * t);
            a[0] = gc * a[2] * in * (1 - in);
            a[1] = gc * before * forget * (1 - forget);
            a[2] = gc * in * (1 - a[2] * a[2]);
            a[3] = g * t * a[3] * (1 - a[3]);
            put((T *)k.gc + i, gc * forget);
        } else if (k.cell == CHOIR__GRU) {
            V before = k.h ? get((const T *)k.h + b * k.h_row + c) : V(0);
            V u = get((const T *)k.state + i), gn = g * (1 - a[1]) * (1 - a[2] * a[2]);
            V gu = gn * a[0];
            beside = g * a[1];
            a[1] = g * (before - a[2]) * a[1] * (1 - a[1]);
            a[2] = gn;
            a[0] = gn * u * a[0] * (1 - a[0]);
            put((T *)k.state + i, gu);
            T *row = (T *)k.sum + b * gates * n + c;
            put(row, a[0]);
            put(row + n, a[1]);
            put(row + 2 * n, gu);
        } else {
            V y = get((const T *)k.y + b * k.y_row + c);
            a[0] = k.cell == CHOIR__RNN_TANH ? g * (1 - y * y) : y > 0 ? g : V(0);
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < gates)
                put(gate + j * n, a[j]);
        put((T *)k.gh + i, beside);
    }
}

extern "C" void choir__cuda_recurrent_backward(const choir__k_recurrent_backward *k)
{
    sequence s = sequence_of(k);
    int64_t wide_gates = choir__recurrent_cell_gates(k->cell) * k->width;
    bool gru = k->cell == CHOIR__GRU;
    void *row = NULL;
    if (!k->steps || !k->batch || !k->width)
        return;
    if (gru && !(row = choir__cuda_scratch(SUM_SLOT, (size_t)(k->batch * wide_gates) * s.size)))
        return;
    for (int64_t i = k->steps - 1; i >= 0; i--) {
        cells_args args = step_of(&s, k->cell, i, k->gates, k->state, k->y, k->h0, k->c0);
        args.gy = at(k->gy, row_of(&s, i) * k->y_row, &s);
        args.gh = k->gh, args.gc = k->gc, args.sum = row;
        choose(k->dtype, [&](auto t) {
            launch(step_backward<decltype(t)>, grid_for(k->batch * k->width), BLOCK, 0, args);
        });
        if (!i && !k->h0)
            break;
        choir__k_matmul p = choir__product(k->dtype, k->batch, k->width, wide_gates);
        p.a = gru ? row : args.gates;
        p.b = k->w_hh, p.b_row = k->width, p.b_col = 1;
        p.c = k->gh, p.accumulate = true;
        choir__cuda_matmul(&p);
    }
}
