/* A kernel that does nothing, to ask whether this GPU runs what was compiled. */
#include "device/cuda/kernel.cuh"

extern "C" cudaError_t choir__cuda_code_runs(void);

__global__ void probe(int)
{
}

extern "C" cudaError_t choir__cuda_code_runs(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)probe);
}
