/* Small matrix products beside oneDNN, whose calls take longer than their sums, and the few
 * that it has no fast kernel for.
 *
 * C first gets the sums' start values; then one tile of it at a time stays in registers while a
 * block of k is processed. The operands are copied into the order of reading: A in panels of
 * TALL rows, B in panels of BROAD columns, with zeros beyond the edges. An element's sum runs
 * over k in order, with one product and one addition per term (isa/tile.h), for any blocks: so
 * all instruction sets, and a plain loop, give the same bits. It runs on one thread. */
#define TERMS_APART
#include "device/cpu/product/product.h"
#include "device/cpu/isa/tile.h"

enum { BLOCK_K = 256, BLOCK_M = 96, BLOCK_N = 2048 }; /* size of the copies: 96 KiB and 2 MiB */

/* Copies (count, k) elements, `apart` and `next` apart along each dimension, to panels of
 * `each`: (count / each, k, each). */
INLINE void pack(float *to, const float *from, int64_t apart, int64_t next, int64_t count,
    int64_t k, int64_t each)
{
    for (int64_t first = 0; first < count; first += each) {
        int64_t there = choir__min(each, count - first);
        const float *x = from + first * apart;
        for (int64_t p = 0; p < k; p++, to += each, x += next) {
            if (apart == 1 && there == each) {
                memcpy(to, x, (size_t)each * sizeof *to);
                continue;
            }
            for (int64_t i = 0; i < each; i++)
                to[i] = i < there ? x[i * apart] : 0.0f;
        }
    }
}

/* c (m, n) += the packed a (m, k) and b (k, n) */
static void multiply_block(
    float *c, int64_t c_row, const float *a, const float *b, int64_t m, int64_t n, int64_t k)
{
    for (int64_t j = 0; j < n; j += BROAD)
        for (int64_t i = 0; i < m; i += TALL) {
            const tile_of t = {
                c + i * c_row + j, a + i * k, b + j * k, c_row, 1, TALL, BROAD, k, n - j, true};
            tile(&t, choir__min(TALL, m - i));
        }
}

/* Sets the sums' start values: C or zeros, and the bias. */
static void begin(const choir__k_matmul *k, float *c)
{
    const float *bias = k->bias;
    for (int64_t i = 0; i < k->m; i++, c += k->c_row) {
        if (!k->accumulate)
            memset(c, 0, (size_t)k->n * sizeof *c);
        for (int64_t j = 0; bias && j < k->n; j++)
            c[j] += bias[j];
    }
}

static void multiply(const choir__k_matmul *k, const float *a, const float *b, float *c)
{
    const int64_t a_room = (BLOCK_M + TALL) * BLOCK_K, b_room = (BLOCK_N + BROAD) * BLOCK_K;
    float *a_copy = choir__cpu_panel(
        choir__cpu_context_current(), (size_t)(a_room + b_room) * sizeof(float));
    float *b_copy = a_copy + a_room;
    begin(k, c);
    for (int64_t j = 0; j < k->n; j += BLOCK_N)
        for (int64_t p = 0; p < k->k; p += BLOCK_K) {
            int64_t n = choir__min(BLOCK_N, k->n - j), depth = choir__min(BLOCK_K, k->k - p);
            pack(b_copy, b + p * k->b_row + j * k->b_col, k->b_col, k->b_row, n, depth, BROAD);
            for (int64_t i = 0; i < k->m; i += BLOCK_M) {
                int64_t m = choir__min(BLOCK_M, k->m - i);
                pack(a_copy, a + i * k->a_row + p * k->a_col, k->a_row, k->a_col, m, depth,
                    TALL);
                multiply_block(c + i * k->c_row + j, k->c_row, a_copy, b_copy, m, n, depth);
            }
        }
}

void KERNEL(small_matmul)(const choir__k_matmul *k)
{
    F32_ONLY(matmul, k);
    for (int64_t i = 0; i < k->batch0; i++)
        for (int64_t j = 0; j < k->batch1; j++)
            multiply(k, (const float *)k->a + i * k->a_batch0 + j * k->a_batch1,
                (const float *)k->b + i * k->b_batch0 + j * k->b_batch1,
                (float *)k->c + i * k->c_batch0 + j * k->c_batch1);
}
