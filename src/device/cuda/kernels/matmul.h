/* The product for other kernels of this folder. They call choir__cuda_matmul, which uses
 * the workspace. */
#ifndef CHOIR_CUDA_MATMUL_H
#define CHOIR_CUDA_MATMUL_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the arguments of a product of dense a (m, k), b (k, n) and c (m, n); the caller sets
 * the pointers. */
static inline choir__k_matmul choir__product(choir_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    choir__matrix wide = choir__rows_at(NULL, n);
    return choir__product_of(dtype, wide, choir__rows_at(NULL, k), wide, m, n, k);
}

/* Return true if f32 operands of products, or of cuDNN's convolutions, may be rounded to TF32:
 * CHOIR_CUDA_TF32 at the first call is 1, or is not 0. */
bool choir__cuda_tf32(void);
bool choir__cuda_conv_tf32(void);

#ifdef __cplusplus
}
#endif
#endif
