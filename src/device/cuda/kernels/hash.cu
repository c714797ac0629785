/* The hash of tensors and of their parts (device/kernels/hash.h). Threads add integers, so
 * their order changes nothing, and blocks join their sums by an atomic addition. Memory is the
 * limit, and a warp reads neighbouring elements. */
#include "device/cuda/kit/kernel.cuh"

struct hashing {
    choir__k_hash k;
    int64_t each; /* bytes of an element */
};

static __global__ void hash(hashing h)
{
    const choir__k_hash &k = h.k;
    unsigned long long sum = 0;
    for (int64_t i = first_thread(); i < k.rows * k.cols; i += all_threads()) {
        int64_t r = k.rows == 1 ? 0 : i / k.cols, c = i - r * k.cols;
        sum += choir__hash_element((const char *)k.x + (r * k.row + c) * h.each, k.dtype,
            (uint64_t)(k.at + r * k.at_row + c));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0 && sum)
        atomicAdd((unsigned long long *)k.sum, sum);
}

extern "C" void choir__cuda_hash(const choir__k_hash *k)
{
    hashing h = {*k, (int64_t)choir_dtype_size(k->dtype)};
    if (k->rows * k->cols > 0)
        launch(hash, grid_for(k->rows * k->cols, 8 * BLOCK), BLOCK, 0, h);
}
