/* Faults in the memory and in the products of a rank, for script/chaos --flip: this file is
 * linked with `choir`. The product has no code for it: the linker leads some of its calls here
 * (--wrap).
 *
 *     CHOIR_STRIKE=SEED:RANK:CALL:KIND:PLACE CHOIR_STRIKE_LOG=FILE choir_struck train ...
 *
 * The fault comes with, or a moment after, product number CALL of rank RANK, once per job: the
 * processes that replace ranks are other machines. A line of the file names it and its step.
 * CALL 0: no fault, but each step of a rank adds a line with the number of products before it.
 *
 *     bit        one bit of memory
 *     bits       two to eight bits of 64
 *     periodic   one bit, every 64 to 4096 bytes
 *     stuck      a bit that cannot be changed back
 *     product    one number of one product
 *     core       one number of each product, from then on
 *
 * Places in memory: `pool`: tensors that are alive (weights, gradients, the optimizer's state,
 * activations, batches); `shared`: memory through which ranks exchange numbers; `saves`: the
 * bytes of one of the next writes to a file, mostly of a checkpoint; `heap`:
 * everything else that the process may write to, but for stacks and libraries. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/format/file.h"
#include "device/device.h"
#include "device/kernels.h"
#include "tensor/run.h"

enum { MOST = 4096, DELAY_US = 1500, EVERY_US = 20 };

typedef struct range {
    char *at;
    size_t bytes;
} range;

typedef struct ranges {
    range list[MOST];
    int count;
} ranges;

static struct {
    uint64_t seed, call;
    int rank;
    char kind[16], place[16];
    const char *log;
    _Atomic bool *done; /* shared by all processes of the job */
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ranges pool, saves;
static _Atomic uint64_t calls;
static _Atomic bool bad_core;
static _Atomic int writes_left; /* until the write of a checkpoint that is struck; 0: none is */
static _Atomic int64_t step = -1;

static uint64_t draw(uint64_t below)
{
    uint64_t z = plan.seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (z ^ z >> 31) % below;
}

static void note(const char *what, const void *at)
{
    FILE *f = fopen(plan.log, "a");
    if (!f)
        return;
    fprintf(f, "rank %s step %" PRId64 " calls %" PRIu64 " %s %s %s %p\n",
        getenv("RANK") ? getenv("RANK") : "0", step + 1, calls, plan.kind, plan.place, what,
        at);
    fclose(f);
}

__attribute__((constructor)) static void read_plan(void)
{
    const char *text = getenv("CHOIR_STRIKE");
    plan.log = getenv("CHOIR_STRIKE_LOG");
    plan.rank = -1;
    if (!text || !plan.log ||
        sscanf(text, "%" SCNu64 ":%d:%" SCNu64 ":%15[a-z]:%15[a-z]", &plan.seed, &plan.rank,
            &plan.call, plan.kind, plan.place) != 5)
        return;
    plan.done = mmap(
        NULL, sizeof *plan.done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* --- memory --- */

static void add(ranges *r, void *at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (at && r->count < MOST)
        r->list[r->count++] = (range){at, bytes};
    pthread_mutex_unlock(&lock);
}

static void drop(ranges *r, const void *at)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < r->count; i++)
        if (r->list[i].at == at) {
            r->list[i] = r->list[--r->count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

choir__pool_block *__real_choir__block_new(choir_device *device, size_t bytes);
choir__pool_block *__wrap_choir__block_new(choir_device *device, size_t bytes);
choir__pool_block *__wrap_choir__block_new(choir_device *device, size_t bytes)
{
    choir__pool_block *block = __real_choir__block_new(device, bytes);
    if (block && bytes)
        add(&pool, choir__block_data(block), bytes);
    return block;
}

void __real_choir__block_free(choir__pool_block *block);
void __wrap_choir__block_free(choir__pool_block *block);
void __wrap_choir__block_free(choir__pool_block *block)
{
    if (block)
        drop(&pool, choir__block_data(block));
    __real_choir__block_free(block);
}

/* Lists what the process may write to, by the kernel's own list. */
static void list_mappings(ranges *to, bool of_ranks)
{
    char line[512];
    uintptr_t from, until;
    char flags[5], path[256];
    FILE *f = fopen("/proc/self/maps", "r");
    to->count = 0;
    while (f && fgets(line, sizeof line, f) && to->count < MOST) {
        *path = '\0';
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %255[^\n]", &from, &until,
                flags, path) < 3 ||
            strncmp(flags, "rw", 2) != 0)
            continue;
        const char *name = path + strspn(path, " ");
        bool is_shared = flags[3] == 's' && strstr(name, "memfd");
        bool is_heap = flags[3] == 'p' && (!*name || !strcmp(name, "[heap]"));
        if ((of_ranks ? is_shared : is_heap) && until - from < (uintptr_t)1 << 26)
            to->list[to->count++] = (range){(char *)from, until - from};
    }
    if (f)
        fclose(f);
}

/* Returns whether memory is there: pages that were never touched hold nothing that a fault
 * could change. */
static bool is_there(const void *at)
{
    unsigned char there = 0;
    return mincore((char *)((uintptr_t)at & ~(uintptr_t)4095), 4096, &there) == 0 &&
           (there & 1);
}

/* Draws an address, and stores the number of bytes behind it; NULL: the place has no memory.
 * Tensors and the heap are drawn byte by byte. Of memory that ranks share, most is never used:
 * there, a mapping is drawn, and in it bytes that are not 0. */
static char *draw_address(size_t *rest)
{
    static ranges found;
    size_t all = 0;
    bool is_shared = !strcmp(plan.place, "shared"), is_pool = !strcmp(plan.place, "pool"),
         is_save = !strcmp(plan.place, "saves");
    const ranges *r = is_pool ? &pool : is_save ? &saves : &found;
    if (!is_pool && !is_save)
        list_mappings(&found, is_shared);
    for (int i = 0; i < r->count; i++)
        all += r->list[i].bytes;
    for (int tries = 0; all && tries < 100000; tries++) {
        int i = 0;
        size_t at = draw(all);
        if (is_shared)
            at = draw(r->list[i = (int)draw((uint64_t)r->count)].bytes);
        for (; !is_shared && at >= r->list[i].bytes; i++)
            at -= r->list[i].bytes;
        char *address = r->list[i].at + at;
        *rest = r->list[i].bytes - at;
        if (is_there(address) && (!is_shared || *address))
            return address;
    }
    return NULL;
}

/* Keeps a bit as it is, until the process ends. */
static void hold(volatile unsigned char *at, unsigned char bit, bool set)
{
    for (; is_there((const void *)(uintptr_t)at); usleep(EVERY_US)) {
        unsigned char now = *at, want = set ? now | bit : now & (unsigned char)~bit;
        if (now != want)
            *at = want;
    }
}

static void strike_memory(void)
{
    size_t rest = 0;
    pthread_mutex_lock(&lock);
    unsigned char *at = (unsigned char *)draw_address(&rest);
    unsigned char bit = (unsigned char)(1u << draw(8));
    bool set = draw(2);
    if (at && !strcmp(plan.kind, "bits")) {
        for (uint64_t i = 0, count = 2 + draw(7); i < count && i < rest; i++)
            at[i % 8 % rest] ^= (unsigned char)(1u << draw(8));
    } else if (at && !strcmp(plan.kind, "periodic")) {
        size_t stride = (size_t)64 << draw(7);
        for (size_t i = 0, count = 0; i < rest && count < 32; i += stride, count++)
            at[i] ^= bit;
    } else if (at) {
        *at ^= bit;
    }
    pthread_mutex_unlock(&lock);
    note(at ? "struck" : "nothing", at);
    if (at && !strcmp(plan.kind, "stuck") && strcmp(plan.place, "saves") != 0)
        hold(at, bit, set);
}

static void *strike(void *arg)
{
    (void)arg;
    if (!strcmp(plan.place, "saves")) {
        atomic_store(&writes_left, 1 + (int)draw(40));
        return NULL;
    }
    usleep((useconds_t)draw(DELAY_US));
    strike_memory();
    return NULL;
}

/* --- saves --- */

/* The bytes are on their way, after all checks of the memory that they come from. */
choir_status __real_choir__draft_write(choir__draft *draft, const void *data, size_t bytes);
choir_status __wrap_choir__draft_write(choir__draft *draft, const void *data, size_t bytes);
choir_status __wrap_choir__draft_write(choir__draft *draft, const void *data, size_t bytes)
{
    if (bytes && writes_left && atomic_fetch_sub(&writes_left, 1) == 1) {
        saves.list[0] = (range){(char *)(uintptr_t)data, bytes};
        saves.count = 1;
        strike_memory();
    }
    return __real_choir__draft_write(draft, data, bytes);
}

/* --- products --- */

void __real_choir__step_begins(choir_scope *scope, uint64_t number);
void __wrap_choir__step_begins(choir_scope *scope, uint64_t number);
void __wrap_choir__step_begins(choir_scope *scope, uint64_t number)
{
    step = (int64_t)number;
    if (plan.done && !plan.call)
        note("counted", NULL);
    __real_choir__step_begins(scope, number);
}

/* Changes one number of the result, the same one of each product of this shape. */
static void spoil(const choir__k_matmul *k)
{
    size_t size = choir_dtype_size(k->dtype == CHOIR_BF16 && k->wide ? CHOIR_F32 : k->dtype);
    uint64_t i = plan.seed % (uint64_t)k->m, j = (plan.seed >> 16) % (uint64_t)k->n;
    unsigned char *at =
        (unsigned char *)k->c + ((size_t)i * (size_t)k->c_row + (size_t)j) * size;
    at[size - 1 - (plan.seed >> 40) % 2] ^= (unsigned char)(1u << (plan.seed >> 32) % 7);
}

/* Returns whether the fault is due with this product. */
static bool is_due(void)
{
    uint64_t number = atomic_fetch_add(&calls, 1) + 1;
    const char *rank = getenv("RANK");
    return plan.call && number == plan.call && plan.rank == (rank ? atoi(rank) : 0) &&
           !atomic_exchange(plan.done, true);
}

static void after_product(const choir__k_matmul *k)
{
    pthread_t thread;
    bool due = is_due();
    if (due && !strcmp(plan.kind, "core"))
        atomic_store(&bad_core, true);
    if (bad_core || (due && !strcmp(plan.kind, "product")))
        spoil(k);
    if (!due)
        return;
    if (!strcmp(plan.kind, "core") || !strcmp(plan.kind, "product"))
        note("struck", k->c);
    else if (pthread_create(&thread, NULL, strike, NULL) == 0)
        pthread_detach(thread);
}

#define PRODUCT(isa)                                                                           \
    __attribute__((weak)) void __real_choir__cpu_plain_matmul_##isa(const choir__k_matmul *k); \
    void __wrap_choir__cpu_plain_matmul_##isa(const choir__k_matmul *k);                       \
    void __wrap_choir__cpu_plain_matmul_##isa(const choir__k_matmul *k)                        \
    {                                                                                          \
        __real_choir__cpu_plain_matmul_##isa(k);                                               \
        if (plan.done && k->m > 0 && k->n > 0)                                                 \
            after_product(k);                                                                  \
    }
PRODUCT(baseline)
PRODUCT(avx2)
PRODUCT(avx512)
