/* Reference kernels that reduce rows or columns: sums, maxima, and softmax. */
#include "device/cpu/reference/reference.h"

void choir__reference_sum(const choir__k_sum *k)
{
    int64_t outputs = k->over_rows ? k->cols : k->rows;
    int64_t terms = k->over_rows ? k->rows : k->cols;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t i = 0; i < outputs; i++) {
        double sum = 0;
        for (int64_t j = 0; j < terms; j++)
            sum += get(k->x, k->over_rows ? j * row + i : i * row + j, k->dtype);
        put(k->y, i, k->wide ? wide_dtype(k->dtype) : k->dtype, k->scale * sum);
    }
}

void choir__reference_max_rows(const choir__k_max_rows *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t at = 0;
        double best = get(k->x, r * k->cols, k->dtype);
        for (int64_t c = 1; c < k->cols; c++) {
            double x = get(k->x, r * k->cols + c, k->dtype);
            if (CHOIR__SURPASSES(x, best))
                best = x, at = c;
        }
        if (k->y)
            put(k->y, r, k->dtype, best);
        if (k->index)
            k->index[r] = at + k->first;
    }
}

void choir__reference_softmax(const choir__k_softmax *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        double top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < k->cols; c++)
            top = fmax(top, get(k->x, first + c, k->dtype));
        for (int64_t c = 0; c < k->cols; c++)
            sum += choir__exp(get(k->x, first + c, k->dtype) - top);
        for (int64_t c = 0; c < k->cols; c++) {
            double x = get(k->x, first + c, k->dtype) - top;
            put(k->y, first + c, k->dtype, k->log ? x - choir__log(sum) : choir__exp(x) / sum);
        }
    }
}

void choir__reference_softmax_backward(const choir__k_softmax_backward *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t first = r * k->cols;
        double sum = 0;
        for (int64_t c = 0; c < k->cols; c++) {
            double gy = get(k->gy, first + c, k->dtype);
            sum += k->log ? gy : gy * get(k->y, first + c, k->dtype);
        }
        for (int64_t c = 0; c < k->cols; c++) {
            double gy = get(k->gy, first + c, k->dtype), y = get(k->y, first + c, k->dtype);
            put(k->gx, first + c, k->dtype, k->log ? gy - choir__exp(y) * sum : y * (gy - sum));
        }
    }
}
