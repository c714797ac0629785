/* Products of few rows by an operand in blocks of few bits (base/quant): a quantised model
 * writes texts by them. The blocks are read where they are, once, without a copy.
 *
 *     16 bytes of W columns -> transposed: 4 vectors, whose lanes are columns, and have 4 bytes
 *                              of codes; all of a block's bytes go to a room in the first cache
 *     a run of 16 codes     -> times the columns' scales -> terms of each row's sums
 *
 * Where the codes of a run are, base/quant/decode.h says; values equal its formula's. Terms
 * come in rising order of k. Columns are rows of blocks in memory; W of them are `apart` bytes
 * from each other. GROUPS vectors of columns are computed together, because a term waits for
 * the one before, and the blocks of the next columns are fetched meanwhile. */
#ifndef CHOIR_PRODUCT_THIN_HELD_H
#define CHOIR_PRODUCT_THIN_HELD_H

#include "device/cpu/product/pack.h"

/* HELD_SUMS: vectors of sums in registers. HELD_GROUPS: most vectors of columns together.
 * PIECES: of 16 bytes, in a block. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { HELD_SUMS = 8, HELD_GROUPS = 4 };
#else
enum { HELD_SUMS = 4, HELD_GROUPS = 2 };
#endif
enum { PIECE = 16, PIECES = 13, LINE = 64 };

/* Where W columns stand in their blocks, and the values that follow in a row of A. ahead: bytes
 * that are read later. */
typedef struct held_at {
    const real *a; /* (deep, THIN) */
    const char *b, *ahead;
    int64_t apart;
} held_at;

typedef uint32_t held_bits __attribute__((vector_size(4 * W)));

/* A block of W columns: value = scale * (code - middle) + more. A scale belongs to one run of
 * 16 values or to two, or to all. */
typedef struct held_block {
    vec piece[PIECES][4];
    vec scale[16], more[16];
    held_bits bits; /* an upper bit of each code, in types that have them in a word */
} held_block;

/* A run of it. */
typedef struct held_run {
    held_bits code[4];
    vec scale, more;
    held_bits bits;
} held_run;

#define HELD_UNROLL     _Pragma("GCC unroll 16")
#define HELD_EACH_GROUP _Pragma("GCC unroll 4") for (int g = 0; g < groups; g++)
#define HELD_EACH_ROW   _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)

/* --- numbers of W columns --- */

INLINE vec of_codes(held_bits codes)
{
    return __builtin_convertvector((ivec)codes, vec);
}

/* The f16 numbers at b. */
INLINE vec scales_at(const char *b, int64_t apart)
{
    uint16_t scale[W];
    HELD_UNROLL for (int i = 0; i < W; i++) memcpy(scale + i, b + i * apart, sizeof *scale);
    return widened(scale, false);
}

/* The words at b. */
INLINE held_bits words_at(const char *b, int64_t apart)
{
    uint32_t word[W];
    held_bits x;
    HELD_UNROLL for (int i = 0; i < W; i++) memcpy(word + i, b + i * apart, sizeof *word);
    memcpy(&x, word, sizeof x);
    return x;
}

/* Byte i of each lane's bytes, signed. */
INLINE held_bits signed_byte(held_bits x, int i)
{
    return (held_bits)((ivec)(x << (24 - 8 * i)) >> 24);
}

/* --- a block's scales --- */

/* q4_K and q5_K: eight, and as many minima, of 6 bits; see choir__quant_six_bits. */
INLINE void scales_of_six_bits(held_block *x)
{
    const vec scale = half_of(x->piece[0][0], false, false),
              least = half_of(x->piece[0][0], true, false);
    const held_bits low = (held_bits)x->piece[0][1], lower = (held_bits)x->piece[0][2],
                    high = (held_bits)x->piece[0][3];
    for (int j = 0; j < 4; j++) {
        const held_bits nibbles = high >> 8 * j;
        x->scale[j] = scale * of_codes(low >> 8 * j & 63);
        x->more[j] = -(least * of_codes(lower >> 8 * j & 63));
        x->scale[j + 4] = scale * of_codes((nibbles & 15) | (low >> (8 * j + 6) & 3) << 4);
        x->more[j + 4] =
            -(least * of_codes((nibbles >> 4 & 15) | (lower >> (8 * j + 6) & 3) << 4));
    }
}

/* q3_K: sixteen of 6 bits, behind which the block's scale is. Its last 16 bytes are read. */
INLINE void scales_of_q3_k(held_block *x, const char *b, int64_t apart)
{
    vec end[4];
    held_bits word[3];
    turned_of(end, b + 94, apart);
    for (int i = 0; i < 3; i++)
        word[i] = (held_bits)end[i] >> 16 | (held_bits)end[i + 1] << 16;
    const vec scale = half_of(end[3], true, false);
    for (int r = 0; r < 16; r++) {
        const held_bits low = word[(r & 7) / 4] >> (8 * (r & 3) + 4 * (r >> 3)),
                        high = word[2] >> (8 * (r & 3) + 2 * (r >> 2));
        x->scale[r] = scale * of_codes(((low & 15) | (high & 3) << 4) - 32);
    }
}

INLINE void scales_of_256(const choir__quant type, held_block *x, const char *b, int64_t apart)
{
    if (type == CHOIR__Q4_K || type == CHOIR__Q5_K)
        scales_of_six_bits(x);
    if (type == CHOIR__Q3_K)
        scales_of_q3_k(x, b, apart);
    if (type == CHOIR__Q6_K) {
        const vec scale = scales_at(b + 208, apart);
        for (int r = 0; r < 16; r++)
            x->scale[r] = scale * of_codes(signed_byte((held_bits)x->piece[12][r / 4], r % 4));
    }
    if (type == CHOIR__Q2_K) {
        const vec both = (vec)words_at(b + 80, apart);
        const vec scale = half_of(both, false, false), least = half_of(both, true, false);
        for (int r = 0; r < 16; r++) {
            const held_bits byte = (held_bits)x->piece[0][r / 4] >> 8 * (r % 4);
            x->scale[r] = scale * of_codes(byte & 15);
            x->more[r] = -(least * of_codes(byte >> 4 & 15));
        }
    }
}

/* Returns whether the upper bits of a block's codes are in a word. */
INLINE bool has_word(const choir__quant type)
{
    return type == CHOIR__Q5_0 || type == CHOIR__Q5_1;
}

INLINE void scales_of_32(const choir__quant type, held_block *x, const char *b, int64_t apart)
{
    if (type == CHOIR__Q4_1 || type == CHOIR__Q5_1) {
        const vec both = (vec)words_at(b, apart);
        x->scale[0] = half_of(both, false, false);
        x->more[0] = half_of(both, true, false);
    } else {
        x->scale[0] = scales_at(b, apart);
    }
    if (has_word(type))
        x->bits = words_at(b + (type == CHOIR__Q5_0 ? 2 : 4), apart);
}

/* --- blocks, runs, values --- */

/* Returns where the pieces of a block begin. */
INLINE int64_t first_piece(const choir__quant type)
{
    return choir__quant_types[type].values == 256 ? 0
           : type == CHOIR__Q5_1                  ? 8
           : type == CHOIR__Q5_0                  ? 6
           : type == CHOIR__Q4_1                  ? 4
                                                  : 2;
}

INLINE void begin_block(const choir__quant type, held_block *x, const char *b, int64_t apart)
{
    const int64_t first = first_piece(type), bytes = choir__quant_types[type].bytes;
    const int pieces = (int)((bytes - first) / PIECE);
    _Pragma("GCC unroll 2") for (int i = 0; i < pieces; i++)
        turned_of(x->piece[i], b + first + i * PIECE, apart);
    if (choir__quant_types[type].values == 256)
        scales_of_256(type, x, b, apart);
    else
        scales_of_32(type, x, b, apart);
}

/* Returns run r of a block; b: its first column. */
INLINE held_run run_of(const choir__quant type, const held_block *x, const char *b, int r)
{
    const choir__quant_codes c = choir__quant_codes_of(type);
    const choir__quant_run at = choir__quant_run_of(type, (const uint8_t *)b, r);
    const uint8_t *first = (const uint8_t *)b + first_piece(type);
    const vec *low = x->piece[(at.low - first) / PIECE];
    const int scale = choir__quant_types[type].values == 32        ? 0
                      : type == CHOIR__Q4_K || type == CHOIR__Q5_K ? r / 2
                                                                   : r;
    const uint32_t each = 0x01010101;
    held_run run;
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        run.code[i] = (held_bits)low[i] >> at.shift;
        if (c.high_mask && at.high) {
            const vec *high = x->piece[(at.high - first) / PIECE];
            run.code[i] = (run.code[i] & each * (uint32_t)c.mask) |
                          ((held_bits)high[i] >> at.high_shift & each * (uint32_t)c.high_mask)
                              << c.place;
        }
    }
    run.scale = x->scale[scale];
    if (c.least)
        run.more = x->more[scale];
    if (has_word(type))
        run.bits = x->bits >> CHOIR__RUN * r;
    return run;
}

/* scale * code + more. The product is exact: a scale has up to 19 bits, a code up to 5. */
INLINE vec scaled(vec scale, vec code, vec more)
{
#if defined(__AVX2__) || defined(__aarch64__)
    return v_fma(scale, code, more);
#else
    return scale * code + more;
#endif
}

/* Value k of a run. */
INLINE vec value_of(const choir__quant type, const held_run *run, int k)
{
    const choir__quant_codes c = choir__quant_codes_of(type);
    const bool in_word = has_word(type);
    const held_bits word = run->code[k / 4];
    held_bits code = word >> 8 * (k % 4) & (c.high_mask && !in_word ? 255 : c.mask);
    if (type == CHOIR__Q8_0)
        code = signed_byte(word, k % 4);
    if (in_word)
        code |= (run->bits >> k & 1) << c.place;
    const vec x = of_codes(code - (uint32_t)c.middle);
    return c.least ? scaled(run->scale, x, run->more) : run->scale * x;
}

/* --- sums --- */

/* Adds a block's terms to the sums of `groups` vectors of columns, of each row. */
INLINE void add_block(const choir__quant type, vec sum[HELD_GROUPS][THIN], const int rows,
    const int groups, const held_at *at, held_block *x)
{
    const int runs = (int)choir__quant_types[type].values / CHOIR__RUN;
    const real *a = at->a;
    HELD_EACH_GROUP begin_block(type, x + g, at->b + g * W * at->apart, at->apart);
    for (int r = 0; r < runs; r++, a += CHOIR__RUN * THIN) {
        held_run run[HELD_GROUPS];
        HELD_EACH_GROUP run[g] = run_of(type, x + g, at->b, r);
        HELD_UNROLL for (int k = 0; k < CHOIR__RUN; k++) HELD_EACH_GROUP
        {
            const vec value = value_of(type, run + g, k);
            HELD_EACH_ROW sum[g][i] = v_fma(v_set(a[k * THIN + i]), value, sum[g][i]);
        }
    }
}

/* Adds a span's terms, whole blocks, to sums of `groups` vectors of columns: (rows, room). */
INLINE void add_held(const choir__quant type, const int rows, const int groups, held_at at,
    int64_t depth, real *sums, int64_t room)
{
    const int64_t values = choir__quant_types[type].values,
                  bytes = choir__quant_types[type].bytes;
    held_block block[HELD_GROUPS];
    vec sum[HELD_GROUPS][THIN];
    HELD_EACH_GROUP HELD_EACH_ROW sum[g][i] = v_load(sums + i * room + g * W);
    for (; depth > 0; depth -= values) {
        for (int64_t i = 0; i < groups * W * bytes; i += LINE)
            __builtin_prefetch(at.ahead + i, 0, 2); /* maybe beyond B */
        add_block(type, sum, rows, groups, &at, block);
        at.a += values * THIN;
        at.b += bytes;
        at.ahead += groups * W * bytes;
    }
    HELD_EACH_GROUP HELD_EACH_ROW v_store(sums + i * room + g * W, sum[g][i]);
}

/* Returns how many vectors of columns are computed together. */
INLINE int held_groups(int64_t rows)
{
    return (int)choir__min(HELD_GROUPS, choir__max(1, HELD_SUMS / rows));
}

#define HELD_ROWS(rows)                                                                        \
    case rows:                                                                                 \
        if (columns == W)                                                                      \
            add_held(type, rows, 1, at, depth, sums, room);                                    \
        else                                                                                   \
            add_held(type, rows, held_groups(rows), at, depth, sums, room);                    \
        break;
INLINE void add_held_rows(const choir__quant type, int64_t rows, int64_t columns, held_at at,
    int64_t depth, real *sums, int64_t room)
{
    switch (rows) {
        HELD_ROWS(1)
        HELD_ROWS(2)
        HELD_ROWS(4)
        HELD_ROWS(8)
    }
}

#define HELD_TYPE(name)                                                                        \
    static void add_##name(                                                                    \
        int64_t rows, int64_t columns, held_at at, int64_t depth, real *sums, int64_t room)    \
    {                                                                                          \
        add_held_rows(CHOIR__##name, rows, columns, at, depth, sums, room);                    \
    }
EACH_BLOCKS(HELD_TYPE)

static void add_held_type(choir__quant type, int64_t rows, int64_t columns, held_at at,
    int64_t depth, real *sums, int64_t room)
{
    switch (type) {
#define HELD_CASE(name)                                                                        \
    case CHOIR__##name: add_##name(rows, columns, at, depth, sums, room); break;
        EACH_BLOCKS(HELD_CASE)
    default: break; /* a type of single values */
    }
}

/* True if an operand's blocks are read in place: its rows are columns of B, and its values are
 * not rounded once more. */
INLINE bool is_read_held(const matrix *b)
{
    return b->dtype == CHOIR_F32 && b->next == 1 && b->apart != 1 &&
           choir__quant_types[b->held].values > 1;
}

/* Adds a span's terms of `columns` columns, a multiple of W. */
static void add_held_span(const matrix *b, int64_t rows, const real *a, int64_t column,
    int64_t columns, const span *s, real *sums, int64_t room)
{
    const choir__quant_type *type = &choir__quant_types[b->held];
    const int64_t most = held_groups(rows) * W, block = s->k / type->values;
    for (int64_t j = 0, some; j < columns; j += some) {
        some = columns - j < most ? W : most;
        const char *first = (const char *)b->p + (column + j) * b->row_bytes;
        const held_at at = {.a = a,
            .b = first + block * type->bytes,
            .ahead = first + some * (b->row_bytes + block * type->bytes),
            .apart = b->row_bytes};
        add_held_type(b->held, rows, some, at, s->some, sums + j, room);
    }
}

#endif
