/* On x86-64, a switch saves the six registers that a function must preserve and changes the
 * stack; on other machines it is swapcontext. The sanitizers are notified of each switch. */
#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ASAN_SWITCH 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TSAN_SWITCH 1
#endif

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 1 << 12 }; /* mapped on first use */

#ifdef __x86_64__
typedef void *context;

void softgpu_switch(context *from, const context *to);
__asm__(".text\n.globl softgpu_switch\n.hidden softgpu_switch\n"
        ".type softgpu_switch, @function\nsoftgpu_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq (%rsi), %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n    ret\n"
        ".size softgpu_switch, . - softgpu_switch\n");
#else
#include <ucontext.h>
typedef ucontext_t context;
#define softgpu_switch swapcontext
#endif

struct softgpu_fiber {
    context inside, outside;
    char *stack; /* the guard first */
    void (*fn)(void *arg);
    void *arg;
#ifdef ASAN_SWITCH
    void *fake_inside, *fake_outside; /* the sanitizer's own stacks */
    const void *outside_stack;
    size_t outside_bytes;
#endif
#ifdef TSAN_SWITCH
    void *tsan_inside, *tsan_outside;
#endif
};

static softgpu_fiber *entering; /* the one whose first resume this is */

static void entered(softgpu_fiber *f)
{
#ifdef ASAN_SWITCH
    __sanitizer_finish_switch_fiber(f->fake_inside, &f->outside_stack, &f->outside_bytes);
#endif
    (void)f;
}

static void first_frame(void)
{
    softgpu_fiber *f = entering;
    entered(f);
    f->fn(f->arg);
    abort(); /* it never returns */
}

static void prepare(softgpu_fiber *f)
{
#ifdef __x86_64__
    void **top = (void **)(void *)(f->stack + GUARD_BYTES + STACK_BYTES);
    *--top = NULL; /* where first_frame would return to; and the alignment a call leaves */
    *--top = (void *)(uintptr_t)first_frame;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    f->inside = top;
#else
    getcontext(&f->inside);
    f->inside.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->inside.uc_stack.ss_size = STACK_BYTES;
    f->inside.uc_link = NULL;
    makecontext(&f->inside, first_frame, 0);
#endif
}

softgpu_fiber *softgpu_fiber_new(void (*fn)(void *arg), void *arg)
{
    softgpu_fiber *f = calloc(1, sizeof *f);
    char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (!f || stack == MAP_FAILED) {
        fprintf(stderr, "softgpu: no memory for a thread's stack\n");
        abort();
    }
    mprotect(stack, GUARD_BYTES, PROT_NONE);
    f->stack = stack;
    f->fn = fn;
    f->arg = arg;
    prepare(f);
#ifdef TSAN_SWITCH
    f->tsan_inside = __tsan_create_fiber(0);
#endif
    return f;
}

void softgpu_fiber_free(softgpu_fiber *f)
{
#ifdef TSAN_SWITCH
    __tsan_destroy_fiber(f->tsan_inside);
#endif
    munmap(f->stack, GUARD_BYTES + STACK_BYTES);
    free(f);
}

void softgpu_fiber_resume(softgpu_fiber *f)
{
    entering = f;
#ifdef ASAN_SWITCH
    __sanitizer_start_switch_fiber(&f->fake_outside, f->stack + GUARD_BYTES, STACK_BYTES);
#endif
#ifdef TSAN_SWITCH
    f->tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan_inside, 0);
#endif
    softgpu_switch(&f->outside, &f->inside);
#ifdef ASAN_SWITCH
    __sanitizer_finish_switch_fiber(f->fake_outside, NULL, NULL);
#endif
}

void softgpu_fiber_yield(softgpu_fiber *f)
{
#ifdef ASAN_SWITCH
    __sanitizer_start_switch_fiber(&f->fake_inside, f->outside_stack, f->outside_bytes);
#endif
#ifdef TSAN_SWITCH
    __tsan_switch_to_fiber(f->tsan_outside, 0);
#endif
    softgpu_switch(&f->inside, &f->outside);
    entered(f);
}
