/* Reference kernels for group norm: layer norm's formulas, over the pixels and channels of one
 * group of one image. */
#include "device/cpu/reference/reference.h"

/* Returns the place of element e of group g of image n. */
static int64_t place(
    int64_t pixels, int64_t cols, int64_t groups, int64_t n, int64_t g, int64_t e, int64_t *c)
{
    int64_t width = cols / groups;
    *c = g * width + e % width;
    return (n * pixels + e / width) * cols + *c;
}

void choir__reference_group_norm(const choir__k_group_norm *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    int64_t count = k->pixels * (k->cols / k->groups), c;
    for (int64_t i = 0; i < k->n * k->groups; i++) {
        int64_t n = i / k->groups, g = i % k->groups;
        double mean = 0, var = 0;
        for (int64_t e = 0; e < count; e++)
            mean += get(k->x, place(k->pixels, k->cols, k->groups, n, g, e, &c), dtype);
        mean /= (double)count;
        for (int64_t e = 0; e < count; e++) {
            double d =
                get(k->x, place(k->pixels, k->cols, k->groups, n, g, e, &c), dtype) - mean;
            var += d * d / (double)count;
        }
        double rstd = 1 / sqrt(var + (double)k->eps);
        for (int64_t e = 0; e < count; e++) {
            int64_t at = place(k->pixels, k->cols, k->groups, n, g, e, &c);
            double xhat = (get(k->x, at, dtype) - mean) * rstd;
            put(k->y, at, dtype,
                xhat * get_or(k->gamma, c, wide, 1) + get_or(k->beta, c, wide, 0));
        }
        put(k->mean, i, wide, mean);
        put(k->rstd, i, wide, rstd);
    }
}

static void weights(const choir__k_group_norm_backward *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    for (int64_t c = 0; c < k->cols; c++) {
        double ggamma = 0, gbeta = 0;
        for (int64_t row = 0; row < k->n * k->pixels; row++) {
            int64_t i = row / k->pixels * k->groups + c / (k->cols / k->groups);
            double gy = get(k->gy, row * k->cols + c, dtype);
            gbeta += gy;
            ggamma += gy * (get(k->x, row * k->cols + c, dtype) - get(k->mean, i, wide)) *
                      get(k->rstd, i, wide);
        }
        if (k->ggamma)
            put(k->ggamma, c, wide, ggamma);
        if (k->gbeta)
            put(k->gbeta, c, wide, gbeta);
    }
}

void choir__reference_group_norm_backward(const choir__k_group_norm_backward *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    int64_t count = k->pixels * (k->cols / k->groups), c;
    for (int64_t i = 0; i < k->n * k->groups; i++) {
        int64_t n = i / k->groups, group = i % k->groups;
        double mean = get(k->mean, i, wide), rstd = get(k->rstd, i, wide);
        double avg_g = 0, avg_gx = 0; /* averages of g = gy gamma and of g xhat */
        for (int pass = 0; pass < 2; pass++)
            for (int64_t e = 0; e < count; e++) {
                int64_t at = place(k->pixels, k->cols, k->groups, n, group, e, &c);
                double xhat = (get(k->x, at, dtype) - mean) * rstd;
                double g = get(k->gy, at, dtype) * get_or(k->gamma, c, wide, 1);
                if (pass) {
                    put(k->gx, at, dtype, rstd * (g - avg_g - xhat * avg_gx));
                } else {
                    avg_g += g / (double)count;
                    avg_gx += g * xhat / (double)count;
                }
            }
    }
    if (k->ggamma || k->gbeta)
        weights(k);
}
