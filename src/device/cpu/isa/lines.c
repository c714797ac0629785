/* Kernels along one dimension of a tensor seen as (outer, n, inner): the greatest or least of a
 * line, and running sums. Lines beside each other in memory are visited together, BLOCK at a
 * time, which makes vectors of them. */
#include "device/cpu/isa/isa.h"

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
