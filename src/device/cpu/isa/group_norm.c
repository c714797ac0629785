/* Group norm over channels-last images. All sums run down the columns, as in batch norm: in f32
 * over RUN pixels, and over the runs in f64; then a group's columns are added in order, in f64.
 * So the sums do not depend on the vector width. */
#include "device/cpu/isa/isa.h"

enum { RUN = 64 };

/* Scratch for one image: sums per column, and factors per column computed from them. */
typedef struct columns {
    double *sum, *dot;    /* (cols) */
    float *a, *b, *c, *d; /* (cols) */
} columns;

static columns scratch(int64_t cols)
{
    size_t n = (size_t)cols + 16;
    double *d = choir__cpu_scratch(
        choir__cpu_context_current(), n * (2 * sizeof(double) + 4 * sizeof(float)));
    float *f = (float *)(d + 2 * n);
    return (columns){d, d + n, f, f + n, f + 2 * n, f + 3 * n};
}

INLINE void add_lanes(double *sum, vec run, int64_t left)
{
    for (int i = 0; i < choir__min(W, left); i++)
        sum[i] += (double)run[i];
}

/* sum[c] = the sum of (x - around[c]) over an image's pixels, or of its square. around may be
 * NULL. */
static void column_sums(
    const float *x, int64_t pixels, int64_t cols, const float *around, bool square, double *sum)
{
    for (int64_t c = 0; c < cols; c += W) {
        int64_t left = cols - c;
        vec center = around ? v_get(around + c, left) : (vec){0};
        for (int i = 0; i < choir__min(W, left); i++)
            sum[c + i] = 0;
        for (int64_t p = 0; p < pixels; p += RUN) {
            vec run = {0};
            for (int64_t i = p; i < choir__min(pixels, p + RUN); i++) {
                vec v = v_get(x + i * cols + c, left) - center;
                run += square ? v * v : v;
            }
            add_lanes(sum + c, run, left);
        }
    }
}

/* to[c] = the average over c's group, for every column c. */
static void spread(const double *sum, int64_t cols, int64_t groups, int64_t pixels, float *to)
{
    int64_t width = cols / groups;
    for (int64_t g = 0; g < groups; g++) {
        double total = 0;
        for (int64_t c = g * width; c < (g + 1) * width; c++)
            total += sum[c];
        for (int64_t c = g * width; c < (g + 1) * width; c++)
            to[c] = (float)(total / (double)(pixels * width));
    }
}

static void forward(const choir__k_group_norm *k, int64_t n, const columns *s)
{
    const float *x = (const float *)k->x + n * k->pixels * k->cols;
    float *y = (float *)k->y + n * k->pixels * k->cols;
    float *mean = s->a, *scale = s->b;
    int64_t width = k->cols / k->groups;
    column_sums(x, k->pixels, k->cols, NULL, false, s->sum);
    spread(s->sum, k->cols, k->groups, k->pixels, mean);
    column_sums(x, k->pixels, k->cols, mean, true, s->sum);
    spread(s->sum, k->cols, k->groups, k->pixels, scale);
    for (int64_t c = 0; c < k->cols; c++) {
        int64_t group = n * k->groups + c / width;
        scale[c] = 1.0f / sqrtf(scale[c] + k->eps);
        ((float *)k->mean)[group] = mean[c];
        ((float *)k->rstd)[group] = scale[c];
        if (k->gamma)
            scale[c] *= ((const float *)k->gamma)[c];
    }
    for (int64_t p = 0; p < k->pixels; p++)
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c, i = p * k->cols + c;
            vec v = (v_get(x + i, left) - v_get(mean + c, left)) * v_get(scale + c, left);
            if (k->beta)
                v += v_get((const float *)k->beta + c, left);
            v_put(y + i, v, left);
        }
}

void KERNEL(group_norm)(const choir__k_group_norm *k)
{
    F32_ONLY(group_norm, k);
    columns s = scratch(k->cols);
    for (int64_t n = 0; n < k->n; n++)
        forward(k, n, &s);
}

/* sum[c] of gy and dot[c] of gy xhat, over an image's pixels. */
static void gradient_sums(
    const choir__k_group_norm_backward *k, const float *x, const float *gy, const columns *s)
{
    for (int64_t c = 0; c < k->cols; c += W) {
        int64_t left = k->cols - c;
        vec mean = v_get(s->a + c, left), rstd = v_get(s->b + c, left);
        for (int i = 0; i < choir__min(W, left); i++)
            s->sum[c + i] = s->dot[c + i] = 0;
        for (int64_t p = 0; p < k->pixels; p += RUN) {
            vec b = {0}, g = {0};
            for (int64_t i = p; i < choir__min(k->pixels, p + RUN); i++) {
                vec d = v_get(gy + i * k->cols + c, left);
                b += d;
                g += d * ((v_get(x + i * k->cols + c, left) - mean) * rstd);
            }
            add_lanes(s->sum + c, b, left);
            add_lanes(s->dot + c, g, left);
        }
    }
}

/* gx = rstd (gy gamma - avg(gy gamma) - xhat avg(gy gamma xhat)) */
static void backward(const choir__k_group_norm_backward *k, int64_t n, const columns *s)
{
    const float *x = (const float *)k->x + n * k->pixels * k->cols;
    const float *gy = (const float *)k->gy + n * k->pixels * k->cols;
    float *gx = (float *)k->gx + n * k->pixels * k->cols, *avg_g = s->c;
    int64_t width = k->cols / k->groups;
    for (int64_t c = 0; c < k->cols; c++) {
        int64_t group = n * k->groups + c / width;
        s->a[c] = ((const float *)k->mean)[group];
        s->b[c] = ((const float *)k->rstd)[group];
    }
    gradient_sums(k, x, gy, s);
    for (int64_t c = 0; c < k->cols; c++) { /* the weights' gradients, images in order */
        if (k->gbeta)
            ((float *)k->gbeta)[c] += (float)s->sum[c];
        if (k->ggamma)
            ((float *)k->ggamma)[c] += (float)s->dot[c];
        if (k->gamma) {
            s->sum[c] *= (double)((const float *)k->gamma)[c];
            s->dot[c] *= (double)((const float *)k->gamma)[c];
        }
    }
    spread(s->sum, k->cols, k->groups, k->pixels, avg_g);
    spread(s->dot, k->cols, k->groups, k->pixels, s->d);
    for (int64_t p = 0; p < k->pixels; p++)
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c, i = p * k->cols + c;
            vec rstd = v_get(s->b + c, left), g = v_get(gy + i, left);
            vec hat = (v_get(x + i, left) - v_get(s->a + c, left)) * rstd;
            if (k->gamma)
                g *= v_get((const float *)k->gamma + c, left);
            g = g - v_get(avg_g + c, left) - hat * v_get(s->d + c, left);
            v_put(gx + i, g * rstd, left);
        }
}

void KERNEL(group_norm_backward)(const choir__k_group_norm_backward *k)
{
    F32_ONLY(group_norm_backward, k);
    columns s = scratch(k->cols);
    if (k->ggamma)
        memset(k->ggamma, 0, (size_t)k->cols * sizeof(float));
    if (k->gbeta)
        memset(k->gbeta, 0, (size_t)k->cols * sizeof(float));
    for (int64_t n = 0; n < k->n; n++)
        backward(k, n, &s);
}
