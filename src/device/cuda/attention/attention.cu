/* Attention: the choice of kernels.
 *
 * There are three implementations: cuDNN (dnn/dnn_attention.c, dnn/dnn_attention_backward.c) if
 * it is built in and has a plan; the kernels on tensor cores (attention_mma.cu) for 16-bit
 * operands; the plain ones for the rest. Ours store no T x T matrix: scores are computed one
 * tile at a time, in registers. gbias, which only models with a learned bias have, has its own
 * kernel.
 *
 * The backward first needs delta = rowsum(P gy v^T) of each query, which equals rowsum(gy y) of
 * the forward's y. If the caller has no y, it is computed again. */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/dnn/dnn.h"

enum { Y_SLOT, LSE_SLOT, DELTA_SLOT };

static bool whole(const void *p, int64_t bytes)
{
    return ((uintptr_t)p | (uintptr_t)bytes) % 16 == 0;
}

/* True if rows can be read and written 16 bytes at a time. */
static bool aligned(const choir__heads *x, int64_t d, choir_dtype dtype)
{
    int64_t size = (int64_t)choir_dtype_size(dtype);
    return !x->p || (whole(x->p, d * size) && whole(0, x->t * size) && whole(0, x->h * size) &&
                        whole(0, x->b * size));
}

static void forward(attend *k)
{
    k->aligned = aligned(&k->q, k->n.d, k->dtype) && aligned(&k->k, k->n.d, k->dtype) &&
                 aligned(&k->v, k->n.d, k->dtype) && aligned(&k->y, k->n.d, k->dtype);
    if (choir__attention_mma_fits(k, false))
        choir__attention_mma(k);
    else
        choir__attention_plain(k);
}

static bool empty(const choir__attention_shape *n)
{
    return !n->b || !n->h || !n->t || !n->d;
}

extern "C" void choir__cuda_attention(const choir__k_attention *args)
{
    attend k = {};
    if (empty(&args->n) || choir__dnn_attention(args))
        return;
    k.q = args->q, k.k = args->k, k.v = args->v, k.y = args->y;
    k.bias = args->bias, k.lse = args->lse, k.n = args->n, k.dtype = args->dtype;
    forward(&k);
}

/* delta[b, h, t] = rowsum(gy y), one warp per row. */
template <class T> static __global__ void row_products(attend k)
{
    int64_t rows = k.n.b * k.n.h * k.n.t, step = all_threads() / WARP;
    for (int64_t i = first_thread() / WARP; i < rows; i += step) {
        int64_t head = i / k.n.t, t = i % k.n.t, b = head / k.n.h, h = head % k.n.h;
        const T *y = head_of<T>(k.y, b, h) + t * k.y.t;
        const T *gy = head_of<T>(k.gy, b, h) + t * k.gy.t;
        wide<T> sum = 0;
        for (int64_t c = threadIdx.x % WARP; c < k.n.d; c += WARP)
            sum += get(y + c) * get(gy + c);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            ((wide<T> *)k.delta)[i] = sum;
    }
}

/* Computes y into scratch memory, dense, for callers that have none. */
static bool make_y(attend *k)
{
    choir__attention_shape *n = &k->n;
    size_t sum = wide_size(k->dtype);
    attend again = *k;
    k->y.p = again.y.p = choir__cuda_scratch(
        Y_SLOT, (size_t)(n->b * n->h * n->t * n->d) * choir_dtype_size(k->dtype));
    again.lse = choir__cuda_scratch(LSE_SLOT, (size_t)(n->b * n->h * n->t) * sum);
    if (!again.y.p || !again.lse)
        return false;
    k->y.b = n->h * n->t * n->d, k->y.h = n->t * n->d, k->y.t = n->d;
    again.y = k->y;
    forward(&again);
    return true;
}

extern "C" void choir__cuda_attention_backward(const choir__k_attention_backward *args)
{
    const choir__attention_shape *n = &args->n;
    size_t sum = wide_size(args->dtype);
    attend k = {};
    if (empty(n) || !n->s)
        return;
    k.delta = choir__cuda_scratch(DELTA_SLOT, (size_t)(n->b * n->h * n->t) * sum);
    if (!k.delta)
        return;
    k.q = args->q, k.k = args->k, k.v = args->v, k.y = args->y, k.gy = args->gy;
    k.gq = args->gq, k.gk = args->gk, k.gv = args->gv;
    k.bias = args->bias, k.gbias = args->gbias;
    k.lse = (void *)args->lse, k.n = args->n, k.dtype = args->dtype;
    if (!k.y.p && !make_y(&k))
        return;
    choir__k_attention_backward with_y = *args;
    with_y.y = k.y;
    if (choir__dnn_attention_backward(&with_y, k.delta))
        return;
    choose(k.dtype, [&](auto t) {
        launch(
            row_products<decltype(t)>, grid_for(n->b * n->h * n->t, BLOCK / WARP), BLOCK, 0, k);
    });
    k.aligned = aligned(&k.q, n->d, k.dtype) && aligned(&k.k, n->d, k.dtype) &&
                aligned(&k.v, n->d, k.dtype) && aligned(&k.gy, n->d, k.dtype) &&
                aligned(&k.gq, n->d, k.dtype) && aligned(&k.gk, n->d, k.dtype) &&
                aligned(&k.gv, n->d, k.dtype);
    if (choir__attention_mma_fits(&k, true))
        choir__attention_mma_backward(&k);
    else
        choir__attention_plain_backward(&k);
    if (k.gbias.p)
        choir__attention_plain_bias(&k);
}
