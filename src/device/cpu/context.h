/* What CPU kernels keep between calls: one context a device, current on whichever thread runs
 * the device's queue. oneDNN's primitives and their scratch memory live here. */
#ifndef CHOIR_CPU_CONTEXT_H
#define CHOIR_CPU_CONTEXT_H

#include "device/kernels.h"

typedef struct choir__cpu_context choir__cpu_context;

choir__cpu_context *choir__cpu_context_new(int threads);
void choir__cpu_context_free(choir__cpu_context *context);

/* Makes the context current on this thread (a queue's `enter`), with its thread count. */
void choir__cpu_context_enter(void *context);

/* The current one; a thread that never entered any gets one of its own, with one thread. */
choir__cpu_context *choir__cpu_context_current(void);

int choir__cpu_context_threads(const choir__cpu_context *context);

/* Scratch memory of at least so many bytes, 64-byte aligned, valid until the next call. */
void *choir__cpu_scratch(choir__cpu_context *context, size_t bytes);

/* The same for a kernel that is made of others: theirs is choir__cpu_scratch. */
void *choir__cpu_workspace(choir__cpu_context *context, size_t bytes);

/* The same for a matrix product's copy of an operand. */
void *choir__cpu_panel(choir__cpu_context *context, size_t bytes);

/* The same for 16-bit operands made f32. */
void *choir__cpu_wide(choir__cpu_context *context, size_t bytes);

/* The slow, obvious kernels. */
extern const choir__kernels choir__cpu_reference;

/* The fast kernels for an instruction set, "baseline", "avx2" or "avx512"; NULL if this machine
 * lacks it (instruction_sets.c). */
const choir__kernels *choir__cpu_kernels(const char *isa);

/* Who multiplies matrices: "oneDNN 2.6.3", or "plain products" where it is not built in. */
const char *choir__cpu_multiplier(void);

/* The calling thread may run on every core that the process may use, whatever its maker was
 * bound to. */
void choir__cpu_free_thread(void);

#endif
