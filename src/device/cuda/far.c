/* Far memory (device/far.h): the host's access to GPUs' memory by copies, pinned memory, and
 * sharing with other processes. */
#include <pthread.h>
#include <string.h>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/plugin.h"

enum { MAX_GPUS = 64 };

static struct {
    pthread_mutex_t lock;
    cudaStream_t of[MAX_GPUS]; /* for copies that the host waits for */
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- copies --- */

int choir__cuda_gpu_of(const void *p)
{
    struct cudaPointerAttributes at;
    if (!choir__cuda_settle())
        return -1;
    if (cudaPointerGetAttributes(&at, p) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    return at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged ? at.device : -1;
}

static bool owns(const void *p)
{
    return choir__cuda_gpu_of(p) >= 0;
}

void choir__cuda_transfer(const void *args)
{
    const choir__cuda_transfer_args *t = args;
    choir__cuda_ok(cudaMemcpyAsync(
                       t->to, t->from, t->bytes, cudaMemcpyDefault, choir__cuda_here()->stream),
        "a copy from the GPU");
}

static cudaStream_t copy_stream(int gpu)
{
    pthread_mutex_lock(&streams.lock);
    cudaSetDevice(gpu);
    if (!streams.of[gpu])
        cudaStreamCreateWithFlags(&streams.of[gpu], cudaStreamNonBlocking);
    pthread_mutex_unlock(&streams.lock);
    return streams.of[gpu];
}

static choir_status copy(void *to, const void *from, size_t bytes, const void *far)
{
    int gpu = choir__cuda_gpu_of(far);
    cudaStream_t stream = copy_stream(gpu < 0 ? 0 : gpu);
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    cudaGetLastError(); /* reported here */
    return error == cudaSuccess
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_DEVICE, "copying %zu bytes from or to GPU %d: %s",
                     bytes, gpu, cudaGetErrorString(error));
}

static choir_status far_get(void *host, const void *far, size_t bytes)
{
    return copy(host, far, bytes, far);
}

static choir_status far_put(void *far, const void *host, size_t bytes)
{
    return copy(far, host, bytes, far);
}

static choir_status far_move(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, to);
}

static void *pinned(size_t bytes)
{
    void *p = NULL;
    choir__cuda_settle();
    if (cudaHostAlloc(&p, bytes, cudaHostAllocPortable) == cudaSuccess)
        return p;
    cudaGetLastError();
    return NULL;
}

static void unpin(void *p)
{
    choir__cuda_settle();
    cudaFreeHost(p);
    cudaGetLastError(); /* from work that failed: its own queue reports it */
}

static void *reach(void *p, size_t bytes)
{
    void *seen = NULL;
    choir__cuda_settle();
    if (cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) ==
            cudaSuccess &&
        cudaHostGetDevicePointer(&seen, p, 0) != cudaSuccess)
        cudaHostUnregister(p);
    cudaGetLastError();
    return seen;
}

static void unreach(void *p)
{
    choir__cuda_settle();
    cudaHostUnregister(p);
    cudaGetLastError();
}

/* --- sharing with other processes --- */

static void name_gpu(int gpu, char text[64])
{
    text[0] = '\0';
    if (cudaDeviceGetPCIBusId(text, 64, gpu) != cudaSuccess)
        cudaGetLastError();
}

static choir_status show(const void *p, choir__far_handle *handle, size_t *offset)
{
    char *at;
    int gpu;
    _Static_assert(sizeof(cudaIpcMemHandle_t) <= CHOIR__FAR_HANDLE, "a handle has room");
    if (!choir__cuda_region_of(p, &at, &gpu))
        return choir__error(
            CHOIR_ERR_DEVICE, "expected this device's memory for another process to see");
    memset(handle, 0, sizeof *handle);
    cudaSetDevice(gpu);
    cudaError_t error = cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle->bytes, at);
    cudaGetLastError(); /* reported here */
    if (error != cudaSuccess)
        return choir__error(CHOIR_ERR_DEVICE,
            "GPU %d: memory can't be shown to another process: %s", gpu,
            cudaGetErrorString(error));
    name_gpu(gpu, handle->device);
    choir__cuda_region_shown(at, 1);
    *offset = (size_t)((const char *)p - at);
    return CHOIR_OK;
}

static void hide(const void *p)
{
    choir__cuda_settle();
    choir__cuda_region_shown(p, -1);
}

static void *open_shown(choir_device *device, const choir__far_handle *handle)
{
    const choir__cuda *cuda = device->backend;
    char mine[64];
    void *p = NULL;
    name_gpu(cuda->gpu, mine);
    if (strcmp(mine, handle->device) != 0) {
        choir__error(CHOIR_ERR_DEVICE, "%s is GPU %s, and the tensor passed is on %s",
            device->name, mine, handle->device);
        return NULL;
    }
    cudaIpcMemHandle_t h;
    memcpy(&h, handle->bytes, sizeof h);
    cudaSetDevice(cuda->gpu);
    cudaError_t error = cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* reported here */
        choir__error(CHOIR_ERR_DEVICE, "%s: another process's memory can't be opened: %s",
            device->name, cudaGetErrorString(error));
        return NULL;
    }
    return p;
}

/* Closes shared memory. CUDA counts how often the same memory was opened, on its own GPU. */
static void close_shown(void *p)
{
    int gpu = choir__cuda_gpu_of(p);
    if (gpu >= 0)
        cudaSetDevice(gpu);
    if (cudaIpcCloseMemHandle(p) != cudaSuccess)
        cudaGetLastError(); /* the GPU failed: its next use reports it */
}

const choir__far choir__cuda_far = {
    .owns = owns,
    .get = far_get,
    .put = far_put,
    .move = far_move,
    .pinned = pinned,
    .unpin = unpin,
    .reach = reach,
    .unreach = unreach,
    .show = show,
    .hide = hide,
    .open = open_shown,
    .close = close_shown,
};
