/* Dropout. The mask is computed again wherever it is needed. */
#include "device/cpu/isa/philox.h"

void KERNEL(dropout)(const choir__k_dropout *k)
{
    F32_ONLY(dropout, k);
    const float *x = k->x;
    float *y = k->y, scale = 1.0f / (1.0f - k->p);
    vec least = v_set(k->p * 0x1p24f); /* unit(word) >= p, both sides times 2^24: exact */
    uint64_t step = *k->step;
    for (int64_t i = 0; i < k->n; i += 2 * W) {
        ivec words[2];
        philox(k->key, step, (uint64_t)i / 4, words);
        for (int j = 0; j < 2; j++) {
            int64_t at = i + j * W, left = k->n - at;
            vec unit = __builtin_convertvector(words[j] >> 8 & 0xffffff, vec);
            vec kept = v_get(x + at, left) * scale;
            v_put(y + at, v_sel(v_lt(unit, least), (vec){0}, kept), left);
        }
    }
}
