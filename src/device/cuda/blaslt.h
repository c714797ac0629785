/* Products that cuBLASLt computes, with its epilogues: for kernels/matmul.cu. */
#ifndef CHOIR_CUDA_BLASLT_H
#define CHOIR_CUDA_BLASLT_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Return whether the library has an algorithm for the product k with its epilogue; it has none
 * for overlapping rows, for instance. batch0 is 1, and unlike in the table a bias has C's type.
 * The answer does not depend on values. */
bool choir__blaslt_knows(const choir__k_matmul *k);
/* Computes the product and returns true, if the library has an algorithm for it. */
bool choir__blaslt_multiply(const choir__k_matmul *k);

#ifdef __cplusplus
}
#endif
#endif
