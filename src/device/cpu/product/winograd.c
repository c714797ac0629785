/* Convolutions by quads, and their input's gradients: see winograd.h.
 *
 *     weights (o, 3, 3, c) -> (16, o, c), packed once
 *     some quads at a time:  patches -> (16, quads, in) -> 16 products -> (16, quads, out) -> y
 *
 * Patches and sums of a block stay in the second cache, unless channels are many. */
#include "device/cpu/context.h"
#include "device/cpu/product/product.h"
#include "device/cpu/product/winograd.h"

/* NEAR: bytes of a block's patches and sums. LEAST_QUADS of a block: fewer would read the
 * packed weights too often. No bit depends on them. */
enum { NEAR = 1 << 20, LEAST_QUADS = 48, MOST_QUADS = 192 };

typedef struct work {
    const choir__quads *q;
    const float *bias;
    void *y;
    bool turned;
    const float
        *packed; /* (16, each): the weights of each element as product_pack stores them */
    int64_t each;
    int64_t most; /* quads of a block */
} work;

/* --- the weights --- */

/* Transforms three numbers, `step` apart, to four as G does. */
INLINE void mix_weights(vec *to, const vec *g, const int step)
{
    const vec half = v_set(0.5f), ends = g[0] + g[2 * step];
    to[0] = g[0];
    to[step] = half * (ends + g[step]);
    to[2 * step] = half * (ends - g[step]);
    to[3 * step] = g[2 * step];
}

/* to (16, o, c) = G g G' of windows (o, 3, 3, c). */
INLINE void mix_windows(float *to, int64_t element, const void *windows, int64_t o, int64_t c,
    const choir_dtype dtype)
{
    for (int64_t i = 0; i < o; i++)
        for (int64_t j = 0; j < c; j += W) {
            vec g[3 * 3], half[SIDE * 3], all[ELEMENTS];
            for (int p = 0; p < 9; p++)
                g[p] = vector_at(windows, (i * 9 + p) * c + j, dtype);
            for (int p = 0; p < 3; p++)
                mix_weights(half + p, g + p, 3);
            for (int p = 0; p < SIDE; p++)
                mix_weights(all + p * SIDE, half + p * 3, 1);
            for (int e = 0; e < ELEMENTS; e++)
                v_store(to + e * element + i * c + j, all[e]);
        }
}

/* The element of G g G' that turned windows have at e: turning changes the ends of rows and of
 * columns, 0 and 3. */
static int turned_element(int e)
{
    static const int other[SIDE] = {3, 1, 2, 0};
    return other[e / SIDE] * SIDE + other[e % SIDE];
}

/* An element's product: c (quads, out) = a (quads, in) b (in, out). */
static choir__k_matmul product_of(const work *w, float *c, float *a, float *b, int64_t quads)
{
    const choir__quads *q = w->q;
    choir__k_matmul k =
        choir__product_of(CHOIR_F32, choir__rows_at(c, q->out), choir__rows_at(a, q->in),
            w->turned ? choir__rows_at(b, q->out) : choir__transposed(choir__rows_at(b, q->in)),
            quads, q->out, q->in);
    k.cut = quarter_cut(q->in);
    return k;
}

/* Transforms the weights, and packs them for the products of all blocks. */
static void pack_weights(work *w, const void *weights)
{
    const choir__quads *q = w->q;
    choir__cpu_context *context = choir__cpu_context_current();
    const int64_t element = q->in * q->out + FREE_CELLS;
    const int64_t o = w->turned ? q->in : q->out, c = w->turned ? q->out : q->in;
    float *all = choir__cpu_workspace(context, (size_t)(ELEMENTS * element) * sizeof *all);
    switch (q->dtype) {
    case CHOIR_BF16: mix_windows(all, element, weights, o, c, CHOIR_BF16); break;
    case CHOIR_F16: mix_windows(all, element, weights, o, c, CHOIR_F16); break;
    default: mix_windows(all, element, weights, o, c, CHOIR_F32);
    }
    choir__k_matmul k = product_of(w, NULL, NULL, all, 1);
    w->each = KERNEL(product_pack)(NULL, &k);
    float *to = choir__cpu_packed(context, (size_t)(ELEMENTS * w->each) * sizeof *to);
    for (int e = 0; e < ELEMENTS; e++) {
        k = product_of(w, NULL, NULL, all + (w->turned ? turned_element(e) : e) * element, 1);
        KERNEL(product_pack)(to + e * w->each, &k);
    }
    w->packed = to;
}

/* --- quads --- */

/* Transforms four numbers to two as A' does. */
INLINE void mix_sums(vec *to, const vec *m, const int step)
{
    to[0] = m[0] + m[step] + m[2 * step];
    to[step] = m[step] - m[2 * step] - m[3 * step];
}

INLINE void put_vector(void *y, int64_t at, vec x, const choir_dtype dtype)
{
    if (dtype == CHOIR_F32)
        v_store((float *)y + at, x);
    else
        round_vector((uint16_t *)y + at, x, dtype == CHOIR_BF16);
}

/* Writes quads [first, first + count) of y, A' m A of sums (16, quads, out). */
INLINE void mix_quads(const work *w, const float *sums, int64_t element, int64_t first,
    int64_t count, const choir_dtype dtype)
{
    const choir__quads *q = w->q;
    for (int64_t i = 0; i < count; i++, sums += q->out) {
        const quad at = quad_at(q, first + i);
        const int64_t y = ((at.image * q->rows + at.row) * q->cols + at.col) * q->out;
        const bool right = at.col + 1 < q->cols, below = at.row + 1 < q->rows;
        for (int64_t c = 0; c < q->out; c += W) {
            vec m[ELEMENTS], half[2 * SIDE], sum[2 * 2];
            for (int e = 0; e < ELEMENTS; e++)
                m[e] = v_load(sums + e * element + c);
            for (int j = 0; j < SIDE; j++)
                mix_sums(half + j, m + j, SIDE);
            for (int j = 0; j < 2; j++)
                mix_sums(sum + j * 2, half + j * SIDE, 1);
            for (int e = 0; w->bias && e < 4; e++)
                sum[e] += v_load(w->bias + c);
            put_vector(w->y, y + c, sum[0], dtype);
            if (right)
                put_vector(w->y, y + q->out + c, sum[1], dtype);
            if (below)
                put_vector(w->y, y + q->cols * q->out + c, sum[2], dtype);
            if (right && below)
                put_vector(w->y, y + (q->cols + 1) * q->out + c, sum[3], dtype);
        }
    }
}

INLINE void block_as(const work *w, int64_t first, int64_t count, const choir_dtype dtype)
{
    const choir__quads *q = w->q;
    const int64_t in = count * q->in + FREE_CELLS, out = count * q->out + FREE_CELLS;
    float *zeros = choir__cpu_workspace(
        choir__cpu_context_current(), (size_t)(q->in + ELEMENTS * (in + out)) * sizeof *zeros);
    float *x = zeros + q->in, *y = x + ELEMENTS * in;
    memset(zeros, 0, (size_t)q->in * sizeof *zeros);
    mix_patches(x, in, q, first, count, zeros, dtype);
    for (int e = 0; e < ELEMENTS; e++) {
        const choir__k_matmul k = product_of(w, y + e * out, x + e * in, NULL, count);
        KERNEL(product_f32)(&k, &(choir__operands){.packed = w->packed + e * w->each});
    }
    mix_quads(w, y, out, first, count, dtype);
}

static void blocks(const void *arg, int64_t first, int64_t count)
{
    const work *w = arg;
    for (int64_t i = 0, some; i < count; i += some) {
        some = choir__min(w->most, count - i);
        switch (w->q->dtype) {
        case CHOIR_BF16: block_as(w, first + i, some, CHOIR_BF16); break;
        case CHOIR_F16: block_as(w, first + i, some, CHOIR_F16); break;
        default: block_as(w, first + i, some, CHOIR_F32);
        }
    }
}

void KERNEL(quads)(
    const choir__quads *q, const void *weights, const float *bias, void *y, bool turned)
{
    work w = {.q = q, .bias = bias, .y = y, .turned = turned};
    const int64_t bytes = ELEMENTS * (q->in + q->out) * (int64_t)sizeof(float);
    const int64_t fit = choir__min(MOST_QUADS, NEAR / bytes) / LEAST_QUADS * LEAST_QUADS;
    w.most = choir__max(LEAST_QUADS, fit);
    if (quads_of(q) == 0)
        return;
    pack_weights(&w, weights);
    choir__cpu_parallel(quads_of(q), LEAST_QUADS, blocks, &w);
}
