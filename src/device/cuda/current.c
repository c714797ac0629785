/* The context that is current on a thread, and the GPUs that this process uses. Kernels, memory
 * and streams all ask for them, so this file calls none of those. */
#include <stdatomic.h>
#include <stddef.h>

#include "device/cuda/stream_run.h"

static _Thread_local choir__cuda *here;

choir__cuda *choir__cuda_here(void)
{
    return here;
}

void choir__cuda_set_here(choir__cuda *cuda)
{
    here = cuda;
}

cuda_stream *choir__cuda_stream_here(void)
{
    return (cuda_stream *)((char *)here - offsetof(cuda_stream, cuda));
}

choir__cuda *choir__cuda_context_of(choir__gpu_stream *stream)
{
    return &((cuda_stream *)stream)->cuda;
}

/* --- GPUs in use --- */

static _Atomic uint64_t in_use; /* bit i: GPU i */

void choir__cuda_use(int gpu)
{
    if (gpu < 64)
        atomic_fetch_or(&in_use, 1ULL << gpu);
}

bool choir__cuda_used(int gpu)
{
    return gpu < 64 && (atomic_load(&in_use) >> gpu & 1);
}

bool choir__cuda_settle(void)
{
    uint64_t used = atomic_load(&in_use);
    int now = 64;
    if (!used)
        return false;
    if (cudaGetDevice(&now) != cudaSuccess || now >= 64 || !(used >> now & 1))
        cudaSetDevice(__builtin_ctzll(used));
    return true;
}
