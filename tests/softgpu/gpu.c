/* The GPUs of the process, the beginning and end of calls, and the failures that tests
 * inject. */
#include "gpu.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    pid_t process; /* that has begun to use CUDA; 0: none has */
    int count, driver, capability;
    int physical[SOFTGPU_MAX_GPUS];
    size_t memory;
    bool now, strict;
    cudaError_t broken;
    int left[SOFTGPU_FAIL_COUNT];         /* calls until one fails; 0: none does */
    bool lasts[SOFTGPU_FAIL_COUNT], mine; /* lasts: from then on all do; mine: it is my turn */
    unsigned contexts;                    /* bits of GPUs that this process has begun to use */
} gpu = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread int current;
static __thread cudaError_t last;

/* --- what the environment says --- */

static long number(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : fallback;
}

static size_t size_of(const char *name, size_t fallback)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return fallback;
    size_t n = strtoull(text, &end, 10);
    return *end == 'G' ? n << 30 : *end == 'M' ? n << 20 : *end == 'K' ? n << 10 : n;
}

/* Reads the list as the driver does: up to the first GPU that does not exist. */
static void pick_visible(int there)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    gpu.count = 0;
    for (int i = 0; !list && i < there; i++)
        gpu.physical[gpu.count++] = i;
    while (list && *list && gpu.count < SOFTGPU_MAX_GPUS) {
        char *end;
        long i = strtol(list, &end, 10);
        if (end == list || i < 0 || i >= there)
            break;
        gpu.physical[gpu.count++] = (int)i;
        list = *end == ',' ? end + 1 : end;
    }
}

static void read_failures(void)
{
    static const char *const names[SOFTGPU_FAIL_COUNT] = {"malloc", "pinned", "launch",
        "kernel", "copy", "capture", "graph", "blas", "product", "wait", "stray", "dnn"};
    const char *text = getenv("SOFTGPU_FAIL");
    while (text && *text) {
        size_t length = strcspn(text, ":,");
        for (int i = 0; i < SOFTGPU_FAIL_COUNT; i++)
            if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0) {
                gpu.left[i] = text[length] == ':' ? atoi(text + length + 1) : 1;
                gpu.lasts[i] = text[strcspn(text, ",+")] == '+';
            }
        text += strcspn(text, ",");
        text += *text == ',';
    }
}

static void begin(void)
{
    const char *when = getenv("SOFTGPU");
    long there = number("SOFTGPU_COUNT", 1);
    pick_visible(there < SOFTGPU_MAX_GPUS ? (int)there : SOFTGPU_MAX_GPUS);
    gpu.driver = (int)number("SOFTGPU_DRIVER", CUDART_VERSION);
    gpu.capability = (int)number("SOFTGPU_CAPABILITY", 90);
    gpu.memory = size_of("SOFTGPU_MEMORY", (size_t)4 << 30);
    gpu.now = when && strcmp(when, "now") == 0;
    gpu.strict = number("SOFTGPU_STRICT", 0) != 0;
    read_failures();
    gpu.process = getpid();
}

/* --- calls --- */

void softgpu_lock(void)
{
    pthread_mutex_lock(&gpu.mutex);
}

pthread_mutex_t *softgpu_mutex(void)
{
    return &gpu.mutex;
}

void softgpu_unlock(void)
{
    pthread_mutex_unlock(&gpu.mutex);
}

/* Returns an error if the GPUs cannot be used. A forked child can use nothing that its parent
 * began. */
static cudaError_t state_of_things(void)
{
    if (!gpu.process)
        begin();
    if (gpu.process != getpid())
        return cudaErrorInitializationError;
    if (gpu.driver < CUDART_VERSION / 1000 * 1000)
        return cudaErrorInsufficientDriver;
    if (gpu.count == 0)
        return cudaErrorNoDevice;
    return gpu.broken;
}

cudaError_t softgpu_ask(void)
{
    softgpu_lock();
    return state_of_things();
}

cudaError_t softgpu_enter(void)
{
    cudaError_t error = softgpu_ask();
    gpu.contexts |= error ? 0 : 1u << current;
    return error;
}

unsigned softgpu_contexts(void)
{
    return gpu.contexts;
}

cudaError_t softgpu_enter_unsafe(void)
{
    cudaError_t error = softgpu_enter();
    if (!error && softgpu_capture_forbids()) {
        softgpu_capture_spoil_all();
        return cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

static atomic_long launches;

long softgpu_launches(void)
{
    return atomic_load(&launches);
}

bool softgpu_runs(void)
{
    static atomic_int runs = -1;
    atomic_fetch_add(&launches, 1);
    if (atomic_load(&runs) < 0) {
        const char *wanted = getenv("SOFTGPU_RUN");
        atomic_store(&runs, !wanted || strcmp(wanted, "no") != 0);
    }
    return atomic_load(&runs) > 0;
}

cudaError_t softgpu_leave(cudaError_t error)
{
    softgpu_open_memory(0);
    softgpu_unlock();
    if (error)
        last = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = softgpu_ask(), was = last;
    last = cudaSuccess;
    softgpu_open_memory(0);
    softgpu_unlock();
    return gpu.broken ? error : was;
}

cudaError_t cudaPeekAtLastError(void)
{
    return gpu.broken ? gpu.broken : last;
}

/* --- failures --- */

/* Returns whether no other process has had the failure that is for one alone. */
static bool is_my_turn(void)
{
    const char *once = getenv("SOFTGPU_FAIL_ONCE");
    int fd = -1;
    if (once && !gpu.mine)
        fd = open(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    gpu.mine |= !once || fd >= 0;
    return gpu.mine;
}

bool softgpu_failing(softgpu_call call, cudaError_t *error)
{
    static const cudaError_t errors[SOFTGPU_FAIL_COUNT] = {cudaErrorMemoryAllocation,
        cudaErrorMemoryAllocation, cudaErrorLaunchOutOfResources, cudaErrorIllegalAddress,
        cudaErrorIllegalAddress, cudaErrorStreamCaptureUnsupported, cudaErrorMemoryAllocation,
        cudaErrorNotSupported, cudaErrorNotSupported, cudaErrorInvalidValue};
    if (gpu.left[call] == 0 || --gpu.left[call] > 0 || !is_my_turn())
        return false;
    if (gpu.lasts[call])
        gpu.left[call] = 1;
    *error = errors[call];
    return true;
}

void softgpu_fail_next(softgpu_call call, int n)
{
    softgpu_lock();
    (void)state_of_things();
    gpu.left[call] = n;
    softgpu_unlock();
}

void softgpu_break(cudaError_t error)
{
    if (!gpu.broken)
        gpu.broken = error;
}

void softgpu_heal(void)
{
    softgpu_lock();
    gpu.broken = cudaSuccess;
    softgpu_unlock();
    last = cudaSuccess;
}

cudaError_t softgpu_broken(void)
{
    return gpu.broken;
}

/* --- properties that all files use --- */

int softgpu_count(void)
{
    return gpu.count;
}

int softgpu_current(void)
{
    return current;
}

bool softgpu_now(void)
{
    return gpu.now;
}

bool softgpu_strict(void)
{
    return gpu.strict;
}

size_t softgpu_memory_bytes(void)
{
    return gpu.memory;
}

int softgpu_capability(void)
{
    return gpu.capability;
}

/* The sizes in CUDA's programming guide. */
size_t softgpu_most_shared(void)
{
    int c = gpu.capability;
    bool little = c == 86 || c == 89 || c == 120;
    return (size_t)(little ? 99 : c < 80 ? 64 : c < 90 ? 163 : 227) << 10;
}

int softgpu_physical(int i)
{
    return gpu.physical[i];
}

double softgpu_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the calls about GPUs --- */

cudaError_t cudaDriverGetVersion(int *version)
{
    (void)softgpu_ask();
    *version = gpu.driver;
    return softgpu_leave(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = softgpu_ask();
    *count = error ? 0 : gpu.count;
    return softgpu_leave(error);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = softgpu_ask();
    if (!error && (device < 0 || device >= gpu.count))
        error = cudaErrorInvalidDevice;
    if (!error) {
        current = device;
        gpu.contexts |= 1u << device; /* since CUDA 12 */
    }
    return softgpu_leave(error);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = softgpu_ask();
    *device = current;
    return softgpu_leave(error);
}

cudaError_t cudaInitDevice(int device, unsigned flags, unsigned set)
{
    (void)flags;
    (void)set;
    cudaError_t error = softgpu_enter();
    if (!error && (device < 0 || device >= gpu.count))
        error = cudaErrorInvalidDevice;
    return softgpu_leave(error);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return softgpu_leave(softgpu_enter());
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = softgpu_enter_unsafe();
    if (!error)
        error = softgpu_run_all(current);
    return softgpu_leave(error);
}
