/* Arithmetic on arrays, for every element type and every operation.
 *
 * The loops are plain: they have no multiply-add to contract and no order between elements, so
 * compiling them again for wider vectors changes no bit. bf16 and f16 are computed in f32. */
#include "base/half.h"
#include "comm/reduce.h"

/* The resolvers behind target_clones run before the sanitizers' runtime is up. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&         \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CLONES
#endif

/* Each loop accesses only element i, so out may be a or b; ivdep tells this to the compiler. */
#define COMBINE(name, type, x, expression)                                                     \
    CLONES static void name(void *out_, const void *a_, const void *b_, int64_t n)             \
    {                                                                                          \
        type *out = out_;                                                                      \
        const type *a = a_, *b = b_;                                                           \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                   \
        {                                                                                      \
            type x = a[i], y = b[i];                                                           \
            out[i] = (type)(expression);                                                       \
        }                                                                                      \
    }

#define RESCALE(name, type, expression)                                                        \
    CLONES static void name(void *x_, int64_t n, double scale, int64_t divisor)                \
    {                                                                                          \
        type *x = x_;                                                                          \
        (void)scale;                                                                           \
        (void)divisor;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                        \
            x[i] = (type)(expression);                                                         \
    }

/* A NaN wins over any number. */
#define FLOATS(suffix, type)                                                                   \
    COMBINE(sum_##suffix, type, x, x + y)                                                      \
    COMBINE(product_##suffix, type, x, x *y)                                                   \
    COMBINE(min_##suffix, type, x, x < y || x != x ? x : y)                                    \
    COMBINE(max_##suffix, type, x, x > y || x != x ? x : y)                                    \
    RESCALE(scale_##suffix, type, x[i] * (type)scale)

/* Sums and products wrap around: they are computed in the unsigned type. */
#define INTEGERS(suffix, type, wrapping)                                                       \
    COMBINE(sum_##suffix, wrapping, x, x + y)                                                  \
    COMBINE(product_##suffix, wrapping, x, x *y)                                               \
    COMBINE(min_##suffix, type, x, x < y ? x : y)                                              \
    COMBINE(max_##suffix, type, x, x > y ? x : y)                                              \
    COMBINE(and_##suffix, wrapping, x, x &y)                                                   \
    COMBINE(or_##suffix, wrapping, x, x | y)                                                   \
    COMBINE(xor_##suffix, wrapping, x, x ^ y)

FLOATS(f32, float)
FLOATS(f64, double)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(u8, uint8_t, uint8_t)
RESCALE(divide_i64, int64_t, x[i] / divisor)
RESCALE(divide_i32, int32_t, (double)x[i] / (double)divisor) /* 53 bits are enough for this */
RESCALE(divide_u8, uint8_t, x[i] / divisor)

/* Any byte but 0 is true. */
COMBINE(or_bool, uint8_t, x, (x | y) != 0)
COMBINE(and_bool, uint8_t, x, (x != 0) & (y != 0))
COMBINE(xor_bool, uint8_t, x, (x != 0) ^ (y != 0))

/* A sum of bytes rarely fits a byte, so their mean is added in i32. */
CLONES static void widen_u8(void *out_, const void *in_, int64_t n)
{
    int32_t *restrict out = out_;
    const uint8_t *restrict in = in_;
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i];
}

CLONES static void narrow_u8(void *out_, const void *in_, int64_t n)
{
    uint8_t *restrict out = out_;
    const int32_t *restrict in = in_;
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)in[i];
}

/* --- 16 bits, a piece at a time in f32 --- */

enum { PIECE = 1024 };

#define HALF_COMBINE(name, suffix)                                                             \
    static void name##_##suffix(void *out_, const void *a_, const void *b_, int64_t n)         \
    {                                                                                          \
        uint16_t *out = out_;                                                                  \
        const uint16_t *a = a_, *b = b_;                                                       \
        float x[PIECE], y[PIECE];                                                              \
        for (int64_t i = 0; i < n; i += PIECE) {                                               \
            int64_t piece = choir__min(n - i, PIECE);                                          \
            choir__widen_##suffix(x, a + i, piece);                                            \
            choir__widen_##suffix(y, b + i, piece);                                            \
            name##_f32(x, x, y, piece);                                                        \
            choir__narrow_##suffix(out + i, x, piece);                                         \
        }                                                                                      \
    }

#define HALVES(suffix)                                                                         \
    HALF_COMBINE(sum, suffix)                                                                  \
    HALF_COMBINE(product, suffix)                                                              \
    HALF_COMBINE(min, suffix)                                                                  \
    HALF_COMBINE(max, suffix)                                                                  \
    static void scale_##suffix(void *x_, int64_t n, double scale, int64_t divisor)             \
    {                                                                                          \
        uint16_t *x = x_;                                                                      \
        float wide[PIECE];                                                                     \
        for (int64_t i = 0; i < n; i += PIECE) {                                               \
            int64_t piece = choir__min(n - i, PIECE);                                          \
            choir__widen_##suffix(wide, x + i, piece);                                         \
            scale_f32(wide, piece, scale, divisor);                                            \
            choir__narrow_##suffix(x + i, wide, piece);                                        \
        }                                                                                      \
    }

HALVES(bf16)
HALVES(f16)

/* --- the table --- */

#define FLOAT_ROW(suffix, bytes)                                                               \
    {                                                                                          \
        [CHOIR_SUM] = {bytes, sum_##suffix, scale_##suffix},                                   \
        [CHOIR_MEAN] = {bytes, sum_##suffix, scale_##suffix},                                  \
        [CHOIR_MIN] = {bytes, min_##suffix, scale_##suffix},                                   \
        [CHOIR_MAX] = {bytes, max_##suffix, scale_##suffix},                                   \
        [CHOIR_PRODUCT] = {bytes, product_##suffix, scale_##suffix},                           \
    }

#define HALF(op, name, suffix)                                                                 \
    [op] = {2, name##_##suffix, scale_##suffix, &table[CHOIR_F32][op], choir__widen_##suffix,  \
        choir__narrow_##suffix}

#define HALF_ROW(suffix)                                                                       \
    {                                                                                          \
        HALF(CHOIR_SUM, sum, suffix), HALF(CHOIR_MEAN, sum, suffix),                           \
            HALF(CHOIR_MIN, min, suffix), HALF(CHOIR_MAX, max, suffix),                        \
            HALF(CHOIR_PRODUCT, product, suffix),                                              \
    }

#define INTEGER_ROW(suffix, bytes, ...)                                                        \
    {                                                                                          \
        [CHOIR_SUM] = {bytes, sum_##suffix, divide_##suffix},                                  \
        [CHOIR_MEAN] = {bytes, sum_##suffix, divide_##suffix, __VA_ARGS__},                    \
        [CHOIR_MIN] = {bytes, min_##suffix, divide_##suffix},                                  \
        [CHOIR_MAX] = {bytes, max_##suffix, divide_##suffix},                                  \
        [CHOIR_PRODUCT] = {bytes, product_##suffix, divide_##suffix},                          \
        [CHOIR_BAND] = {bytes, and_##suffix, divide_##suffix},                                 \
        [CHOIR_BOR] = {bytes, or_##suffix, divide_##suffix},                                   \
        [CHOIR_BXOR] = {bytes, xor_##suffix, divide_##suffix},                                 \
    }

static const choir__arith table[CHOIR_DTYPE_COUNT][CHOIR_REDUCE_OP_COUNT] = {
    [CHOIR_F32] = FLOAT_ROW(f32, 4),
    [CHOIR_F64] = FLOAT_ROW(f64, 8),
    [CHOIR_BF16] = HALF_ROW(bf16),
    [CHOIR_F16] = HALF_ROW(f16),
    [CHOIR_I64] = INTEGER_ROW(i64, 8, NULL),
    [CHOIR_I32] = INTEGER_ROW(i32, 4, NULL),
    [CHOIR_U8] = INTEGER_ROW(u8, 1, &table[CHOIR_I32][CHOIR_MEAN], widen_u8, narrow_u8),
    [CHOIR_BOOL] = {[CHOIR_SUM] = {1, or_bool, divide_u8},
        [CHOIR_MIN] = {1, and_bool, divide_u8},
        [CHOIR_MAX] = {1, or_bool, divide_u8},
        [CHOIR_PRODUCT] = {1, and_bool, divide_u8},
        [CHOIR_BAND] = {1, and_bool, divide_u8},
        [CHOIR_BOR] = {1, or_bool, divide_u8},
        [CHOIR_BXOR] = {1, xor_bool, divide_u8}},
};

const choir__arith *choir__arith_find(choir_dtype dtype, choir_reduce_op op)
{
    if ((unsigned)dtype >= CHOIR_DTYPE_COUNT || (unsigned)op >= CHOIR_REDUCE_OP_COUNT)
        return NULL;
    const choir__arith *found = &table[dtype][op];
    return found->size ? found : NULL;
}
