/* Lines of another length: rows of `inner` neighbours are added with their weights, all lines
 * at once for each pair of an entry and one that it is made of. */
#include "device/cpu/isa/isa.h"

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
