/* Weights' gradients by quads: see winograd.h.
 *
 * TOGETHER quads at a time are one product for each element, (out, quads) (quads, in), whose K
 * is cut into quarters. These products are added in the fixed tree. */
#include "device/cpu/context.h"
#include "device/cpu/product/product.h"
#include "device/cpu/product/winograd.h"

/* Four quarters, which a tile adds while they are in the first cache. */
enum { TOGETHER = CHOIR__QUADS_TOGETHER };

typedef struct block {
    const choir__quads *q;
    const void *gy;
    const float *zeros;
    float *x, *y;                 /* (16, quads, in), (16, quads, out) */
    int64_t x_element, y_element; /* cells from one element to the next */
    int64_t first;                /* quad */
} block;

/* Transforms two numbers to four as A does. */
INLINE void mix_pair(vec *to, const vec *g, const int step)
{
    to[0] = g[0];
    to[step] = g[0] + g[step];
    to[2 * step] = g[0] - g[step];
    to[3 * step] = -g[step];
}

/* to (16, quads, out) = A gY A' of quads [first, first + count). */
INLINE void mix_gradients(
    float *to, const block *b, int64_t first, int64_t count, const choir_dtype dtype)
{
    const choir__quads *q = b->q;
    for (int64_t i = 0; i < count; i++, to += q->out) {
        const quad at = quad_at(q, first + i);
        const char *pixel[2 * 2];
        for (int e = 0; e < 4; e++)
            pixel[e] = pixel_or((const char *)b->zeros, b->gy,
                (quad){at.image, at.row + e / 2, at.col + e % 2}, q->rows, q->cols, q->out,
                dtype);
        for (int64_t c = 0; c < q->out; c += W) {
            vec g[2 * SIDE], half[2 * SIDE], all[ELEMENTS];
            for (int e = 0; e < 4; e++)
                g[e] = vector_at(pixel[e], c, dtype);
            for (int j = 0; j < 2; j++)
                mix_pair(half + j, g + j, 2);
            for (int j = 0; j < SIDE; j++)
                mix_pair(all + j * SIDE, half + j * 2, 1);
            for (int e = 0; e < ELEMENTS; e++)
                v_store(to + e * b->y_element + c, all[e]);
        }
    }
}

INLINE void mix_as(const block *b, int64_t first, int64_t count, const choir_dtype dtype)
{
    const choir__quads *q = b->q;
    const int64_t at = b->first + first;
    mix_patches(b->x + first * q->in, b->x_element, q, at, count, b->zeros, dtype);
    mix_gradients(b->y + first * q->out, b, at, count, dtype);
}

static void mix(const void *arg, int64_t first, int64_t count)
{
    const block *b = arg;
    switch (b->q->dtype) {
    case CHOIR_BF16: mix_as(b, first, count, CHOIR_BF16); break;
    case CHOIR_F16: mix_as(b, first, count, CHOIR_F16); break;
    default: mix_as(b, first, count, CHOIR_F32);
    }
}

/* sums (16, out, in) = the products of `count` quads. */
static void multiply(float *sums, int64_t element, const block *b, int64_t count)
{
    const choir__quads *q = b->q;
    choir__k_matmul k = choir__product_of(CHOIR_F32, choir__rows_at(sums, q->in),
        choir__transposed(choir__rows_at(b->y, q->out)), choir__rows_at(b->x, q->in), q->out,
        q->in, count);
    k.batch0 = ELEMENTS;
    k.a_batch0 = b->y_element, k.b_batch0 = b->x_element, k.c_batch0 = element;
    k.cut = quarter_cut(count);
    KERNEL(product_f32)(&k, NULL);
}

static void add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += W)
        v_store(to + i, v_load(to + i) + v_load(from + i));
}

/* Transforms four numbers, `step` apart, to three as G' does. */
INLINE void mix_elements(vec *to, const vec *s, const int step)
{
    const vec half = v_set(0.5f), both = half * (s[step] + s[2 * step]);
    to[0] = s[0] + both;
    to[step] = half * (s[step] - s[2 * step]);
    to[2 * step] = both + s[3 * step];
}

/* gw (out, 3, 3, in) = G' s G. */
static void end(float *gw, const float *sums, int64_t element, const choir__quads *q)
{
    for (int64_t o = 0; o < q->out; o++)
        for (int64_t c = 0; c < q->in; c += W) {
            vec s[ELEMENTS], half[3 * SIDE], g[3 * SIDE];
            for (int e = 0; e < ELEMENTS; e++)
                s[e] = v_load(sums + e * element + o * q->in + c);
            for (int j = 0; j < SIDE; j++)
                mix_elements(half + j, s + j, SIDE);
            for (int j = 0; j < 3; j++)
                mix_elements(g + j * 3, half + j * SIDE, 1);
            for (int e = 0; e < 9; e++)
                v_store(gw + (o * 9 + e) * q->in + c, g[e]);
        }
}

void KERNEL(quads_weight)(const choir__quads *q, const void *gy, float *gw)
{
    const int64_t quads = quads_of(q), most = choir__min(quads, TOGETHER);
    const choir__cut cut = {.outer = 1, .leaves = (quads + TOGETHER - 1) / TOGETHER};
    const int64_t element = q->out * q->in + FREE_CELLS, all = ELEMENTS * element;
    const int64_t zeros = choir__max(q->in, q->out);
    block b = {.q = q,
        .gy = gy,
        .x_element = most * q->in + FREE_CELLS,
        .y_element = most * q->out + FREE_CELLS};
    if (quads == 0) {
        memset(gw, 0, (size_t)(q->out * 9 * q->in) * sizeof *gw);
        return;
    }
    float *room = choir__cpu_workspace(
        choir__cpu_context_current(), (size_t)(zeros + ELEMENTS * (b.x_element + b.y_element) +
                                               choir__quads_nodes(quads) * all) *
                                          sizeof *room);
    memset(room, 0, (size_t)zeros * sizeof *room);
    b.zeros = room;
    b.x = room + zeros;
    b.y = b.x + ELEMENTS * b.x_element;
    float *nodes = b.y + ELEMENTS * b.y_element, *top = nodes; /* a stack */
    for (int64_t l = 0; l < cut.leaves; l++, top += all) {
        b.first = l * TOGETHER;
        const int64_t count = choir__min(TOGETHER, quads - b.first);
        choir__cpu_parallel(count, 64, mix, &b);
        multiply(top, element, &b, count);
        for (int joins = choir__leaf_joins(cut, l); joins > 0; joins--, top -= all)
            for (int e = 0; e < ELEMENTS; e++)
                add(top - all + e * element, top + e * element, q->out * q->in);
    }
    end(gw, nodes, element, q);
}
