/* The arguments of the kernels on images, channels-last: norms over them, convolution, pooling:
 * a part of kernels.h. */
#ifndef CHOIR_KERNELS_IMAGES_H
#define CHOIR_KERNELS_IMAGES_H

#include <choir/dtype.h>
#include "base/base.h"

/* Batch norm over rows (N*H*W) for each of cols channels (Ioffe & Szegedy, 2015):
 *   y = (x - mean) (rstd gamma) + beta, + residual (rows, cols) when there, and relu: max(0,
 * that). train: the batch's mean and biased variance are used and written to mean, rstd; when
 * update is set the running ones become (1 - momentum) old + momentum new, the variance
 * unbiased there. eval: the running ones are used (mean, rstd are written too). again: mean and
 * rstd are an earlier call's, whose y is made once more, bit for bit, and nothing else is
 * written. gamma, beta may be NULL. */
/* Where statistics are over more rows than x has (other ranks' too), each way goes in two
 * parts: the first only adds up x's own rows, the second takes what the sums have become
 * meanwhile. forward   sums = [ sum x (cols) | sum x^2 (cols) | rows ] backward  sums = [ sum g
 * (cols) | sum g (x - mean) (cols) | rows ], and ggamma, gbeta and gresidual, which are of x's
 * own rows, are written by the first part */
typedef enum choir__norm_part {
    CHOIR__NORM_WHOLE,
    CHOIR__NORM_SUMS,
    CHOIR__NORM_REST
} choir__norm_part;

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

/* gx and, when there, ggamma, gbeta. train and relu as in the forward. A gradient passes ReLU
 * where y > 0: y is read when given, else its sign is computed again from x, gamma and beta (so
 * with a residual y must be given). gresidual, when there, is what passed: the residual's
 * gradient; it may be gy. */
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

/* gx and, when there, ggamma, gbeta (cols). */
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

/* Pooling, channels-last, s.o == s.c. max: index (N, OH, OW, C) keeps where in the window
 * (kh * KW + kw) the first maximum was. Average divides by the whole window, padding counted.
 */
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
 * ceil((i+1) H / OH), columns alike. max: index (N, OH, OW, C) keeps which input pixel (h * W +
 * w) the first maximum was; may be NULL. */
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
