/* Softmax and its gradient, row by row: the largest of a row, then exponentials and their sum,
 * then the quotients, or for log softmax the differences. Sums have 16 lanes, whatever the
 * width of a vector. */
#include "device/cpu/isa/vector_math.h"

INLINE void forward(const float *x, float *y, int64_t n, bool log)
{
    vec max[L], sum[L] = {{0}}, low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t left = n - c - j * W;
            max[j] = v_max(max[j], v_get_or(x + c + j * W, left, low));
        }
    float top = lanes_max(max);
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t left = n - c - j * W;
            vec z = v_get(x + c + j * W, left) - top, e = v_exp_below(z);
            v_put(y + c + j * W, log ? z : e, left);
            sum[j] += v_keep(e, left, (vec){0});
        }
    float total = lanes_sum(sum);
    if (log) {
        float shift = v_log(v_set(total))[0];
        for (int64_t c = 0; c < n; c += W)
            v_put(y + c, v_get(y + c, n - c) - shift, n - c);
    } else {
        float inverse = 1.0f / total;
        for (int64_t c = 0; c < n; c += W)
            v_put(y + c, v_get(y + c, n - c) * inverse, n - c);
    }
}

void KERNEL(softmax)(const choir__k_softmax *k)
{
    F32_ONLY(softmax, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * k->cols;
        float *y = (float *)k->y + r * k->cols;
        if (k->log)
            forward(x, y, k->cols, true);
        else
            forward(x, y, k->cols, false);
    }
}

static void backward(const float *y, const float *gy, float *gx, int64_t n)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
    sum[j] += v_get(y + c + j * W, n - c - j * W) * v_get(gy + c + j * W, n - c - j * W);
    float dot = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += W)
        v_put(gx + c, v_get(y + c, n - c) * (v_get(gy + c, n - c) - dot), n - c);
}

static void log_backward(const float *y, const float *gy, float *gx, int64_t n)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j) sum[j] += v_get(gy + c + j * W, n - c - j * W);
    float total = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += W) {
        vec p = v_exp_below(v_get(y + c, n - c));
        v_put(gx + c, v_get(gy + c, n - c) - p * total, n - c);
    }
}

void KERNEL(softmax_backward)(const choir__k_softmax_backward *k)
{
    F32_ONLY(softmax_backward, k);
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t at = r * k->cols;
        const float *y = (const float *)k->y + at, *gy = (const float *)k->gy + at;
        if (k->log)
            log_backward(y, gy, (float *)k->gx + at, k->cols);
        else
            backward(y, gy, (float *)k->gx + at, k->cols);
    }
}
