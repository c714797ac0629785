/* Softmax and its gradient, row by row. A causal row r sees columns 0 ... r % period: only
 * those are read, and the rest is written as 0. */
#include "device/cpu/isa/math.h"

static int64_t seen(int64_t r, int64_t cols, int64_t period, bool causal)
{
    return causal ? choir__min(cols, r % period + 1) : cols;
}

static void clear(float *y, int64_t from, int64_t cols)
{
    for (int64_t c = from; c < cols; c += W)
        v_put(y + c, (vec){0}, cols - c);
}

INLINE void forward(const float *x, float *y, int64_t n, float scale, bool log)
{
    vec max[L], sum[L] = {{0}}, low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t left = n - c - j * W;
            vec z = v_get(x + c + j * W, left) * scale;
            max[j] = v_max(max[j], v_keep(z, left, low));
        }
    float top = lanes_max(max);
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t left = n - c - j * W;
            vec z = v_get(x + c + j * W, left) * scale - top, e = v_exp_below(z);
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
        int64_t n = seen(r, k->cols, k->period, k->causal);
        float *y = (float *)k->y + r * k->cols;
        const float *x = (const float *)k->x + r * k->cols;
        if (k->log)
            forward(x, y, n, k->scale, true);
        else
            forward(x, y, n, k->scale, false);
        clear(y, n, k->cols);
    }
}

static void backward(const float *y, const float *gy, float *gx, int64_t n, float scale)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
    sum[j] += v_get(y + c + j * W, n - c - j * W) * v_get(gy + c + j * W, n - c - j * W);
    float dot = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += W) {
        vec g = v_get(gy + c, n - c) - dot;
        v_put(gx + c, v_get(y + c, n - c) * g * scale, n - c);
    }
}

static void log_backward(const float *y, const float *gy, float *gx, int64_t n, float scale)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j) sum[j] += v_get(gy + c + j * W, n - c - j * W);
    float total = lanes_sum(sum);
    for (int64_t c = 0; c < n; c += W) {
        vec p = v_exp_below(v_get(y + c, n - c));
        v_put(gx + c, (v_get(gy + c, n - c) - p * total) * scale, n - c);
    }
}

void KERNEL(softmax_backward)(const choir__k_softmax_backward *k)
{
    F32_ONLY(softmax_backward, k);
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t n = seen(r, k->cols, k->period, k->causal), at = r * k->cols;
        const float *y = (const float *)k->y + at, *gy = (const float *)k->gy + at;
        float *gx = (float *)k->gx + at;
        if (k->log)
            log_backward(y, gy, gx, n, k->scale);
        else
            backward(y, gy, gx, n, k->scale);
        clear(gx, n, k->cols);
    }
}
