/* Shared by copies on one GPU (kernels/copy.cu) and copies that reach beyond it
 * (kernels/copy_far.cu). */
#ifndef CHOIR_COPY_CUH
#define CHOIR_COPY_CUH

#include "device/cuda/kit/walk.cuh"

/* A side of a copy. */
typedef struct side {
    char *p;
    choir_dtype dtype;
    int64_t size; /* bytes per element */
} side;

/* True if each side is one run. */
inline bool is_run(const walk *w)
{
    return w->ndim == 1 && w->stride[0][0] == 1 && w->stride[0][1] == 1;
}

/* Copies bytes between any memories. */
inline bool copy_bytes(void *y, const void *x, int64_t bytes)
{
    return choir__cuda_ok(
        cudaMemcpyAsync(
            y, x, (size_t)bytes, cudaMemcpyDefault, choir__cuda_here()->stream),
        "a copy's cudaMemcpyAsync");
}

/* Expects both sides in this GPU's memory. */
void choir__cuda_copy_here(const walk *w, const side *y, const side *x);

/* Expects at least one side outside it. */
void choir__cuda_copy_far(const walk *w, const side *y, const side *x);

#endif
