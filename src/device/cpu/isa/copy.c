/* y = x between any strides and dtypes.
 *
 * The shape is simplified as in walk.h. Rows are then copied by one of four inner loops: equal
 * types with stride 1 (move_flat), equal types where x is contiguous along another dimension (a
 * transpose, in tiles), f32 and 16 bits with stride 1 (base/half.c), and conversion element by
 * element, with one function per pair of types. */
#include "base/half.h"
#include "base/past_caches.h"
#include "device/cpu/isa/walk.h"

typedef void copy_row(void *y, int64_t ys, const void *x, int64_t xs, int64_t n);

/* For each type: its type in memory, and how it is read as a plain value and written from
 * one. */
/* Integers wrap, as in C; a float is truncated, and what C leaves undefined is defined: numbers
 * below `least`, or from `beyond` on, saturate, and NaN becomes 0. */
#define WHOLE(v, T, least, beyond, most)                                                       \
    _Generic((v), float                                                                        \
             : ONE_WHOLE((float)(v), T, least, beyond, most), double                           \
             : ONE_WHOLE((double)(v), T, least, beyond, most), default                         \
             : (T)(int64_t)(v))
#define ONE_WHOLE(v, T, least, beyond, most)                                                   \
    ((v) >= (beyond) ? (T)(most) : (v) >= (least) ? (T)(v) : (v) < (least) ? (T)(least) : (T)0)

#define TYPE_F32  float
#define TYPE_F64  double
#define TYPE_BF16 uint16_t
#define TYPE_F16  uint16_t
#define TYPE_I64  int64_t
#define TYPE_I32  int32_t
#define TYPE_U8   uint8_t
#define TYPE_BOOL uint8_t

#define LOAD_F32(v)  (v)
#define LOAD_F64(v)  (v)
#define LOAD_BF16(v) choir__f32_from_bf16(v)
#define LOAD_F16(v)  choir__f32_from_f16(v)
#define LOAD_I64(v)  (v)
#define LOAD_I32(v)  (v)
#define LOAD_U8(v)   (v)
#define LOAD_BOOL(v) ((v) != 0)

#define STORE_F32(v)  ((float)(v))
#define STORE_F64(v)  ((double)(v))
#define STORE_BF16(v) choir__bf16_from_f32((float)(v))
#define STORE_F16(v)  choir__f16_from_f32((float)(v))
#define STORE_I64(v)  WHOLE(v, int64_t, -0x1p63f, 0x1p63f, INT64_MAX)
#define STORE_I32(v)  WHOLE(v, int32_t, -0x1p31f, 0x1p31f, INT32_MAX)
#define STORE_U8(v)   WHOLE(v, uint8_t, 0.0f, 0x1p8f, UINT8_MAX)
#define STORE_BOOL(v) ((uint8_t)((v) != 0))

#define CONVERT(to, from)                                                                      \
    static void from##_to_##to(void *y, int64_t ys, const void *x, int64_t xs, int64_t n)      \
    {                                                                                          \
        TYPE_##to *restrict out = y;                                                           \
        const TYPE_##from *in = x;                                                             \
        if (ys == 1 && xs == 1)                                                                \
            for (int64_t i = 0; i < n; i++)                                                    \
                out[i] = STORE_##to(LOAD_##from(in[i]));                                       \
        else                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                    \
                out[i * ys] = STORE_##to(LOAD_##from(in[i * xs]));                             \
    }
#define CONVERT_FROM(from)                                                                     \
    CONVERT(F32, from)                                                                         \
    CONVERT(F64, from)                                                                         \
    CONVERT(BF16, from)                                                                        \
    CONVERT(F16, from)                                                                         \
    CONVERT(I64, from) CONVERT(I32, from) CONVERT(U8, from) CONVERT(BOOL, from)
CONVERT_FROM(F32)
CONVERT_FROM(F64)
CONVERT_FROM(BF16)
CONVERT_FROM(F16)
CONVERT_FROM(I64)
CONVERT_FROM(I32)
CONVERT_FROM(U8)
CONVERT_FROM(BOOL)

#define ROW_OF(from)                                                                           \
    [CHOIR_##from] = {                                                                         \
        [CHOIR_F32] = from##_to_F32,                                                           \
        [CHOIR_F64] = from##_to_F64,                                                           \
        [CHOIR_BF16] = from##_to_BF16,                                                         \
        [CHOIR_F16] = from##_to_F16,                                                           \
        [CHOIR_I64] = from##_to_I64,                                                           \
        [CHOIR_I32] = from##_to_I32,                                                           \
        [CHOIR_U8] = from##_to_U8,                                                             \
        [CHOIR_BOOL] = from##_to_BOOL,                                                         \
    }
static copy_row *const convert[CHOIR_DTYPE_COUNT][CHOIR_DTYPE_COUNT] = {
    ROW_OF(F32),
    ROW_OF(F64),
    ROW_OF(BF16),
    ROW_OF(F16),
    ROW_OF(I64),
    ROW_OF(I32),
    ROW_OF(U8),
    ROW_OF(BOOL),
};

/* Returns the conversion of dense rows between f32 and 16 bits; NULL: another pair. */
static choir__convert_row *dense_half(choir_dtype to, choir_dtype from)
{
    if (to == CHOIR_F32)
        return from == CHOIR_BF16  ? choir__widen_bf16
               : from == CHOIR_F16 ? choir__widen_f16
                                   : NULL;
    if (from == CHOIR_F32)
        return to == CHOIR_BF16  ? choir__narrow_bf16
               : to == CHOIR_F16 ? choir__narrow_f16
                                 : NULL;
    return NULL;
}

static void move_flat(void *y, const void *x, size_t bytes)
{
    enum { LARGE = 4 << 20 }; /* nothing of it would stay in most caches */
    if (bytes < LARGE) {
        memcpy(y, x, bytes);
        return;
    }
    choir__copy_past_caches(y, x, bytes);
    choir__past_caches_done();
}

#define MOVE(bits)                                                                             \
    static void move_##bits(void *y, int64_t ys, const void *x, int64_t xs, int64_t n)         \
    {                                                                                          \
        uint##bits##_t *restrict out = y;                                                      \
        const uint##bits##_t *in = x;                                                          \
        if (ys == 1 && xs == 1)                                                                \
            move_flat(y, x, (size_t)n * sizeof *in);                                           \
        else                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                    \
                out[i * ys] = in[i * xs];                                                      \
    }
MOVE(8)
MOVE(16)
MOVE(32)
MOVE(64)

/* For rows of a few vectors, this is cheaper than the call of memcpy. */
static void move_32_short(void *y, int64_t ys, const void *x, int64_t xs, int64_t n)
{
    float *out = y;
    const float *in = x;
    (void)ys, (void)xs;
    for (int64_t i = 0; i < n; i += W)
        v_put(out + i, v_get(in + i, n - i), n - i);
}

static copy_row *same_bytes(const walk *w, size_t size)
{
    const int64_t *s = w->stride[w->ndim - 1];
    switch (size) {
    case 1: return move_8;
    case 2: return move_16;
    case 4:
        if (s[0] == 1 && s[1] == 1 && w->shape[w->ndim - 1] <= 256)
            return move_32_short;
        return move_32;
    default: return move_64;
    }
}

/* y's rows run along the last dimension, x's along dimension d. Tiles are small enough that
 * both sides' cache lines stay in L1. */
enum { TILE = 16 };

INLINE void transpose_tile(
    uint32_t *y, int64_t ys, const uint32_t *x, int64_t xs, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * ys + i] = x[i * xs + r];
}

static void transpose(
    uint32_t *y, int64_t ys, const uint32_t *x, int64_t xs, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < n; i += TILE)
        for (int64_t r = 0; r < rows; r += TILE) {
            uint32_t *to = y + r * ys + i;
            const uint32_t *from = x + i * xs + r;
            if (n - i >= TILE && rows - r >= TILE)
                transpose_tile(to, ys, from, xs, TILE, TILE);
            else
                transpose_tile(
                    to, ys, from, xs, choir__min(TILE, rows - r), choir__min(TILE, n - i));
        }
}

/* Moves a dimension along which x is contiguous next to the last one and copies transposed;
 * returns false if x has no such dimension. */
static bool copy_transposed(walk *w)
{
    int last = w->ndim - 1, d = last - 1;
    if (last < 1 || w->stride[last][0] != 1 || w->stride[last][1] <= 1)
        return false;
    while (d >= 0 && w->stride[d][1] != 1)
        d--;
    if (d < 0)
        return false;
    walk outer = *w; /* the last dimension stands for the transposed pair */
    for (int i = d; i < last; i++)
        walk_copy_dim(&outer, i, i + 1);
    outer.ndim = last;
    int64_t at[CHOIR__MAX_DIMS] = {0}, off[WALK_OPERANDS] = {0};
    do
        transpose((uint32_t *)w->p[0] + off[0], w->stride[d][0],
            (const uint32_t *)w->p[1] + off[1], w->stride[last][1], w->shape[d],
            w->shape[last]);
    while (walk_next(&outer, at, off));
    return true;
}

void KERNEL(copy)(const choir__k_copy *k)
{
    size_t y_size = choir_dtype_size(k->y_dtype), x_size = choir_dtype_size(k->x_dtype);
    bool same = k->y_dtype == k->x_dtype;
    if (is_half(k->x_dtype) && k->y_dtype == CHOIR_F32)
        choir__note_way(CHOIR__KERNEL_copy, k->x_dtype, CHOIR__WIDENED);
    walk w = walk_of(k->shape, k->ndim, 2, (const choir__strided *[]){&k->y, &k->x});
    if (!walk_simplify(&w) || (same && y_size == 4 && copy_transposed(&w)))
        return;
    copy_row *row = same ? same_bytes(&w, y_size) : convert[k->x_dtype][k->y_dtype];
    const int64_t *s = w.stride[w.ndim - 1], n = w.shape[w.ndim - 1];
    choir__convert_row *dense =
        s[0] == 1 && s[1] == 1 ? dense_half(k->y_dtype, k->x_dtype) : NULL;
    int64_t at[CHOIR__MAX_DIMS] = {0}, off[WALK_OPERANDS] = {0};
    do {
        char *y = (char *)w.p[0] + off[0] * (int64_t)y_size;
        const char *x = (const char *)w.p[1] + off[1] * (int64_t)x_size;
        if (dense)
            dense(y, x, n);
        else
            row(y, s[0], x, s[1], n);
    } while (walk_next(&w, at, off));
}
