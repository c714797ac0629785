/* Memory: an arena for each GPU, and the host's pinned pieces.
 *
 * An arena is one range of addresses over a memfd, so that other processes can open its memory
 * (ipc.c) and one mprotect closes it: with SOFTGPU_STRICT=1 it is open only while a GPU that
 * may use it works. Fresh memory is all ones, a NaN of every floating-point type. Bytes after
 * each block must not be written: the address sanitizer watches them, and without it they are
 * checked when the block is freed. */
#include "gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#define LOOK           0
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define LOOK           1
#endif

enum {
    ALIGN = 512,
    GUARD = 512,
    GUARD_BYTE = 0xA5,
    STEP = 16 << 20,
    PAGE = 4096,
    MOST_FILLED = 1 << 20
};

typedef struct piece piece;
struct piece {
    size_t at, bytes;
    piece *next; /* in order of at */
};

static struct arena {
    char *base;        /* NULL: nothing has been asked for */
    char *back;        /* the same memory, never closed: for copies */
    size_t span, high; /* addresses reserved; addresses that may be open */
    size_t used;
    int fd;
    piece *pieces;
    unsigned peers; /* whose memory work here may touch */
} arenas[SOFTGPU_MAX_GPUS];

static struct foreign {
    char *base;
    size_t bytes;
    int gpu;
    struct foreign *next;
} * foreigners;

static struct pinned {
    char *p;
    size_t bytes;
    bool ours; /* from cudaMallocHost; else registered */
    struct pinned *next;
} * pinned;

static unsigned opened; /* bits of GPUs */

/* --- arenas --- */

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static int access_of(int g)
{
    return !softgpu_strict() || (opened >> g & 1) ? PROT_READ | PROT_WRITE : PROT_NONE;
}

void softgpu_open_memory(unsigned gpus)
{
    unsigned changed = gpus ^ opened;
    opened = gpus;
    if (!softgpu_strict() || !changed)
        return;
    for (int g = 0; g < SOFTGPU_MAX_GPUS; g++)
        if (arenas[g].base && (changed >> g & 1))
            mprotect(arenas[g].base, arenas[g].high, access_of(g));
}

unsigned softgpu_reachable(int g)
{
    return 1u << g | arenas[g].peers;
}

static bool arena_begin(struct arena *a)
{
    a->span = up(softgpu_memory_bytes() * 2 + STEP, PAGE);
    a->fd = memfd_create("softgpu", MFD_CLOEXEC);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)a->span) != 0)
        return false;
    void *p = mmap(NULL, a->span, PROT_NONE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
    void *back =
        mmap(NULL, a->span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
    a->base = p == MAP_FAILED || back == MAP_FAILED ? NULL : p;
    a->back = back;
    return a->base != NULL;
}

/* Finds room for `bytes`: returns the link at which the new piece belongs, and sets *at. */
static piece **find_room(struct arena *a, size_t bytes, size_t *at)
{
    piece **link = &a->pieces;
    size_t end = 0;
    for (; *link; link = &(*link)->next) {
        if ((*link)->at - end >= bytes + GUARD)
            break;
        end = up((*link)->at + (*link)->bytes + GUARD, ALIGN);
    }
    *at = end;
    return link;
}

static void guard(struct arena *a, const piece *p)
{
    size_t end = p->at + p->bytes, bytes = up(end + GUARD, ALIGN) - end;
    memset(a->back + end, GUARD_BYTE, bytes);
    POISON(a->base + end, bytes);
}

static cudaError_t allocate(int g, size_t bytes, void **out)
{
    struct arena *a = &arenas[g];
    size_t at;
    if (a->used + bytes > softgpu_memory_bytes() || (!a->base && !arena_begin(a)))
        return cudaErrorMemoryAllocation;
    piece **link = find_room(a, bytes, &at), *p = malloc(sizeof *p);
    size_t end = up(at + bytes + GUARD, ALIGN);
    if (end > a->span)
        return free(p), cudaErrorMemoryAllocation;
    if (end > a->high) {
        size_t high = up(end, STEP) < a->span ? up(end, STEP) : a->span;
        mprotect(a->base + a->high, high - a->high, access_of(g));
        a->high = high;
    }
    *p = (piece){.at = at, .bytes = bytes, .next = *link};
    *link = p;
    a->used += bytes;
    UNPOISON(a->base + at, end - at);
    memset(a->back + at, 0xFF, bytes < MOST_FILLED ? bytes : MOST_FILLED);
    guard(a, p);
    *out = a->base + at;
    return cudaSuccess;
}

static struct arena *arena_of(const void *p)
{
    for (int g = 0; g < SOFTGPU_MAX_GPUS; g++)
        if (arenas[g].base && (const char *)p >= arenas[g].base &&
            (const char *)p < arenas[g].base + arenas[g].span)
            return &arenas[g];
    return NULL;
}

void *softgpu_back(const void *p)
{
    const struct arena *a = arena_of(p);
    return a ? a->back + ((const char *)p - a->base) : (void *)(uintptr_t)p;
}

static piece **piece_of(struct arena *a, const void *p)
{
    size_t at = (size_t)((const char *)p - a->base);
    for (piece **link = &a->pieces; *link; link = &(*link)->next)
        if (at >= (*link)->at && at < (*link)->at + (*link)->bytes)
            return link;
    return NULL;
}

static cudaError_t release(struct arena *a, void *p)
{
    piece **link = piece_of(a, p), *old = link ? *link : NULL;
    if (!old || a->base + old->at != (char *)p)
        return cudaErrorInvalidValue;
    cudaError_t error = softgpu_run_all((int)(a - arenas)); /* as the real one does */
    const unsigned char *end = (const unsigned char *)a->back + old->at + old->bytes;
    for (int i = 0; LOOK && i < GUARD; i++)
        if (end[i] != GUARD_BYTE)
            softgpu_wrong(
                "something wrote %d bytes behind device memory of %zu", i, old->bytes);
    POISON(p, old->bytes);
    a->used -= old->bytes;
    *link = old->next;
    free(old);
    return error;
}

/* --- whose memory --- */

static struct foreign *foreign_of(const void *p)
{
    struct foreign *f = foreigners;
    while (f && !((const char *)p >= f->base && (const char *)p < f->base + f->bytes))
        f = f->next;
    return f;
}

static struct pinned **pinned_of(const void *p)
{
    for (struct pinned **link = &pinned; *link; link = &(*link)->next)
        if ((const char *)p >= (*link)->p && (const char *)p < (*link)->p + (*link)->bytes)
            return link;
    return NULL;
}

softgpu_kind softgpu_kind_of(const void *p, int *g)
{
    const struct arena *a = arena_of(p);
    const struct foreign *f = a ? NULL : foreign_of(p);
    *g = a ? (int)(a - arenas) : f ? f->gpu : -1;
    return a || f ? SOFTGPU_DEVICE : pinned_of(p) ? SOFTGPU_PINNED : SOFTGPU_PAGEABLE;
}

bool softgpu_within(const void *p, size_t bytes)
{
    struct arena *a = arena_of(p);
    const struct foreign *f = foreign_of(p);
    struct pinned **host = pinned_of(p);
    if (a) {
        piece **link = piece_of(a, p);
        size_t at = (size_t)((const char *)p - a->base);
        return link && at + bytes <= (*link)->at + (*link)->bytes;
    }
    if (f)
        return (const char *)p + bytes <= f->base + f->bytes;
    return !host || (const char *)p + bytes <= (*host)->p + (*host)->bytes;
}

bool softgpu_allocation(const void *p, int *g, int *fd, size_t *at, size_t *bytes)
{
    struct arena *a = arena_of(p);
    piece **link = a ? piece_of(a, p) : NULL;
    if (!link)
        return false;
    *g = (int)(a - arenas);
    *fd = a->fd;
    *at = (*link)->at;
    *bytes = (*link)->bytes;
    return true;
}

void *softgpu_map_foreign(int g, int fd, size_t at, size_t bytes)
{
    size_t off = at / PAGE * PAGE, lead = at - off;
    char *p = mmap(NULL, lead + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)off);
    if (p == MAP_FAILED)
        return NULL;
    struct foreign *f = malloc(sizeof *f);
    *f = (struct foreign){.base = p, .bytes = lead + bytes, .gpu = g, .next = foreigners};
    foreigners = f;
    return p + lead;
}

bool softgpu_unmap_foreign(void *p)
{
    struct foreign *f = foreign_of(p), **link = &foreigners;
    if (!f)
        return false;
    while (*link != f)
        link = &(*link)->next;
    *link = f->next;
    munmap(f->base, f->bytes);
    free(f);
    return true;
}

/* --- the calls --- */

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t error = softgpu_enter_unsafe();
    *p = NULL;
    if (!error && bytes > 0 && !softgpu_failing(SOFTGPU_FAIL_MALLOC, &error))
        error = allocate(softgpu_current(), bytes, p);
    return softgpu_leave(error);
}

cudaError_t cudaFree(void *p)
{
    cudaError_t error = softgpu_enter_unsafe();
    struct arena *a = p ? arena_of(p) : NULL;
    if (!error && p)
        error = a ? release(a, p) : cudaErrorInvalidValue;
    return softgpu_leave(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t error = softgpu_enter();
    *total = softgpu_memory_bytes();
    *free_bytes = *total - arenas[softgpu_current()].used;
    return softgpu_leave(error);
}

static cudaError_t pin(void *p, size_t bytes, bool ours)
{
    if (!p || bytes == 0)
        return cudaErrorInvalidValue;
    if (pinned_of(p) || pinned_of((char *)p + bytes - 1))
        return cudaErrorHostMemoryAlreadyRegistered;
    struct pinned *new = malloc(sizeof *new);
    *new = (struct pinned){.p = p, .bytes = bytes, .ours = ours, .next = pinned};
    pinned = new;
    return cudaSuccess;
}

/* Returns pages of their own, never among the heap's blocks, between two closed pages: without
 * these the system would merge them with the next mapping. NULL: out of memory. */
static void *new_pages(size_t bytes)
{
    char *all = mmap(
        NULL, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all + PAGE, bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    return all + PAGE;
}

static void free_pages(char *p, size_t bytes)
{
    munmap(p - PAGE, bytes + 2 * PAGE);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    cudaError_t error = softgpu_enter_unsafe();
    (void)flags; /* all of it is portable and mapped, as it is with one address space */
    *p = NULL;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_PINNED, &error)) {
        size_t all = up(bytes ? bytes : 1, PAGE);
        void *new = new_pages(all);
        error = new ? pin(new, all, true) : cudaErrorMemoryAllocation;
        if (!error) {
            memset(new, 0xFF, bytes);
            POISON((char *)new + bytes, all - bytes);
            *p = new;
        }
    }
    return softgpu_leave(error);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

static cudaError_t unpin(void *p, bool ours)
{
    struct pinned **link = pinned_of(p), *old = link ? *link : NULL;
    if (!old || old->p != (char *)p || old->ours != ours)
        return ours ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered;
    cudaError_t error = cudaSuccess; /* the real one synchronises, too */
    for (int g = 0; g < softgpu_count() && !error; g++)
        error = softgpu_run_all(g);
    *link = old->next;
    if (ours) {
        UNPOISON(old->p, old->bytes);
        free_pages(old->p, old->bytes);
    }
    free(old);
    return error;
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t error = softgpu_enter_unsafe();
    if (!error && p)
        error = unpin(p, true);
    return softgpu_leave(error);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    cudaError_t error = softgpu_enter_unsafe();
    (void)flags;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_PINNED, &error))
        error = pin(p, bytes, false);
    return softgpu_leave(error);
}

cudaError_t cudaHostUnregister(void *p)
{
    cudaError_t error = softgpu_enter_unsafe();
    if (!error)
        error = unpin(p, false);
    return softgpu_leave(error);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    cudaError_t error = softgpu_enter();
    (void)flags;
    if (!error && !pinned_of(host))
        error = cudaErrorInvalidValue;
    *device = error ? NULL : host;
    return softgpu_leave(error);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    cudaError_t error = softgpu_enter();
    int g;
    memset(a, 0, sizeof *a);
    softgpu_kind kind = softgpu_kind_of(p, &g);
    a->type = kind == SOFTGPU_DEVICE   ? cudaMemoryTypeDevice
              : kind == SOFTGPU_PINNED ? cudaMemoryTypeHost
                                       : cudaMemoryTypeUnregistered;
    a->device = kind == SOFTGPU_DEVICE ? g : kind == SOFTGPU_PINNED ? softgpu_current() : -2;
    a->devicePointer = kind == SOFTGPU_PAGEABLE ? NULL : (void *)(uintptr_t)p;
    a->hostPointer = kind == SOFTGPU_PINNED ? (void *)(uintptr_t)p : NULL;
    return softgpu_leave(error);
}

/* --- peers --- */

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = softgpu_ask();
    if (!error &&
        (device < 0 || peer < 0 || device >= softgpu_count() || peer >= softgpu_count()))
        error = cudaErrorInvalidDevice;
    *can = !error && device != peer && !getenv("SOFTGPU_NO_PEERS");
    return softgpu_leave(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    cudaError_t error = softgpu_enter();
    struct arena *a = &arenas[softgpu_current()];
    if (!error && (peer < 0 || peer >= softgpu_count() || peer == softgpu_current()))
        error = cudaErrorInvalidDevice;
    else if (!error && (flags || getenv("SOFTGPU_NO_PEERS")))
        error = flags ? cudaErrorInvalidValue : cudaErrorPeerAccessUnsupported;
    else if (!error && (a->peers >> peer & 1))
        error = cudaErrorPeerAccessAlreadyEnabled;
    if (!error)
        a->peers |= 1u << peer;
    return softgpu_leave(error);
}
