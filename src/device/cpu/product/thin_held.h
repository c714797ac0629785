/* Products of few rows by an operand in blocks of few bits (base/quant): a quantised model
 * writes texts by them. The blocks are read where they are, without a copy.
 *
 *     16 bytes of W columns -> transposed in registers: 4 vectors, whose lanes are columns, and
 *                              have 4 bytes of codes
 *     a byte, or a half     -> code -> times the columns' scales -> one term of each row's sums
 *
 * Values equal base/quant/decode.h's, operation by operation, and terms come in rising
 * order of k. Columns are rows of blocks in memory; W of them are `apart` bytes from each
 * other. */
#ifndef CHOIR_PRODUCT_THIN_HELD_H
#define CHOIR_PRODUCT_THIN_HELD_H

#include "device/cpu/product/pack.h"

/* Where W columns stand in their blocks, and the values that follow in a row of A. */
typedef struct held_at {
    const real *a; /* (deep, THIN) */
    const char *b;
    int64_t apart;
} held_at;

/* The numbers of a run of codes, by column: value = scale * (code - middle) - least. */
typedef struct coded {
    vec scale, least;
} coded;

typedef uint32_t held_bits __attribute__((vector_size(4 * W)));

/* The f16 numbers at b. */
INLINE vec scales_of(const char *b, int64_t apart)
{
    uint16_t scale[W];
    for (int i = 0; i < W; i++, b += apart)
        memcpy(scale + i, b, sizeof *scale);
    return widened(scale, false);
}

INLINE vec of_codes(held_bits codes)
{
    return __builtin_convertvector((ivec)codes, vec);
}

/* Element `byte` of each lane's 4 bytes, or of their lower or upper halves. */
INLINE vec value_of(const choir__quant type, vec bytes, int byte, bool upper, coded c)
{
    const held_bits x = (held_bits)bytes;
    if (type == CHOIR__Q8_0)
        return c.scale * of_codes((held_bits)((ivec)(x << (24 - 8 * byte)) >> 24));
    const held_bits code = x >> (8 * byte + 4 * upper) & 15;
    if (type == CHOIR__Q4_0)
        return c.scale * of_codes(code - 8);
    return c.scale * of_codes(code) - c.least;
}

/* Adds 16 terms of W columns, whose codes are 16 bytes at b. */
INLINE void add_codes(const choir__quant type, vec sum[], const int rows, const real *a,
    const char *b, int64_t apart, bool upper, coded c)
{
    vec bytes[4];
    turned_of(bytes, b, apart);
    _Pragma("GCC unroll 16") for (int k = 0; k < 16; k++)
    {
        const vec x = value_of(type, bytes[k / 4], k % 4, upper, c);
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) sum[i] =
            v_fma(v_set(a[k * THIN + i]), x, sum[i]);
    }
}

/* Scale and minimum of run j of a block of q4_K, from its 12 bytes of them. */
INLINE coded run_of(const vec packed[4], int j, vec scale, vec least)
{
    const held_bits low = (held_bits)packed[0], lower = (held_bits)packed[1],
                    high = (held_bits)packed[2];
    held_bits s, m;
    if (j < 4) {
        s = low >> 8 * j & 63;
        m = lower >> 8 * j & 63;
    } else {
        const int i = 8 * (j - 4);
        s = (high >> i & 15) | (low >> (i + 6) & 3) << 4;
        m = (high >> (i + 4) & 15) | (lower >> (i + 6) & 3) << 4;
    }
    return (coded){scale * of_codes(s), least * of_codes(m)};
}

/* Adds a block's terms of W columns. */
INLINE void add_block(const choir__quant type, vec sum[], const int rows, const held_at *at)
{
    const char *b = at->b;
    if (type == CHOIR__Q4_K) {
        const vec scale = scales_of(b, at->apart), least = scales_of(b + 2, at->apart);
        vec packed[4];
        turned_of(packed, b + 4, at->apart);
        for (int j = 0; j < 8; j++) { /* runs of 32; two share their bytes */
            const coded c = run_of(packed, j, scale, least);
            const char *codes = b + 16 + j / 2 * 32;
            const real *a = at->a + (int64_t)j * 32 * THIN;
            add_codes(type, sum, rows, a, codes, at->apart, j % 2, c);
            add_codes(type, sum, rows, a + 16 * THIN, codes + 16, at->apart, j % 2, c);
        }
        return;
    }
    const bool bytes = type == CHOIR__Q8_0;
    const coded c = {.scale = scales_of(b, at->apart)};
    add_codes(type, sum, rows, at->a, b + 2, at->apart, false, c);
    add_codes(type, sum, rows, at->a + 16 * THIN, b + (bytes ? 18 : 2), at->apart, !bytes, c);
}

/* Adds a span's terms, whole blocks, to sums of W columns: (rows, room). */
INLINE void add_held(const choir__quant type, const int rows, held_at at, int64_t depth,
    real *sums, int64_t room)
{
    const int64_t each = choir__quant_types[type].values;
    vec sum[THIN];
    for (int i = 0; i < rows; i++)
        sum[i] = v_load(sums + i * room);
    for (; depth > 0; depth -= each) {
        add_block(type, sum, rows, &at);
        at.a += each * THIN;
        at.b += choir__quant_types[type].bytes;
    }
    for (int i = 0; i < rows; i++)
        v_store(sums + i * room, sum[i]);
}

#define HELD_ROWS(rows)                                                                        \
    case rows: add_held(type, rows, at, depth, sums, room); break;
INLINE void add_held_rows(
    const choir__quant type, int64_t rows, held_at at, int64_t depth, real *sums, int64_t room)
{
    switch (rows) {
        HELD_ROWS(1)
        HELD_ROWS(2)
        HELD_ROWS(4)
        HELD_ROWS(8)
    }
}

#define HELD_TYPE(name)                                                                        \
    static void add_##name(int64_t rows, held_at at, int64_t depth, real *sums, int64_t room)  \
    {                                                                                          \
        add_held_rows(CHOIR__##name, rows, at, depth, sums, room);                             \
    }
HELD_TYPE(Q8_0)
HELD_TYPE(Q4_0)
HELD_TYPE(Q4_K)

/* True if an operand's blocks are read in place: its rows are columns of B, and its values are
 * not rounded once more. */
INLINE bool is_read_held(const matrix *b)
{
    return b->dtype == CHOIR_F32 && b->next == 1 && b->apart != 1 &&
           (b->held == CHOIR__Q8_0 || b->held == CHOIR__Q4_0 || b->held == CHOIR__Q4_K);
}

/* Adds a span's terms of `columns` columns, a multiple of W. */
static void add_held_span(const matrix *b, int64_t rows, const real *a, int64_t column,
    int64_t columns, const span *s, real *sums, int64_t room)
{
    const choir__quant_type *type = &choir__quant_types[b->held];
    for (int64_t j = 0; j < columns; j += W) {
        const held_at at = {.a = a,
            .b = (const char *)b->p + (column + j) * b->row_bytes +
                 s->k / type->values * type->bytes,
            .apart = b->row_bytes};
        (b->held == CHOIR__Q8_0      ? add_Q8_0
            : b->held == CHOIR__Q4_0 ? add_Q4_0
                                     : add_Q4_K)(rows, at, s->some, sums + j, room);
    }
}

#endif
