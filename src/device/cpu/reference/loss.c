/* Reference kernels for the losses over class scores.
 *
 * A row counts unless its target is ignore_index; the loss is the mean over the rows that
 * count, and 0 when none does. check_targets() stops a kernel before it has written
 * anything. */
#include "device/cpu/reference/reference.h"
#include "device/queue.h"

static bool check_targets(const char *kernel, const int64_t *targets, int64_t rows,
    int64_t cols, int64_t ignore_index)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = targets[r];
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
        sum += exp(get(x, first + c, dtype) - top);
    return top + log(sum);
}

/* (1 - s) nll + s mean_c nll_c, where nll_c = lse - logits[c] */
static double row_loss(const choir__k_cross_entropy *k, int64_t r, double lse)
{
    double nll = lse - get(k->logits, r * k->cols + k->targets[r], k->dtype), mean = 0;
    if (k->smoothing == 0)
        return nll;
    for (int64_t c = 0; c < k->cols; c++)
        mean += (lse - get(k->logits, r * k->cols + c, k->dtype)) / (double)k->cols;
    return (1 - (double)k->smoothing) * nll + (double)k->smoothing * mean;
}

void choir__reference_cross_entropy(const choir__k_cross_entropy *k)
{
    double sum = 0, count = 0;
    if (!check_targets("cross_entropy", k->targets, k->rows, k->cols, k->ignore_index))
        return;
    for (int64_t r = 0; r < k->rows; r++) {
        double lse = log_sum_exp(k->logits, r * k->cols, k->cols, k->dtype);
        put(k->lse, r, k->dtype, lse);
        if (k->targets[r] == k->ignore_index)
            continue;
        sum += row_loss(k, r, lse);
        count++;
    }
    put(k->loss, 0, k->dtype, count ? sum / count : 0);
    put(k->count, 0, k->dtype, count);
}

void choir__reference_cross_entropy_backward(const choir__k_cross_entropy_backward *k)
{
    double gloss = get(k->gloss, 0, k->dtype), count = get(k->count, 0, k->dtype);
    double s = (double)k->smoothing;
    for (int64_t r = 0; r < k->rows; r++) {
        bool ignored = k->targets[r] == k->ignore_index;
        double lse = get(k->lse, r, k->dtype);
        for (int64_t c = 0; c < k->cols; c++) {
            int64_t i = r * k->cols + c;
            double p = exp(get(k->logits, i, k->dtype) - lse);
            double wanted = (1 - s) * (c == k->targets[r]) + s / (double)k->cols;
            put(k->glogits, i, k->dtype, ignored ? 0 : gloss / count * (p - wanted));
        }
    }
}

void choir__reference_nll(const choir__k_nll *k)
{
    double sum = 0, count = 0;
    if (!check_targets("nll", k->targets, k->rows, k->cols, k->ignore_index))
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
