/* Memory of GPUs.
 *
 * A pool asks for blocks of its size classes. Those under SMALL are cut out of slabs, since
 * cudaMalloc takes microseconds and hands out no less than 512 bytes; they go back to a list of
 * their size, not to CUDA. Larger ones are cudaMalloc's own. What a device has taken is kept in
 * a list of regions, so that a pointer can be shown to another process as an allocation and an
 * offset.
 *
 * Scratch only grows, and what was outgrown stays: a captured graph has its address. */
#include "device/cuda/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 1 << 20, SLAB = 8 << 20, ALIGN = 256, SIZES = 64 };

typedef struct region {
    char *at;
    size_t bytes;
    int gpu;
} region;

typedef struct spare {
    void *at;
    struct spare *next;
} spare;

/* Small memory of one GPU. */
typedef struct slabs {
    char *at; /* what is left of the newest */
    size_t left;
    struct {
        size_t bytes;
        spare *list;
    } sizes[SIZES];
    int count;
} slabs;

enum { MAX_GPUS = 64 };

static struct {
    pthread_mutex_t lock;
    region *regions;
    int count;
    slabs small[MAX_GPUS];
    cudaStream_t copies[MAX_GPUS]; /* of choir__cuda_far */
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- what CUDA gives --- */

/* Under lock. */
static void note_region(char *at, size_t bytes, int gpu)
{
    memory.regions =
        choir__realloc(memory.regions, (size_t)(memory.count + 1) * sizeof *memory.regions);
    memory.regions[memory.count++] = (region){at, bytes, gpu};
}

static void *take(int gpu, size_t bytes)
{
    void *p = NULL;
    cudaSetDevice(gpu);
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError(); /* told by who asked */
        return NULL;
    }
    note_region(p, bytes, gpu);
    return p;
}

static void give_back(void *p)
{
    for (int i = 0; i < memory.count; i++)
        if (memory.regions[i].at == p) {
            cudaSetDevice(memory.regions[i].gpu);
            memory.regions[i] = memory.regions[--memory.count];
            break;
        }
    cudaFree(p);
}

/* --- small memory --- */

static spare **list_of(slabs *s, size_t bytes)
{
    for (int i = 0; i < s->count; i++)
        if (s->sizes[i].bytes == bytes)
            return &s->sizes[i].list;
    if (s->count == SIZES)
        return NULL;
    s->sizes[s->count].bytes = bytes;
    return &s->sizes[s->count++].list;
}

static void *get_small(int gpu, size_t bytes)
{
    slabs *s = &memory.small[gpu];
    spare **list = list_of(s, bytes);
    if (list && *list) {
        spare *first = *list;
        void *at = first->at;
        *list = first->next;
        free(first);
        return at;
    }
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (s->left < need) {
        char *slab = take(gpu, SLAB);
        if (!slab)
            return NULL;
        s->at = slab;
        s->left = SLAB;
    }
    void *at = s->at;
    s->at += need;
    s->left -= need;
    return at;
}

static void put_small(int gpu, void *p, size_t bytes)
{
    spare **list = list_of(&memory.small[gpu], bytes), *first;
    if (!list)
        return; /* more sizes than a pool has classes: this one is never had again */
    first = choir__alloc(sizeof *first);
    *first = (spare){p, *list};
    *list = first;
}

/* The calling thread's GPU becomes this one: to go back to one that it never used would begin
 * to use that. Queues enter theirs anew before each run of tasks. */
static void *get(void *arg, size_t bytes)
{
    const choir__cuda *cuda = arg;
    pthread_mutex_lock(&memory.lock);
    void *p = bytes < SMALL ? get_small(cuda->gpu, bytes) : take(cuda->gpu, bytes);
    pthread_mutex_unlock(&memory.lock);
    return p;
}

static void put(void *arg, void *p, size_t bytes)
{
    const choir__cuda *cuda = arg;
    pthread_mutex_lock(&memory.lock);
    if (bytes < SMALL)
        put_small(cuda->gpu, p, bytes);
    else
        give_back(p);
    pthread_mutex_unlock(&memory.lock);
}

const choir__memory_ops choir__cuda_memory = {.get = get, .put = put};

void *choir__cuda_get(choir__cuda *cuda, size_t bytes)
{
    return get(cuda, bytes < SMALL ? SMALL : bytes);
}

/* --- scratch --- */

struct choir__cuda_scratch {
    void *now[CHOIR__SCRATCH_SLOTS];
    size_t bytes[CHOIR__SCRATCH_SLOTS];
    void **old; /* outgrown */
    int old_count;
};

static bool grow(choir__cuda *cuda, struct choir__cuda_scratch *s, int slot, size_t bytes)
{
    size_t wanted = bytes > 2 * s->bytes[slot] ? bytes : 2 * s->bytes[slot];
    void *p = choir__cuda_get(cuda, wanted);
    if (!p)
        p = choir__cuda_get(cuda, wanted = bytes);
    if (!p)
        return false;
    if (s->now[slot]) {
        s->old = choir__realloc(s->old, (size_t)(s->old_count + 1) * sizeof *s->old);
        s->old[s->old_count++] = s->now[slot];
    }
    s->now[slot] = p;
    s->bytes[slot] = wanted;
    return true;
}

void *choir__cuda_scratch(int slot, size_t bytes)
{
    choir__cuda *cuda = choir__cuda_here();
    if (!cuda->scratch)
        cuda->scratch = choir__calloc(1, sizeof *cuda->scratch);
    struct choir__cuda_scratch *s = cuda->scratch;
    if (s->bytes[slot] >= bytes || grow(cuda, s, slot, bytes))
        return s->now[slot];
    char note[160] = "";
    if (cuda->device)
        choir__cuda_memory_note(cuda->device, note, sizeof note);
    choir__queue_fail(CHOIR_ERR_MEMORY,
        "out of memory on GPU %d for a kernel's scratch, %zu bytes%s", cuda->gpu, bytes, note);
    return NULL;
}

void choir__cuda_scratch_free(choir__cuda *cuda)
{
    struct choir__cuda_scratch *s = cuda->scratch;
    if (!s)
        return;
    for (int i = 0; i < CHOIR__SCRATCH_SLOTS; i++)
        if (s->now[i])
            put(cuda, s->now[i], SMALL);
    for (int i = 0; i < s->old_count; i++)
        put(cuda, s->old[i], SMALL);
    free(s->old);
    free(s);
    cuda->scratch = NULL;
}

void choir__cuda_memory_note(const choir_device *device, char *text, size_t bytes)
{
    const choir__cuda *cuda = device->backend;
    size_t left, all, ours = 0;
    *text = '\0';
    cudaSetDevice(cuda->gpu);
    if (cudaMemGetInfo(&left, &all) != cudaSuccess)
        return;
    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < memory.count; i++)
        if (memory.regions[i].gpu == cuda->gpu)
            ours += memory.regions[i].bytes;
    pthread_mutex_unlock(&memory.lock);
    double gib = 1 << 30, others = (double)all - (double)left - (double)ours;
    snprintf(text, bytes,
        "; of GPU %d's %.2f GiB this process has %.2f, other processes and CUDA itself %.2f, and "
        "%.2f are free",
        cuda->gpu, (double)all / gib, (double)ours / gib, others > 0 ? others / gib : 0,
        (double)left / gib);
}

/* --- far memory --- */

int choir__cuda_gpu_of(const void *p)
{
    struct cudaPointerAttributes at;
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

static cudaStream_t copy_stream(int gpu)
{
    pthread_mutex_lock(&memory.lock);
    cudaSetDevice(gpu);
    if (!memory.copies[gpu])
        cudaStreamCreateWithFlags(&memory.copies[gpu], cudaStreamNonBlocking);
    pthread_mutex_unlock(&memory.lock);
    return memory.copies[gpu];
}

static choir_status copy(void *to, const void *from, size_t bytes, const void *far)
{
    int gpu = choir__cuda_gpu_of(far);
    cudaStream_t stream = copy_stream(gpu < 0 ? 0 : gpu);
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
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
    if (cudaHostAlloc(&p, bytes, cudaHostAllocPortable) == cudaSuccess)
        return p;
    cudaGetLastError();
    return NULL;
}

static void unpin(void *p)
{
    cudaFreeHost(p);
}

static void *reach(void *p, size_t bytes)
{
    void *seen = NULL;
    if (cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) ==
            cudaSuccess &&
        cudaHostGetDevicePointer(&seen, p, 0) == cudaSuccess)
        return seen;
    cudaGetLastError();
    return NULL;
}

static void unreach(void *p)
{
    cudaHostUnregister(p);
}

/* --- shown to other processes --- */

static bool region_of(const char *p, region *found)
{
    bool there = false;
    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < memory.count && !there; i++) {
        *found = memory.regions[i];
        there = p >= found->at && p < found->at + found->bytes;
    }
    pthread_mutex_unlock(&memory.lock);
    return there;
}

static void name_gpu(int gpu, char text[64])
{
    text[0] = '\0';
    if (cudaDeviceGetPCIBusId(text, 64, gpu) != cudaSuccess)
        cudaGetLastError();
}

static choir_status show(const void *p, choir__far_handle *handle, size_t *offset)
{
    region r;
    _Static_assert(sizeof(cudaIpcMemHandle_t) <= CHOIR__FAR_HANDLE, "a handle has room");
    if (!region_of(p, &r))
        return choir__error(
            CHOIR_ERR_DEVICE, "memory that another process is to see is none of this device's");
    memset(handle, 0, sizeof *handle);
    cudaError_t error = cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle->bytes, r.at);
    if (error != cudaSuccess)
        return choir__error(CHOIR_ERR_DEVICE,
            "GPU %d: memory can't be shown to another process: %s", r.gpu,
            cudaGetErrorString(error));
    name_gpu(r.gpu, handle->device);
    *offset = (size_t)((const char *)p - r.at);
    return CHOIR_OK;
}

static void *open_shown(choir_device *device, const choir__far_handle *handle)
{
    const choir__cuda *cuda = device->backend;
    char mine[64];
    void *p = NULL;
    int before = cuda->gpu;
    name_gpu(cuda->gpu, mine);
    if (strcmp(mine, handle->device) != 0) {
        choir__error(CHOIR_ERR_DEVICE, "%s is GPU %s, and what was passed lies on %s",
            device->name, mine, handle->device);
        return NULL;
    }
    cudaIpcMemHandle_t h;
    memcpy(&h, handle->bytes, sizeof h);
    cudaGetDevice(&before);
    cudaSetDevice(cuda->gpu);
    cudaError_t error = cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess);
    cudaSetDevice(before);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* told here */
        choir__error(CHOIR_ERR_DEVICE, "%s: another process's memory can't be opened: %s",
            device->name, cudaGetErrorString(error));
        return NULL;
    }
    return p;
}

/* CUDA counts how often the same memory was opened. It was, on its own GPU. */
static void close_shown(void *p)
{
    int before = 0, gpu = choir__cuda_gpu_of(p);
    cudaGetDevice(&before);
    cudaSetDevice(gpu < 0 ? before : gpu);
    if (cudaIpcCloseMemHandle(p) != cudaSuccess)
        cudaGetLastError(); /* the GPU failed: its next use says so */
    cudaSetDevice(before);
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
    .open = open_shown,
    .close = close_shown,
};
