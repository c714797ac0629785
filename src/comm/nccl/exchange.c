/* The pieces of an exchange over NCCL: sends and receives of one NCCL group, copies on the GPU,
 * and the scratch memory that receives what peers send. */
#include <stdio.h>

#include "comm/nccl/nccl.h"

char *choir__nccl_scratch(choir__nccl *n, size_t bytes)
{
    if (bytes <= n->scratch_bytes)
        return n->scratch;
    size_t want = choir__max(bytes, 2 * n->scratch_bytes);
    void *at = NULL;
    cudaSetDevice(n->gpu);
    if (cudaMalloc(&at, want) != cudaSuccess) {
        cudaGetLastError();
        want = bytes;
        if (cudaMalloc(&at, want) != cudaSuccess) {
            char text[200];
            cudaGetLastError();
            if (choir__nccl_refused(n))
                return NULL;
            snprintf(text, sizeof text,
                "rank %d: out of memory on %s for what NCCL brings, %zu bytes", n->base.rank,
                choir_device_name(n->device), bytes);
            choir__nccl_go_down(n, CHOIR_ERR_MEMORY, text);
            choir__nccl_status(n);
            return NULL;
        }
    }
    if (n->scratch) { /* the stream still uses it, or a captured graph has its address */
        n->outgrown =
            choir__realloc(n->outgrown, (size_t)(n->outgrown_count + 1) * sizeof *n->outgrown);
        n->outgrown[n->outgrown_count++] = n->scratch;
    }
    n->scratch = at;
    n->scratch_bytes = want;
    return at;
}

/* --- parts of an NCCL group --- */

void choir__nccl_send(choir__nccl *n, const void *at, size_t bytes, int peer)
{
    if (bytes && n->comm)
        choir__nccl_calls.Send(at, bytes, ncclUint8, peer, n->comm, n->stream);
}

void choir__nccl_receive(choir__nccl *n, void *at, size_t bytes, int peer)
{
    if (bytes && n->comm)
        choir__nccl_calls.Recv(at, bytes, ncclUint8, peer, n->comm, n->stream);
}

choir_status choir__nccl_end(choir__nccl *n)
{
    return choir__nccl_done(n, choir__nccl_calls.GroupEnd(), "an exchange");
}

choir_status choir__nccl_copy(choir__nccl *n, void *to, const void *from, size_t bytes)
{
    if (!bytes || to == from)
        return CHOIR_OK;
    return choir__nccl_cuda(
        n, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, n->stream), "a copy");
}
