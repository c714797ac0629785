/* Scores whose classes are distributed over ranks: converts targets of the whole to a part's,
 * and combines statistics of the parts. Parts are added in order, rows in order in f64, or leaf
 * by leaf. */
#include "device/cpu/isa/leaf_sums.h"
#include "device/cpu/isa/vector_math.h"
#include "device/queue.h"

void KERNEL(part_targets)(const choir__k_part_targets *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t id = k->x[i], own = id - k->first;
        if (k->ignores && id == k->ignored) {
            k->y[i] = -1;
            continue;
        }
        if (id < 0 || id >= k->whole) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "cross_entropy: target %lld of row %lld is outside [0, %lld); fix the labels or "
                "set ignore_index",
                (long long)id, (long long)i, (long long)k->whole);
            return;
        }
        k->y[i] = own >= 0 && own < k->count ? own : CHOIR__ELSEWHERE;
    }
}

/* Returns log sum_p exp(lse[p]) of one row; lse's parts are `stride` apart. */
static float join(const float *lse, int64_t parts, int64_t stride)
{
    float top = -INFINITY, sum = 0;
    for (int64_t p = 0; p < parts; p++)
        top = lse[p * stride] > top ? lse[p * stride] : top;
    for (int64_t p = 0; p < parts; p++)
        sum += v_exp_below(v_set(lse[p * stride] - top))[0];
    return top + v_log(v_set(sum))[0];
}

void KERNEL(part_losses)(const choir__k_part_losses *k)
{
    F32_ONLY(part_losses, k);
    const float *stats = k->stats;
    const int64_t leaves = choir__is_cut(k->cut) ? k->cut.leaves : 0;
    double total = 0, counted = 0;
    leaf_sums sums = new_sums(leaves);
    for (int64_t r = 0; r < k->rows; r++) {
        float lse = join(stats + r, k->parts, 2 * k->rows), score = 0;
        bool ignored = k->targets[r] == -1;
        for (int64_t p = 0; p < k->parts; p++)
            score += stats[(2 * p + 1) * k->rows + r];
        float nll = ignored ? 0 : lse - score;
        ((float *)k->lse)[r] = lse;
        if (k->losses == CHOIR__ROWS_EACH)
            ((float *)k->loss)[r] = nll;
        total += (double)nll;
        if (leaves)
            sums.sum[choir__cut_leaf_of(k->cut, k->rows, r)] += (double)nll;
        counted += !ignored;
    }
    if (k->losses != CHOIR__ROWS_MEAN)
        counted = 1;
    if (k->losses != CHOIR__ROWS_EACH && leaves)
        *(float *)k->loss = in_the_tree(sums, leaves);
    else if (k->losses != CHOIR__ROWS_EACH)
        *(float *)k->loss = counted != 0 ? (float)(total / counted) : 0.0f;
    *(float *)k->count = (float)counted;
}

void KERNEL(part_max)(const choir__k_part_max *k)
{
    F32_ONLY(part_max, k);
    const float *max = k->max;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t best = 0;
        for (int64_t p = 1; p < k->parts; p++)
            if (CHOIR__SURPASSES(max[p * k->rows + r], max[best * k->rows + r]))
                best = p;
        k->y[r] = k->index[best * k->rows + r];
    }
}
