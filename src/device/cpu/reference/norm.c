/* Reference kernels for layer norm (over the columns of a row; RMS norm if no mean is given)
 * and batch norm (over the rows of a column).
 *
 * Both compute xhat = (x - mean) rstd and have the same gradient: with g = gy gamma, and
 * averages over the elements of one mean,  gx = rstd (g - avg(g) - xhat avg(g xhat)). */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"

void choir__reference_layer_norm(const choir__k_layer_norm *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    choir_dtype add_dtype = k->half_add ? k->half : dtype,
                y_dtype = k->half_y ? k->half : dtype;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        double mean = 0, var = 0;
        const void *x = k->add ? k->sum : k->x;
        for (int64_t c = first; k->add && c < first + k->cols; c++)
            put(k->sum, c, dtype, get(k->x, c, dtype) + get(k->add, c, add_dtype));
        for (int64_t c = 0; k->mean && c < k->cols; c++)
            mean += get(x, first + c, dtype) / (double)k->cols;
        for (int64_t c = 0; c < k->cols; c++) {
            double d = get(x, first + c, dtype) - mean;
            var += d * d / (double)k->cols;
        }
        double rstd = 1 / sqrt(var + (double)k->eps);
        for (int64_t c = 0; c < k->cols; c++) {
            double xhat = (get(x, first + c, dtype) - mean) * rstd;
            double y = xhat * get_or(k->gamma, c, wide, 1) + get_or(k->beta, c, wide, 0);
            put(k->y, first + c, y_dtype, y);
            if (k->y_half)
                put(k->y_half, first + c, k->half, get(k->y, first + c, dtype));
        }
        if (k->mean)
            put(k->mean, r, wide, mean);
        put(k->rstd, r, wide, rstd);
    }
}

void choir__reference_layer_norm_backward(const choir__k_layer_norm_backward *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    choir_dtype gy_dtype = k->half_gy ? k->half : dtype;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        double mean = get_or(k->mean, r, wide, 0), rstd = get(k->rstd, r, wide);
        double avg_g = 0, avg_gx = 0; /* averages of g and of g xhat */
        for (int64_t c = 0; c < k->cols; c++) {
            double xhat = (get(k->x, first + c, dtype) - mean) * rstd;
            double g = get(k->gy, first + c, gy_dtype) * get_or(k->gamma, c, wide, 1);
            avg_g += k->mean ? g / (double)k->cols : 0;
            avg_gx += g * xhat / (double)k->cols;
        }
        for (int64_t c = 0; c < k->cols; c++) {
            double xhat = (get(k->x, first + c, dtype) - mean) * rstd;
            double g = get(k->gy, first + c, gy_dtype) * get_or(k->gamma, c, wide, 1);
            double gx = rstd * (g - avg_g - xhat * avg_gx);
            put(k->gx, first + c, dtype, gx + get_or(k->gx_add, first + c, dtype, 0));
            if (k->gx_half)
                put(k->gx_half, first + c, k->half, get(k->gx, first + c, dtype));
        }
    }
}

/* Column c's sums of leaf l, for gamma and for beta. */
static void leaf_weights(
    const choir__k_layer_norm_weights *k, int64_t c, int64_t l, double *ggamma, double *gbeta)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    choir_dtype gy_dtype = k->half_gy ? k->half : dtype;
    const int64_t outer = choir__cut_outer(k->cut), each = k->rows / outer;
    int64_t from, to;
    *ggamma = *gbeta = 0;
    choir__cut_leaf(k->cut, k->rows, l, &from, &to);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = o * each + from; r < o * each + to; r++) {
            double gy = get(k->gy, r * k->cols + c, gy_dtype);
            *gbeta += gy;
            if (k->ggamma)
                *ggamma += gy *
                           (get(k->x, r * k->cols + c, dtype) - get_or(k->mean, r, wide, 0)) *
                           get(k->rstd, r, wide);
        }
}

void choir__reference_layer_norm_weights(const choir__k_layer_norm_weights *k)
{
    const choir_dtype wide = wide_dtype(k->dtype);
    const int64_t leaves = choir__max(1, k->cut.leaves);
    double *ggamma = choir__calloc((size_t)(2 * leaves), sizeof *ggamma),
           *gbeta = ggamma + leaves;
    for (int64_t c = 0; c < k->cols; c++) {
        for (int64_t l = 0; l < leaves; l++)
            leaf_weights(k, c, l, ggamma + l, gbeta + l);
        if (k->ggamma)
            put(k->ggamma, c, wide, sum_of_leaves(ggamma, leaves, CHOIR_F64));
        if (k->gbeta)
            put(k->gbeta, c, wide, sum_of_leaves(gbeta, leaves, CHOIR_F64));
    }
    free(ggamma);
}

static void batch_moments(const choir__k_batch_norm *k, int64_t c, double *mean, double *var)
{
    *mean = *var = 0;
    if (k->part == CHOIR__NORM_REST) {
        double rows = k->sums[2 * k->cols];
        *mean = k->sums[c] / rows;
        *var = fmax(k->sums[k->cols + c] / rows - *mean * *mean, 0);
        return;
    }
    for (int64_t r = 0; r < k->rows; r++)
        *mean += get(k->x, r * k->cols + c, k->dtype) / (double)k->rows;
    for (int64_t r = 0; r < k->rows; r++) {
        double d = get(k->x, r * k->cols + c, k->dtype) - *mean;
        *var += d * d / (double)k->rows;
    }
}

static void add_moments(const choir__k_batch_norm *k)
{
    for (int64_t i = 0; i < 2 * k->cols; i++)
        k->sums[i] = 0;
    for (int64_t i = 0; i < k->rows * k->cols; i++) {
        double x = get(k->x, i, k->dtype);
        k->sums[i % k->cols] += x;
        k->sums[k->cols + i % k->cols] += x * x;
    }
    k->sums[2 * k->cols] = (double)k->rows;
}

/* running = (1 - momentum) running + momentum value */
static void move_average(
    void *running, int64_t c, choir_dtype dtype, double momentum, double value)
{
    put(running, c, dtype, (1 - momentum) * get(running, c, dtype) + momentum * value);
}

void choir__reference_batch_norm(const choir__k_batch_norm *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    double rows = k->part == CHOIR__NORM_REST ? k->sums[2 * k->cols] : (double)k->rows;
    if (k->part == CHOIR__NORM_SUMS) {
        add_moments(k);
        return;
    }
    if (k->batches && k->train && k->update && !k->again)
        ++*k->batches;
    for (int64_t c = 0; c < k->cols; c++) {
        double mean, var = 0, rstd;
        if (k->again) {
            mean = get(k->mean, c, wide);
            rstd = get(k->rstd, c, wide);
        } else {
            if (k->train) {
                batch_moments(k, c, &mean, &var);
            } else {
                mean = get(k->running_mean, c, wide);
                var = get(k->running_var, c, wide);
            }
            rstd = 1 / sqrt(var + (double)k->eps);
        }
        double gamma = get_or(k->gamma, c, wide, 1), beta = get_or(k->beta, c, wide, 0);
        for (int64_t r = 0; r < k->rows; r++) {
            int64_t i = r * k->cols + c;
            double y = (get(k->x, i, dtype) - mean) * (rstd * gamma) + beta;
            y += get_or(k->residual, i, dtype, 0);
            put(k->y, i, dtype, k->relu && y < 0 ? 0 : y);
        }
        if (k->again)
            continue;
        put(k->mean, c, wide, mean);
        put(k->rstd, c, wide, rstd);
        if (k->train && k->update) { /* for a single row the unbiased variance is 0 */
            double unbiased = var * rows / fmax(rows - 1, 1);
            move_average(k->running_mean, c, wide, (double)k->momentum, mean);
            move_average(k->running_var, c, wide, (double)k->momentum, unbiased);
        }
    }
}

/* Returns the part of gy that passes ReLU at element i of channel c. */
static double passed(const choir__k_batch_norm_backward *k, int64_t i, int64_t c)
{
    choir_dtype wide = wide_dtype(k->dtype);
    double gy = get(k->gy, i, k->dtype), y;
    if (!k->relu)
        return gy;
    if (k->y)
        y = get(k->y, i, k->dtype);
    else
        y = (get(k->x, i, k->dtype) - get(k->mean, c, wide)) *
                (get(k->rstd, c, wide) * get_or(k->gamma, c, wide, 1)) +
            get_or(k->beta, c, wide, 0);
    return y > 0 ? gy : 0;
}

void choir__reference_batch_norm_backward(const choir__k_batch_norm_backward *k)
{
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    for (int64_t c = 0; c < k->cols; c++) {
        double mean = get(k->mean, c, wide), rstd = get(k->rstd, c, wide);
        double gamma = get_or(k->gamma, c, wide, 1);
        double ggamma = 0, gbeta = 0; /* sums of g xhat and of g, with g after ReLU */
        for (int64_t r = 0; r < k->rows; r++) {
            double xhat = (get(k->x, r * k->cols + c, dtype) - mean) * rstd;
            double g = passed(k, r * k->cols + c, c);
            ggamma += g * xhat;
            gbeta += g;
        }
        double all_g = gbeta, all_gxhat = ggamma, rows = (double)k->rows;
        if (k->part == CHOIR__NORM_SUMS) {
            k->sums[c] = gbeta;
            k->sums[k->cols + c] = ggamma / rstd;
            k->sums[2 * k->cols] = rows;
        } else if (k->part == CHOIR__NORM_REST) {
            all_g = k->sums[c];
            all_gxhat = k->sums[k->cols + c] * rstd;
            rows = k->sums[2 * k->cols];
        }
        for (int64_t r = 0; r < k->rows; r++) {
            int64_t i = r * k->cols + c;
            double xhat = (get(k->x, i, dtype) - mean) * rstd;
            double g = passed(k, i, c), part = g;
            if (k->train)
                part -= (all_g + xhat * all_gxhat) / rows;
            if (k->part != CHOIR__NORM_SUMS)
                put(k->gx, i, dtype, gamma * rstd * part);
            if (k->gresidual)
                put(k->gresidual, i, dtype, g);
        }
        if (k->ggamma && k->part != CHOIR__NORM_REST)
            put(k->ggamma, c, wide, ggamma);
        if (k->gbeta && k->part != CHOIR__NORM_REST)
            put(k->gbeta, c, wide, gbeta);
    }
}
