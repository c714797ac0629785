/* Reference kernels that reduce rows or columns: sums, maxima, and softmax. */
#include "device/cpu/reference/reference.h"

/* Returns the type of the sums. */
static choir_dtype result_of(const choir__k_sum *k)
{
    return k->in_f64 ? CHOIR_F64 : k->wide ? wide_dtype(k->dtype) : k->dtype;
}

/* The sum of column c over leaves [first, first + leaves). */
static double tree_of(const choir__k_sum *k, int64_t c, int64_t first, int64_t leaves)
{
    if (leaves > 1) {
        const int64_t left = left_leaves(leaves);
        return tree_of(k, c, first, left) + tree_of(k, c, first + left, leaves - left);
    }
    const int64_t row = choir__row_step(k->row, k->cols), outer = choir__cut_outer(k->cut);
    const int64_t each = k->rows / outer;
    int64_t from, to;
    double sum = 0;
    choir__cut_leaf(k->cut, k->rows, first, &from, &to);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = o * each + from; r < o * each + to; r++)
            sum += get(k->x, r * row + c, k->dtype);
    return sum;
}

void choir__reference_sum(const choir__k_sum *k)
{
    int64_t outputs = k->over_rows ? k->cols : k->rows;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t i = 0; i < outputs; i++) {
        double sum = k->over_rows ? tree_of(k, i, 0, choir__max(1, k->cut.leaves)) : 0;
        for (int64_t j = 0; j < k->cols && !k->over_rows; j++)
            sum += get(k->x, i * row + j, k->dtype);
        put(k->y, i, result_of(k), k->scale * sum);
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
