/* The use of cuDNN in convolution and attention (dnn_run.c, dnn_conv.c, dnn_attention.c). A
 * function that returns false has done nothing, and the caller uses another kernel; without
 * cuDNN all return false. */
#ifndef CHOIR_CUDA_DNN_H
#define CHOIR_CUDA_DNN_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef CHOIR_HAVE_CUDNN
/* *biased: cuDNN has also added the bias; it has no plan with one for some images of 16 bits.
 */
bool choir__dnn_conv(const choir__k_conv *k, bool *biased);
bool choir__dnn_conv_backward_input(const choir__k_conv_backward_input *k);
bool choir__dnn_conv_backward_weight(const choir__k_conv_backward_weight *k);
bool choir__dnn_attention(const choir__k_attention *k);
/* sums: scratch, (b, h, t) f32. */
bool choir__dnn_attention_backward(const choir__k_attention_backward *k, void *sums);

/* Returns cuDNN's version, 91900 for 9.19.0; 0 if it is not used. */
size_t choir__dnn_version(void);
#else
static inline bool choir__dnn_conv(const choir__k_conv *k, bool *biased)
{
    (void)k, (void)biased;
    return false;
}

static inline bool choir__dnn_conv_backward_input(const choir__k_conv_backward_input *k)
{
    (void)k;
    return false;
}

static inline bool choir__dnn_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    (void)k;
    return false;
}

static inline bool choir__dnn_attention(const choir__k_attention *k)
{
    (void)k;
    return false;
}

static inline bool choir__dnn_attention_backward(
    const choir__k_attention_backward *k, void *sums)
{
    (void)k, (void)sums;
    return false;
}

static inline size_t choir__dnn_version(void)
{
    return 0;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
