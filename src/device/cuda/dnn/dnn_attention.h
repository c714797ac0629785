/* Tensors and operations of the graphs of attention, forward and backward (dnn_attention.c,
 * dnn_attention_backward.c). */
#ifndef CHOIR_CUDA_DNN_ATTENTION_H
#define CHOIR_CUDA_DNN_ATTENTION_H

#include "device/cuda/dnn/dnn_graph.h"

/* The numbers of a problem (choir__dnn_problem.n), with strides of b, h, t; strides of
 * gradients are 0 in the forward. */
typedef struct choir__dnn_heads {
    int64_t b, h, g, t, s, d, causal;
    int64_t q[3], k[3], v[3], y[3], gy[3], gq[3], gk[3], gv[3];
} choir__dnn_heads;

/* Returns true for attention that the graphs can have: 16 bits, without bias and window, heads
 * of up to 128, and a key for every query. */
bool choir__dnn_attention_fits(
    const choir__attention_shape *n, choir_dtype dtype, const choir__attention_bias *bias);

/* Returns false for versions of cuDNN and shapes whose backward is known to be wrong. Tests
 * call it, too. */
bool choir__dnn_attention_backward_sound(size_t version, const choir__attention_shape *n);

choir__dnn_heads choir__dnn_heads_of(const choir__attention_shape *n);
void choir__dnn_put_strides(int64_t to[3], const choir__heads *x);
choir__dnn_problem choir__dnn_heads_problem(
    int kind, choir_dtype dtype, const choir__dnn_heads *n);
choir__dnn_heads choir__dnn_heads_in(const choir__dnn_problem *p);

/* --- tensors --- */

/* Heads in memory, (b, heads, rows, d). */
choir__dnn_thing choir__dnn_heads_at(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const choir__dnn_heads *n, int64_t heads, int64_t rows, const int64_t stride[3]);
/* Heads in memory, transposed: (b, heads, d, rows). */
choir__dnn_thing choir__dnn_heads_turned(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const choir__dnn_heads *n, int64_t heads, int64_t rows, const int64_t stride[3]);
/* A number of each query, (b, h, t, 1), f32; id 0: between operations. */
choir__dnn_thing choir__dnn_per_query(
    choir__dnn_graph *g, int64_t id, const choir__dnn_heads *n);
/* A dense (b, h, t, cols) tensor between operations, without memory. */
choir__dnn_thing choir__dnn_between(
    choir__dnn_graph *g, cudnnDataType_t type, const choir__dnn_heads *n, int64_t cols);

/* --- operations; each returns its result --- */

/* c = a b */
choir__dnn_thing choir__dnn_product(
    choir__dnn_graph *g, choir__dnn_thing a, choir__dnn_thing b, choir__dnn_thing c);
/* y = what(x) over the dimensions in which y has 1, or fewer than x. */
choir__dnn_thing choir__dnn_reduce(
    choir__dnn_graph *g, cudnnReduceTensorOp_t what, choir__dnn_thing x, choir__dnn_thing y);
/* mode(x) or mode(x, b), f32 (b, h, t, cols) between operations */
choir__dnn_thing choir__dnn_map(choir__dnn_graph *g, cudnnPointwiseMode_t mode,
    const choir__dnn_heads *n, int64_t cols, choir__dnn_thing x, choir__dnn_thing b);
/* Scores of keys after the query become the number `lowest`. */
choir__dnn_thing choir__dnn_hide_later(choir__dnn_graph *g, const choir__dnn_heads *n,
    choir__dnn_thing scores, choir__dnn_thing lowest);

#endif
