/* Reference kernels for random numbers. Element i always uses word i % 4 of Philox block i / 4,
 * so a number depends on its key and place alone. */
#include "base/rng.h"
#include "device/cpu/reference/reference.h"

void choir__reference_dropout(const choir__k_dropout *k)
{
    double scale = 1 / (1 - (double)k->p);
    for (int64_t i = 0; i < k->n; i++) {
        uint32_t word[4];
        int64_t at = choir__dropout_place(k, i);
        choir__philox(k->key, *k->step, (uint64_t)at / 4, word);
        bool keep = choir__unit(word[at % 4]) >= k->p;
        put(k->y, i, k->dtype, keep ? get(k->x, i, k->dtype) * scale : 0);
    }
}

/* Box-Muller: words 0 and 1 give elements 0 and 1, words 2 and 3 give 2 and 3. */
static double normal(const uint32_t word[4], int lane)
{
    const uint32_t *pair = word + lane / 2 * 2;
    double r = sqrt(-2 * choir__log(1 - (double)choir__unit(pair[0])));
    double angle = 2 * 3.14159265358979323846 * (double)choir__unit(pair[1]);
    return lane % 2 == 0 ? r * choir__cos(angle) : r * choir__sin(angle);
}

void choir__reference_random(const choir__k_random *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        uint64_t at = k->first + (uint64_t)i;
        int lane = (int)(at % 4);
        uint32_t word[4];
        choir__philox(k->key, 0, at / 4, word);
        if (k->normal)
            put(k->y, i, k->dtype, k->a + k->b * normal(word, lane));
        else
            put(k->y, i, k->dtype, k->a + (k->b - k->a) * (double)choir__unit(word[lane]));
    }
}
