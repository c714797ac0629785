/* Kernels on their way to a stream: the checks of a launch. */
#include "gpu.h"

#include <sys/mman.h>

static cudaError_t check_shape(const softgpu_kernel *k)
{
    uint64_t threads = (uint64_t)k->threads.x * k->threads.y * k->threads.z;
    uint64_t blocks = (uint64_t)k->blocks.x * k->blocks.y * k->blocks.z;
    if (threads == 0 || threads > 1024 || k->threads.z > 64 || blocks == 0 ||
        k->blocks.x > 0x7fffffffu || k->blocks.y > 65535 || k->blocks.z > 65535)
        return cudaErrorInvalidConfiguration;
    return cudaSuccess;
}

enum { PLAIN_SHARED = 48 << 10, KERNELS = 512 };

static struct {
    const void *kernel;
    size_t shared;
} allowed[KERNELS]; /* by cudaFuncSetAttribute */
static int allowed_count;

static size_t shared_of(const void *kernel)
{
    for (int i = 0; i < allowed_count; i++)
        if (allowed[i].kernel == kernel)
            return allowed[i].shared;
    return PLAIN_SHARED;
}

cudaError_t cudaFuncSetAttribute(
    const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t error = softgpu_enter();
    if (!error && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        int i = 0;
        while (i < allowed_count && allowed[i].kernel != kernel)
            i++;
        if (value < 0 || (size_t)value > softgpu_most_shared() || i == KERNELS) {
            error = cudaErrorInvalidValue;
        } else {
            allowed_count += i == allowed_count;
            allowed[i].kernel = kernel;
            allowed[i].shared = (size_t)value;
        }
    }
    return softgpu_leave(error);
}

static void run_kernel(const void *args)
{
    softgpu_kernel k;
    memcpy(&k, args, sizeof k);
    if (!softgpu_runs())
        return;
    softgpu_run_kernel(&k, (const char *)args + (sizeof k + 15) / 16 * 16);
}

/* Ends the program if a word of the arguments is a pointer to the host's memory that no GPU
 * reaches; a GPU's behavior would depend on the machine. This happens only with
 * SOFTGPU_POINTERS=1, as arguments also contain data, and padding that contains old values. */
static void check_pointers(const void *args, size_t bytes)
{
    const char *wanted = getenv("SOFTGPU_POINTERS");
    if (!wanted || *wanted != '1')
        return;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uintptr_t word;
        int gpu;
        unsigned char there;
        memcpy(&word, (const char *)args + i, sizeof word);
        if (word < (uintptr_t)1 << 40 || word >> 47)
            continue;
        void *page = (void *)(word & ~(uintptr_t)4095);
        if (softgpu_kind_of((void *)word, &gpu) == SOFTGPU_PAGEABLE &&
            mincore(page, 4096, &there) == 0)
            softgpu_wrong("a kernel's arguments have, at byte %zu, a pointer to the host's "
                          "pageable memory, %p",
                i, (void *)word);
    }
}

cudaError_t softgpu_issue_kernel(
    const softgpu_kernel *k, cudaStream_t handle, const void *args, size_t bytes)
{
    struct {
        softgpu_kernel kernel __attribute__((aligned(16)));
        unsigned char args[SOFTGPU_MOST_ARGS];
    } all;
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error)
        error = check_shape(k);
    if (!error && (!s || s->gpu != softgpu_current()))
        error = cudaErrorInvalidResourceHandle;
    if (!error && (bytes > SOFTGPU_MOST_ARGS ||
                      k->shared > shared_of((const void *)(uintptr_t)k->kernel)))
        error = cudaErrorInvalidValue;
    if (!error && softgpu_capability() < SOFTGPU_LEAST_CAPABILITY)
        error = cudaErrorNoKernelImageForDevice;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_LAUNCH, &error)) {
        if (softgpu_strict())
            check_pointers(args, bytes);
        all.kernel = *k;
        memcpy(all.args, args, bytes);
        error = softgpu_issue(s, SOFTGPU_TASK, run_kernel, &all,
            offsetof(__typeof__(all), args) + bytes, softgpu_reachable(s->gpu), true);
    }
    return softgpu_leave(error);
}

/* --- the driver's own --- */

typedef struct number {
    uint32_t *at, value;
} number;

static void write_number(const void *args)
{
    const number *n = args;
    __atomic_store_n((uint32_t *)softgpu_back(n->at), n->value, __ATOMIC_RELEASE);
}

/* cuStreamWriteValue32 */
static int write_value(cudaStream_t handle, uintptr_t at, uint32_t value, unsigned flags)
{
    number n = {.at = (uint32_t *)at, .value = value};
    cudaError_t error = softgpu_enter();
    int gpu;
    const char *writes = getenv("SOFTGPU_WRITES");
    (void)flags;
    if (writes)
        return softgpu_leave(!error && strcmp(writes, "lost") ? cudaErrorNotSupported : error);
    if (!error && (at % 4 || softgpu_kind_of(n.at, &gpu) == SOFTGPU_PAGEABLE))
        error = cudaErrorInvalidValue;
    if (!error)
        error = softgpu_issue(softgpu_stream(handle), SOFTGPU_TASK, write_number, &n, sizeof n,
            gpu >= 0 ? SOFTGPU_BY_THE_BACK : 0, false);
    return (int)softgpu_leave(error);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned version,
    unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    cudaError_t error = softgpu_ask();
    int (*found)(cudaStream_t, uintptr_t, uint32_t, unsigned) = write_value;
    bool known = strcmp(name, "cuStreamWriteValue32") == 0;
    (void)version;
    (void)flags;
    memset(fn, 0, sizeof *fn);
    if (known)
        memcpy(fn, &found, sizeof *fn);
    if (result)
        *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return softgpu_leave(error);
}
