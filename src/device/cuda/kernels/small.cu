/* Kernels on a few numbers: bytes from the host, a gradient scaler's decision and its numbers,
 * and unscale, which belongs to them. The host reads none of the results, so that a step can be
 * recorded; the optimizer's kernels read the decision. */
#include "device/cuda/kit/entries.cuh"
#include "device/kernels/arithmetic.h"

/* The bytes are the kernel's argument, which a captured launch stores. */
static __global__ void store_bytes(const choir__k_store k)
{
    for (uint32_t i = threadIdx.x; i < k.bytes; i += blockDim.x)
        ((unsigned char *)k.y)[i] = k.data[i];
}

extern "C" void choir__cuda_store(const choir__k_store *k)
{
    if (k->bytes)
        launch(store_bytes, 1, 256, 0, *k);
}

static __global__ void optim_skipped(choir__k_optim_skipped k)
{
    for (int g = (int)threadIdx.x; g < k.groups; g += (int)blockDim.x)
        choir__opt_correct(&k.hyper[g], k.bias, k.steps - (int64_t)*k.skipped);
}

extern "C" void choir__cuda_optim_skipped(const choir__k_optim_skipped *k)
{
    launch(optim_skipped, 1, WARP, 0, *k);
}

struct scaler {
    choir__k_scaler_update k;
    choir__cuda_fault *fault;
};

static __global__ void scaler_update(scaler u)
{
    const choir__k_scaler_update &k = u.k;
    choir__scaler_numbers *s = k.numbers;
    bool found = false;
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < k.count; i++)
        found = found || *k.found[i] != 0;
    float scale = s->scale;
    s->in_a_row = found ? s->in_a_row + 1 : 0;
    if (found) {
        scale *= k.backoff;
        s->clean = 0;
    } else if (++s->clean >= (float)k.interval) {
        scale = scale * k.growth < INFINITY ? scale * k.growth : scale;
        s->clean = 0;
    }
    s->scale = scale;
    s->inverse = (float)(1 / (double)scale);
    if (s->in_a_row >= (float)k.patience)
        raise_fault(u.fault, CHOIR__STUCK_SCALER, k.patience, 0, 0, (double)scale);
}

extern "C" void choir__cuda_scaler_update(const choir__k_scaler_update *k)
{
    scaler u = {*k, choir__cuda_here()->fault};
    launch(scaler_update, 1, WARP, 0, u);
}

struct unscaling {
    entry_table t;
    const float *inverse;
};

static __global__ void __launch_bounds__(BLOCK, RESIDENT) unscale(unscaling k)
{
    float by = *k.inverse;
    for (int64_t i = blockIdx.x; i < k.t.before[k.t.count].of[CHUNKS]; i += gridDim.x) {
        int64_t own = entry_with(k.t, i, CHUNKS);
        float *grad = (float *)k.t.entries[own].grad;
        int64_t at = (i - k.t.before[own].of[CHUNKS]) * CHUNK, n = k.t.entries[own].n;
        for (int64_t c = at + threadIdx.x * QUAD; c < at + CHUNK && c < n; c += BLOCK * QUAD) {
            float v[QUAD];
            load_quad(v, grad + c, n - c);
            for (int j = 0; j < QUAD; j++)
                v[j] *= by;
            store_quad(grad + c, v, n - c);
        }
    }
}

extern "C" void choir__cuda_unscale(const choir__k_unscale *k)
{
    unscaling u = {table_of(k->entries, k->count), k->inverse};
    if (k->count > 0 && u.t.before)
        launch(unscale, rounds(RESIDENT), BLOCK, 0, u);
}
