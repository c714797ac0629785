/* Reference kernels for the losses over class scores.
 *
 * A row counts unless its target is ignore_index. A mean is over the rows that count, and 0 if
 * none does. check_targets() stops a kernel before it has written anything. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"
#include "device/queue.h"

static bool check_targets(const char *kernel, const int64_t *targets, int64_t rows,
    int64_t cols, int64_t ignore_index, bool elsewhere)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = targets[r];
        if (elsewhere && target == CHOIR__ELSEWHERE)
            continue;
        if (target == ignore_index || (target >= 0 && target < cols))
            continue;
        choir__queue_fail(CHOIR_ERR_RANGE, "%s: target %lld of row %lld is outside [0, %lld)",
            kernel, (long long)target, (long long)r, (long long)cols);
        return false;
    }
    return true;
}

static double log_sum_exp(const void *x, int64_t first, int64_t cols, choir_dtype dtype)
{
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; c++)
        top = fmax(top, get(x, first + c, dtype));
    for (int64_t c = 0; c < cols; c++)
        sum += choir__exp(get(x, first + c, dtype) - top);
    return top + choir__log(sum);
}

static double weight_of(const void *weight, int64_t c, choir_dtype dtype)
{
    return weight ? get(weight, c, dtype) : 1;
}

/* w[c] (lse - logits[c]) */
static double class_loss(const choir__k_cross_entropy *k, int64_t r, int64_t c, double lse)
{
    int64_t row = choir__row_step(k->row, k->cols);
    double nll = lse - get(k->logits, r * row + c, k->dtype);
    return weight_of(k->weight, c, wide_dtype(k->dtype)) * nll;
}

/* (1 - s) nll + s mean_c nll_c */
static double row_loss(const choir__k_cross_entropy *k, int64_t r, double lse)
{
    double nll = class_loss(k, r, k->targets[r], lse), mean = 0;
    if (k->smoothing == 0)
        return nll;
    for (int64_t c = 0; c < k->cols; c++)
        mean += class_loss(k, r, c, lse) / (double)k->cols;
    return (1 - (double)k->smoothing) * nll + (double)k->smoothing * mean;
}

void choir__reference_cross_entropy(const choir__k_cross_entropy *k)
{
    const int64_t leaves = choir__max(1, k->cut.leaves);
    double count = 0, *sums;
    int64_t row = choir__row_step(k->row, k->cols);
    if (!check_targets("cross_entropy", k->targets, k->rows, k->cols, k->ignore_index,
            k->losses == CHOIR__ROWS_SCORE))
        return;
    sums = choir__calloc((size_t)leaves, sizeof *sums);
    for (int64_t r = 0; r < k->rows; r++) {
        double lse = log_sum_exp(k->logits, r * row, k->cols, k->dtype);
        put(k->lse, r, wide_dtype(k->dtype), lse);
        int64_t t = k->targets[r];
        bool ignored = t == k->ignore_index || t == CHOIR__ELSEWHERE;
        double loss = ignored ? 0 : row_loss(k, r, lse);
        if (k->losses == CHOIR__ROWS_SCORE)
            put(k->loss, r, wide_dtype(k->dtype),
                ignored ? 0 : get(k->logits, r * row + t, k->dtype));
        if (k->losses == CHOIR__ROWS_EACH)
            put(k->loss, r, wide_dtype(k->dtype), loss);
        sums[choir__cut_leaf_of(k->cut, k->rows, r)] += loss;
        count += ignored ? 0 : weight_of(k->weight, t, wide_dtype(k->dtype));
    }
    if (k->losses != CHOIR__ROWS_MEAN)
        count = 1;
    double sum = sum_of_leaves(sums, leaves, leaves > 1 ? wide_dtype(k->dtype) : CHOIR_F64);
    if (k->losses == CHOIR__ROWS_MEAN || k->losses == CHOIR__ROWS_SUM)
        put(k->loss, 0, wide_dtype(k->dtype), count != 0 ? sum / count : 0);
    put(k->count, 0, wide_dtype(k->dtype), count);
    free(sums);
}

/* Computes one row's gradient; gloss is already divided by the count. */
static void row_backward(const choir__k_cross_entropy_backward *k, int64_t r, double gloss)
{
    double s = (double)k->smoothing, lse = get(k->lse, r, wide_dtype(k->dtype));
    double mean = 0;
    double target = k->targets[r] == CHOIR__ELSEWHERE
                        ? 1
                        : weight_of(k->weight, k->targets[r], wide_dtype(k->dtype));
    for (int64_t c = 0; c < k->cols; c++)
        mean += weight_of(k->weight, c, wide_dtype(k->dtype)) / (double)k->cols;
    for (int64_t c = 0; c < k->cols; c++) {
        int64_t i = r * choir__row_step(k->row, k->cols) + c;
        double p = choir__exp(get(k->logits, i, k->dtype) - lse);
        double wanted = (1 - s) * target * (c == k->targets[r]) +
                        s * weight_of(k->weight, c, wide_dtype(k->dtype)) / (double)k->cols;
        double all = (1 - s) * target + s * mean;
        put(k->glogits, i, k->dtype, gloss * (all * p - wanted));
    }
}

void choir__reference_cross_entropy_backward(const choir__k_cross_entropy_backward *k)
{
    double count = get(k->count, 0, wide_dtype(k->dtype));
    for (int64_t r = 0; r < k->rows; r++) {
        double gloss =
            get(k->gloss, k->losses == CHOIR__ROWS_EACH ? r : 0, wide_dtype(k->dtype));
        if (count != 0 && k->targets[r] != k->ignore_index) {
            row_backward(k, r, gloss / count);
            continue;
        }
        for (int64_t c = 0; c < k->cols; c++)
            put(k->glogits, r * choir__row_step(k->row, k->cols) + c, k->dtype, 0);
    }
}

void choir__reference_nll(const choir__k_nll *k)
{
    double sum = 0, count = 0;
    if (!check_targets("nll", k->targets, k->rows, k->cols, k->ignore_index, false))
        return;
    for (int64_t r = 0; r < k->rows; r++) {
        if (k->targets[r] == k->ignore_index)
            continue;
        sum -= get(k->x, r * k->cols + k->targets[r], k->dtype);
        count++;
    }
    put(k->loss, 0, k->dtype, count ? sum / count : 0);
    put(k->count, 0, k->dtype, count);
}

void choir__reference_nll_backward(const choir__k_nll_backward *k)
{
    double gloss = get(k->gloss, 0, k->dtype), count = get(k->count, 0, k->dtype);
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t target = k->targets[r] == k->ignore_index ? -1 : k->targets[r];
        for (int64_t c = 0; c < k->cols; c++)
            put(k->gx, r * k->cols + c, k->dtype, c == target ? -gloss / count : 0);
    }
}

void choir__reference_count_targets(const choir__k_count_targets *k)
{
    *k->y = 0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t t = k->targets[i];
        bool known = !k->weight || (t >= 0 && t < k->cols);
        if (t != k->ignore_index && known)
            *k->y += weight_of(k->weight, t, k->dtype);
    }
}

void choir__reference_loss_divisor(const choir__k_loss_divisor *k)
{
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++)
        sum += k->counts[i];
    *k->sum = sum;
    *k->y = sum != 0 ? (float)(sum / (double)k->n) : 1.0f;
}
