/* The types, and rows of blocks; q4_K and q6_K are written by encode_k.c. */
#include "base/quant/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/quant/decode.h"

const choir__quant_type choir__quant_types[CHOIR__QUANT_COUNT] = {
#define X(name, text, values, bytes, gguf) [CHOIR__##name] = {text, values, bytes, gguf},
    CHOIR__QUANT_LIST(X)
#undef X
};

choir__quant choir__quant_of_gguf(uint32_t number)
{
    int i = 0;
    while (i < CHOIR__QUANT_COUNT && choir__quant_types[i].gguf != number)
        i++;
    return (choir__quant)i;
}

const char *choir__quant_stranger(uint32_t number)
{
    static const struct {
        uint32_t number;
        const char *name;
    } strangers[] = {{16, "iq2_xxs"}, {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"},
        {20, "iq4_nl"}, {21, "iq3_s"}, {22, "iq2_s"}, {23, "iq4_xs"}, {29, "iq1_m"},
        {34, "tq1_0"}, {35, "tq2_0"}, {39, "mxfp4"}, {40, "nvfp4"}, {41, "q1_0"}};
    for (size_t i = 0; i < CHOIR_COUNT(strangers); i++)
        if (strangers[i].number == number)
            return strangers[i].name;
    return NULL;
}

/* --- writing --- */

static void put_half(uint8_t *to, float scale)
{
    const uint16_t half = choir__f16_from_f32(scale);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

/* Returns the value of largest magnitude, the first of equals. */
static float extreme_of(const float *x)
{
    float most = 0, of = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            of = x[i];
        }
    return of;
}

static void encode_q8_0(uint8_t *to, const float *x)
{
    const float scale = fabsf(extreme_of(x)) / 127, inverse = scale != 0 ? 1 / scale : 0;
    put_half(to, scale);
    for (int i = 0; i < 32; i++) {
        const float y = fabsf(x[i] * inverse), whole = floorf(y);
        const int code = (int)whole + (y - whole >= 0.5f); /* halves away from zero */
        to[2 + i] = (uint8_t)(int8_t)(x[i] < 0 ? -code : code);
    }
}

/* Stores codes below `levels`, where the extreme value gets the code 0; returns the scale. */
static float codes_of(uint8_t *codes, const float *x, int levels)
{
    const float scale = extreme_of(x) / (float)(-levels / 2),
                inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < 32; i++) {
        const int code = (int)(x[i] * inverse + ((float)levels / 2 + 0.5f));
        codes[i] = (uint8_t)(code < levels - 1 ? code : levels - 1);
    }
    return scale;
}

static void encode_q4_0(uint8_t *to, const float *x)
{
    uint8_t codes[32];
    put_half(to, codes_of(codes, x, 16));
    for (int i = 0; i < 16; i++)
        to[2 + i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
}

static void encode_q5_0(uint8_t *to, const float *x)
{
    uint8_t codes[32];
    put_half(to, codes_of(codes, x, 32));
    memset(to + 2, 0, 4);
    for (int i = 0; i < 32; i++)
        to[2 + i / 8] |= (uint8_t)(codes[i] >> 4 << i % 8);
    for (int i = 0; i < 16; i++)
        to[6 + i] = (uint8_t)((codes[i] & 15) | codes[16 + i] << 4);
}

void choir__quant_encode(choir__quant type, void *to, const float *x, int64_t n)
{
    const int64_t blocks = n / choir__quant_types[type].values;
    uint8_t *y = to;
    switch (type) {
    case CHOIR__F32: memcpy(to, x, (size_t)n * sizeof *x); break;
    case CHOIR__F16: choir__narrow_f16(to, x, n); break;
    case CHOIR__BF16: choir__narrow_bf16(to, x, n); break;
    case CHOIR__Q4_K: choir__quant_encode_q4_k(to, x, blocks); break;
    case CHOIR__Q6_K: choir__quant_encode_q6_k(to, x, blocks); break;
    case CHOIR__Q8_0:
    case CHOIR__Q4_0:
    case CHOIR__Q5_0:
        for (int64_t i = 0; i < blocks; i++, x += 32, y += choir__quant_types[type].bytes)
            (type == CHOIR__Q8_0      ? encode_q8_0
                : type == CHOIR__Q4_0 ? encode_q4_0
                                      : encode_q5_0)(y, x);
        break;
    default: assert(!"a type that is only read");
    }
}

/* The largest value that fits each type; 0: the type is not written. The largest scale of a
 * block is f16's largest number, and a half step. */
static const float most[CHOIR__QUANT_COUNT] = {[CHOIR__F32] = INFINITY,
    [CHOIR__BF16] = 0x1.fefffep127f,
    [CHOIR__F16] = 65519,
    [CHOIR__Q8_0] = 65519.0f * 127,
    [CHOIR__Q4_0] = 65519.0f * 8,
    [CHOIR__Q5_0] = 65519.0f * 16,
    [CHOIR__Q4_K] = 65519.0f * 15,
    [CHOIR__Q6_K] = 65519.0f * 32};

bool choir__quant_is_written(choir__quant type)
{
    return most[type] > 0;
}

bool choir__quant_fits(choir__quant type, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= most[type]))
            return false;
    return true;
}

/* --- reading --- */

#define DECODE(type)                                                                           \
    static void decode_##type(float *y, const uint8_t *b, int64_t blocks)                      \
    {                                                                                          \
        const int64_t n = choir__quant_types[CHOIR__##type].values;                            \
        for (; blocks > 0; blocks--, y += n, b += choir__quant_types[CHOIR__##type].bytes)     \
            choir__quant_block(CHOIR__##type, y, b);                                           \
    }

DECODE(Q8_0)
DECODE(Q4_0)
DECODE(Q5_0)
DECODE(Q4_K)
DECODE(Q6_K)
DECODE(Q4_1)
DECODE(Q5_1)
DECODE(Q2_K)
DECODE(Q3_K)
DECODE(Q5_K)

static void decode_blocks(choir__quant type, float *y, const uint8_t *b, int64_t blocks)
{
    switch (type) {
    case CHOIR__F32: memcpy(y, b, (size_t)blocks * sizeof *y); break;
    case CHOIR__F16: choir__widen_f16(y, b, blocks); break;
    case CHOIR__BF16: choir__widen_bf16(y, b, blocks); break;
    case CHOIR__Q8_0: decode_Q8_0(y, b, blocks); break;
    case CHOIR__Q4_0: decode_Q4_0(y, b, blocks); break;
    case CHOIR__Q5_0: decode_Q5_0(y, b, blocks); break;
    case CHOIR__Q4_K: decode_Q4_K(y, b, blocks); break;
    case CHOIR__Q6_K: decode_Q6_K(y, b, blocks); break;
    case CHOIR__Q4_1: decode_Q4_1(y, b, blocks); break;
    case CHOIR__Q5_1: decode_Q5_1(y, b, blocks); break;
    case CHOIR__Q2_K: decode_Q2_K(y, b, blocks); break;
    case CHOIR__Q3_K: decode_Q3_K(y, b, blocks); break;
    case CHOIR__Q5_K: decode_Q5_K(y, b, blocks); break;
    default: break;
    }
}

bool choir__quant_is_finite(choir__quant type, const void *row, int64_t n)
{
    /* a block's values are finite if its scales are: the largest f16 is far below f32's */
    static const int scales[CHOIR__QUANT_COUNT][2] = {[CHOIR__Q4_K] = {0, 2},
        [CHOIR__Q6_K] = {208, 208},
        [CHOIR__Q4_1] = {0, 2},
        [CHOIR__Q5_1] = {0, 2},
        [CHOIR__Q2_K] = {80, 82},
        [CHOIR__Q3_K] = {108, 108},
        [CHOIR__Q5_K] = {0, 2}};
    const choir__quant_type *t = &choir__quant_types[type];
    const uint8_t *b = row;
    bool finite = true;
    for (int64_t i = n / t->values; i > 0 && finite; i--, b += t->bytes)
        finite = t->values == 1 ? isfinite(choir__quant_value(type, b, 0))
                                : isfinite(choir__quant_scale(b + scales[type][0])) &&
                                      isfinite(choir__quant_scale(b + scales[type][1]));
    return finite;
}

void choir__quant_decode(choir__quant type, float *y, const void *row, int64_t first, int64_t n)
{
    const int64_t each = choir__quant_types[type].values,
                  bytes = choir__quant_types[type].bytes;
    const uint8_t *b = (const uint8_t *)row + first / each * bytes;
    float room[256];
    while (n > 0) {
        const int64_t from = first % each;
        int64_t some = n / each * each;
        if (from || !some) { /* a part of a block */
            some = n < each - from ? n : each - from;
            decode_blocks(type, room, b, 1);
            memcpy(y, room + from, (size_t)some * sizeof *y);
            b += bytes;
        } else {
            decode_blocks(type, y, b, some / each);
            b += some / each * bytes;
        }
        first += some;
        y += some;
        n -= some;
    }
}
