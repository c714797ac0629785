/* Reference kernel for rotary positions. */
#include "device/cpu/reference/reference.h"

void choir__reference_rotary(const choir__k_rotary *k)
{
    int64_t half = k->d / 2, index[4] = {0}, shape[4] = {k->b, k->t, k->h, half};
    choir_dtype dtype = k->dtype, wide = wide_dtype(dtype);
    if (is_empty(shape, 4))
        return;
    do {
        int64_t x = offset_of(&k->x, index, 4), y = offset_of(&k->y, index, 4);
        int64_t angle = index[0] * k->table_b + index[1] * k->d + index[3];
        double c = get(k->table, angle, wide), s = get(k->table, angle + half, wide);
        double a = get(k->x.p, x, dtype), b = get(k->x.p, x + half * k->x.stride[3], dtype);
        s = k->back ? -s : s;
        put(k->y.p, y, dtype, a * c - b * s);
        put(k->y.p, y + half * k->y.stride[3], dtype, b * c + a * s);
    } while (next_index(index, shape, 4));
}
