/* The micro-kernel of the class `amx`: a tile of 32 x 32 sums.
 *
 *     sums (rows, columns) = a (rows, depth) b (depth, columns)      rows, columns <= 32
 *
 * The class has the order of the instruction TDPBF16PS. For each step of 32 k, the terms of
 * even k and those of odd k are two chains of fused multiply-adds from +0, in rising order; the
 * two are added, and their sum is added to the tile's. Rounding is to nearest even, and
 * denormals count as zero, in operands and in results. K is padded with +0 to whole steps.
 *
 * Processors that have the instruction run it, in the copy of this file for AVX-512; the other
 * copies compute the model, in plain C. */
#ifndef CHOIR_PRODUCT_PAIRS_TILE_H
#define CHOIR_PRODUCT_PAIRS_TILE_H

#include "device/cpu/product/amx.h"
#include "device/cpu/product/levels.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/product.h"

enum { TALL = 32, TALLEST = TALL, BROAD = 32, STEP = 32, HALF_TALL = 16, HALF_BROAD = 16 };

/* As in tile.h. A tile takes so little time that B stays in the second cache, not the first. */
enum {
    MOST_M = 256,
    FEW_M = 512,
    FEWER_M = 512,
    MOST_N = 4096,
    MOST_B = 1 << 20,
    SMALL_B = MOST_B
};
enum { CHAIN = CHOIR__PAIRS_CHAIN };

/* Terms of a section of several chains (sections.h): more where tiles may read rows of A where
 * they are, because then a broad block of B, which saves packing A again, gains nothing. */
INLINE int64_t most_deep(const choir__k_matmul *k)
{
    return k->a_col == 1 && k->a_row % STEP == 0 ? 2 * CHAIN : CHAIN;
}

typedef uint16_t cell; /* a bf16 of a panel */

typedef struct tile {
    const cell *a, *b;
    int64_t a_row, a_next; /* a_row: 0, or the distance of rows of an `a` that is not packed */
    const span *spans;     /* a's terms: k is from `a` on; several are of whole steps */
    int span_count;
    real *to; /* receives the sums, in whole blocks of 16 x 16 */
    int64_t to_row;
    levels near, far; /* sums of earlier chains, which are added, the near ones first */
    const real *bias;
    bool accumulate;
} tile;

enum { ENDS_IN_REGISTERS = 0 }; /* bias and accumulate are not used */

/* --- the model --- */

/* x y + sum, whose result is at most 2^-126: rounded as if exponents had no lower end, and 0 if
 * it is below then. The product of two bf16 is exact in f64, and here their sum with f32 too.
 */
static float tiny(float x, float y, float sum)
{
    const double exact = (double)x * (double)y + (double)sum;
    const double magnitude = fabs(exact);
    return copysignf(magnitude < 0x1p-126 - 0x1p-151 ? 0.0f : 0x1p-126f, (float)exact);
}

/* x y + sum, without denormals. */
INLINE vec flushed_fma(vec x, vec y, vec sum)
{
    vec r = v_fma(x, y, sum);
    const vec size = v_abs(r);
    if (__builtin_expect(v_any(v_lt(size, v_set(0x1.000002p-126f))), 0))
        for (int i = 0; i < W; i++)
            if (size[i] <= 0x1p-126f && size[i] > 0)
                r[i] = tiny(x[i], y[i], sum[i]);
    return r;
}

INLINE vec flushed(vec x)
{
    return v_sel(v_lt(v_abs(x), v_set(0x1p-126f)), v_sign((vec){0}, x), x);
}

/* The bf16 in the upper half of 32 bits. */
INLINE vec upper(uint32_t pairs)
{
    float x;
    pairs &= 0xffff0000;
    memcpy(&x, &pairs, sizeof x);
    return flushed(v_set(x));
}

/* Computes one step of one row of the tile, W columns. */
INLINE vec model_step(vec sum, const cell *a, const cell *b)
{
    vec even = {0}, odd = {0};
    for (int i = 0; i < STEP; i += 2) {
        uint32_t left;
        ivec right;
        memcpy(&left, a + i, sizeof left);
        memcpy(&right, b + i * BROAD, sizeof right);
        even = flushed_fma(upper(left << 16), flushed((vec)(right << 16)), even);
        odd =
            flushed_fma(upper(left), flushed((vec)(right & (ivec)(~0xffff - (ivec){0}))), odd);
    }
    return flushed(sum + flushed(even + odd));
}

/* Computes one row of the tile, W columns. */
INLINE vec model_row(const tile *t, int64_t row, const cell *b)
{
    const cell *a = t->a + row * (t->a_row ? t->a_row : STEP);
    vec sum = {0};
    for (const span *s = t->spans; s < t->spans + t->span_count; s++)
        for (int64_t k = 0; k < s->some; k += STEP, b += STEP * BROAD)
            sum = model_step(sum, a + s->k + (t->a_row ? k : k * TALL), b);
    return sum;
}

static void run_model(const tile *t, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < whole(rows, HALF_TALL); i++)
        for (int64_t j = 0; j < whole(columns, HALF_BROAD); j += W)
            v_store(t->to + i * t->to_row + j, model_row(t, i, t->b + 2 * j));
}

/* --- the instruction --- */

#ifdef CHOIR_AMX
#define BY_AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

/* Registers: 0 to 3 have the sums, 4 and 5 rows of a, 6 and 7 columns of b. */
BY_AMX INLINE void amx_step(const cell *a, const cell *below, int64_t a_row, const cell *b,
    const bool lower, const bool right)
{
    _tile_loadd(6, b, BROAD * 4);
    _tile_loadd(4, a, a_row);
    _tile_dpbf16ps(0, 4, 6);
    if (right) {
        _tile_loadd(7, b + 2 * HALF_BROAD, BROAD * 4);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (lower) {
        _tile_loadd(5, below, a_row);
        _tile_dpbf16ps(2, 5, 6);
        if (right)
            _tile_dpbf16ps(3, 5, 7);
    }
}

BY_AMX INLINE void amx_tile(const tile *t, const bool lower, const bool right)
{
    const int64_t a_row = t->a_row ? t->a_row : STEP, a_step = t->a_row ? STEP : TALL * STEP;
    const cell *b = t->b;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (const span *s = t->spans; s < t->spans + t->span_count; s++) {
        const cell *a = t->a + s->k, *below = a + HALF_TALL * a_row;
        for (int64_t k = 0; k < s->some; k += STEP) {
            amx_step(a, below, 2 * a_row, b, lower, right);
            a += a_step, below += a_step, b += STEP * BROAD;
        }
    }
    real *to = t->to, *next = t->to + HALF_TALL * t->to_row;
    _tile_stored(0, to, t->to_row * 4);
    if (right)
        _tile_stored(1, to + HALF_BROAD, t->to_row * 4);
    if (lower)
        _tile_stored(2, next, t->to_row * 4);
    if (lower && right)
        _tile_stored(3, next + HALF_BROAD, t->to_row * 4);
}

BY_AMX static void run_amx(const tile *t, int64_t rows, int64_t columns)
{
    const bool lower = rows > HALF_TALL, right = columns > HALF_BROAD;
    if (lower && right)
        amx_tile(t, true, true);
    else if (lower)
        amx_tile(t, true, false);
    else if (right)
        amx_tile(t, false, true);
    else
        amx_tile(t, false, false);
}

/* All registers: 16 rows of 64 bytes. */
BY_AMX static void begin_tiles(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    if (choir__amx_here())
        _tile_loadconfig(&config);
}

BY_AMX static void end_tiles(void)
{
    if (choir__amx_here())
        _tile_release();
}

static void compute(const tile *t, int64_t rows, int64_t columns)
{
    (choir__amx_here() ? run_amx : run_model)(t, rows, columns);
}

/* Rounds the sums of a whole tile to bf16, after n levels are added to them. The instruction
 * takes denormals for zero: returns false if there are some. */
BY_AMX INLINE bool round_by_amx(uint16_t *c, int64_t c_row, const real *sums,
    const real *const level[], const int n, int64_t rows)
{
    enum { DENORMAL = 0x20 };
    __mmask16 small = 0;
    for (int64_t i = 0; i < rows; i++, c += c_row, sums += BROAD) {
        __m512 left = _mm512_load_ps(sums), right = _mm512_load_ps(sums + HALF_BROAD);
        for (int l = 0; l < n; l++) {
            left = _mm512_loadu_ps(level[l] + i * BROAD) + left;
            right = _mm512_loadu_ps(level[l] + i * BROAD + HALF_BROAD) + right;
        }
        small |= _mm512_fpclass_ps_mask(left, DENORMAL);
        small |= _mm512_fpclass_ps_mask(right, DENORMAL);
        const __m512bh y = _mm512_cvtne2ps_pbh(right, left);
        memcpy(c, &y, sizeof y);
    }
    return !small;
}

BY_AMX static bool round_tile(uint16_t *c, int64_t c_row, const real *sums,
    const real *const level[], int n, int64_t rows)
{
    if (!choir__amx_here())
        return false;
    switch (n) {
    case 0: return round_by_amx(c, c_row, sums, level, 0, rows);
    case 1: return round_by_amx(c, c_row, sums, level, 1, rows);
    case 2: return round_by_amx(c, c_row, sums, level, 2, rows);
    default: return round_by_amx(c, c_row, sums, level, n, rows);
    }
}
#else
INLINE void begin_tiles(void)
{
}
INLINE void end_tiles(void)
{
}

static void compute(const tile *t, int64_t rows, int64_t columns)
{
    run_model(t, rows, columns);
}

INLINE bool round_tile(uint16_t *c, int64_t c_row, const real *sums, const real *const level[],
    int n, int64_t rows)
{
    (void)c, (void)c_row, (void)sums, (void)level, (void)n, (void)rows;
    return false;
}
#endif

INLINE void add_some(
    const tile *t, const real *const level[], const int n, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += RW) {
            real *to = t->to + i * t->to_row + j;
            reals sum = r_load(to);
            for (int l = 0; l < n; l++)
                sum = r_load(level[l] + i * BROAD + j) + sum;
            r_store(to, sum);
        }
}

static void add_levels(
    const tile *t, const real *const level[], int n, int64_t rows, int64_t columns)
{
    switch (n) {
    case 0: break;
    case 1: add_some(t, level, 1, rows, columns); break;
    case 2: add_some(t, level, 2, rows, columns); break;
    default: add_some(t, level, n, rows, columns);
    }
}

static void run_tile(const tile *t, int64_t rows, int64_t columns)
{
    const real *level[64];
    compute(t, rows, columns);
    add_levels(t, level, list_levels(level, &t->near, &t->far), rows, columns);
}

/* Computes a tile of whole rows and rounds it to c, or returns false: t->to has the sums. */
static bool run_rounded(
    const tile *t, int64_t rows, int64_t columns, uint16_t *c, int64_t c_row)
{
    const real *level[64];
    (void)columns; /* BROAD */
    const int n = list_levels(level, &t->near, &t->far);
    compute(t, rows, BROAD);
    if (round_tile(c, c_row, t->to, level, n, rows))
        return true;
    add_levels(t, level, n, rows, BROAD);
    return false;
}

/* True if run_tile writes these sums and none beside them. */
INLINE bool writes_exactly(int64_t rows, int64_t columns)
{
    return rows % HALF_TALL == 0 && columns % HALF_BROAD == 0;
}

#endif
