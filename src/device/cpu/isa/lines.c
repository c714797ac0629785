/* Kernels along one dimension of a tensor seen as (outer, n, inner): the greatest or least of a
 * line, running sums, and lines of another length. Lines beside each other in memory are
 * visited together, BLOCK at a time, which makes vectors of them. */
#include "device/cpu/isa/isa.h"
#include "device/kernels/arithmetic.h"

enum { BLOCK = 64 };

/* The lines of `width` columns from x on; rows are `inner` apart. */
INLINE void extreme_block(const float *x, float *y, int64_t *index, int64_t n, int64_t inner,
    int64_t width, bool least)
{
    float best[BLOCK];
    int64_t at[BLOCK];
    for (int64_t j = 0; j < width; j++)
        best[j] = x[j], at[j] = 0;
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < width; j++) {
            float v = x[i * inner + j];
            bool better = least ? v < best[j] : v > best[j];
            better |= v != v && best[j] == best[j]; /* the first NaN */
            at[j] = better ? i : at[j];
            best[j] = better ? v : best[j];
        }
    for (int64_t j = 0; j < width; j++)
        y[j] = best[j];
    if (index)
        memcpy(index, at, (size_t)width * sizeof *at);
}

void KERNEL(extreme)(const choir__k_extreme *k)
{
    F32_ONLY(extreme, k);
    for (int64_t o = 0; o < k->outer; o++)
        for (int64_t c = 0; c < k->inner; c += BLOCK) {
            const float *x = (const float *)k->x + o * k->n * k->inner + c;
            int64_t to = o * k->inner + c, width = choir__min(BLOCK, k->inner - c);
            int64_t *index = k->index ? k->index + to : NULL;
            if (k->least)
                extreme_block(x, (float *)k->y + to, index, k->n, k->inner, width, true);
            else
                extreme_block(x, (float *)k->y + to, index, k->n, k->inner, width, false);
        }
}

void KERNEL(cumsum)(const choir__k_cumsum *k)
{
    F32_ONLY(cumsum, k);
    for (int64_t o = 0; o < k->outer; o++)
        for (int64_t c = 0; c < k->inner; c += BLOCK) {
            int64_t first = o * k->n * k->inner + c, width = choir__min(BLOCK, k->inner - c);
            double sum[BLOCK] = {0};
            for (int64_t i = 0; i < k->n; i++) {
                int64_t at = first + (k->back ? k->n - 1 - i : i) * k->inner;
                const float *x = (const float *)k->x + at;
                float *y = (float *)k->y + at;
                for (int64_t j = 0; j < width; j++) {
                    sum[j] += (double)x[j];
                    y[j] = (float)sum[j];
                }
            }
        }
}

/* --- lines of another length: rows of `inner` neighbours are added with their weights --- */

/* Adds row `from` of each line of x, times weight, to row `to` of the same line of y; `first`:
 * replaces it. x and y have x_rows and y_rows rows per line. */
static void add_rows(const choir__k_stretch *k, int64_t to, int64_t y_rows, int64_t from,
    int64_t x_rows, float weight, bool first)
{
    int64_t n = k->inner;
    for (int64_t o = 0; o < k->outer; o++) {
        const float *x = (const float *)k->x + (o * x_rows + from) * n;
        float *y = (float *)k->y + (o * y_rows + to) * n;
        for (int64_t c = 0; c < n; c += W) {
            vec term = v_get(x + c, n - c) * weight;
            v_put(y + c, first ? term : v_get(y + c, n - c) + term, n - c);
        }
    }
}

void KERNEL(stretch)(const choir__k_stretch *k)
{
    F32_ONLY(stretch, k);
    if (k->back)
        memset(k->y, 0, (size_t)(k->outer * k->from * k->inner) * sizeof(float));
    for (int64_t i = 0; i < k->to; i++) {
        choir__taps taps = choir__taps_of(k, i);
        for (int t = 0; t < taps.count; t++)
            if (k->back)
                add_rows(k, taps.at[t], k->from, i, k->to, (float)taps.weight[t], false);
            else
                add_rows(k, i, k->to, taps.at[t], k->from, (float)taps.weight[t], t == 0);
    }
}
