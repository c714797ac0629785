/* The kernel table of CUDA devices. */
#ifndef CHOIR_CUDA_TABLE_H
#define CHOIR_CUDA_TABLE_H

#include "device/cuda/cuda.h"

extern const choir__kernels choir__cuda_kernels;

/* Returns an error if the compiled code does not run on the current GPU. */
cudaError_t choir__cuda_code_runs(void);

#endif
