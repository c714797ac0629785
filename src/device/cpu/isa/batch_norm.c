/* Batch norm: the statistics of a channel are those of its column, over all images and pixels.
 *
 * Columns are long (N*H*W), so they are summed in runs of RUN rows in f32 and the runs in f64: a
 * fixed function of the sizes, as exact as needed. One vector of channels is done at a time. */
#include "device/cpu/isa/isa.h"

enum { RUN = 64 };

typedef struct column {
    double sum[W];
} column;

INLINE void column_add(column *c, vec run)
{
    for (int i = 0; i < W; i++)
        c->sum[i] += (double)run[i];
}

INLINE vec column_get(const column *c, double scale)
{
    vec y;
    for (int i = 0; i < W; i++)
        y[i] = (float)(c->sum[i] * scale);
    return y;
}

/* mean of x, or of (x - mean)^2 when around is there. */
INLINE vec moment(
    const float *x, int64_t rows, int64_t cols, int64_t left, const vec *around, double scale)
{
    column total = {{0}};
    for (int64_t r = 0; r < rows; r += RUN) {
        vec run = {0};
        for (int64_t i = r; i < choir__min(rows, r + RUN); i++) {
            vec v = v_get(x + i * cols, left);
            if (around) {
                v -= *around;
                v *= v;
            }
            run += v;
        }
        column_add(&total, run);
    }
    return column_get(&total, scale);
}

static void statistics(const choir__k_batch_norm *k, int64_t at, int64_t left, vec *mean, vec *rstd)
{
    float *running_mean = (float *)k->running_mean + at;
    float *running_var = (float *)k->running_var + at;
    vec var;
    if (k->train) {
        const float *x = (const float *)k->x + at;
        double scale = 1.0 / (double)k->rows;
        *mean = moment(x, k->rows, k->cols, left, NULL, scale);
        var = moment(x, k->rows, k->cols, left, mean, scale);
        if (k->update) {
            float unbiased = (float)((double)k->rows / (double)choir__max(k->rows - 1, 1));
            float keep = 1.0f - k->momentum;
            vec m = v_get(running_mean, left) * keep + *mean * k->momentum;
            vec v = v_get(running_var, left) * keep + var * unbiased * k->momentum;
            v_put(running_mean, m, left);
            v_put(running_var, v, left);
        }
    } else {
        *mean = v_get(running_mean, left);
        var = v_get(running_var, left);
    }
    *rstd = 1.0f / v_sqrt(var + k->eps);
    v_put((float *)k->mean + at, *mean, left);
    v_put((float *)k->rstd + at, *rstd, left);
}

void KERNEL(batch_norm)(const choir__k_batch_norm *k)
{
    F32_ONLY(batch_norm, k);
    for (int64_t c = 0; c < k->cols; c += W) {
        int64_t left = k->cols - c;
        vec mean, rstd, scale, shift = {0};
        statistics(k, c, left, &mean, &rstd);
        scale = k->gamma ? rstd * v_get((const float *)k->gamma + c, left) : rstd;
        if (k->beta)
            shift = v_get((const float *)k->beta + c, left);
        const float *x = (const float *)k->x + c;
        float *y = (float *)k->y + c;
        for (int64_t r = 0; r < k->rows; r++)
            v_put(y + r * k->cols, (v_get(x + r * k->cols, left) - mean) * scale + shift, left);
    }
}

/* sum gy and sum gy xhat of W channels. */
static void gradient_sums(const choir__k_batch_norm_backward *k, int64_t at, int64_t left,
    vec mean, vec rstd, column *beta, column *gamma)
{
    const float *x = (const float *)k->x + at, *gy = (const float *)k->gy + at;
    for (int64_t r = 0; r < k->rows; r += RUN) {
        vec b = {0}, g = {0};
        for (int64_t i = r; i < choir__min(k->rows, r + RUN); i++) {
            vec d = v_get(gy + i * k->cols, left);
            b += d;
            g += d * ((v_get(x + i * k->cols, left) - mean) * rstd);
        }
        column_add(beta, b);
        column_add(gamma, g);
    }
}

/* train: gx = rstd gamma (gy - mean gy - xhat mean(gy xhat)); eval: gx = rstd gamma gy. */
void KERNEL(batch_norm_backward)(const choir__k_batch_norm_backward *k)
{
    F32_ONLY(batch_norm_backward, k);
    for (int64_t c = 0; c < k->cols; c += W) {
        int64_t left = k->cols - c;
        vec mean = v_get((const float *)k->mean + c, left);
        vec rstd = v_get((const float *)k->rstd + c, left);
        vec scale = k->gamma ? rstd * v_get((const float *)k->gamma + c, left) : rstd;
        column beta = {{0}}, gamma = {{0}};
        gradient_sums(k, c, left, mean, rstd, &beta, &gamma);
        if (k->ggamma)
            v_put((float *)k->ggamma + c, column_get(&gamma, 1.0), left);
        if (k->gbeta)
            v_put((float *)k->gbeta + c, column_get(&beta, 1.0), left);
        double share = k->train ? 1.0 / (double)k->rows : 0.0;
        vec g_mean = column_get(&beta, share), g_dot = column_get(&gamma, share);
        const float *x = (const float *)k->x + c, *gy = (const float *)k->gy + c;
        float *gx = (float *)k->gx + c;
        for (int64_t r = 0; r < k->rows; r++) {
            vec g = v_get(gy + r * k->cols, left);
            vec hat = (v_get(x + r * k->cols, left) - mean) * rstd;
            if (k->train)
                g = g - g_mean - hat * g_dot;
            v_put(gx + r * k->cols, g * scale, left);
        }
    }
}
