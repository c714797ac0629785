/* Reference kernels that reduce rows or columns: sums, maxima, and softmax.
 *
 * In a causal softmax row r is a query at position r % period and sees the columns up to its
 * own; visible() is that count, and everything beyond it is neither read nor anything but 0. */
#include "device/cpu/reference/reference.h"

void choir__reference_sum(const choir__k_sum *k)
{
    int64_t outputs = k->over_rows ? k->cols : k->rows;
    int64_t terms = k->over_rows ? k->rows : k->cols;
    for (int64_t i = 0; i < outputs; i++) {
        double sum = 0;
        for (int64_t j = 0; j < terms; j++)
            sum += get(k->x, k->over_rows ? j * k->cols + i : i * k->cols + j, k->dtype);
        put(k->y, i, k->dtype, k->scale * sum);
    }
}

void choir__reference_max_rows(const choir__k_max_rows *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t at = 0;
        double best = get(k->x, r * k->cols, k->dtype);
        for (int64_t c = 1; c < k->cols; c++) {
            double x = get(k->x, r * k->cols + c, k->dtype);
            if (x > best)
                best = x, at = c;
        }
        if (k->y)
            put(k->y, r, k->dtype, best);
        if (k->index)
            k->index[r] = at;
    }
}

static int64_t visible(bool causal, int64_t row, int64_t period, int64_t cols)
{
    return causal ? choir__min(row % period + 1, cols) : cols;
}

void choir__reference_softmax(const choir__k_softmax *k)
{
    double scale = (double)k->scale;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        int64_t seen = visible(k->causal, r, k->period, k->cols);
        double top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < seen; c++)
            top = fmax(top, scale * get(k->x, first + c, k->dtype));
        for (int64_t c = 0; c < seen; c++)
            sum += exp(scale * get(k->x, first + c, k->dtype) - top);
        for (int64_t c = 0; c < k->cols; c++) {
            double y = 0;
            if (c < seen) {
                double x = scale * get(k->x, first + c, k->dtype) - top;
                y = k->log ? x - log(sum) : exp(x) / sum;
            }
            put(k->y, first + c, k->dtype, y);
        }
    }
}

void choir__reference_softmax_backward(const choir__k_softmax_backward *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        int64_t seen = visible(k->causal, r, k->period, k->cols);
        double sum = 0;
        for (int64_t c = 0; c < seen; c++) {
            double gy = get(k->gy, first + c, k->dtype);
            sum += k->log ? gy : gy * get(k->y, first + c, k->dtype);
        }
        for (int64_t c = 0; c < k->cols; c++) {
            double gx = 0;
            if (c < seen) {
                double gy = get(k->gy, first + c, k->dtype);
                double y = get(k->y, first + c, k->dtype);
                gx = (double)k->scale * (k->log ? gy - exp(y) * sum : y * (gy - sum));
            }
            put(k->gx, first + c, k->dtype, gx);
        }
    }
}
