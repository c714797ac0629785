/* PyTorch's attention and transformer layers, with its parameters' names and shapes, so that
 * weights are exchanged with torch.nn as they are. The batch comes first: (B, T, width).
 *
 * A mask is a number that is added to the scores, 0 for a key that is seen and -INFINITY for
 * one that is hidden: (P, H or 1, Tq or 1, Tk), where sample b uses entry b % P. From a bool
 * tensor of padding (B, Tk):
 *
 *     zeros = choir_zeros(s, CHOIR_F32, choir_dims(B, Tk));
 *     mask = choir_reshape(choir_masked_fill(zeros, padding, -INFINITY), choir_dims(B, 1, 1,
 * Tk));
 *
 * A query whose keys are all hidden gets zeros from attention, and gives gradients of 0.
 *
 * Constructors never return NULL: errors stick to the run (argument: sizes that do not fit).
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_ATTENTION_H
#define CHOIR_ATTENTION_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_multihead_opts {
    bool causal;   /* query t sees keys 0 ... t; default false */
    bool no_bias;  /* default false: all products have a bias */
    float dropout; /* share of attention that is dropped in train mode; default 0. Scores are
                      then stored as a whole, (B, H, Tq, Tk) */
} choir_multihead_opts;

choir_multihead_opts choir_multihead_defaults(void);

/**
 * torch.nn.MultiheadAttention with batch_first: parameters in_proj_weight (3 width, width),
 * in_proj_bias, out_proj.weight and out_proj.bias.
 *
 * Forward takes x (B, T, width), which attends to itself; or query (B, Tq, width) and memory
 * (B, Tk, width), which is key and value; or query, key and value; and as a fourth input a
 * mask. Inputs after the first may be NULL: key is then query, and value is key.
 */
choir_module *choir_nn_multihead_attention(
    choir_scope *run, int64_t width, int heads, choir_multihead_opts opts);

typedef struct choir_transformer_opts {
    int64_t hidden;  /* width of the feed-forward layer; default 2048 */
    float dropout;   /* also inside attention; default 0.1 */
    float eps;       /* eps of the norms; default 1e-5 */
    bool gelu;       /* GELU between the layers; default ReLU */
    bool norm_first; /* normalise before each part, not after it; default false */
    bool causal;     /* self-attention sees earlier positions alone; default false */
} choir_transformer_opts;

choir_transformer_opts choir_transformer_defaults(void);

/** torch.nn.TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2. Forward takes x
 * (B, T, width) and, as a second input or NULL, a mask of its attention. */
choir_module *choir_nn_transformer_encoder_layer(
    choir_scope *run, int64_t width, int heads, choir_transformer_opts opts);

/** torch.nn.TransformerDecoderLayer: self_attn, multihead_attn, linear1, linear2, norm1 to
 * norm3. Forward takes x (B, T, width) and memory (B, S, width), and then, each of them or
 * NULL, a mask of x's attention to itself and one of its attention to memory. */
choir_module *choir_nn_transformer_decoder_layer(
    choir_scope *run, int64_t width, int heads, choir_transformer_opts opts);

#ifdef __cplusplus
}
#endif
#endif
