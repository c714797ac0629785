/* Reference kernels for recurrent layers: one cell of one step and one sample at a time. */
#include "device/cpu/reference/reference.h"

static double sigmoid(double x)
{
    return 1 / (1 + choir__exp(-x));
}

/* Returns step i of the direction. */
static int64_t step_at(int64_t i, int64_t steps, bool reverse)
{
    return reverse ? steps - 1 - i : i;
}

/* Returns element c before step i of sample b: of y or state, or of the initial one. */
static double before(const void *initial, const void *all, int64_t row, int64_t i,
    int64_t steps, int64_t batch, int64_t b, int64_t width, int64_t c, bool reverse,
    choir_dtype dtype)
{
    if (i == 0)
        return get_or(initial, b * width + c, dtype, 0);
    return get(all, (step_at(i - 1, steps, reverse) * batch + b) * row + c, dtype);
}

#define H_BEFORE(c)                                                                            \
    before(k->h0, k->y, k->y_row, i, k->steps, k->batch, b, k->width, c, k->reverse, k->dtype)
#define C_BEFORE(c)                                                                            \
    before(k->c0, k->state, k->width, i, k->steps, k->batch, b, k->width, c, k->reverse,       \
        k->dtype)

/* sum_c h'[c] W_hh[j, c] + b_hh[j] */
static double hidden_sum(const choir__k_recurrent *k, int64_t i, int64_t b, int64_t j)
{
    double sum = get_or(k->b_hh, j, k->dtype, 0);
    for (int64_t c = 0; c < k->width; c++)
        sum += H_BEFORE(c) * get(k->w_hh, j * k->width + c, k->dtype);
    return sum;
}

/* Computes cell c; a[0 ... G) holds x on entry. */
static double cell(
    const choir__k_recurrent *k, int64_t i, int64_t b, int64_t c, double *a, double *state)
{
    int64_t h = k->width;
    double u[4] = {0};
    for (int64_t j = 0; j < choir__recurrent_cell_gates(k->cell); j++)
        u[j] = hidden_sum(k, i, b, j * h + c);
    switch (k->cell) {
    case CHOIR__LSTM:
        for (int j = 0; j < 4; j++)
            a[j] = j == 2 ? choir__tanh(a[j] + u[j]) : sigmoid(a[j] + u[j]);
        *state = a[1] * C_BEFORE(c) + a[0] * a[2];
        return a[3] * choir__tanh(*state);
    case CHOIR__GRU:
        a[0] = sigmoid(a[0] + u[0]);
        a[1] = sigmoid(a[1] + u[1]);
        *state = u[2];
        a[2] = choir__tanh(a[2] + a[0] * u[2]);
        return a[2] + a[1] * (H_BEFORE(c) - a[2]);
    case CHOIR__RNN_TANH: return choir__tanh(a[0] += u[0]);
    default: a[0] += u[0]; return a[0] < 0 ? 0 : a[0];
    }
}

void choir__reference_recurrent(const choir__k_recurrent *k)
{
    int64_t h = k->width, gates = choir__recurrent_cell_gates(k->cell);
    for (int64_t i = 0; i < k->steps; i++)
        for (int64_t b = 0; b < k->batch; b++)
            for (int64_t c = 0; c < h; c++) {
                int64_t row = step_at(i, k->steps, k->reverse) * k->batch + b;
                double a[4], state = 0;
                for (int64_t j = 0; j < gates; j++)
                    a[j] = get(k->gates, (row * gates + j) * h + c, k->dtype);
                put(k->y, row * k->y_row + c, k->dtype, cell(k, i, b, c, a, &state));
                for (int64_t j = 0; j < gates; j++)
                    put(k->gates, (row * gates + j) * h + c, k->dtype, a[j]);
                if (k->state)
                    put(k->state, row * h + c, k->dtype, state);
            }
}

/* --- backward --- */

/* Computes the gradients of cell c of a step. a: the gates on entry, the gradient of x on
 * return; *state: u or c on entry, the gradient of u on return; gh: the gradient of h on entry,
 * the gradient of h' without the product on return; gc likewise. */
static void cell_back(const choir__k_recurrent_backward *k, int64_t i, int64_t b, int64_t c,
    double y, double *a, double *state, double *gh, double *gc)
{
    double g = *gh, t, gn;
    *gh = 0;
    switch (k->cell) {
    case CHOIR__LSTM:
        t = choir__tanh(*state);
        *gc += g * a[3] * (1 - t * t);
        double in = a[0], forget = a[1];
        a[0] = *gc * a[2] * in * (1 - in);
        a[1] = *gc * C_BEFORE(c) * forget * (1 - forget);
        a[2] = *gc * in * (1 - a[2] * a[2]);
        a[3] = g * t * a[3] * (1 - a[3]);
        *gc *= forget;
        break;
    case CHOIR__GRU:
        gn = g * (1 - a[1]) * (1 - a[2] * a[2]);
        *gh = g * a[1];
        a[1] = g * (H_BEFORE(c) - a[2]) * a[1] * (1 - a[1]);
        a[2] = gn;
        t = *state;
        *state = gn * a[0];
        a[0] = gn * t * a[0] * (1 - a[0]);
        break;
    case CHOIR__RNN_TANH: a[0] = g * (1 - y * y); break;
    default: a[0] = y > 0 ? g : 0; break;
    }
}

/* gh[b, c] += sum_j dA[j] W_hh[j, c]; for the GRU's n, dA is u's gradient. */
static void hidden_back(const choir__k_recurrent_backward *k, int64_t row, int64_t b)
{
    int64_t h = k->width, gates = choir__recurrent_cell_gates(k->cell);
    for (int64_t c = 0; c < h; c++) {
        double sum = get(k->gh, b * h + c, k->dtype);
        for (int64_t j = 0; j < gates * h; j++) {
            bool of_u = k->cell == CHOIR__GRU && j >= 2 * h;
            double g = of_u ? get(k->state, row * h + j - 2 * h, k->dtype)
                            : get(k->gates, row * gates * h + j, k->dtype);
            sum += g * get(k->w_hh, j * h + c, k->dtype);
        }
        put(k->gh, b * h + c, k->dtype, sum);
    }
}

void choir__reference_recurrent_backward(const choir__k_recurrent_backward *k)
{
    int64_t h = k->width, gates = choir__recurrent_cell_gates(k->cell);
    for (int64_t i = k->steps - 1; i >= 0; i--)
        for (int64_t b = 0; b < k->batch; b++) {
            int64_t row = step_at(i, k->steps, k->reverse) * k->batch + b;
            for (int64_t c = 0; c < h; c++) {
                double a[4], y = get(k->y, row * k->y_row + c, k->dtype);
                double state = get_or(k->state, row * h + c, k->dtype, 0);
                double gh =
                    get(k->gh, b * h + c, k->dtype) + get(k->gy, row * k->y_row + c, k->dtype);
                double gc = get_or(k->gc, b * h + c, k->dtype, 0);
                for (int64_t j = 0; j < gates; j++)
                    a[j] = get(k->gates, (row * gates + j) * h + c, k->dtype);
                cell_back(k, i, b, c, y, a, &state, &gh, &gc);
                for (int64_t j = 0; j < gates; j++)
                    put(k->gates, (row * gates + j) * h + c, k->dtype, a[j]);
                if (k->state)
                    put(k->state, row * h + c, k->dtype, state);
                put(k->gh, b * h + c, k->dtype, gh);
                if (k->gc)
                    put(k->gc, b * h + c, k->dtype, gc);
            }
            if (i > 0 || k->h0)
                hidden_back(k, row, b);
        }
}
