/* An empty kernel, to test whether this GPU runs the compiled code. */
#include "device/cuda/kit/kernel.cuh"

__global__ void probe(int)
{
}

extern "C" cudaError_t choir__cuda_code_runs(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)probe);
}
