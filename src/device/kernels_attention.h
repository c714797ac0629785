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
 * reads key head h / (H / G). Query t sees the keys from max(0, t - window + 1) (window 0: from
 * 0) up to t if causal, else to S - 1. */
typedef struct choir__attention_shape {
    int64_t b, h, g, t, s, d, window;
    float scale;
    bool causal;
} choir__attention_shape;

/* Added to the scaled scores: sample b, head h, query t, key s has element
 * (b % samples) * stride[0] + h * stride[1] + t * stride[2] + s. p NULL: none. */
typedef struct choir__attention_bias {
    void *p;
    int64_t samples, stride[3];
} choir__attention_bias;

/* y = softmax(scale q k^T + bias) v, head by head, one block of queries at a time, so that only
 * a block's scores are in memory. lse (B, H, T): log sum exp of each query's scores, f32 if the
 * operands are bf16 or f16.
 *
 * Backward, with P computed again from q, k and lse: gv = P^T gy; gS = P (gy v^T - rowsum(P gy
 * v^T)); gq = scale gS k; gk = scale gS^T q; gbias += gS in order of (b, h, t). gq.p, gk.p,
 * gv.p or gbias.p NULL: not computed. y is the forward's: rowsum(gy y) equals the rowsum above.
 * y.p NULL: kernels that need y compute it again. */
typedef struct choir__k_attention {
    choir__heads q, k, v, y;
    choir__heads gy, gq, gk, gv; /* these and gbias: backward */
    choir__attention_bias bias, gbias;
    void *lse;
    choir__attention_shape n;
    choir_dtype dtype;
} choir__k_attention;

#endif
