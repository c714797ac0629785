/* The floating-point environment in which all numbers are computed: rounding to nearest,
 * denormals kept, no exception that stops the program.
 *
 * A program may have another: fesetround, feenableexcept, or a library that was linked with
 * -ffast-math, whose start sets denormals to zero in the thread that loads it. So each piece of
 * work that makes numbers (a queue's turn, a host call of a step, a public function that
 * computes) stands between choir__floats_begin and choir__floats_end, which give the program's
 * environment back as it was, the exceptions that it has noted among it. Where both are the
 * same this costs a few nanoseconds.
 *
 * On x86-64 the environment is MXCSR. The x87 unit has another one, in which nothing of Choir
 * computes. */
#ifndef CHOIR_FLOATS_H
#define CHOIR_FLOATS_H

#if defined(__aarch64__)
#include <stdint.h>
#elif !defined(__x86_64__)
#include <fenv.h>
#endif

typedef struct choir__floats {
#if defined(__x86_64__)
    unsigned control; /* the lowest bits are the exceptions that it has noted */
#elif defined(__aarch64__)
    uint64_t control, noted;
#else
    fenv_t all;
#endif
} choir__floats;

/* Returns the environment as it was, and sets the default one. */
static inline choir__floats choir__floats_begin(void)
{
    choir__floats before;
#if defined(__x86_64__)
    enum { NOTED = 0x3f, AT_START = 0x1f80 };
    before.control = __builtin_ia32_stmxcsr();
    if ((before.control & ~(unsigned)NOTED) != AT_START)
        __builtin_ia32_ldmxcsr(AT_START);
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr"
                     : "=r"(before.control), "=r"(before.noted)::"memory");
    if (before.control)
        __asm__ volatile("msr fpcr, xzr" ::: "memory");
#else
    fegetenv(&before.all);
    fesetenv(FE_DFL_ENV);
#endif
    return before;
}

static inline void choir__floats_end(const choir__floats *before)
{
#if defined(__x86_64__)
    if (__builtin_ia32_stmxcsr() != before->control)
        __builtin_ia32_ldmxcsr(before->control);
#elif defined(__aarch64__)
    if (before->control)
        __asm__ volatile("msr fpcr, %0" ::"r"(before->control) : "memory");
    __asm__ volatile("msr fpsr, %0" ::"r"(before->noted) : "memory");
#else
    fesetenv(&before->all);
#endif
}

/* The rest of the function, and of the functions that it calls, computes in the default
 * environment; to be written first in it. Compilers do not know that the environment changes,
 * and may compute a result after it has changed back: a function that returns its own
 * arithmetic's result leaves that to another one, which is CHOIR__APART. */
#define CHOIR__DEFAULT_FLOATS                                                                  \
    __attribute__((cleanup(choir__floats_end), unused)) const choir__floats floats_before =    \
        choir__floats_begin()
#define CHOIR__APART __attribute__((noinline))

#endif
