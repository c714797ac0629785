/* Fibers over ucontext. Below each mapped stack is a guard page without access, so that a stack
 * overflow crashes at once. The sanitizers are notified of each switch. */
#include "base/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN_SWITCH 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TSAN_SWITCH 1
#endif

enum { STACK_BYTES = 4 << 20, GUARD_BYTES = 1 << 16 }; /* pages are allocated on first touch */

struct choir__fiber {
    ucontext_t inside, outside;
    char *stack; /* begins with the guard */
    void (*fn)(void *arg);
    void *arg;
    bool started, returned;
#ifdef ASAN_SWITCH
    void *fake_inside, *fake_outside; /* the sanitizer's own stacks */
    const void *outside_stack;
    size_t outside_bytes;
#endif
#ifdef TSAN_SWITCH
    void *tsan_inside, *tsan_outside;
#endif
};

choir__fiber *choir__fiber_new(void)
{
    char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return NULL;
    mprotect(stack, GUARD_BYTES, PROT_NONE);
    choir__fiber *f = choir__calloc(1, sizeof *f);
    f->stack = stack;
    return f;
}

/* The frame of the first function never returns, so the sanitizer would report later accesses
 * to its memory. This clears the marks. */
static void forget_frames(choir__fiber *f)
{
#ifdef ASAN_SWITCH
    __asan_unpoison_memory_region(f->stack + GUARD_BYTES, STACK_BYTES);
#endif
    (void)f;
}

void choir__fiber_free(choir__fiber *f)
{
    if (!f)
        return;
#ifdef TSAN_SWITCH
    if (f->tsan_inside)
        __tsan_destroy_fiber(f->tsan_inside);
#endif
    forget_frames(f);
    munmap(f->stack, GUARD_BYTES + STACK_BYTES);
    free(f);
}

void choir__fiber_start(choir__fiber *f, void (*fn)(void *arg), void *arg)
{
    f->fn = fn;
    f->arg = arg;
    f->started = f->returned = false;
}

/* --- switching --- */

/* Does what swapcontext does, about which the address sanitizer prints a warning. getcontext
 * returns a first time before the switch, and a second time on the way back. */
static void swap(ucontext_t *from, const ucontext_t *to)
{
    volatile bool back = false;
    getcontext(from);
    if (back)
        return;
    back = true;
    setcontext(to);
}

static void entered(choir__fiber *f)
{
#ifdef ASAN_SWITCH
    __sanitizer_finish_switch_fiber(f->fake_inside, &f->outside_stack, &f->outside_bytes);
#endif
    (void)f;
}

static void switch_out(choir__fiber *f, bool for_good)
{
#ifdef ASAN_SWITCH
    __sanitizer_start_switch_fiber(
        for_good ? NULL : &f->fake_inside, f->outside_stack, f->outside_bytes);
#endif
#ifdef TSAN_SWITCH
    __tsan_switch_to_fiber(f->tsan_outside, 0);
#endif
    (void)for_good;
    swap(&f->inside, &f->outside);
}

/* makecontext passes ints, so the pointer arrives in two halves. */
static void trampoline(unsigned low, unsigned high)
{
    choir__fiber *f = (choir__fiber *)(((uintptr_t)high << 32) | (uintptr_t)low);
    entered(f);
    f->fn(f->arg);
    f->returned = true;
    switch_out(f, true);
}

static void prepare(choir__fiber *f)
{
    uintptr_t self = (uintptr_t)f;
    forget_frames(f);
    getcontext(&f->inside);
    f->inside.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->inside.uc_stack.ss_size = STACK_BYTES;
    f->inside.uc_link = NULL;
    makecontext(&f->inside, (void (*)(void))trampoline, 2, (unsigned)self,
        (unsigned)((uint64_t)self >> 32));
    f->started = true;
#ifdef ASAN_SWITCH
    f->fake_inside = NULL;
#endif
#ifdef TSAN_SWITCH
    if (!f->tsan_inside)
        f->tsan_inside = __tsan_create_fiber(0);
#endif
}

bool choir__fiber_resume(choir__fiber *f)
{
    if (!f->started)
        prepare(f);
#ifdef ASAN_SWITCH
    __sanitizer_start_switch_fiber(&f->fake_outside, f->stack + GUARD_BYTES, STACK_BYTES);
#endif
#ifdef TSAN_SWITCH
    f->tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan_inside, 0);
#endif
    swap(&f->outside, &f->inside);
#ifdef ASAN_SWITCH
    __sanitizer_finish_switch_fiber(f->fake_outside, NULL, NULL);
#endif
    return !f->returned;
}

void choir__fiber_yield(choir__fiber *f)
{
    switch_out(f, false);
    entered(f);
}
