/* Cross entropy, negative log likelihood, and the count of targets. A row's loss is f32; rows
 * are added in order in f64. */
#include "device/cpu/isa/leaf_sums.h"
#include "device/cpu/isa/vector_math.h"
#include "device/queue.h"

/* Returns true if the row counts. A target that is no class sets *failed and fails the
 * queue. */
static bool counts(
    const char *op, int64_t target, int64_t r, int64_t cols, int64_t ignore, bool *failed)
{
    if (target == ignore)
        return false;
    if (target >= 0 && target < cols)
        return true;
    choir__queue_fail(CHOIR_ERR_RANGE,
        "%s: target %lld of row %lld is outside [0, %lld); fix the labels or set ignore_index",
        op, (long long)target, (long long)r, (long long)cols);
    *failed = true;
    return false;
}

/* Returns log sum exp of a row, and its plain sum. */
static float log_sum_exp(const float *x, int64_t n, float *plain)
{
    vec max[L], sum[L] = {{0}}, all[L] = {{0}}, low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j) max[j] = v_max(max[j], v_get_or(x + c + j * W, n - c - j * W, low));
    float top = lanes_max(max);
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            vec z = v_get_or(x + c + j * W, n - c - j * W, low);
            sum[j] += v_exp_below(z - top);
            if (plain)
                all[j] += v_get(x + c + j * W, n - c - j * W);
        }
    if (plain)
        *plain = lanes_sum(all);
    return top + v_log(v_set(lanes_sum(sum)))[0];
}

/* Returns the mean over the classes of w[c] (lse - x[c]). */
static float weighted_mean(const float *w, const float *x, float lse, int64_t n)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            vec nll = lse - v_get_or(x + c + j * W, n - c - j * W, v_set(lse));
            sum[j] += v_get(w + c + j * W, n - c - j * W) * nll;
        }
    return lanes_sum(sum) / (float)n;
}

static float mean_of(const float *w, int64_t n)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j) sum[j] += v_get(w + c + j * W, n - c - j * W);
    return lanes_sum(sum) / (float)n;
}

void KERNEL(cross_entropy)(const choir__k_cross_entropy *k)
{
    F32_ONLY(cross_entropy, k);
    const float *w = k->weight;
    const int64_t leaves = choir__is_cut(k->cut) ? k->cut.leaves : 0;
    double total = 0, counted = 0;
    leaf_sums sums = new_sums(leaves);
    bool failed = false, score = k->losses == CHOIR__ROWS_SCORE;
    bool each = k->losses == CHOIR__ROWS_EACH || score;
    float s = k->smoothing;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->logits + r * row;
        int64_t t = k->targets[r];
        float plain = 0, lse = log_sum_exp(x, k->cols, s != 0 && !w ? &plain : NULL);
        ((float *)k->lse)[r] = lse;
        if (each)
            ((float *)k->loss)[r] = 0;
        if (score && t == CHOIR__ELSEWHERE)
            continue;
        if (!counts("cross_entropy", t, r, k->cols, k->ignore_index, &failed)) {
            if (failed)
                return;
            continue;
        }
        float nll = w ? w[t] * (lse - x[t]) : lse - x[t];
        if (s != 0)
            nll = (1.0f - s) * nll +
                  s * (w ? weighted_mean(w, x, lse, k->cols) : lse - plain / (float)k->cols);
        if (each)
            ((float *)k->loss)[r] = score ? x[t] : nll;
        total += (double)nll;
        if (leaves)
            sums.sum[choir__cut_leaf_of(k->cut, k->rows, r)] += (double)nll;
        counted += w ? (double)w[t] : 1;
    }
    if (k->losses != CHOIR__ROWS_MEAN)
        counted = 1;
    if (!each && leaves)
        *(float *)k->loss = in_the_tree(sums, leaves);
    else if (!each)
        *(float *)k->loss = counted != 0 ? (float)(total / counted) : 0.0f;
    *(float *)k->count = (float)counted;
}

/* Computes the gradient of a row with class weights w, whose mean is `mean`. gx may be x. */
static void weighted_row(
    const choir__k_cross_entropy_backward *k, int64_t r, float g, const float *w, float mean)
{
    int64_t first = r * choir__row_step(k->row, k->cols);
    const float *x = (const float *)k->logits + first;
    float *gx = (float *)k->glogits + first, lse = ((const float *)k->lse)[r];
    float s = k->smoothing, uniform = s / (float)k->cols;
    int64_t t = k->targets[r];
    float target = (1.0f - s) * w[t], all = target + s * mean;
    float hit = g * (all * v_exp_below(v_set(x[t] - lse))[0] - uniform * w[t] - target);
    for (int64_t c = 0; c < k->cols; c += W) {
        vec p = v_exp_below(v_get(x + c, k->cols - c) - lse);
        v_put(gx + c, (p * all - uniform * v_get(w + c, k->cols - c)) * g, k->cols - c);
    }
    gx[t] = hit;
}

void KERNEL(cross_entropy_backward)(const choir__k_cross_entropy_backward *k)
{
    F32_ONLY(cross_entropy_backward, k);
    const float *gloss = k->gloss, *w = k->weight;
    bool each = k->losses == CHOIR__ROWS_EACH;
    float count = *(const float *)k->count, g = !each && count != 0 ? *gloss / count : 0;
    float s = k->smoothing, uniform = s / (float)k->cols;
    float mean = w && s != 0 ? mean_of(w, k->cols) : 1;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t r = 0; r < k->rows; r++) {
        if (each)
            g = gloss[r];
        const float *x = (const float *)k->logits + r * row;
        float *gx = (float *)k->glogits + r * row, lse = ((const float *)k->lse)[r];
        int64_t t = k->targets[r];
        bool elsewhere = t == CHOIR__ELSEWHERE;
        if (!elsewhere && (t < 0 || t >= k->cols || t == k->ignore_index)) {
            memset(gx, 0, (size_t)k->cols * sizeof *gx);
            continue;
        }
        if (w) {
            weighted_row(k, r, g, w, mean);
            continue;
        }
        float own = elsewhere ? lse : x[t];
        float hit = g * (v_exp_below(v_set(own - lse))[0] - uniform - (1.0f - s));
        for (int64_t c = 0; c < k->cols; c += W) {
            vec p = v_exp_below(v_get(x + c, k->cols - c) - lse);
            v_put(gx + c, (p - uniform) * g, k->cols - c);
        }
        if (!elsewhere)
            gx[t] = hit;
    }
}

void KERNEL(nll)(const choir__k_nll *k)
{
    F32_ONLY(nll, k);
    double total = 0;
    int64_t counted = 0;
    bool failed = false;
    for (int64_t r = 0; r < k->rows; r++) {
        if (!counts("nll_loss", k->targets[r], r, k->cols, k->ignore_index, &failed)) {
            if (failed)
                return;
            continue;
        }
        total -= (double)((const float *)k->x)[r * k->cols + k->targets[r]];
        counted++;
    }
    *(float *)k->loss = counted ? (float)(total / (double)counted) : 0.0f;
    *(float *)k->count = (float)counted;
}

void KERNEL(nll_backward)(const choir__k_nll_backward *k)
{
    F32_ONLY(nll_backward, k);
    float count = *(const float *)k->count,
          g = count > 0 ? -*(const float *)k->gloss / count : 0;
    float *gx = k->gx;
    memset(gx, 0, (size_t)(k->rows * k->cols) * sizeof *gx);
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t t = k->targets[r];
        if (t >= 0 && t < k->cols && t != k->ignore_index)
            gx[r * k->cols + t] = g;
    }
}

void KERNEL(count_targets)(const choir__k_count_targets *k)
{
    F32_ONLY(count_targets, k);
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t t = k->targets[i];
        if (t == k->ignore_index || (k->weight && (t < 0 || t >= k->cols)))
            continue;
        sum += k->weight ? (double)((const float *)k->weight)[t] : 1;
    }
    *k->y = sum;
}

void KERNEL(loss_divisor)(const choir__k_loss_divisor *k)
{
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++)
        sum += k->counts[i];
    *k->sum = sum;
    *k->y = sum != 0 ? (float)(sum / (double)k->n) : 1.0f;
}
