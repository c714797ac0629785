/* The product for other kernels of this folder: they call choir__cuda_matmul, which takes the
 * last slot of scratch memory and the workspace. */
#ifndef CHOIR_CUDA_MATMUL_H
#define CHOIR_CUDA_MATMUL_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether f32 operands may be rounded to TF32: CHOIR_CUDA_TF32=1. */
bool choir__cuda_tf32(void);

#ifdef __cplusplus
}
#endif
#endif
