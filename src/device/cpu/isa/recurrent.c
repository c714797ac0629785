/* Recurrent layers: a product and one pass over the gates, step after step.
 *
 *     step t:   A (B, G H) = X_t + H_t-1 W_hh^T;   gates = f(A);   C_t, H_t
 *     back:     dA out of dH, dC;   dH = dA W_hh
 *
 * A step's product is small and all steps share one matrix, which is packed once; its sum is
 * added directly to X_t. All work on a gate between two products is done in registers: a step
 * reads and writes its gates once. */
#include "device/cpu/isa/vector_math.h"
#include "device/cpu/isa/packed.h"

/* Pointers to one sample's row of one step, forward and backward. */
typedef struct row {
    float *gates;         /* G H */
    const float *u;       /* GRU: h' W_hh^T + b_hh, 3 H */
    const float *c0, *h0; /* states of the previous step; NULL: zeros */
    float *state, *y;     /* state and result of this step */
    const float *gy;      /* backward: the gradient of y */
    float *gh, *gc, *gu;  /* running gradients; gu: gradients of the GRU's 3 H sums */
} row;

typedef void step_fn(row r, int64_t c, int64_t left, int64_t width);

INLINE vec get_or_zero(const float *p, int64_t c, int64_t left)
{
    return p ? v_get(p + c, left) : (vec){0};
}

/* --- a vector of cells, forward --- */

INLINE void lstm(row r, int64_t c, int64_t left, int64_t width)
{
    float *at = r.gates + c;
    vec i = v_sigmoid(v_get(at, left)), f = v_sigmoid(v_get(at + width, left));
    vec g = v_tanh(v_get(at + 2 * width, left)), o = v_sigmoid(v_get(at + 3 * width, left));
    vec state = f * get_or_zero(r.c0, c, left) + i * g;
    v_put(at, i, left);
    v_put(at + width, f, left);
    v_put(at + 2 * width, g, left);
    v_put(at + 3 * width, o, left);
    v_put(r.state + c, state, left);
    v_put(r.y + c, o * v_tanh(state), left);
}

INLINE void gru(row r, int64_t c, int64_t left, int64_t width)
{
    float *at = r.gates + c;
    const float *u = r.u + c;
    vec reset = v_sigmoid(v_get(at, left) + v_get(u, left));
    vec z = v_sigmoid(v_get(at + width, left) + v_get(u + width, left));
    vec un = v_get(u + 2 * width, left);
    vec n = v_tanh(v_get(at + 2 * width, left) + reset * un);
    v_put(at, reset, left);
    v_put(at + width, z, left);
    v_put(at + 2 * width, n, left);
    v_put(r.state + c, un, left);
    v_put(r.y + c, n + z * (get_or_zero(r.h0, c, left) - n), left);
}

INLINE void rnn_tanh(row r, int64_t c, int64_t left, int64_t width)
{
    (void)width;
    v_put(r.y + c, v_tanh(v_get(r.gates + c, left)), left);
}

INLINE void rnn_relu(row r, int64_t c, int64_t left, int64_t width)
{
    (void)width;
    v_put(r.y + c, v_max(v_set(0.0f), v_get(r.gates + c, left)), left); /* NaN stays */
}

/* --- and backward: gh, gc are the gradients of this step's h and c, except gy --- */

INLINE void lstm_back(row r, int64_t c, int64_t left, int64_t width)
{
    float *at = r.gates + c;
    vec i = v_get(at, left), f = v_get(at + width, left);
    vec g = v_get(at + 2 * width, left), o = v_get(at + 3 * width, left);
    vec t = v_tanh(v_get(r.state + c, left));
    vec gh = v_get(r.gy + c, left) + v_get(r.gh + c, left);
    vec gc = v_get(r.gc + c, left) + gh * o * (1.0f - t * t);
    v_put(at, gc * g * (i * (1.0f - i)), left);
    v_put(at + width, gc * get_or_zero(r.c0, c, left) * (f * (1.0f - f)), left);
    v_put(at + 2 * width, gc * i * (1.0f - g * g), left);
    v_put(at + 3 * width, gh * t * (o * (1.0f - o)), left);
    v_put(r.gc + c, gc * f, left);
}

INLINE void gru_back(row r, int64_t c, int64_t left, int64_t width)
{
    float *at = r.gates + c, *gu = r.gu + c;
    vec reset = v_get(at, left), z = v_get(at + width, left), n = v_get(at + 2 * width, left);
    vec gh = v_get(r.gy + c, left) + v_get(r.gh + c, left);
    vec gn = gh * (1.0f - z) * (1.0f - n * n);
    vec gz = gh * (get_or_zero(r.h0, c, left) - n) * (z * (1.0f - z));
    vec gr = gn * v_get(r.state + c, left) * (reset * (1.0f - reset)), gun = gn * reset;
    v_put(at, gr, left);
    v_put(at + width, gz, left);
    v_put(at + 2 * width, gn, left);
    v_put(gu, gr, left);
    v_put(gu + width, gz, left);
    v_put(gu + 2 * width, gun, left);
    v_put(r.state + c, gun, left);
    v_put(r.gh + c, gh * z, left); /* the product is added to it */
}

INLINE void rnn_tanh_back(row r, int64_t c, int64_t left, int64_t width)
{
    (void)width;
    vec y = v_get(r.y + c, left), gh = v_get(r.gy + c, left) + v_get(r.gh + c, left);
    v_put(r.gates + c, gh * (1.0f - y * y), left);
}

INLINE void rnn_relu_back(row r, int64_t c, int64_t left, int64_t width)
{
    (void)width;
    vec y = v_get(r.y + c, left), gh = v_get(r.gy + c, left) + v_get(r.gh + c, left);
    v_put(r.gates + c, v_sel(v_gt(y, v_set(0.0f)), gh, v_set(0.0f)), left);
}

/* --- a step: the rows of all samples --- */

typedef struct place {
    int64_t t, before; /* this step, and the previous one in the direction; -1: none */
} place;

/* Returns step i of the direction. */
static place place_of(int64_t i, int64_t steps, bool reverse)
{
    int64_t t = reverse ? steps - 1 - i : i;
    return (place){t, i == 0 ? -1 : reverse ? t + 1 : t - 1};
}

static const float *row_of(const void *p, int64_t i, int64_t width)
{
    return p ? (const float *)p + i * width : NULL;
}

/* Returns all samples' h of the previous step, and the distance of its rows; NULL: zeros. */
static const float *hidden_before(const void *y, const void *h0, place at, int64_t batch,
    int64_t width, int64_t y_row, int64_t *apart)
{
    *apart = at.before < 0 ? width : y_row;
    return at.before < 0 ? h0 : row_of(y, at.before * batch, y_row);
}

INLINE void forward_step(const choir__k_recurrent *k, place at, const float *u, step_fn *cell)
{
    int64_t h = k->width, g = choir__recurrent_cell_gates(k->cell) * h, apart;
    const float *h0 = hidden_before(k->y, k->h0, at, k->batch, h, k->y_row, &apart);
    const float *c0 = at.before < 0 ? k->c0 : row_of(k->state, at.before * k->batch, h);
    for (int64_t b = 0; b < k->batch; b++) {
        int64_t i = at.t * k->batch + b;
        row r = {.gates = (float *)k->gates + i * g,
            .u = row_of(u, b, g),
            .c0 = row_of(c0, b, h),
            .h0 = row_of(h0, b, apart),
            .state = (float *)row_of(k->state, i, h),
            .y = (float *)k->y + i * k->y_row};
        for (int64_t c = 0; c < h; c += W)
            cell(r, c, h - c, h);
    }
}

INLINE void backward_step(
    const choir__k_recurrent_backward *k, place at, float *gu, step_fn *cell)
{
    int64_t h = k->width, g = choir__recurrent_cell_gates(k->cell) * h, apart;
    const float *h0 = hidden_before(k->y, k->h0, at, k->batch, h, k->y_row, &apart);
    const float *c0 = at.before < 0 ? k->c0 : row_of(k->state, at.before * k->batch, h);
    for (int64_t b = 0; b < k->batch; b++) {
        int64_t i = at.t * k->batch + b;
        row r = {.gates = (float *)k->gates + i * g,
            .c0 = row_of(c0, b, h),
            .h0 = row_of(h0, b, apart),
            .state = (float *)row_of(k->state, i, h),
            .y = (float *)k->y + i * k->y_row,
            .gy = (const float *)k->gy + i * k->y_row,
            .gh = (float *)k->gh + b * h,
            .gc = (float *)row_of(k->gc, b, h),
            .gu = (float *)row_of(gu, b, g)};
        for (int64_t c = 0; c < h; c += W)
            cell(r, c, h - c, h);
    }
}

/* --- the sequence --- */

/* Sets u = b_hh, if the hidden state is zero and no product is needed. */
static void bias_alone(const choir__k_recurrent *k, float *u, int64_t g)
{
    for (int64_t b = 0; b < k->batch; b++)
        memcpy(u + b * g, k->b_hh, (size_t)g * sizeof *u);
}

/* Returns h0 with its rows as far apart as y's, so that all steps use one packed product. */
static const float *spread(const choir__k_recurrent *k, float *rows)
{
    for (int64_t b = 0; b < k->batch; b++)
        memcpy(
            rows + b * k->y_row, row_of(k->h0, b, k->width), (size_t)k->width * sizeof *rows);
    return rows;
}

void KERNEL(recurrent)(const choir__k_recurrent *k)
{
    F32_ONLY(recurrent, k);
    bool gated = k->cell == CHOIR__GRU, apart = k->h0 && k->y_row != k->width;
    int64_t g = choir__recurrent_cell_gates(k->cell) * k->width;
    choir__k_matmul product =
        choir__product_of(CHOIR_F32, choir__rows_at(NULL, g), choir__rows_at(NULL, k->y_row),
            choir__transposed(choir__rows_at(k->w_hh, k->width)), k->batch, g, k->width);
    product.bias = gated ? k->b_hh : NULL;
    product.accumulate = !gated;
    int64_t sums = gated ? k->batch * g : 0, initial = apart ? k->batch * k->y_row : 0;
    packed_product packed;
    packed_open(&packed, &product, (size_t)(sums + initial) * sizeof(float));
    float *u = gated ? packed.extra : NULL;
    const float *h0 = apart ? spread(k, (float *)packed.extra + sums) : k->h0;
    for (int64_t i = 0; i < k->steps; i++) {
        place at = place_of(i, k->steps, k->reverse);
        product.a = at.before < 0 ? h0 : row_of(k->y, at.before * k->batch, k->y_row);
        product.c = gated ? u : (float *)k->gates + at.t * k->batch * g;
        if (product.a)
            packed_matmul(&packed, &product);
        else if (gated)
            bias_alone(k, u, g);
        switch (k->cell) {
        case CHOIR__LSTM: forward_step(k, at, u, lstm); break;
        case CHOIR__GRU: forward_step(k, at, u, gru); break;
        case CHOIR__RNN_TANH: forward_step(k, at, u, rnn_tanh); break;
        case CHOIR__RNN_RELU: forward_step(k, at, u, rnn_relu); break;
        case CHOIR__CELL_COUNT: break;
        }
    }
}

void KERNEL(recurrent_backward)(const choir__k_recurrent_backward *k)
{
    F32_ONLY(recurrent_backward, k);
    bool gated = k->cell == CHOIR__GRU;
    int64_t g = choir__recurrent_cell_gates(k->cell) * k->width;
    choir__k_matmul product = choir__product_of(CHOIR_F32, choir__rows_at(k->gh, k->width),
        choir__rows_at(NULL, g), choir__rows_at(k->w_hh, k->width), k->batch, k->width, g);
    product.accumulate = gated;
    packed_product packed;
    packed_open(&packed, &product, gated ? (size_t)(k->batch * g) * sizeof(float) : 0);
    float *gu = gated ? packed.extra : NULL;
    for (int64_t i = k->steps - 1; i >= 0; i--) {
        place at = place_of(i, k->steps, k->reverse);
        switch (k->cell) {
        case CHOIR__LSTM: backward_step(k, at, gu, lstm_back); break;
        case CHOIR__GRU: backward_step(k, at, gu, gru_back); break;
        case CHOIR__RNN_TANH: backward_step(k, at, gu, rnn_tanh_back); break;
        case CHOIR__RNN_RELU: backward_step(k, at, gu, rnn_relu_back); break;
        case CHOIR__CELL_COUNT: break;
        }
        product.a = gated ? gu : (const float *)k->gates + at.t * k->batch * g;
        if (i > 0 || k->h0)
            packed_matmul(&packed, &product);
    }
}
