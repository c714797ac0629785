/* The arguments that attention's kernels share, and the keys that each query sees. */
#ifndef CHOIR_CUDA_ATTENTION_CUH
#define CHOIR_CUDA_ATTENTION_CUH

#include "device/cuda/kit/kernel.cuh"

/* The arguments of forward and backward. delta (B, H, T): rowsum(gy y), in wide<T> as lse
 * is. */
typedef struct attend {
    choir__heads q, k, v, y, gy, gq, gk, gv;
    choir__attention_bias bias, gbias;
    void *lse, *delta;
    choir__attention_shape n;
    bool aligned; /* all operands' rows are whole runs of 16 bytes */
    choir_dtype dtype;
} attend;

/* The plain kernels (attention_plain.cu), for any D and dtype. */
void choir__attention_plain(const attend *k);
void choir__attention_plain_backward(const attend *k);
void choir__attention_plain_bias(const attend *k); /* computes gbias only, for every dtype */

/* The kernels on tensor cores (attention_mma*.cu): 16-bit operands, D <= 128, and tiles that fit
 * into the GPU's shared memory. The backward's tiles are larger than the forward's. */
bool choir__attention_mma_fits(const attend *k, bool back);
void choir__attention_mma(const attend *k);
void choir__attention_mma_backward(const attend *k);

/* --- on the device --- */

__device__ inline int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

__device__ inline int most(int64_t a, int64_t b)
{
    return (int)(a > b ? a : b);
}

/* The first key that query t sees, and the key after the last one. */
__device__ inline int first_key(const choir__attention_shape &n, int64_t t)
{
    return n.window ? most(0, t - n.window + 1) : 0;
}

__device__ inline int end_of_keys(const choir__attention_shape &n, int64_t t)
{
    return n.causal ? least(n.s, t + 1) : (int)n.s;
}

/* The first query that sees key s, and the query after the last one. */
__device__ inline int first_query(const choir__attention_shape &n, int64_t s)
{
    return n.causal ? least(n.t, s) : 0;
}

__device__ inline int end_of_queries(const choir__attention_shape &n, int64_t s)
{
    return n.window ? least(n.t, s + n.window) : (int)n.t;
}

__device__ inline bool sees(const choir__attention_shape &n, int64_t t, int64_t s)
{
    return t < n.t && s >= first_key(n, t) && s < end_of_keys(n, t);
}

/* True if each of `rows` queries from t on sees each of `keys` keys from s on. */
__device__ inline bool all_see(
    const choir__attention_shape &n, int64_t t, int rows, int64_t s, int keys)
{
    return t + rows <= n.t && s >= first_key(n, t + rows - 1) && s + keys <= end_of_keys(n, t);
}

template <class T> __device__ inline T *head_of(const choir__heads &x, int64_t b, int64_t h)
{
    return (T *)x.p + b * x.b + h * x.h;
}

/* The bias of a sample and a head; its rows are bias.stride[2] apart. */
template <class T>
__device__ inline T *bias_of(const choir__attention_bias &x, int64_t b, int64_t h)
{
    return x.p ? (T *)x.p + b % x.samples * x.stride[0] + h * x.stride[1] : (T *)0;
}

#endif
