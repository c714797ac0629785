/* Writing blocks of 256: scales that lie near the best in the sense of weighted least squares.
 *
 * For given codes q the best scale and minimum of x = scale q + minimum are the solution of two
 * linear equations. So a search tries some slopes, rounds x to codes by each, solves for scale
 * and minimum, and keeps the codes of least error. The slopes that are tried, the weights of
 * errors and the order of sums are llama.cpp's, so that both programs write the same bytes
 * where it is compiled without contraction to fused multiply-add. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/quant/decode.h"

enum { BLOCK = 256 };

static const int block_bytes[] = {
#define X(name, text, values, bytes, gguf) [CHOIR__##name] = bytes,
    CHOIR__QUANT_LIST(X)
#undef X
};

/* Rounds to the nearest integer, ties to even; |x| is below 2^22. */
static int nearest(float x)
{
    return (int)(choir__bits_of_f32(x + 12582912.0f) & 0x7fffff) - 0x400000;
}

static int limited(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

static void put_half(uint8_t *to, float scale)
{
    const uint16_t half = choir__f16_from_f32(scale);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

/* --- q4_K: runs of 32, x = scale q - least, q of 4 bits --- */

enum { RUN = 32, MOST = 15, TRIES = 20 };

/* A run's numbers: n values, their weights, and sums over both. */
typedef struct run {
    const float *x;
    float weight[RUN], sum_w, sum_x, low, high;
} run;

typedef struct fit {
    float scale, low, error;
} fit;

static run run_of(const float *x)
{
    run r = {.x = x, .low = x[0], .high = x[0]};
    float squares = 0;
    for (int i = 0; i < RUN; i++)
        squares += x[i] * x[i];
    const float usual = sqrtf(squares / RUN);
    for (int i = 0; i < RUN; i++) {
        r.weight[i] = usual + fabsf(x[i]);
        r.low = x[i] < r.low ? x[i] : r.low;
        r.high = x[i] > r.high ? x[i] : r.high;
        r.sum_w = i ? r.sum_w + r.weight[i] : r.weight[i];
        r.sum_x = i ? r.sum_x + r.weight[i] * x[i] : r.weight[i] * x[i];
    }
    r.low = r.low > 0 ? 0 : r.low;
    return r;
}

static float error_of(const run *r, const fit *f, const uint8_t *codes)
{
    float error = 0;
    for (int i = 0; i < RUN; i++) {
        const float off = f->scale * (float)codes[i] + f->low - r->x[i];
        error += r->weight[i] * (off * off);
    }
    return error;
}

/* Rounds to codes by a slope from `low` on, and returns the best fit of these codes. Returns
 * false if all codes are equal: then no fit is the best. */
static bool refit(const run *r, float slope, float low, uint8_t *codes, fit *f)
{
    float l = 0, l2 = 0, xl = 0;
    for (int i = 0; i < RUN; i++) {
        const int code = limited(nearest(slope * (r->x[i] - low)), 0, MOST);
        const float w = r->weight[i], wl = w * (float)code;
        codes[i] = (uint8_t)code;
        l += wl;
        l2 += wl * (float)code;
        xl += wl * r->x[i];
    }
    const float determinant = r->sum_w * l2 - l * l;
    if (!(determinant > 0))
        return false;
    f->scale = (r->sum_w * xl - r->sum_x * l) / determinant;
    f->low = (l2 * r->sum_x - l * xl) / determinant;
    if (f->low > 0) {
        f->low = 0;
        f->scale = xl / l2;
    }
    f->error = error_of(r, f, codes);
    return true;
}

/* Finds scale and least value of a run, and its codes. Later tries begin at the best least
 * value so far. */
static fit fit_run(const float *x, uint8_t *codes)
{
    const run r = run_of(x);
    fit best = {.low = r.low};
    if (r.high == r.low) {
        memset(codes, 0, RUN);
        return best;
    }
    float slope = MOST / (r.high - r.low);
    best.scale = 1 / slope;
    for (int i = 0; i < RUN; i++)
        codes[i] = (uint8_t)limited(nearest(slope * (x[i] - r.low)), 0, MOST);
    best.error = error_of(&r, &best, codes);
    for (int i = 0; i <= TRIES; i++) {
        uint8_t tried[RUN];
        fit f;
        slope = (-1.0f + 0.1f * (float)i + MOST) / (r.high - best.low);
        if (refit(&r, slope, best.low, tried, &f) && f.error < best.error) {
            memcpy(codes, tried, RUN);
            best = f;
        }
    }
    return best;
}

/* Stores scale and minimum number j, of 6 bits each: the reverse of choir__quant_six_bits. */
static void put_six_bits(uint8_t *to, int j, int scale, int least)
{
    if (j < 4) {
        to[j] = (uint8_t)scale;
        to[j + 4] = (uint8_t)least;
        return;
    }
    to[j + 4] = (uint8_t)((scale & 15) | (least & 15) << 4);
    to[j - 4] |= (uint8_t)(scale >> 4 << 6);
    to[j] |= (uint8_t)(least >> 4 << 6);
}

static void encode_q4_k(uint8_t *to, const float *x)
{
    uint8_t codes[BLOCK];
    float scale[8], least[8], most_scale = 0, most_least = 0;
    for (int j = 0; j < 8; j++) {
        const fit f = fit_run(x + RUN * j, codes + RUN * j);
        scale[j] = f.scale;
        least[j] = -f.low;
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_least = least[j] > most_least ? least[j] : most_least;
    }
    const float by_scale = most_scale > 0 ? 63 / most_scale : 0,
                by_least = most_least > 0 ? 63 / most_least : 0;
    put_half(to, most_scale / 63);
    put_half(to + 2, most_least / 63);
    for (int j = 0; j < 8; j++) /* negative scales wrap, as bytes, to the largest */
        put_six_bits(to + 4, j, limited((uint8_t)nearest(by_scale * scale[j]), 0, 63),
            limited((uint8_t)nearest(by_least * least[j]), 0, 63));
    for (int j = 0; j < 8; j++) { /* rounds again, by the scales as they are stored */
        const float d = choir__quant_scale(to) * (float)choir__quant_six_bits(to + 4, j, false),
                    m = choir__quant_scale(to + 2) *
                        (float)choir__quant_six_bits(to + 4, j, true);
        for (int i = RUN * j; d != 0 && i < RUN * (j + 1); i++)
            codes[i] = (uint8_t)limited(nearest((x[i] + m) / d), 0, MOST);
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < RUN; i++)
            to[16 + RUN * j + i] =
                (uint8_t)(codes[2 * RUN * j + i] | codes[2 * RUN * j + RUN + i] << 4);
}

void choir__quant_encode_q4_k(uint8_t *to, const float *x, int64_t blocks)
{
    for (; blocks > 0; blocks--, x += BLOCK, to += block_bytes[CHOIR__Q4_K])
        encode_q4_k(to, x);
}

/* --- q6_K: runs of 16, x = scale q, q of 6 bits with a sign --- */

enum { SHORT = 16, HALF_RANGE = 32 };
#define TINY 1e-15f

/* Sums of x q and q q, with x x as weights, of the codes of one slope. */
static void sums_of(const float *x, float slope, int8_t *codes, float *xq, float *qq)
{
    *xq = *qq = 0;
    for (int i = 0; i < SHORT; i++) {
        const int code = limited(nearest(slope * x[i]), -HALF_RANGE, HALF_RANGE - 1);
        const float w = x[i] * x[i];
        codes[i] = (int8_t)code;
        *xq += w * x[i] * (float)code;
        *qq += w * (float)code * (float)code;
    }
}

/* Returns the scale of a run, and its codes. */
static float scale_of(const float *x, int8_t *codes)
{
    float extreme = 0, most = 0, xq, qq;
    for (int i = 0; i < SHORT; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            extreme = x[i];
        }
    memset(codes, -HALF_RANGE, SHORT);
    if (most < TINY)
        return 0;
    sums_of(x, -HALF_RANGE / extreme, codes, &xq, &qq);
    float scale = qq != 0 ? xq / qq : 0, best = scale * xq;
    for (int i = -9; i <= 9; i++) {
        int8_t tried[SHORT];
        if (i == 0)
            continue;
        sums_of(x, -(HALF_RANGE + 0.1f * (float)i) / extreme, tried, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            memcpy(codes, tried, SHORT);
            scale = xq / qq;
            best = scale * xq;
        }
    }
    return scale;
}

static void encode_q6_k(uint8_t *to, const float *x)
{
    int8_t codes[BLOCK];
    float scale[16], extreme = 0;
    for (int j = 0; j < 16; j++) {
        scale[j] = scale_of(x + SHORT * j, codes + SHORT * j);
        extreme = fabsf(scale[j]) > fabsf(extreme) ? scale[j] : extreme;
    }
    memset(to, 0, (size_t)block_bytes[CHOIR__Q6_K]);
    if (fabsf(extreme) < TINY)
        return;
    const float inverse = -128 / extreme;
    put_half(to + 208, 1 / inverse);
    for (int j = 0; j < 16; j++) {
        const int code = nearest(inverse * scale[j]);
        to[192 + j] = (uint8_t)(int8_t)(code < 127 ? code : 127);
        const float d = choir__quant_scale(to + 208) * (float)(int8_t)to[192 + j];
        for (int i = SHORT * j; d != 0 && i < SHORT * (j + 1); i++)
            codes[i] = (int8_t)limited(nearest(x[i] / d), -HALF_RANGE, HALF_RANGE - 1);
    }
    for (int i = 0; i < BLOCK; i++) {
        const int half = i >> 7, part = i >> 5 & 3, at = i & 31, code = codes[i] + HALF_RANGE;
        to[64 * half + 32 * (part & 1) + at] |= (uint8_t)((code & 15) << 4 * (part >> 1));
        to[128 + 32 * half + at] |= (uint8_t)(code >> 4 << 2 * part);
    }
}

void choir__quant_encode_q6_k(uint8_t *to, const float *x, int64_t blocks)
{
    for (; blocks > 0; blocks--, x += BLOCK, to += block_bytes[CHOIR__Q6_K])
        encode_q6_k(to, x);
}
