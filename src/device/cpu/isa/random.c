/* Initial values: uniform, or normal by Box and Muller, one vector at a time; and dropout.
 *
 * Words (0, 1) of a block give elements 0 and 1: r cos t and r sin t = r cos(t - pi/2). So both
 * lanes of a pair compute the same formula from the pair's words, the odd one a quarter turn
 * back. */
#include "device/cpu/isa/vector_math.h"
#include "device/cpu/isa/philox.h"

/* Returns the even (or odd) words of each pair, in both of its lanes. */
INLINE ivec evens(ivec words)
{
    lvec w = (lvec)words;
    return (ivec)((w & 0xffffffff) | w << 32);
}

INLINE ivec odds(ivec words)
{
    lvec w = (lvec)words;
    return (ivec)(w >> 32 | (w & ~(uint64_t)0xffffffff));
}

/* cos(2 pi u), |u| <= 1: folded to a quarter turn, then sin's Taylor series to x^11 (6e-8 at
 * pi/2). */
INLINE vec v_cos_turn(vec u)
{
    vec a = v_abs(u - v_round(u)); /* [0, 1/2] */
    mask far = v_gt(a, v_set(0.25f));
    vec b = v_sel(far, 0.5f - a, a), x = (0.25f - b) * 6.28318530717958648f, z = x * x;
    vec p = z * -2.50521083854e-8f + 2.75573192240e-6f;
    p = p * z + -1.98412698413e-4f;
    p = p * z + 8.33333333333e-3f;
    p = p * z + -1.66666666667e-1f;
    vec y = p * z * x + x;
    return v_sel(far, -y, y);
}

INLINE vec normal(ivec words)
{
    const vec quarter_back =
        __builtin_convertvector((ivec)((lvec){0} + (1ull << 32)), vec) * -0.25f;
    vec r = v_sqrt(v_log(1.0f - v_unit(evens(words))) * -2.0f);
    return r * v_cos_turn(v_unit(odds(words)) + quarter_back);
}

void KERNEL(random)(const choir__k_random *k)
{
    F32_ONLY(random, k);
    float *y = k->y;
    vec scale = v_set((float)(k->normal ? k->b : k->b - k->a)), shift = v_set((float)k->a);
    for (int64_t i = 0; i < k->n; i += 2 * W) {
        ivec words[2];
        philox(k->key, 0, (k->first + (uint64_t)i) / 4, words);
        for (int j = 0; j < 2; j++) {
            vec drawn = k->normal ? normal(words[j]) : v_unit(words[j]);
            v_put(y + i + j * W, shift + scale * drawn, k->n - i - j * W);
        }
    }
}

/* The mask is computed again wherever it is needed. */
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
