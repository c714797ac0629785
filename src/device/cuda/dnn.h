/* cuDNN's part in convolution and attention: dnn.c, or where it is not built in, nothing. Each
 * function says whether it did the work; if not, nothing was done. */
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
bool choir__dnn_attention_backward(const choir__k_attention_backward *k);
#else
#define choir__dnn_conv(k)                 ((void)(k), false)
#define choir__dnn_conv_backward_input(k)  ((void)(k), false)
#define choir__dnn_conv_backward_weight(k) ((void)(k), false)
#define choir__dnn_attention(k)            ((void)(k), false)
#define choir__dnn_attention_backward(k)   ((void)(k), false)
#endif

#ifdef __cplusplus
}
#endif
#endif
