/* Batch norm: the statistics of a channel are those of its column, over all images and pixels.
 *
 * Columns are long (N*H*W), so they are summed in runs of RUN rows in f32 and the runs in f64:
 * a fixed function of the sizes, as exact as needed. BLOCK vectors of channels are done at a
 * time, for a row's neighbouring bytes come from memory together. */
#include "device/cpu/isa/isa.h"

enum { RUN = 64, BLOCK = 4 };

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

#define EACH(j) for (int j = 0; j < block; j++)

/* The means of x - around, or of its square. */
INLINE void moment(const float *x, int64_t rows, int64_t cols, int64_t left, int block,
    const vec *around, bool square, vec *out)
{
    column total[BLOCK] = {0};
    for (int64_t r = 0; r < rows; r += RUN) {
        vec run[BLOCK] = {0};
        for (int64_t i = r; i < choir__min(rows, r + RUN); i++)
            EACH(j)
            {
                vec v = v_get(x + i * cols + j * W, left - j * W) - around[j];
                run[j] += square ? v * v : v;
            }
        EACH(j) column_add(&total[j], run[j]);
    }
    EACH(j) out[j] = column_get(&total[j], 1.0 / (double)rows);
}

static void update_running(
    const choir__k_batch_norm *k, int64_t at, int64_t left, vec mean, vec var)
{
    float *running_mean = (float *)k->running_mean + at;
    float *running_var = (float *)k->running_var + at;
    float unbiased = (float)((double)k->rows / (double)choir__max(k->rows - 1, 1));
    float keep = 1.0f - k->momentum;
    v_put(running_mean, v_get(running_mean, left) * keep + mean * k->momentum, left);
    v_put(running_var, v_get(running_var, left) * keep + var * unbiased * k->momentum, left);
}

/* Columns at ... at + left of block vectors. */
INLINE void forward(const choir__k_batch_norm *k, int64_t at, int64_t left, int block)
{
    const float *x = (const float *)k->x + at;
    float *y = (float *)k->y + at;
    int64_t cols = k->cols;
    const float *residual = k->residual ? (const float *)k->residual + at : NULL;
    vec mean[BLOCK] = {0}, var[BLOCK] = {0}, scale[BLOCK], shift[BLOCK] = {0};
    if (k->train && !k->again) {
        vec center[BLOCK];
        moment(x, k->rows, cols, left, block, mean, false, center);
        EACH(j) mean[j] = center[j];
        moment(x, k->rows, cols, left, block, mean, true, var);
    }
    EACH(j)
    {
        int64_t c = at + j * W, rest = left - j * W;
        if (k->again) {
            mean[j] = v_get((const float *)k->mean + c, rest);
            scale[j] = v_get((const float *)k->rstd + c, rest);
        } else {
            if (k->train && k->update)
                update_running(k, c, rest, mean[j], var[j]);
            if (!k->train) {
                mean[j] = v_get((const float *)k->running_mean + c, rest);
                var[j] = v_get((const float *)k->running_var + c, rest);
            }
            scale[j] = 1.0f / v_sqrt(var[j] + k->eps);
            v_put((float *)k->mean + c, mean[j], rest);
            v_put((float *)k->rstd + c, scale[j], rest);
        }
        if (k->gamma)
            scale[j] *= v_get((const float *)k->gamma + c, rest);
        if (k->beta)
            shift[j] = v_get((const float *)k->beta + c, rest);
    }
    for (int64_t r = 0; r < k->rows; r++)
        EACH(j)
        {
            int64_t i = r * cols + j * W;
            vec v = (v_get(x + i, left - j * W) - mean[j]) * scale[j] + shift[j];
            if (residual)
                v += v_get(residual + i, left - j * W);
            if (k->relu)
                v = v_max(v_set(0.0f), v); /* NaN stays */
            v_put(y + i, v, left - j * W);
        }
}

void KERNEL(batch_norm)(const choir__k_batch_norm *k)
{
    F32_ONLY(batch_norm, k);
    if (k->batches && k->train && k->update && !k->again)
        ++*k->batches;
    int64_t c = 0;
    for (; c + BLOCK * W <= k->cols; c += BLOCK * W)
        forward(k, c, BLOCK * W, BLOCK);
    for (; c < k->cols; c += W)
        forward(k, c, choir__min(W, k->cols - c), 1);
}

/* What a block of columns of the backward needs to know at each element. */
typedef struct block_state {
    const float *x, *y, *gy; /* at its first column; y may be NULL */
    float *gresidual;        /* may be NULL */
    vec mean[BLOCK], rstd[BLOCK], scale[BLOCK], shift[BLOCK];
} block_state;

/* What of gy passes ReLU at element i of vector j, where x is v. */
INLINE vec passed(const choir__k_batch_norm_backward *k, const block_state *b, int64_t i, int j,
    int64_t left, vec v)
{
    vec g = v_get(b->gy + i, left), y;
    if (!k->relu)
        return g;
    if (b->y)
        y = v_get(b->y + i, left);
    else
        y = (v - b->mean[j]) * b->scale[j] + b->shift[j]; /* the forward's very operations */
    return v_sel(v_gt(y, v_set(0.0f)), g, v_set(0.0f));
}

/* sum g and sum g xhat, of the g that passed. */
INLINE void gradient_sums(const choir__k_batch_norm_backward *k, const block_state *s,
    int64_t left, int block, column *beta, column *gamma)
{
    for (int64_t r = 0; r < k->rows; r += RUN) {
        vec b[BLOCK] = {0}, g[BLOCK] = {0};
        for (int64_t row = r; row < choir__min(k->rows, r + RUN); row++)
            EACH(j)
            {
                int64_t i = row * k->cols + j * W, rest = left - j * W;
                vec v = v_get(s->x + i, rest), d = passed(k, s, i, j, rest, v);
                if (s->gresidual)
                    v_put(s->gresidual + i, d, rest);
                b[j] += d;
                g[j] += d * ((v - s->mean[j]) * s->rstd[j]);
            }
        EACH(j)
        {
            column_add(&beta[j], b[j]);
            column_add(&gamma[j], g[j]);
        }
    }
}

/* train: gx = rstd gamma (g - mean g - xhat mean(g xhat)); eval: gx = rstd gamma g. */
INLINE void backward(const choir__k_batch_norm_backward *k, int64_t at, int64_t left, int block)
{
    float *gx = (float *)k->gx + at;
    double share = k->train ? 1.0 / (double)k->rows : 0.0;
    vec g_mean[BLOCK], g_dot[BLOCK];
    column beta[BLOCK] = {0}, gamma[BLOCK] = {0};
    block_state s = {.x = (const float *)k->x + at,
        .y = k->y ? (const float *)k->y + at : NULL,
        .gy = (const float *)k->gy + at,
        .gresidual = k->gresidual ? (float *)k->gresidual + at : NULL};
    EACH(j)
    {
        int64_t c = at + j * W, rest = left - j * W;
        s.mean[j] = v_get((const float *)k->mean + c, rest);
        s.rstd[j] = s.scale[j] = v_get((const float *)k->rstd + c, rest);
        s.shift[j] = (vec){0};
        if (k->gamma)
            s.scale[j] *= v_get((const float *)k->gamma + c, rest);
        if (k->beta)
            s.shift[j] = v_get((const float *)k->beta + c, rest);
    }
    gradient_sums(k, &s, left, block, beta, gamma);
    EACH(j)
    {
        if (k->ggamma)
            v_put((float *)k->ggamma + at + j * W, column_get(&gamma[j], 1.0), left - j * W);
        if (k->gbeta)
            v_put((float *)k->gbeta + at + j * W, column_get(&beta[j], 1.0), left - j * W);
        g_mean[j] = column_get(&beta[j], share);
        g_dot[j] = column_get(&gamma[j], share);
    }
    for (int64_t r = 0; r < k->rows; r++)
        EACH(j)
        {
            int64_t i = r * k->cols + j * W, rest = left - j * W;
            vec v = v_get(s.x + i, rest);
            vec g = s.gresidual ? v_get(s.gresidual + i, rest) : passed(k, &s, i, j, rest, v);
            vec hat = (v - s.mean[j]) * s.rstd[j];
            if (k->train)
                g = g - g_mean[j] - hat * g_dot[j];
            v_put(gx + i, g * s.scale[j], rest);
        }
}

void KERNEL(batch_norm_backward)(const choir__k_batch_norm_backward *k)
{
    F32_ONLY(batch_norm_backward, k);
    int64_t c = 0;
    for (; c + BLOCK * W <= k->cols; c += BLOCK * W)
        backward(k, c, BLOCK * W, BLOCK);
    for (; c < k->cols; c += W)
        backward(k, c, choir__min(W, k->cols - c), 1);
}
