/* cuDNN's part in convolution and attention (dnn.c, dnn_conv.c, dnn_attention.c); where it is
 * not built in, nothing. A function that says false has done nothing: other kernels must. */
#ifndef CHOIR_CUDA_DNN_H
#define CHOIR_CUDA_DNN_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef CHOIR_HAVE_CUDNN
bool choir__dnn_conv(const choir__k_conv *k);
bool choir__dnn_conv_backward_input(const choir__k_conv_backward_input *k);
bool choir__dnn_conv_backward_weight(const choir__k_conv_backward_weight *k);
bool choir__dnn_attention(const choir__k_attention *k);

/* As in "9.19.0"; 0 where it is not used. */
size_t choir__dnn_version(void);
#else
static inline bool choir__dnn_conv(const choir__k_conv *k)
{
    (void)k;
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

static inline size_t choir__dnn_version(void)
{
    return 0;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
