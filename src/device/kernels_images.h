/* The arguments of kernels on images, channels-last: norms, convolution, pooling. kernels.h
 * includes this header. */
#ifndef CHOIR_KERNELS_IMAGES_H
#define CHOIR_KERNELS_IMAGES_H

#include <choir/dtype.h>
#include "base/base.h"

/* Statistics over more rows than x has (other ranks' rows, too) are computed in two parts: SUMS
 * adds up x's own rows, the caller reduces the sums, and REST uses the result.
 *   forward   sums = [ sum x (cols) | sum x^2 (cols) | rows ]
 *   backward  sums = [ sum g (cols) | sum g (x - mean) (cols) | rows ]
 * In the backward, SUMS also writes ggamma, gbeta and gresidual, which depend on x's own rows
 * only. */
typedef enum choir__norm_part {
    CHOIR__NORM_WHOLE,
    CHOIR__NORM_SUMS,
    CHOIR__NORM_REST
} choir__norm_part;

/* Batch norm over rows (N*H*W) for each of cols channels (Ioffe & Szegedy, 2015):
 *
 *   y = (x - mean) (rstd gamma) + beta, + residual (rows, cols) if given; relu: max(0, that)
 *
 *   train  uses the batch's mean and biased variance and writes mean, rstd; if update is set,
 *          the running values become (1 - momentum) old + momentum new, the variance unbiased
 *   eval   uses the running values, and also writes mean, rstd
 *   again  mean and rstd are an earlier call's; computes its y again, bit for bit, and writes
 *          nothing else
 *
 * gamma, beta may be NULL. */
typedef struct choir__k_batch_norm {
    const void *x, *gamma, *beta, *residual;
    void *y, *mean, *rstd, *running_mean, *running_var;
    int64_t *batches;
    int64_t rows, cols;
    float eps, momentum;
    bool train, update, relu, again;
    choir__norm_part part;
    double *sums; /* (2 cols + 1), unless part is WHOLE */
    choir_dtype dtype;
} choir__k_batch_norm;

/* gx and, if given, ggamma, gbeta. train and relu as in the forward. A gradient passes ReLU
 * where y > 0: y is read if given, else its sign is computed again from x, gamma and beta (so
 * with a residual y must be given). gresidual, if given, receives the gradient after ReLU,
 * which is the residual's; it may be gy. */
typedef struct choir__k_batch_norm_backward {
    const void *x, *gamma, *beta, *mean, *rstd, *y, *gy;
    void *gx, *ggamma, *gbeta, *gresidual;
    int64_t rows, cols;
    bool train, relu;
    choir__norm_part part;
    double *sums;
    choir_dtype dtype;
} choir__k_batch_norm_backward;

/* Group norm (Wu & He, 2018), channels-last: each image's channels in `groups` runs of cols /
 * groups, normalised over all pixels of the run; gamma, beta (cols) may be NULL. Writes mean,
 * rstd (n, groups). */
typedef struct choir__k_group_norm {
    const void *x, *gamma, *beta;
    void *y, *mean, *rstd;
    int64_t n, pixels, cols, groups;
    float eps;
    choir_dtype dtype;
} choir__k_group_norm;

/* gx and, if given, ggamma, gbeta (cols). */
typedef struct choir__k_group_norm_backward {
    const void *x, *gamma, *mean, *rstd, *gy;
    void *gx, *ggamma, *gbeta;
    int64_t n, pixels, cols, groups;
    choir_dtype dtype;
} choir__k_group_norm_backward;

/* 2-D convolution, channels-last: x (N, H, W, C), y (N, OH, OW, O), w (O, KH, KW, C/groups) in
 * memory, bias (O) or NULL. Cross-correlation, zero padding. Where the images are bf16 or f16
 * the bias and the gradients gw, gbias are f32. */
typedef struct choir__conv_shape {
    int64_t n, h, w, c, oh, ow, o, kh, kw, groups;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
} choir__conv_shape;

typedef struct choir__k_conv {
    const void *x, *w, *bias;
    void *y;
    choir__conv_shape s;
    choir_dtype dtype;
} choir__k_conv;

typedef struct choir__k_conv_backward_input {
    const void *gy, *w;
    void *gx;
    choir__conv_shape s;
    choir_dtype dtype;
} choir__k_conv_backward_input;

typedef struct choir__k_conv_backward_weight {
    const void *gy, *x;
    void *gw, *gbias; /* gbias may be NULL */
    choir__conv_shape s;
    choir_dtype dtype;
} choir__k_conv_backward_weight;

/* Pooling, channels-last, s.o == s.c. max: index (N, OH, OW, C) stores the place in the window
 * (kh * KW + kw) of the first maximum. Average divides by the whole window, padding
 * included. */
typedef struct choir__k_pool {
    const void *x;
    void *y;
    uint8_t *index;
    choir__conv_shape s;
    bool max;
    choir_dtype dtype;
} choir__k_pool;

typedef struct choir__k_pool_backward {
    const void *gy;
    const uint8_t *index;
    void *gx;
    choir__conv_shape s;
    bool max;
    choir_dtype dtype;
} choir__k_pool_backward;

/* Pooling to a given size, channels-last: output row i takes input rows floor(i H / OH) up to
 * ceil((i+1) H / OH), columns alike. max: index (N, OH, OW, C) stores the input pixel (h * W +
 * w) of the first maximum; may be NULL. */
typedef struct choir__k_adaptive_pool {
    const void *x;
    void *y;
    int32_t *index;
    int64_t n, h, w, c, oh, ow;
    bool max;
    choir_dtype dtype;
} choir__k_adaptive_pool;

typedef struct choir__k_adaptive_pool_backward {
    const void *gy;
    const int32_t *index;
    void *gx;
    int64_t n, h, w, c, oh, ow;
    bool max;
    choir_dtype dtype;
} choir__k_adaptive_pool_backward;

#endif
