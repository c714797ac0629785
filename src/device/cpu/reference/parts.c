/* Reference kernels for scores whose classes are distributed over ranks. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"
#include "device/queue.h"

void choir__reference_part_targets(const choir__k_part_targets *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t id = k->x[i];
        bool ignored = k->ignores && id == k->ignored;
        if (!ignored && (id < 0 || id >= k->whole)) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "cross_entropy: target %lld of row %lld is outside [0, %lld)", (long long)id,
                (long long)i, (long long)k->whole);
            return;
        }
        bool here = id >= k->first && id < k->first + k->count;
        k->y[i] = ignored ? -1 : here ? id - k->first : CHOIR__ELSEWHERE;
    }
}

static double stat(const choir__k_part_losses *k, int64_t part, int which, int64_t row)
{
    return get(k->stats, (2 * part + which) * k->rows + row, wide_dtype(k->dtype));
}

void choir__reference_part_losses(const choir__k_part_losses *k)
{
    const int64_t leaves = choir__max(1, k->cut.leaves);
    double count = 0, *sums = choir__calloc((size_t)leaves, sizeof *sums);
    for (int64_t r = 0; r < k->rows; r++) {
        double top = -INFINITY, all = 0, score = 0;
        for (int64_t p = 0; p < k->parts; p++) { /* with fmax GCC 12 fails for aarch64 */
            double of_part = stat(k, p, 0, r);
            top = of_part > top ? of_part : top;
        }
        for (int64_t p = 0; p < k->parts; p++) {
            all += choir__exp(stat(k, p, 0, r) - top);
            score += stat(k, p, 1, r);
        }
        double lse = top + choir__log(all), loss = k->targets[r] == -1 ? 0 : lse - score;
        put(k->lse, r, wide_dtype(k->dtype), lse);
        if (k->losses == CHOIR__ROWS_EACH)
            put(k->loss, r, wide_dtype(k->dtype), loss);
        sums[choir__cut_leaf_of(k->cut, k->rows, r)] += loss;
        count += k->targets[r] != -1;
    }
    if (k->losses != CHOIR__ROWS_MEAN)
        count = 1;
    double sum = sum_of_leaves(sums, leaves, leaves > 1 ? wide_dtype(k->dtype) : CHOIR_F64);
    if (k->losses != CHOIR__ROWS_EACH)
        put(k->loss, 0, wide_dtype(k->dtype), count != 0 ? sum / count : 0);
    put(k->count, 0, wide_dtype(k->dtype), count);
    free(sums);
}

void choir__reference_part_max(const choir__k_part_max *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t best = 0;
        for (int64_t p = 1; p < k->parts; p++) {
            double x = get(k->max, p * k->rows + r, k->dtype);
            if (CHOIR__SURPASSES(x, get(k->max, best * k->rows + r, k->dtype)))
                best = p;
        }
        k->y[r] = k->index[best * k->rows + r];
    }
}
