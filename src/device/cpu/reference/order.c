/* Reference kernels that order the entries of a line, and that make lines of another length. */
#include "device/cpu/reference/reference.h"
#include "device/kernels/arithmetic.h"

/* Returns true if entry i of the line that begins at `first` comes before entry j. */
static bool comes_before(const choir__k_sort *k, int64_t first, int64_t i, int64_t j)
{
    int64_t at_i = first + i * k->inner, at_j = first + j * k->inner;
    bool less, greater;
    if (is_integer(k->dtype)) {
        int64_t a = get_integer(k->x, at_i, k->dtype), b = get_integer(k->x, at_j, k->dtype);
        less = a<b, greater = a> b;
    } else {
        double a = get(k->x, at_i, k->dtype), b = get(k->x, at_j, k->dtype);
        less = a < b || (isnan(b) && !isnan(a));
        greater = a > b || (isnan(a) && !isnan(b));
    }
    return (k->descending ? greater : less) || (less == greater && i < j);
}

void choir__reference_sort(const choir__k_sort *k)
{
    for (int64_t l = 0; l < k->outer * k->inner; l++) {
        int64_t o = l / k->inner, c = l % k->inner, first = o * k->n * k->inner + c;
        for (int64_t i = 0; i < k->n; i++) {
            int64_t rank = 0;
            for (int64_t j = 0; j < k->n; j++)
                rank += comes_before(k, first, j, i);
            if (rank < k->top)
                k->index[(o * k->top + rank) * k->inner + c] = i;
        }
    }
}

/* Returns the value of one element of y; `row` is its i, or its j in the gradient. */
static double stretched(const choir__k_stretch *k, int64_t o, int64_t row, int64_t c)
{
    int64_t rows = k->back ? k->to : k->from, first = row, end = row + 1;
    double sum = 0;
    if (k->back)
        first = 0, end = k->to;
    for (int64_t i = first; i < end; i++) {
        choir__taps taps = choir__taps_of(k, i);
        for (int t = 0; t < taps.count; t++) {
            int64_t at = k->back ? i : taps.at[t];
            if (!k->back || taps.at[t] == row)
                sum += taps.weight[t] * get(k->x, (o * rows + at) * k->inner + c, k->dtype);
        }
    }
    return sum;
}

void choir__reference_stretch(const choir__k_stretch *k)
{
    int64_t rows = k->back ? k->from : k->to;
    for (int64_t l = 0; l < k->outer * rows * k->inner; l++) {
        int64_t o = l / k->inner / rows, row = l / k->inner % rows;
        put(k->y, l, k->dtype, stretched(k, o, row, l % k->inner));
    }
}
