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
 * gamma, beta may be NULL.
 *
 * Backward writes gx and, if given, ggamma, gbeta, with train and relu as in the forward. A
 * gradient passes ReLU where y > 0: y is read if given, else its sign is computed again from x,
 * gamma and beta (so with a residual y must be given). gresidual, if given, receives the
 * gradient after ReLU, which is the residual's; it may be gy. */
typedef struct choir__k_batch_norm {
    const void *x, *gamma, *beta, *residual, *gy;
    void *y, *mean, *rstd, *running_mean, *running_var;
    void *gx, *ggamma, *gbeta, *gresidual; /* these and gy: backward */
    int64_t *batches;
    int64_t rows, cols;
    float eps, momentum;
    bool train, update, relu, again;
    choir__norm_part part;
    double *sums; /* (2 cols + 1), unless part is WHOLE */
    choir_dtype dtype;
} choir__k_batch_norm;

/* Group norm (Wu & He, 2018), channels-last: each image's channels in `groups` runs of cols /
 * groups, normalised over all pixels of the run; gamma, beta (cols) may be NULL. Writes mean,
 * rstd (n, groups). Backward reads them, and writes gx and, if given, ggamma, gbeta (cols). */
typedef struct choir__k_group_norm {
    const void *x, *gamma, *beta, *gy;
    void *y, *mean, *rstd;
    void *gx, *ggamma, *gbeta; /* these and gy: backward */
    int64_t n, pixels, cols, groups;
    float eps;
    choir_dtype dtype;
} choir__k_group_norm;

/* 2-D convolution, channels-last: x (N, H, W, C), y (N, OH, OW, O), w (O, KH, KW, C/groups) in
 * memory, bias (O) or NULL. Cross-correlation, zero padding. Where the images are bf16 or f16
 * the bias and the gradients gw, gbias are f32.
 *
 * conv_backward_input computes gx from gy and w; conv_backward_weight gw and, if given, gbias
 * from gy and x. */
typedef struct choir__conv_shape {
    int64_t n, h, w, c, oh, ow, o, kh, kw, groups;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
} choir__conv_shape;

typedef struct choir__k_conv {
    const void *x, *w, *bias, *gy;
    void *y, *gx, *gw, *gbias;
    choir__conv_shape s;
    choir_dtype dtype;
} choir__k_conv;

/* Pooling, channels-last, s.o == s.c. max: index (N, OH, OW, C) stores the place in the window
 * (kh * KW + kw) of the first maximum (CHOIR__SURPASSES). Average divides by the whole window,
 * padding included. Backward computes gx from gy and, for the maximum, the index.
 *
 * adaptive_pool pools to a given size, with no window in s: output row i takes input rows
 * floor(i H / OH) up to ceil((i+1) H / OH), columns alike. Its index stores the input pixel (h
 * * W + w) of the first maximum; forward's may be NULL. */
typedef struct choir__k_pool {
    const void *x, *gy;
    void *y, *gx;
    void *index; /* uint8_t, or int32_t of adaptive_pool */
    choir__conv_shape s;
    bool max;
    choir_dtype dtype;
} choir__k_pool;

#endif
