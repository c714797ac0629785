/* A checker for races between the threads of a kernel, as compute-sanitizer's racecheck is one
 * on a GPU; that one sees shared memory alone, this one device memory, too.
 *
 * Two accesses of one byte race if at least one writes, not both are atomic, and nothing orders
 * them. Within a block a barrier orders the accesses before it and those after it; __syncwarp
 * orders the accesses of the lanes that meet. Shuffles, votes and products on tensor cores
 * order nothing. Nothing orders the blocks of one launch. So races are found from one run,
 * whatever the order in which the threads ran, as far as the run reached both accesses.
 *
 * The kernels are compiled with -fsanitize=thread, and race_hooks.c has the functions that the
 * compiler calls for each access. Each byte of shared and of device memory has a cell that
 * remembers the last write and the reads that a later write could race with. Cells live for one
 * launch, since a launch waits for the one before it.
 *
 * Warps have vector clocks: clock[i][j] is the latest time of lane j that lane i has seen. An
 * access of lane j at its time t comes before the accesses of lane i if clock[i][j] > t.
 *
 * An access of the host's memory that no GPU reaches ends the program, too: of the heap, unless
 * it is the kernel's arguments, and of other objects' data, such as constants of the program.
 *
 * A race ends the program with a sentence. With SOFTGPU_RACE=all it is printed, each pair of
 * places once, and the program ends with status 66. */
#include "race.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu.h"
#include "names.h"

/* --- accesses and cells --- */

typedef struct touch {     /* an access */
    const char *place;     /* the instruction behind it; NULL: there was none */
    uint32_t block, epoch; /* the block's number in the launch; barriers that it had passed */
    uint32_t time;         /* of its lane */
    uint16_t thread;
    bool atomic;
} touch;

/* A read replaces the read before it. Of those that it replaces, the cell keeps the last one
 * by another thread of the same warp, by another warp, and by another block. A write is
 * compared with these alone: its race with a read that was forgotten is missed where the later
 * reads of the same kind came to be ordered before the write. */
enum { READ, READ_WARP, READ_BLOCK, READ_GRID, READS };

typedef struct cell {
    uint32_t launch; /* of all that is in it */
    touch write, read[READS];
} cell;

enum { PAGE_BITS = 10, PAGE = 1 << PAGE_BITS, MOST_PAGES = 1 << 14 };

typedef struct shadow_page {
    uintptr_t number; /* address >> PAGE_BITS */
    struct shadow_page *next;
    cell cell[PAGE];
} shadow_page;

enum { BUCKETS = 1 << 12 };

typedef enum memory {
    ELSEWHERE = 1, /* a stack, say */
    SHARED,
    DEVICE,
    UNREACHED /* the host's, pageable */
} memory;

enum { SEGMENTS = 8, KINDS = 1 << 12 };

static __thread bool on __attribute__((tls_model("initial-exec")));
static bool instrumented, keep_going;
static unsigned long found;

/* The launch that runs. */
static struct {
    const softgpu_kernel *kernel;
    uintptr_t args, object; /* the arguments; where the kernel's object begins */
    uint32_t launch, block, epoch;
    int thread;
    struct {
        uintptr_t from, to;
    } segment[SEGMENTS]; /* writable memory of the kernel's object: statics are shared memory */
    int segments;
    struct {
        uintptr_t page;
        uint32_t launch;
        memory kind;
    } kind[KINDS]; /* of pages of 4 KiB, as far as they were asked for */
    uint32_t clock[SOFTGPU_MAX_THREADS][SOFTGPU_WARP];
    shadow_page *bucket[BUCKETS];
    shadow_page *page[MOST_PAGES]; /* made so far; `pages` of them are in use */
    int pages, made;
} now;

/* --- whose memory --- */

static int note_segments(struct dl_phdr_info *object, size_t bytes, void *base)
{
    (void)bytes;
    if (object->dlpi_addr != (uintptr_t)base)
        return 0;
    now.segments = 0;
    for (int i = 0; i < object->dlpi_phnum && now.segments < SEGMENTS; i++) {
        const ElfW(Phdr) *h = &object->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_W))
            continue;
        uintptr_t from = object->dlpi_addr + h->p_vaddr;
        now.segment[now.segments].from = from;
        now.segment[now.segments++].to = from + h->p_memsz;
    }
    return 1;
}

/* Finds the statics of the object that has the kernel. */
static void find_segments(const softgpu_kernel *k)
{
    static const void *last;
    Dl_info info;
    if (!dladdr((const void *)(uintptr_t)k->kernel, &info) || info.dli_fbase == last)
        return;
    last = info.dli_fbase;
    now.object = (uintptr_t)last;
    now.segments = 0;
    dl_iterate_phdr(note_segments, info.dli_fbase);
}

static uintptr_t heap_begin(void)
{
    static uintptr_t begin;
    char line[512];
    FILE *maps = begin ? NULL : fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "[heap]"))
            begin = strtoull(line, NULL, 16);
    if (maps)
        fclose(maps);
    return begin ? begin : UINTPTR_MAX;
}

/* Returns whether pageable memory at p is known to be out of a kernel's reach. Stacks, its own
 * and those of other lanes, are mapped by themselves. */
static bool is_foreign(uintptr_t p)
{
    enum { NEAR = 32 << 10 }; /* on the running thread's stack: most of all that is asked for */
    Dl_info info, mine;
    if (p - now.args < SOFTGPU_MOST_ARGS || p - (uintptr_t)&info + NEAR < 2 * NEAR)
        return false;
    if (p >= heap_begin() && p < (uintptr_t)sbrk(0))
        return true;
    return dladdr((const void *)p, &info) && (uintptr_t)info.dli_fbase != now.object &&
           dladdr(&instrumented, &mine) && info.dli_fbase != mine.dli_fbase;
}

static memory kind_of(uintptr_t p)
{
    int gpu;
    uintptr_t shared = (uintptr_t)softgpu_shared_memory;
    if (p >= shared && p < shared + now.kernel->shared)
        return SHARED;
    for (int i = 0; i < now.segments; i++)
        if (p >= now.segment[i].from && p < now.segment[i].to)
            return SHARED;
    if (softgpu_kind_of((const void *)p, &gpu) != SOFTGPU_PAGEABLE)
        return DEVICE;
    return is_foreign(p) ? UNREACHED : ELSEWHERE;
}

/* A piece of shared memory begins and ends at multiples of its pages' size, or next to memory
 * that kernels do not touch. */
static memory kind_by_page(uintptr_t p)
{
    uintptr_t page = p >> 12;
    __typeof__(now.kind[0]) *k = &now.kind[page % KINDS];
    if (k->page != page || k->launch != now.launch) {
        k->page = page;
        k->launch = now.launch;
        k->kind = kind_of(p);
    }
    return k->kind;
}

/* --- the shadow --- */

static shadow_page *new_page(void)
{
    if (now.pages < now.made)
        return now.page[now.pages++];
    if (now.made == MOST_PAGES)
        softgpu_wrong("the race checker remembers %d MiB of a launch, and this kernel touches "
                      "more: run it on a smaller size",
            MOST_PAGES >> (20 - PAGE_BITS));
    void *p = mmap(NULL, sizeof(shadow_page), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        softgpu_wrong("the race checker has no memory left");
    now.made++;
    return now.page[now.pages++] = p;
}

static cell *cell_of(uintptr_t p)
{
    uintptr_t number = p >> PAGE_BITS;
    shadow_page **bucket = &now.bucket[number % BUCKETS], *s = *bucket;
    while (s && s->number != number)
        s = s->next;
    if (!s) {
        s = new_page();
        s->number = number;
        s->next = *bucket;
        *bucket = s;
    }
    cell *c = &s->cell[p & (PAGE - 1)];
    if (c->launch != now.launch) {
        memset(c, 0, sizeof *c);
        c->launch = now.launch;
    }
    return c;
}

/* --- order --- */

static int warp_of(const touch *a)
{
    return a->thread / SOFTGPU_WARP;
}

/* Returns whether a comes before b, the access that happens now, or cannot race with it. */
static bool ordered(const touch *a, const touch *b, memory kind)
{
    if (!a->place || (a->atomic && b->atomic))
        return true;
    if (a->block != b->block)
        return kind == SHARED; /* each block has its own */
    if (a->thread == b->thread || a->epoch != b->epoch)
        return true;
    return warp_of(a) == warp_of(b) && now.clock[b->thread][a->thread % SOFTGPU_WARP] > a->time;
}

/* --- reports --- */

static const char *verb(const touch *a, bool writes)
{
    return a->atomic ? "changes atomically" : writes ? "writes" : "reads";
}

/* Returns whether this pair of places has not been reported yet. */
static bool is_new(const char *a, const char *b)
{
    enum { MOST = 1000 };
    static const char *pair[MOST][2];
    static int pairs;
    for (int i = 0; i < pairs; i++)
        if (pair[i][0] == a && pair[i][1] == b)
            return false;
    if (pairs < MOST) {
        pair[pairs][0] = a;
        pair[pairs++][1] = b;
    }
    return true;
}

static void tell(
    const touch *a, bool a_writes, const touch *b, bool b_writes, memory kind, uintptr_t p)
{
    char other[64] = "of the same block";
    found++;
    if (keep_going && !is_new(a->place, b->place))
        return;
    on = false;
    if (a->block != b->block)
        snprintf(other, sizeof other, "of block %u", a->block);
    char text[1200];
    snprintf(text, sizeof text,
        "%s: a race in %s memory at %p: thread %d %s it at %s, and thread %d %s %s it at %s, with "
        "nothing between them that orders the two",
        softgpu_kernel_name(now.kernel), kind == SHARED ? "shared" : "device", (void *)p,
        b->thread, verb(b, b_writes), softgpu_line_of(b->place), a->thread, other,
        verb(a, a_writes), softgpu_line_of(a->place));
    if (!keep_going)
        softgpu_wrong("%s", text);
    fprintf(stderr, "softgpu: %s\n", text);
    on = true;
}

static void refuse(uintptr_t p, bool writes, const char *place)
{
    on = false;
    softgpu_wrong("%s: thread %d %s the host's pageable memory at %p, at %s",
        softgpu_kernel_name(now.kernel), now.thread, writes ? "writes" : "reads", (void *)p,
        softgpu_line_of(place));
}

/* --- accesses --- */

static void keep_read(cell *c, const touch *b)
{
    const touch *last = &c->read[READ];
    if (last->place && last->block != b->block)
        c->read[READ_GRID] = *last;
    else if (last->place && warp_of(last) != warp_of(b))
        c->read[READ_BLOCK] = *last;
    else if (last->place && last->thread != b->thread)
        c->read[READ_WARP] = *last;
    c->read[READ] = *b;
}

static void look_at(uintptr_t p, const touch *b, bool writes, memory kind)
{
    cell *c = cell_of(p);
    if (!ordered(&c->write, b, kind))
        tell(&c->write, true, b, writes, kind, p);
    if (!writes) {
        keep_read(c, b);
        return;
    }
    for (int i = 0; i < READS; i++)
        if (!ordered(&c->read[i], b, kind))
            tell(&c->read[i], false, b, true, kind, p);
    c->write = *b;
}

void softgpu_race_see(
    const volatile void *at, size_t bytes, bool writes, bool atomic, const void *place)
{
    uintptr_t p = (uintptr_t)at;
    if (!on)
        return;
    memory kind = kind_by_page(p);
    if (kind == ELSEWHERE)
        return;
    if (kind == UNREACHED)
        refuse(p, writes, (const char *)place - 1);
    if (bytes == 16) /* a narrower one is aligned by its type */
        softgpu_aligned((const void *)p, bytes);
    touch b = {.place = (const char *)place - 1, /* the call behind it returns there */
        .block = now.block,
        .epoch = now.epoch,
        .time = now.clock[now.thread][now.thread % SOFTGPU_WARP],
        .thread = (uint16_t)now.thread,
        .atomic = atomic};
    for (size_t i = 0; i < bytes; i++)
        look_at(p + i, &b, writes, kind);
}

void softgpu_race_enable(void)
{
    const char *way = getenv("SOFTGPU_RACE");
    keep_going = way && strcmp(way, "all") == 0;
    instrumented = true;
}

/* --- the calls of block.c --- */

void softgpu_race_begin(const softgpu_kernel *k, const void *args)
{
    if (!instrumented)
        return;
    now.kernel = k;
    now.args = (uintptr_t)args;
    now.launch++;
    now.pages = 0;
    memset(now.bucket, 0, sizeof now.bucket);
    find_segments(k);
    on = true;
}

void softgpu_race_block(int threads)
{
    if (!on)
        return;
    uint3 b = softgpu_here.block;
    dim3 all = softgpu_here.blocks;
    now.block = b.x + all.x * (b.y + all.y * b.z);
    now.epoch = 0;
    memset(now.clock, 0, (size_t)threads * sizeof now.clock[0]);
}

void softgpu_race_thread(int number)
{
    now.thread = number;
}

void softgpu_race_barrier(void)
{
    now.epoch++;
}

void softgpu_race_lanes(int first, void *const lanes[SOFTGPU_WARP])
{
    uint32_t all[SOFTGPU_WARP] = {0};
    if (!on)
        return;
    for (int i = 0; i < SOFTGPU_WARP; i++) {
        if (!lanes[i])
            continue;
        now.clock[first + i][i]++;
        for (int j = 0; j < SOFTGPU_WARP; j++)
            if (all[j] < now.clock[first + i][j])
                all[j] = now.clock[first + i][j];
    }
    for (int i = 0; i < SOFTGPU_WARP; i++)
        if (lanes[i])
            memcpy(now.clock[first + i], all, sizeof all);
}

void softgpu_race_end(void)
{
    on = false;
}

__attribute__((destructor)) static void sum_up(void)
{
    if (!found)
        return;
    fprintf(stderr, "softgpu: %lu bytes with a race\n", found);
    _exit(66);
}
