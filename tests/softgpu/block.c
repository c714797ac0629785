/* Runs kernels: blocks one after another, a block's threads as fibers.
 *
 * A thread runs until it ends or waits: for its block at a barrier, or for lanes of its warp at
 * a collective. Fibers are *carriers*: one that has ended its thread takes the warp's next
 * thread. So threads that never wait cost one call each, and there are only as many carriers as
 * threads that wait at the same time. A block proceeds in rounds: each warp runs until all its
 * threads have ended or wait at a barrier; then, if all of them wait at the same barrier, it
 * opens. Anything else would at least hang on a GPU, and ends the program with a message.
 *
 * The order that a GPU leaves open is varied: kernels take turns in running their threads in
 * order, backwards, and shuffled, in another way after each barrier; and blocks run in a
 * scattered order. So a kernel that forgets a barrier or relies on the order of blocks soon
 * computes something else. SOFTGPU_SEED=N chooses the shuffles (1), and every message about a
 * wrong kernel has it. SOFTGPU_ORDER=forward runs all threads in order. */
#include "block.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "fiber.h"
#include "race.h"

enum { MAX_WARPS = SOFTGPU_MAX_THREADS / SOFTGPU_WARP, MAX_SHARED = 256 << 10 };

typedef enum state { FRESH, READY, AT_WARP, AT_BARRIER, DONE } state;

typedef enum order { FORWARD, BACKWARD, SHUFFLED, ORDERS } order;

typedef struct carrier carrier;

typedef struct thread {
    state state;
    uint3 index;
    carrier *carrier;
    unsigned mask; /* AT_WARP: */
    void *mine;
    softgpu_act *act;
    const char *what; /* the collective, or the barrier's file */
    int line;
} thread;

struct carrier {
    softgpu_fiber *fiber;
    carrier *next; /* among those that have no thread */
};

softgpu_place softgpu_here;
unsigned char *softgpu_shared_memory;

/* The one block that runs. */
static struct {
    const softgpu_kernel *kernel;
    const void *args;
    thread thread[SOFTGPU_MAX_THREADS];
    int count;
    order order;
    int lane[SOFTGPU_MAX_THREADS]; /* the threads of each warp, in the order in which they run
                                    */
    thread *running;
    int warp, fresh;  /* the warp that runs, and how many of its lanes have begun */
    unsigned waiting; /* its lanes at a collective */
    carrier *idle;
    uint64_t launches, seed, random;
    bool in_line, asked;
} now;

void softgpu_wrong(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "softgpu: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    if (now.running)
        fprintf(stderr, " (block %u,%u,%u, thread %u,%u,%u)", softgpu_here.block.x,
            softgpu_here.block.y, softgpu_here.block.z, now.running->index.x,
            now.running->index.y, now.running->index.z);
    if (now.order == SHUFFLED)
        fprintf(stderr, " (SOFTGPU_SEED=%llu)", (unsigned long long)now.seed);
    fprintf(stderr, "\n");
    abort();
}

/* --- threads --- */

static int lanes_of(int warp)
{
    int left = now.count - warp * SOFTGPU_WARP;
    return left < SOFTGPU_WARP ? left : SOFTGPU_WARP;
}

/* Returns the i-th thread to run in the current warp. */
static thread *lane_in_order(int i)
{
    return &now.thread[now.lane[now.warp * SOFTGPU_WARP + i]];
}

/* Returns a number below n (splitmix64). */
static int random_below(int n)
{
    uint64_t x = now.random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int)((x ^ x >> 31) % (uint64_t)n);
}

/* Puts the numbers from first to first + n - 1 in the order in which they run. */
static void put_in_order(int *list, int first, int n)
{
    for (int i = 0; i < n; i++) {
        int at = now.order == SHUFFLED ? random_below(i + 1) : i;
        list[i] = list[at];
        list[at] = first + (now.order == BACKWARD ? n - 1 - i : i);
    }
}

static void take(thread *t)
{
    now.running = t;
    softgpu_here.thread = t->index;
    softgpu_race_thread((int)(t - now.thread));
}

static void carry(void *arg)
{
    carrier *self = arg;
    for (;;) {
        thread *t = now.running;
        for (;;) {
            t->carrier = self;
            now.kernel->run(now.kernel->kernel, now.args);
            softgpu_async_end((int)(t - now.thread));
            t->state = DONE;
            if (now.fresh == lanes_of(now.warp))
                break;
            t = lane_in_order(now.fresh++);
            take(t);
        }
        self->next = now.idle;
        now.idle = self;
        softgpu_fiber_yield(self->fiber);
    }
}

static carrier *idle_carrier(void)
{
    carrier *c = now.idle;
    if (c) {
        now.idle = c->next;
        return c;
    }
    c = calloc(1, sizeof *c);
    c->fiber = softgpu_fiber_new(carry, c);
    return c;
}

/* Runs t until it waits, or until the thread that its carrier took next waits. */
static void go_on(thread *t)
{
    take(t);
    if (t->state == FRESH) {
        now.fresh++;
        softgpu_fiber_resume(idle_carrier()->fiber);
    } else {
        softgpu_fiber_resume(t->carrier->fiber);
    }
    now.running = NULL;
}

static void wait_as(state why)
{
    thread *t = now.running;
    t->state = why;
    softgpu_fiber_yield(t->carrier->fiber);
}

/* --- warps --- */

int softgpu_number(void)
{
    return (int)(now.running - now.thread);
}

void softgpu_aligned(const void *p, size_t bytes)
{
    if ((uintptr_t)p % bytes)
        softgpu_wrong("expected an address that is a multiple of %zu, got %p", bytes, p);
}

int softgpu_lane(void)
{
    return (int)(now.running - now.thread) % SOFTGPU_WARP;
}

/* Returns lane i's value for the collective that the running thread completes. */
static void *given_by(const thread *self, int i)
{
    const thread *t = &now.thread[now.warp * SOFTGPU_WARP + i];
    if (t != self && (t->act != self->act || t->mask != self->mask))
        softgpu_wrong("lane %d waits at %s with mask %08x, this one at %s with %08x", i,
            t->what, t->mask, self->what, self->mask);
    return t->mine;
}

void softgpu_warp(unsigned mask, void *mine, softgpu_act *act, const char *what)
{
    thread *self = now.running;
    int lane = softgpu_lane(), lanes = lanes_of(now.warp);
    unsigned there = lanes == SOFTGPU_WARP ? ~0u : (1u << lanes) - 1;
    if (!(mask >> lane & 1))
        softgpu_wrong("%s: mask %08x does not name the lane that calls it", what, mask);
    self->mask = mask;
    self->mine = mine;
    self->act = act;
    self->what = what;
    now.waiting |= 1u << lane;
    if ((now.waiting & mask & there) != (mask & there)) {
        wait_as(AT_WARP);
        return;
    }
    void *given[SOFTGPU_WARP] = {0};
    for (int i = 0; i < lanes; i++)
        if (mask >> i & 1)
            given[i] = given_by(self, i);
    act(given);
    now.waiting &= ~mask;
    for (int i = 0; i < lanes; i++)
        if (given[i] && i != lane)
            now.thread[now.warp * SOFTGPU_WARP + i].state = READY;
}

static void meet(void *const lanes[SOFTGPU_WARP])
{
    softgpu_race_lanes(now.warp * SOFTGPU_WARP, lanes);
}

void softgpu_warp_barrier(unsigned mask)
{
    char here;
    softgpu_warp(mask, &here, meet, "__syncwarp");
}

static void run_warp(int warp)
{
    now.warp = warp;
    now.waiting = 0;
    now.fresh = now.thread[warp * SOFTGPU_WARP].state == FRESH ? 0 : lanes_of(warp);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < lanes_of(warp); i++) {
            thread *t = lane_in_order(i);
            if (t->state != FRESH && t->state != READY)
                continue;
            go_on(t);
            moved = true;
        }
    }
    for (int i = 0; i < lanes_of(warp); i++) {
        thread *t = lane_in_order(i);
        if (t->state != AT_WARP)
            continue;
        now.running = t;
        softgpu_wrong(
            "%s with mask %08x waits for lanes that never come: they have ended, or wait elsewhere",
            t->what, t->mask);
    }
}

/* --- blocks --- */

void softgpu_barrier(const char *file, int line)
{
    now.running->what = file;
    now.running->line = line;
    wait_as(AT_BARRIER);
}

/* Opens the barrier at which all threads wait; returns false if all have ended. */
static bool open_barrier(void)
{
    const thread *one = NULL;
    for (int i = 0; i < now.count; i++)
        if (now.thread[i].state == AT_BARRIER)
            one = &now.thread[i];
    if (!one)
        return false;
    for (int i = 0; i < now.count; i++) {
        thread *t = &now.thread[i];
        now.running = t;
        if (t->state == DONE)
            softgpu_wrong("it has ended, and thread %u,%u,%u waits for it at %s:%d",
                one->index.x, one->index.y, one->index.z, one->what, one->line);
        if (t->line != one->line || (t->what != one->what && strcmp(t->what, one->what) != 0))
            softgpu_wrong("it waits at %s:%d, and thread %u,%u,%u at %s:%d", t->what, t->line,
                one->index.x, one->index.y, one->index.z, one->what, one->line);
        t->state = READY;
    }
    now.running = NULL;
    softgpu_race_barrier();
    return true;
}

static void run_block(void)
{
    memset(softgpu_shared_memory, 0xFF, now.kernel->shared); /* NaN, or -1 */
    for (int i = 0; i < now.count; i++)
        now.thread[i].state = FRESH;
    int warps = (now.count + SOFTGPU_WARP - 1) / SOFTGPU_WARP, warp[MAX_WARPS];
    softgpu_race_block(now.count);
    do {
        put_in_order(warp, 0, warps);
        for (int i = 0; i < warps; i++) {
            int first = warp[i] * SOFTGPU_WARP;
            put_in_order(now.lane + first, first, lanes_of(warp[i]));
            run_warp(warp[i]);
        }
    } while (open_barrier());
}

/* Returns a number below n that has no common factor with it. */
static uint64_t scatter(uint64_t n)
{
    static const uint64_t primes[] = {1000003, 15485863, 7919};
    for (int i = 0; i < 3; i++)
        if (n % primes[i] != 0)
            return primes[i] % n;
    return 1;
}

/* Threads keep their numbers from block to block, and from launch to launch of the same size.
 */
static void number_threads(dim3 size)
{
    static dim3 last;
    if (size.x == last.x && size.y == last.y && size.z == last.z)
        return;
    last = size;
    now.count = (int)(size.x * size.y * size.z);
    for (int i = 0; i < now.count; i++)
        now.thread[i].index = (uint3){
            (unsigned)i % size.x, (unsigned)i / size.x % size.y, (unsigned)i / size.x / size.y};
}

static void prepare(const softgpu_kernel *k, const void *args)
{
    static unsigned char shared[MAX_SHARED] __attribute__((aligned(1024)));
    if (!now.asked) {
        const char *way = getenv("SOFTGPU_ORDER"), *seed = getenv("SOFTGPU_SEED");
        now.in_line = way && strcmp(way, "forward") == 0;
        now.seed = seed ? strtoull(seed, NULL, 10) : 1;
        now.random = now.seed;
        now.asked = true;
    }
    /* The block's memory ends at the end of the array, so that the address sanitizer sees
     * writes beyond it. */
    softgpu_shared_memory = shared + ((MAX_SHARED - k->shared) & ~(size_t)127);
    now.kernel = k;
    now.args = args;
    number_threads(k->threads);
    now.order = now.in_line ? FORWARD : (order)(now.launches++ % ORDERS);
}

void softgpu_run_kernel(const softgpu_kernel *k, const void *args)
{
    uint64_t x = k->blocks.x, y = k->blocks.y, blocks = x * y * k->blocks.z;
    prepare(k, args);
    uint64_t step = now.in_line || blocks < 2 ? 1 : scatter(blocks);
    softgpu_here.blocks = k->blocks;
    softgpu_here.threads = k->threads;
    softgpu_race_begin(k, args);
    for (uint64_t i = 0, b = now.order == BACKWARD ? blocks / 2 : 0; i < blocks; i++) {
        softgpu_here.block =
            (uint3){(unsigned)(b % x), (unsigned)(b / x % y), (unsigned)(b / x / y)};
        run_block();
        b = (b + step) % blocks;
    }
    softgpu_race_end();
}
