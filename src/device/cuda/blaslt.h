/* Products that cuBLASLt computes, with its epilogues: for matmul.cu. */
#ifndef CHOIR_CUDA_BLASLT_H
#define CHOIR_CUDA_BLASLT_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Return false if the library has no algorithm for the product k, as for overlapping rows and
 * odd strides, or if it cannot give the sums beside it. batch0 is 1, and unlike in the table a
 * bias has C's type. Whether the library knows a product does not depend on values. */
bool choir__blaslt_knows(const choir__k_matmul *k);
/* Also computes the product. */
bool choir__blaslt_multiply(const choir__k_matmul *k);

#ifdef __cplusplus
}
#endif
#endif
