/* Lookup of a table's rows, which may be blocks of few bits. The gradient is in
 * embedding_backward.cu. */
#include "base/quant/decode.h"
#include "device/cuda/kit/vector.cuh"

struct lookup {
    choir__k_embedding k;
    choir__cuda_fault *fault;
};

/* One warp per row. */
template <class A> __global__ void embedding(lookup f)
{
    typedef typename A::T T;
    const choir__k_embedding &k = f.k;
    int64_t warps = (int64_t)gridDim.x * blockDim.y, whole = k.whole ? k.whole : k.rows;
    for (int64_t i = row_here(); i < k.n; i += warps) {
        int64_t id = k.ids[i], own = id - (k.whole ? k.first : 0);
        bool here = own >= 0 && own < k.rows;
        if ((id < 0 || id >= whole) && threadIdx.x == 0)
            raise_fault(f.fault, CHOIR__BAD_ID, id, whole, i);
        here = here && id >= 0 && id < whole;
        const T *x = (const T *)k.table + (here ? own * k.cols : 0);
        T *y = (T *)k.y + i * k.cols;
        EACH_SLOT(A, c, k.cols, 0)
        {
            if (A::N > 1) {
                uint4 zeros = {0, 0, 0, 0};
                store_16(y + c, here ? load_16(x + c) : zeros);
            } else {
                y[c] = here ? x[c] : T(0.0f);
            }
        }
    }
}

extern "C" void choir__cuda_embedding(const choir__k_embedding *k)
{
    int64_t n = 16 / (int64_t)choir_dtype_size(k->dtype);
    bool slots = lead_of(1, k->table, k->y) == 0 && k->cols % n == 0;
    lookup f = {*k, choir__cuda_here()->fault};
    if (k->n > 0)
        choose_access(k->dtype, slots ? 0 : -1, [&](auto a) {
            launch(embedding<decltype(a)>, grid_for(k->n, 8), dim3(WARP, 8), 0, f);
        });
}

/* --- rows of blocks --- */

struct expansion {
    choir__k_expand k;
    int64_t values, bytes; /* per block */
    choir__cuda_fault *fault;
};

/* One warp per row; its threads read neighbouring values. */
template <class T> __global__ void expand(expansion f)
{
    const choir__k_expand &k = f.k;
    int64_t warps = (int64_t)gridDim.x * blockDim.y, whole = k.whole ? k.whole : k.rows;
    for (int64_t i = row_here(); i < k.n; i += warps) {
        int64_t id = k.ids ? k.ids[i] : i, own = id - (k.ids && k.whole ? k.first : 0);
        bool known = !k.ids || (id >= 0 && id < whole);
        bool here = known && (!k.ids || (own >= 0 && own < k.rows));
        if (!known && threadIdx.x == 0)
            raise_fault(f.fault, CHOIR__BAD_ID, id, whole, i);
        const uint8_t *row = (const uint8_t *)k.x + (here ? own * k.row_bytes : 0);
        for (int64_t c = threadIdx.x; c < k.cols; c += blockDim.x)
            put((T *)k.y + i * k.cols + c,
                here ? choir__quant_value(
                           k.type, row + c / f.values * f.bytes, (int)(c % f.values))
                     : 0.0f);
    }
}

extern "C" void choir__cuda_expand(const choir__k_expand *k)
{
    static const int64_t values[] = {
#define X(name, text, values, bytes, gguf) values,
        CHOIR__QUANT_LIST(X)
#undef X
    };
    static const int64_t bytes[] = {
#define X(name, text, values, bytes, gguf) bytes,
        CHOIR__QUANT_LIST(X)
#undef X
    };
    expansion f = {*k, values[k->type], bytes[k->type], choir__cuda_here()->fault};
    if (k->n > 0)
        choose(k->dtype, [&](auto t) {
            launch(expand<decltype(t)>, grid_for(k->n, 8), dim3(WARP, 8), 0, f);
        });
}
