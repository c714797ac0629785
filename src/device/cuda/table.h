/* The kernel table of CUDA devices. */
#ifndef CHOIR_CUDA_TABLE_H
#define CHOIR_CUDA_TABLE_H

#include "device/cuda/cuda.h"

extern const choir__kernels choir__cuda_kernels;

/* Whether the code that was compiled runs on the current GPU: an error that says no. */
cudaError_t choir__cuda_code_runs(void);

#endif
