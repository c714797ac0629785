/* The arguments of attention's kernels; kernels.h includes this header. */
#ifndef CHOIR_KERNELS_ATTENTION_H
#define CHOIR_KERNELS_ATTENTION_H

#include <choir/dtype.h>
#include "base/base.h"

/* Operands by heads: for each batch b and head h a matrix of rows t with contiguous columns. */
typedef struct choir__heads {
    void *p;
    int64_t b, h, t; /* strides, in elements */
} choir__heads;

/* The shape of attention: queries (B, H, T, D), keys and values (B, G, S, D); query head h
 * reads key head h / (H / G). Query t has position p = t + ahead among the keys' 0 ... S - 1.
 * It sees the keys from max(0, p - window + 1) (window 0: from 0) up to p if causal, else to S
 * - 1. chunks above 1: see below; then T = S, and ahead is 0. */
typedef struct choir__attention_shape {
    int64_t b, h, g, t, s, d, window;
    float scale;
    float softcap; /* 0: none; c: a scaled score z becomes c tanh(z / c), before the bias */
    bool causal;
    int64_t chunks, ahead;
} choir__attention_shape;

/* Added to the scaled scores: sample b, head h, query t, key s has element
 * (b % samples) * stride[0] + h * stride[1] + t * stride[2] + s. p NULL: none. */
typedef struct choir__attention_bias {
    void *p;
    int64_t samples, stride[3];
} choir__attention_bias;

/* Attention cut into chunks. A sequence of T tokens is `chunks` chunks of T / chunks tokens. In
 * memory they have the order of leaves (of the sums over tokens): leaf l is chunk
 * choir__chunk_of_leaf(l), so that equal runs of leaves see equally many keys under a causal
 * mask:
 *
 *     leaf          0   1   2   3   4   5   6   7
 *     chunk of 8    0   7   1   6   2   5   3   4
 *
 * This is the order of all sums, on one device and on ranks that have parts of them:
 *
 *     forward    A chunk of queries and a chunk of keys give a partial result: each query's
 *                maximum m of the scores, sum l of e = exp(score - m), and values o = e v, all
 *                f32. A query's partial results are combined in rising order of the chunks of
 *                keys: (m, l, o) + (m', l', o') = (M, a l + b l', a o + b o') with M = max(m,
 *                m'), a = exp(m - M) and b = exp(m' - M). One without keys changes nothing. In
 *                the end y = o (1 / l) and lse = m + log l.
 *     gq         One chain of fused multiply-adds over all keys, in the order of the tokens.
 *     gk, gv     A leaf of queries gives one chain over its queries (query heads of one head of
 *                keys after one another, in each the queries in order), from 0. Leaves that do
 *                not see the keys give 0. The leaves are added in the fixed tree (tree.h).
 *     delta      Replaces rowsum(P gy v^T) below: rowsum(gy y), which the caller provides.
 *
 * chunks 0 or 1: the same with one chunk, and without delta. A pair, one chunk of
 * queries and one of keys, is a call with `ahead` and with `begun` or `open`. */
static inline int64_t choir__chunk_of_leaf(int64_t leaf, int64_t chunks)
{
    return leaf % 2 ? chunks - 1 - leaf / 2 : leaf / 2;
}

static inline int64_t choir__leaf_of_chunk(int64_t chunk, int64_t chunks)
{
    return 2 * chunk < chunks ? 2 * chunk : 2 * (chunks - 1 - chunk) + 1;
}

/* y = softmax(scale q k^T + bias) v, head by head, one block of queries at a time, so that only
 * a block's scores are in memory. lse (B, H, T): log sum exp of each query's scores, f32 if the
 * operands are bf16 or f16.
 *
 * Backward, with P computed again from q, k and lse: gv = P^T gy; gS = P (gy v^T - rowsum(P gy
 * v^T)); gq = scale gS k; gk = scale gS^T q; gbias += gS in order of (b, h, t). gq.p, gk.p,
 * gv.p or gbias.p NULL: not computed. y is the forward's: rowsum(gy y) equals the rowsum above.
 * y.p NULL: kernels that need y compute it again. delta (B, H, T): given with chunks and for
 * pairs; gbias is NULL then.
 *
 * Pairs, on devices that have choir_device.chunks: `open` leaves the combined o in y, m in lse
 * and l in `sum` (B, H, T); `begun` combines with the results of the call before. Backward:
 * `begun` continues the chain in gq; gk and gv are the pair's own. */
typedef struct choir__k_attention {
    choir__heads q, k, v, y;
    choir__heads gy, gq, gk, gv; /* these, gbias and delta: backward */
    choir__attention_bias bias, gbias;
    void *lse, *delta, *sum;
    int64_t lse_row; /* elements of lse, delta and sum from head to head; 0: T */
    choir__attention_shape n;
    choir_dtype dtype;
    bool begun, open;
} choir__k_attention;

/* Returns the place of a head's first query in lse, delta and sum. */
static inline int64_t choir__lse_at(const choir__k_attention *k, int64_t b, int64_t h)
{
    return (b * k->n.h + h) * (k->lse_row ? k->lse_row : k->n.t);
}

#endif
