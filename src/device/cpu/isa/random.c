/* Initial values: uniform, or normal by Box and Muller, one vector at a time; and dropout.
 *
 * Words (0, 1) of a block give elements 0 and 1: r cos t and r sin t = r cos(t - pi/2). So both
 * lanes of a pair compute the same formula from the pair's words, the odd one a quarter turn
 * back.
 *
 * Philox: the rounds run on a vector of counters, one per 64-bit lane, which has
 * room for the products; until the end only a lane's lower half is meaningful. Lane l has
 * counter (l / 2) + (l % 2) W/4, so that combining pairs of words leaves them in the order of
 * the elements. */
#include "device/cpu/isa/vector_math.h"

#include "base/rng.h"

/* --- Philox --- */

typedef uint64_t lvec __attribute__((vector_size(4 * W)));

/* The product of the lanes' lower halves, and the even or odd lanes of a and b side by side. */
#if defined(__AVX512F__)
INLINE lvec l_mul(lvec a, lvec b)
{
    return (lvec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
INLINE lvec l_mul(lvec a, lvec b)
{
    return (lvec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
#else
INLINE lvec l_mul(lvec a, lvec b)
{
#if defined(__SSE2__)
    return (lvec)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}
INLINE lvec l_even(lvec a, lvec b)
{
    return (lvec){a[0], b[0]};
}
INLINE lvec l_odd(lvec a, lvec b)
{
    return (lvec){a[1], b[1]};
}
#endif

/* Computes the words of W/2 counters from lo on: the words of W elements, and of the next W
 * elements. */
INLINE void philox(uint64_t key, uint64_t hi, uint64_t lo, ivec words[2])
{
    lvec counter = {0}; /* all are set below, which GCC does not see at -O1 */
    for (int l = 0; l < W / 2; l++)
        counter[l] = lo + (uint64_t)(l / 2 + l % 2 * (W / 4));
    lvec zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    lvec c0 = counter, c1 = counter >> 32, c2 = zero + hi, c3 = zero + (hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        lvec p0 = l_mul(c0, m0), p1 = l_mul(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    lvec low = (c0 & 0xffffffff) | c1 << 32, high = (c2 & 0xffffffff) | c3 << 32;
    words[0] = (ivec)l_even(low, high);
    words[1] = (ivec)l_odd(low, high);
}

/* Converts words to numbers in [0, 1), as choir__unit. */
INLINE vec v_unit(ivec words)
{
    return __builtin_convertvector(words >> 8 & 0xffffff, vec) * 0x1p-24f;
}

/* --- initial values and dropout --- */

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

/* Drops elements of one row's part, whose first has the place `place`. Places are drawn in
 * whole vectors, and the part may begin and end within one. */
static void drop_part(const choir__k_dropout *k, int64_t from, int64_t place)
{
    const float *x = (const float *)k->x + from;
    float *y = (float *)k->y + from, scale = 1.0f / (1.0f - k->p), unit[2 * W];
    for (int64_t c = -(place % (2 * W)); c < k->cols; c += 2 * W) {
        ivec words[2];
        philox(k->key, *k->step, (uint64_t)(place + c) / 4, words);
        for (int j = 0; j < 2; j++)
            v_put(unit + j * W, v_unit(words[j]), W);
        for (int64_t i = choir__max(c, 0); i < choir__min(c + 2 * W, k->cols); i++)
            y[i] = unit[i - c] < k->p ? 0 : x[i] * scale;
    }
}

/* The mask is computed again wherever it is needed. */
void KERNEL(dropout)(const choir__k_dropout *k)
{
    F32_ONLY(dropout, k);
    for (int64_t i = 0; k->cols && i < k->n; i += k->cols)
        drop_part(k, i, choir__dropout_place(k, i));
    if (k->cols)
        return;
    const float *x = k->x;
    float *y = k->y, scale = 1.0f / (1.0f - k->p);
    vec least = v_set(k->p * 0x1p24f); /* unit(word) >= p, both sides times 2^24: exact */
    uint64_t step = *k->step;
    for (int64_t i = 0; i < k->n; i += 2 * W) {
        ivec words[2];
        philox(k->key, step, (uint64_t)(k->first + i) / 4, words);
        for (int j = 0; j < 2; j++) {
            int64_t at = i + j * W, left = k->n - at;
            vec unit = __builtin_convertvector(words[j] >> 8 & 0xffffff, vec);
            vec kept = v_get(x + at, left) * scale;
            v_put(y + at, v_sel(v_lt(unit, least), (vec){0}, kept), left);
        }
    }
}
