/* CUDA devices: the backend of cuda:0, cuda:1, ... in a plug-in.
 *
 * GPUs are numbered as in CUDA: in the order of CUDA_VISIBLE_DEVICES. With CHOIR_CUDA_DEVICES=n
 * there are n devices, distributed over the GPUs: device i is on GPU i mod their number, with
 * its own stream and pool, so that everything for many devices also runs on one card. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/dnn/dnn.h"
#include "device/cuda/kernels/matmul.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/plugin.h"

/* One table serves all dtypes: each kernel selects by its dtype. */
#define X(name) .name = choir__cuda_##name,
static const choir__kernels kernels = {CHOIR__KERNEL_LIST(X)};
#undef X

/* --- number of devices --- */

static struct {
    pthread_once_t once;
    int gpus;
    char why[256]; /* reason why no GPU is usable */
} found = {.once = PTHREAD_ONCE_INIT};

static void look(void)
{
    int driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&found.gpus);
    cudaGetLastError();
    if (error == cudaSuccess && found.gpus > 0)
        return;
    found.gpus = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver)
        snprintf(found.why, sizeof found.why,
            "the NVIDIA driver is too old: it serves CUDA %d.%d, and this build needs "
            "%d.%d; update the driver, or build with an older toolkit",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (error == cudaErrorInsufficientDriver)
        snprintf(found.why, sizeof found.why,
            "the NVIDIA driver is missing: nvidia-smi shows whether one is installed");
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
        snprintf(found.why, sizeof found.why,
            "the NVIDIA driver shows no GPU; CUDA_VISIBLE_DEVICES is %s",
            getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    else
        snprintf(
            found.why, sizeof found.why, "CUDA does not start: %s", cudaGetErrorString(error));
}

static int count_devices(char *why, size_t bytes)
{
    pthread_once(&found.once, look);
    if (!found.gpus) {
        snprintf(why, bytes, "%s", found.why);
        return 0;
    }
    const char *wanted = getenv("CHOIR_CUDA_DEVICES");
    int n = wanted ? atoi(wanted) : 0;
    return n > 0 ? n : found.gpus;
}

/* --- copies to places that cannot read the GPU's memory, and between GPUs --- */

/* The GPU writes to host memory in its own order. It waits for the memory's earlier users, and
 * later users wait for it. */
static void carry(choir__carrier *carrier, choir_device *from, const void *x, choir_device *to,
    void *y, size_t bytes, choir__event ready, choir__event *read)
{
    choir__cuda_transfer_args t = {y, x, bytes};
    (void)carrier;
    choir__queue_wait_event(from->queue, ready);
    choir__queue_wait_event(from->queue, choir__queue_record(to->queue));
    choir__queue_issue(from->queue, choir__cuda_transfer, &t, sizeof t);
    *read = choir__queue_record(from->queue);
    choir__queue_wait_event(to->queue, *read);
    choir__queue_moved(to->queue, from->queue, bytes);
}

/* GPUs read each other's memory; data from the host they copy themselves (kernels/copy.cu). */
static bool reads(const choir_device *to, const choir_device *from)
{
    return to->far == from->far; /* one GPU may have two names: a pipeline's rank */
}

static choir__carrier carrier = {.carry = carry, .reads = reads};

/* --- opening --- */

static void open_peer(int gpu, int peer)
{
    int can = 0;
    cudaSetDevice(gpu);
    if (cudaDeviceCanAccessPeer(&can, gpu, peer) == cudaSuccess && can)
        cudaDeviceEnablePeerAccess(peer, 0);
    cudaGetLastError(); /* clears the error of an access that was enabled before */
}

/* Lets kernels of the GPUs in use read each other's memory where possible; other GPUs are not
 * touched. Under the registry's lock. */
static void open_peers(int gpu)
{
    for (int i = 0; i < found.gpus; i++)
        if (choir__cuda_used(i) && i != gpu) {
            open_peer(gpu, i);
            open_peer(i, gpu);
        }
}

static choir_status check_code(const choir_device *device, int gpu)
{
    struct cudaDeviceProp p;
    cudaSetDevice(gpu);
    cudaError_t error = choir__cuda_code_runs();
    if (error == cudaSuccess)
        return CHOIR_OK;
    cudaGetLastError();
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return choir__error(
            CHOIR_ERR_DEVICE, "%s does not start: %s", device->name, cudaGetErrorString(error));
    if (cudaGetDeviceProperties(&p, gpu) != cudaSuccess)
        return choir__error(
            CHOIR_ERR_DEVICE, "%s does not report its properties", device->name);
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s is %s, of compute capability %d.%d, for which this build has no code: build with "
        "-DCMAKE_CUDA_ARCHITECTURES=%d%d",
        device->name, p.name, p.major, p.minor, p.major, p.minor);
}

static bool epilogues_wanted(void)
{
    const char *wanted = getenv("CHOIR_CUDA_EPILOGUES");
    return !wanted || strcmp(wanted, "0") != 0;
}

static choir_status open_cuda(choir_device *device)
{
    int gpu = device->index % found.gpus;
    choir_status status = check_code(device, gpu);
    if (status != CHOIR_OK)
        return status;
    choir__gpu_stream *stream = choir__cuda_stream_new(gpu, device);
    if (!stream)
        return CHOIR_ERR_DEVICE;
    open_peers(gpu);
    device->backend = choir__cuda_context_of(stream);
    device->kernels = device->reference = &kernels;
    device->half = true;
    device->epilogues = epilogues_wanted();
    device->row_bytes = 16; /* tensor cores are given 16 bytes at a time */
    device->carrier = &carrier;
    device->pool = choir__pool_new(
        &choir__cuda_memory, device->backend, device->gauges ? &device->gauges->pool : NULL);
    device->queue = choir__queue_new((choir__queue_opts){
        .name = device->name,
        .stream = stream,
        .gauges = device->gauges ? &device->gauges->queue : NULL,
        .blames = true,
    });
    return CHOIR_OK;
}

static choir_status set_threads(choir_device *device, int threads)
{
    return threads == 1 ? CHOIR_OK
                        : choir__error(CHOIR_ERR_ARGUMENT,
                              "%d threads for %s: a GPU has no number of threads to set; "
                              "--devices cpu:0 takes a processor",
                              threads, device->name);
}

static choir__gpu_stream *another_stream(choir_device *device)
{
    return choir__cuda_stream_new(((const choir__cuda *)device->backend)->gpu, NULL);
}

/* --- descriptions --- */

static bool multiplies(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

static void signature(const choir_device *device, char *text, size_t bytes)
{
    const choir__cuda *cuda = device->backend;
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, cuda->gpu) != cudaSuccess)
        snprintf(p.name, sizeof p.name, "GPU");
    snprintf(text, bytes, "cuda %s (%d.%d), CUDA %d.%d, cuBLASLt %zu, cuDNN %zu%s%s", p.name,
        cuda->capability / 10, cuda->capability % 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10, cublasLtGetVersion(), choir__dnn_version(),
        choir__cuda_tf32()                                ? ", TF32"
        : choir__dnn_version() && choir__cuda_conv_tf32() ? ", convolutions TF32"
                                                          : "",
        device->epilogues ? "" : ", no epilogues");
}

static void libraries(const choir_device *device, choir__library_use use[CHOIR__LIBRARIES])
{
    const choir__cuda *cuda = device->backend;
    memcpy(use, cuda->use, sizeof cuda->use);
    use[CHOIR__CUBLASLT].version = cublasLtGetVersion();
    use[CHOIR__CUDNN].version = choir__dnn_version();
}

/* Writes "9.19.0"; "" for version 0. */
static void write_version(char text[CHOIR__VERSION_TEXT], size_t version)
{
    *text = '\0';
    if (version)
        snprintf(text, CHOIR__VERSION_TEXT, "%zu.%zu.%zu", version / 10000, version / 100 % 100,
            version % 100);
}

static bool describe(int index, choir__device_facts *f)
{
    struct cudaDeviceProp p;
    size_t left = 0, all = 0;
    f->gpu = index % (found.gpus ? found.gpus : 1);
    if (cudaGetDeviceProperties(&p, f->gpu) != cudaSuccess)
        return false;
    cudaDeviceGetPCIBusId(f->bus, sizeof f->bus, f->gpu);
    f->busy_percent = f->celsius = f->watts = f->sm_mhz = -1;
    /* without NVML: includes the memory that this query takes */
    if (!choir__nvml_describe(f)) {
        cudaSetDevice(f->gpu);
        cudaMemGetInfo(&left, &all);
        f->used_bytes = all - left;
    }
    snprintf(f->model, sizeof f->model, "%s", p.name);
    snprintf(f->capability, sizeof f->capability, "%d.%d", p.major, p.minor);
    f->multiprocessors = p.multiProcessorCount;
    f->bytes = p.totalGlobalMem;
    write_version(f->cublaslt, cublasLtGetVersion());
    write_version(f->cudnn, choir__dnn_version());
    return true;
}

const choir__backend choir__plugged_backend = {
    .kind = "cuda",
    .count = count_devices,
    .open = open_cuda,
    .set_threads = set_threads,
    .multiplies = multiplies,
    .signature = signature,
    .far = &choir__cuda_far,
    .stream = another_stream,
    .memory_note = choir__cuda_memory_note,
    .describe = describe,
    .libraries = libraries,
};
