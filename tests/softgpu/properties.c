/* Properties of the GPUs, and the names of errors. A GPU is an H200, but small: it has few
 * multiprocessors, so that tests reach grids larger than the GPU. */
#include "gpu.h"

enum { MULTIPROCESSORS = 4 };

static bool is_there(int device, cudaError_t *error)
{
    if (!*error && (device < 0 || device >= softgpu_count()))
        *error = cudaErrorInvalidDevice;
    return !*error;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    cudaError_t error = softgpu_ask();
    memset(p, 0, sizeof *p);
    if (is_there(device, &error)) {
        int physical = softgpu_physical(device);
        snprintf(p->name, sizeof p->name, "Soft GPU");
        snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "softgpu-%d", physical);
        p->totalGlobalMem = softgpu_memory_bytes();
        p->major = softgpu_capability() / 10;
        p->minor = softgpu_capability() % 10;
        p->multiProcessorCount = MULTIPROCESSORS;
        p->warpSize = SOFTGPU_WARP;
        p->maxThreadsPerBlock = 1024;
        p->maxThreadsPerMultiProcessor = 2048;
        p->sharedMemPerBlock = 48 << 10;
        p->sharedMemPerBlockOptin = softgpu_most_shared();
        p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + 1024;
        p->regsPerBlock = 65536;
        p->l2CacheSize = 50 << 20;
        p->memoryBusWidth = 6144;
        p->unifiedAddressing = 1;
        p->canMapHostMemory = 1;
        p->asyncEngineCount = 3;
        p->concurrentKernels = 1;
        p->pciBusID = physical + 1;
    }
    return softgpu_leave(error);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error)
        return error;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = 1; break;
    default:
        (void)softgpu_ask();
        return softgpu_leave(cudaErrorInvalidValue); /* Choir does not ask for it */
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    cudaError_t error = softgpu_ask();
    if (is_there(device, &error))
        snprintf(text, (size_t)bytes, "0000:%02X:00.0", softgpu_physical(device) + 1);
    return softgpu_leave(error);
}

/* Kernels are compiled for Ampere and newer GPUs (cmake/plugins.cmake). */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel)
{
    cudaError_t error = softgpu_enter();
    memset(a, 0, sizeof *a);
    if (!error && !kernel)
        error = cudaErrorInvalidDeviceFunction;
    if (!error && softgpu_capability() < SOFTGPU_LEAST_CAPABILITY)
        error = cudaErrorNoKernelImageForDevice;
    a->maxThreadsPerBlock = 1024;
    return softgpu_leave(error);
}

/* --- errors --- */

#define ERRORS(X)                                                                              \
    X(cudaSuccess, "no error")                                                                 \
    X(cudaErrorInvalidValue, "invalid argument")                                               \
    X(cudaErrorMemoryAllocation, "out of memory")                                              \
    X(cudaErrorInitializationError, "initialization error")                                    \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                         \
    X(cudaErrorInvalidPitchValue, "invalid pitch argument")                                    \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                    \
    X(cudaErrorInsufficientDriver,                                                             \
        "CUDA driver version is insufficient for CUDA runtime version")                        \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                 \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                        \
    X(cudaErrorNoKernelImageForDevice,                                                         \
        "no kernel image is available for execution on the device")                            \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                               \
    X(cudaErrorPeerAccessUnsupported,                                                          \
        "peer access is not supported between these two devices")                              \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                               \
    X(cudaErrorIllegalState, "the operation cannot be performed in the present state")         \
    X(cudaErrorNotReady, "device not ready")                                                   \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                     \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                     \
    X(cudaErrorHostMemoryAlreadyRegistered,                                                    \
        "part or all of the requested memory range is already mapped")                         \
    X(cudaErrorHostMemoryNotRegistered,                                                        \
        "pointer does not correspond to a registered memory region")                           \
    X(cudaErrorNotSupported, "operation not supported")                                        \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")   \
    X(cudaErrorStreamCaptureInvalidated,                                                       \
        "operation failed due to a previous error during capture")                             \
    X(cudaErrorStreamCaptureMerge,                                                             \
        "operation would result in a merge of separate capture sequences")                     \
    X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began") \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                    \
    X(cudaErrorStreamCaptureIsolation,                                                         \
        "dependency created on uncaptured work in another stream")                             \
    X(cudaErrorStreamCaptureImplicit,                                                          \
        "operation would make the legacy stream depend on a capturing blocking stream")        \
    X(cudaErrorCapturedEvent,                                                                  \
        "operation not permitted on an event last recorded in a capturing stream")             \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
#define X(name, text)                                                                          \
    case name: return #name;
        ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch ((int)error) {
#define X(name, text)                                                                          \
    case name: return text;
        ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}
