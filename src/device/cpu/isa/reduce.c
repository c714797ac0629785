/* Sums and maxima of a matrix, along rows or down columns. */
#include "device/cpu/isa/isa.h"

static void sum_rows(const choir__k_sum *k)
{
    float *y = k->y, scale = (float)k->scale;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * row;
        vec sum[L] = {{0}};
        for (int64_t c = 0; c < k->cols; c += 16)
            LANES(j) sum[j] += v_get(x + c + j * W, k->cols - c - j * W);
        y[r] = lanes_sum(sum) * scale;
    }
}

/* Sums BLOCK vectors of columns at a time, in registers, down all rows. */
enum { BLOCK = 8 };

static void sum_columns(const choir__k_sum *k)
{
    const float *x = k->x;
    float *y = k->y, scale = (float)k->scale;
    int64_t c = 0, row = choir__row_step(k->row, k->cols);
    for (; c + BLOCK * W <= k->cols; c += BLOCK * W) {
        vec sum[BLOCK] = {{0}};
        for (int64_t r = 0; r < k->rows; r++)
            for (int j = 0; j < BLOCK; j++)
                sum[j] += v_load(x + r * row + c + j * W);
        for (int j = 0; j < BLOCK; j++)
            v_store(y + c + j * W, sum[j] * scale);
    }
    for (; c < k->cols; c += W) {
        vec sum = {0};
        for (int64_t r = 0; r < k->rows; r++)
            sum += v_get(x + r * row + c, k->cols - c);
        v_put(y + c, sum * scale, k->cols - c);
    }
}

void KERNEL(sum)(const choir__k_sum *k)
{
    F32_ONLY(sum, k);
    if (k->over_rows)
        sum_columns(k);
    else
        sum_rows(k);
}

static int64_t first_equal(const float *x, int64_t n, float value)
{
    vec v = v_set(value), other = v_set(value < 0 ? 1.0f : -1.0f);
    int64_t c = 0;
    while (c < n && !v_any(v_eq(v_get_or(x + c, n - c, other), v)))
        c += W;
    while (c < n && !(x[c] == value))
        c++;
    return c < n ? c : 0;
}

void KERNEL(max_rows)(const choir__k_max_rows *k)
{
    F32_ONLY(max_rows, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * k->cols;
        vec max[L];
        LANES(j) max[j] = v_set(-INFINITY);
        for (int64_t c = 0; c < k->cols; c += 16)
            LANES(j)
        max[j] = v_max(max[j], v_get_or(x + c + j * W, k->cols - c - j * W, v_set(-INFINITY)));
        float value = lanes_max(max);
        if (k->y)
            ((float *)k->y)[r] = value;
        if (k->index)
            k->index[r] = first_equal(x, k->cols, value) + k->first;
    }
}
