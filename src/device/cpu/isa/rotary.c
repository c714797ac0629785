/* Rotary positions: rotates the halves of a vector against each other by the position's
 * angles. */
#include "device/cpu/isa/isa.h"

INLINE void turn(
    float *y, const float *x, const float *cosine, const float *sine, int64_t half, bool back)
{
    for (int64_t i = 0; i < half; i += W) {
        int64_t left = half - i;
        vec a = v_get(x + i, left), b = v_get(x + half + i, left);
        vec c = v_get(cosine + i, left), s = v_get(sine + i, left);
        if (back)
            s = -s;
        v_put(y + i, a * c - b * s, left);
        v_put(y + half + i, b * c + a * s, left);
    }
}

void KERNEL(rotary)(const choir__k_rotary *k)
{
    F32_ONLY(rotary, k);
    const int64_t *xs = k->x.stride, *ys = k->y.stride;
    for (int64_t b = 0; b < k->b; b++)
        for (int64_t t = 0; t < k->t; t++) {
            const float *table = (const float *)k->table + b * k->table_b + t * k->d;
            const float *x = (const float *)k->x.p + b * xs[0] + t * xs[1];
            float *y = (float *)k->y.p + b * ys[0] + t * ys[1];
            for (int64_t h = 0; h < k->h; h++)
                turn(y + h * ys[2], x + h * xs[2], table, table + k->d / 2, k->d / 2, k->back);
        }
}
