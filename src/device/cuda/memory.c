/* Memory of GPUs.
 *
 * A pool requests blocks of its size classes. Those under SMALL are cut out of slabs, since
 * cudaMalloc takes microseconds and returns no less than 512 bytes; they are given back to a
 * list of their size, not to CUDA. Larger blocks come from cudaMalloc. A list of regions stores
 * all allocations of a device, so that a pointer can be shared with another process as an
 * allocation and an offset.
 *
 * Scratch only grows, and outgrown scratch is kept: a captured graph has its address. */
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
    int shown;  /* to other processes, which may have it open: CUDA must keep it */
    bool spare; /* given back meanwhile */
} region;

typedef struct spare {
    void *at;
    struct spare *next;
} spare;

/* Small memory of one GPU. */
typedef struct slabs {
    char *at; /* the unused rest of the newest slab */
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
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- allocations of CUDA --- */

static void note_region(char *at, size_t bytes, int gpu)
{
    pthread_mutex_lock(&memory.lock);
    memory.regions =
        choir__realloc(memory.regions, (size_t)(memory.count + 1) * sizeof *memory.regions);
    memory.regions[memory.count++] = (region){.at = at, .bytes = bytes, .gpu = gpu};
    pthread_mutex_unlock(&memory.lock);
}

/* Returns the region that contains p, or NULL. Under lock. */
static region *region_of(const char *p)
{
    for (int i = 0; i < memory.count; i++)
        if (p >= memory.regions[i].at && p < memory.regions[i].at + memory.regions[i].bytes)
            return &memory.regions[i];
    return NULL;
}

/* Returns false if the region stays: another process may have it open, and freeing it then is
 * undefined in CUDA. */
static bool forget_region(const char *at)
{
    pthread_mutex_lock(&memory.lock);
    region *r = region_of(at);
    bool frees = !r || !r->shown;
    if (r && frees)
        *r = memory.regions[--memory.count];
    else if (r)
        r->spare = true;
    pthread_mutex_unlock(&memory.lock);
    return frees;
}

/* Called without the lock: cudaFree waits for all work of the GPU, which may wait for a thread
 * that needs memory. */
static void *take(int gpu, size_t bytes)
{
    void *p = NULL;
    cudaSetDevice(gpu);
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError(); /* the caller reports it */
        return NULL;
    }
    note_region(p, bytes, gpu);
    return p;
}

static void give_back(int gpu, void *p)
{
    if (!forget_region(p))
        return;
    cudaSetDevice(gpu);
    cudaFree(p);
}

void choir__cuda_region_shown(const void *p, int change)
{
    pthread_mutex_lock(&memory.lock);
    region *r = region_of(p);
    if (r)
        r->shown += change;
    bool over = r && r->spare && !r->shown;
    char *at = r ? r->at : NULL;
    int gpu = r ? r->gpu : 0;
    pthread_mutex_unlock(&memory.lock);
    if (over)
        give_back(gpu, at);
}

/* --- small memory --- */

/* Under lock. */
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

/* Returns memory that was given back, or cuts it from a slab; NULL if there is neither. Under
 * lock. */
static void *find_small(slabs *s, size_t bytes, size_t need)
{
    spare **list = list_of(s, bytes);
    if (list && *list) {
        spare *first = *list;
        void *at = first->at;
        *list = first->next;
        free(first);
        return at;
    }
    if (s->left < need)
        return NULL;
    s->at += need;
    s->left -= need;
    return s->at - need;
}

static void *get_small(int gpu, size_t bytes)
{
    slabs *s = &memory.small[gpu];
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    for (;;) {
        pthread_mutex_lock(&memory.lock);
        void *p = find_small(s, bytes, need);
        pthread_mutex_unlock(&memory.lock);
        if (p)
            return p;
        char *slab = take(gpu, SLAB);
        if (!slab)
            return NULL;
        pthread_mutex_lock(&memory.lock);
        bool late = s->left >= need; /* another thread has added one */
        if (!late)
            s->at = slab, s->left = SLAB;
        pthread_mutex_unlock(&memory.lock);
        if (late)
            give_back(gpu, slab);
    }
}

static void put_small(int gpu, void *p, size_t bytes)
{
    spare *first = choir__alloc(sizeof *first);
    pthread_mutex_lock(&memory.lock);
    spare **list = list_of(&memory.small[gpu], bytes);
    if (list) {
        *first = (spare){p, *list};
        *list = first;
    }
    pthread_mutex_unlock(&memory.lock);
    if (!list) /* more sizes than a pool has classes: this one is not reused */
        free(first);
}

/* Makes the context's GPU the calling thread's and leaves it so: switching back to a GPU that
 * was never used would begin to use it. Queues set theirs before each run of tasks. */
static void *get(void *arg, size_t bytes)
{
    const choir__cuda *cuda = arg;
    return bytes < SMALL ? get_small(cuda->gpu, bytes) : take(cuda->gpu, bytes);
}

static void put(void *arg, void *p, size_t bytes)
{
    const choir__cuda *cuda = arg;
    if (bytes < SMALL)
        put_small(cuda->gpu, p, bytes);
    else
        give_back(cuda->gpu, p);
}

const choir__memory_ops choir__cuda_memory = {.get = get, .put = put};

void *choir__cuda_get(choir__cuda *cuda, size_t bytes)
{
    return get(cuda, bytes < SMALL ? SMALL : bytes);
}

/* --- scratch --- */

struct choir__cuda_scratch_slots {
    bool in_use[CHOIR__SCRATCH_SLOTS];
    void *now[CHOIR__SCRATCH_SLOTS];
    size_t bytes[CHOIR__SCRATCH_SLOTS];
    void **old; /* outgrown */
    int old_count;
};

static bool grow(choir__cuda *cuda, struct choir__cuda_scratch_slots *s, int slot, size_t bytes)
{
    bytes = bytes < SMALL ? SMALL : bytes;
    size_t wanted = bytes > 2 * s->bytes[slot] ? bytes : 2 * s->bytes[slot];
    void *p = get(cuda, wanted);
    if (!p)
        p = get(cuda, wanted = bytes);
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
    struct choir__cuda_scratch_slots *s = cuda->scratch;
    bytes += !bytes; /* NULL would mean a failure */
    if (s->in_use[slot]) {
        choir__queue_fail(CHOIR_ERR_INTERNAL,
            "a task asks for scratch block %d while it uses it: two tensors would share memory",
            slot);
        return NULL;
    }
    if (s->bytes[slot] >= bytes || grow(cuda, s, slot, bytes)) {
        s->in_use[slot] = true;
        return s->now[slot];
    }
    char note[160] = "";
    if (cuda->device)
        choir__cuda_memory_note(cuda->device, note, sizeof note);
    choir__queue_fail(CHOIR_ERR_MEMORY,
        "out of memory on GPU %d for a kernel's scratch, %zu bytes%s", cuda->gpu, bytes, note);
    return NULL;
}

void choir__cuda_scratch_done(int slot)
{
    choir__cuda_here()->scratch->in_use[slot] = false;
}

void choir__cuda_scratch_all_done(choir__cuda *cuda)
{
    if (cuda->scratch)
        memset(cuda->scratch->in_use, 0, sizeof cuda->scratch->in_use);
}

void choir__cuda_scratch_free(choir__cuda *cuda)
{
    struct choir__cuda_scratch_slots *s = cuda->scratch;
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

/* --- regions --- */

bool choir__cuda_region_of(const char *p, char **at, int *gpu)
{
    pthread_mutex_lock(&memory.lock);
    const region *r = region_of(p);
    if (r)
        *at = r->at, *gpu = r->gpu;
    pthread_mutex_unlock(&memory.lock);
    return r != NULL;
}
