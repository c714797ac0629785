/* Sums of several arrays in the fixed tree, on a GPU.
 *
 * Each thread takes an element of every source in order and keeps the partial results on a
 * stack, as choir__reduce does for a block of elements: the same additions in the same order,
 * so the same bits. The sources have just arrived over NVLink or a network, each many times
 * slower than the GPU's memory, so one element per thread, coalesced, is fast enough. */
#include "comm/nccl/add.h"
#include "device/cuda/kit/number.cuh"

namespace
{

enum { BLOCK = 256, MOST_BLOCKS = 2048 };

/* No contraction can occur: the scale is a separate operation after the sum. */
template <class T> __global__ void add(choir__nccl_addition a)
{
    typedef wide<T> V;
    V scale = (V)a.scale;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n;
         i += (int64_t)gridDim.x * blockDim.x) {
        V stack[CHOIR__NCCL_DEPTH];
        int top = 0;
        for (int s = 0; s < a.sources; s++) {
            stack[top++] = get((const T *)a.from[s] + i);
            for (int m = a.merges[s]; m > 0; m--) {
                top--;
                stack[top - 1] = stack[top - 1] + stack[top];
            }
        }
        V sum = a.sources ? stack[0] : V(0);
        put((T *)a.out + i, a.scale == 1 ? sum : sum * scale);
    }
}

__global__ void mark(volatile uint32_t *count)
{
    *count = *count + 1;
    __threadfence_system();
}

template <class A, class B>
cudaError_t launch(void (*kernel)(A), unsigned grid, unsigned block, const B &args,
    cudaStream_t stream)
{
    A copy = args;
#ifdef CHOIR_SOFT_GPU
    softgpu_launch(kernel, dim3(grid), dim3(block), 0, stream, copy);
    return cudaGetLastError();
#else
    void *pointers[] = {&copy};
    return cudaLaunchKernel((const void *)kernel, dim3(grid), dim3(block), pointers, 0, stream);
#endif
}

} // namespace

extern "C" cudaError_t choir__nccl_launch_add(const choir__nccl_addition *a, cudaStream_t stream)
{
    int64_t blocks = (a->n + BLOCK - 1) / BLOCK, most = MOST_BLOCKS;
    unsigned grid = (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
    switch (a->dtype) {
    case CHOIR_F64: return launch(add<double>, grid, BLOCK, *a, stream);
    case CHOIR_BF16: return launch(add<bf16>, grid, BLOCK, *a, stream);
    case CHOIR_F16: return launch(add<f16>, grid, BLOCK, *a, stream);
    default: return launch(add<float>, grid, BLOCK, *a, stream);
    }
}

extern "C" cudaError_t choir__nccl_launch_mark(volatile uint32_t *count, cudaStream_t stream)
{
    return launch(mark, 1, 1, count, stream);
}
