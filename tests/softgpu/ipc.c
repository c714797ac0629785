/* Device memory of other processes: a handle names the process and its file that holds the
 * memory. The caller keeps the other process alive, as with CUDA. */
#include "gpu.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct handle {
    int32_t process, physical, fd, reserved;
    uint64_t at, bytes;
} handle;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p)
{
    handle h = {.process = getpid()};
    int gpu, fd;
    size_t at, bytes;
    cudaError_t error = softgpu_enter();
    memset(out, 0, sizeof *out);
    if (!error && !softgpu_allocation(p, &gpu, &fd, &at, &bytes))
        error = cudaErrorInvalidValue;
    if (!error) {
        h.physical = softgpu_physical(gpu);
        h.fd = fd;
        h.at = at;
        h.bytes = bytes;
        memcpy(out, &h, sizeof h);
    }
    return softgpu_leave(error);
}

static cudaError_t open_memory(const handle *h, void **p)
{
    char path[64];
    int gpu = softgpu_current();
    if (h->process == getpid())
        return cudaErrorInvalidResourceHandle; /* as the real one: not in the same process */
    if (h->physical != softgpu_physical(gpu))
        return cudaErrorInvalidValue;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->process, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return cudaErrorInvalidValue;
    *p = softgpu_map_foreign(gpu, fd, h->at, h->bytes);
    close(fd);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t in, unsigned flags)
{
    handle h;
    cudaError_t error = softgpu_enter_unsafe();
    (void)flags;
    *p = NULL;
    memcpy(&h, &in, sizeof h);
    if (!error)
        error = open_memory(&h, p);
    return softgpu_leave(error);
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    cudaError_t error = softgpu_enter_unsafe();
    if (!error)
        error = softgpu_run_all(softgpu_current());
    if (!error && !softgpu_unmap_foreign(p))
        error = cudaErrorInvalidValue;
    return softgpu_leave(error);
}
