/* The state that CPU kernels keep between calls: one context per device, current on the thread
 * that runs the device's queue. It holds oneDNN's primitives and their scratch memory. */
#ifndef CHOIR_CPU_CONTEXT_H
#define CHOIR_CPU_CONTEXT_H

#include "device/kernels.h"

typedef struct choir__cpu_context choir__cpu_context;

choir__cpu_context *choir__cpu_context_new(int threads);
void choir__cpu_context_free(choir__cpu_context *context);

/* Makes the context current on this thread (a queue's `enter`), with its thread count. */
void choir__cpu_context_enter(void *context);

/* Returns the current context. A thread that has entered none gets its own, with one thread. */
choir__cpu_context *choir__cpu_context_current(void);

int choir__cpu_context_threads(const choir__cpu_context *context);

/* Calls part for ranges that cover [0, count), on the cores of the current context, and returns
 * when all have ended. No range but the last has fewer than `least`; on one core it is one
 * range. Each call finds a context of its thread's own, with one thread. */
typedef void choir__cpu_part(const void *arg, int64_t first, int64_t count);
void choir__cpu_parallel(int64_t count, int64_t least, choir__cpu_part *part, const void *arg);

/* Returns scratch memory of at least `bytes` bytes, 64-byte aligned, valid until the next
 * call. */
void *choir__cpu_scratch(choir__cpu_context *context, size_t bytes);

/* Like choir__cpu_scratch, for a kernel that calls other kernels, which use
 * choir__cpu_scratch. */
void *choir__cpu_workspace(choir__cpu_context *context, size_t bytes);

/* Like choir__cpu_scratch, for a matrix product's copy of an operand. */
void *choir__cpu_panel(choir__cpu_context *context, size_t bytes);

/* Like choir__cpu_scratch, for 16-bit operands converted to f32. */
void *choir__cpu_wide(choir__cpu_context *context, size_t bytes);

/* Like choir__cpu_scratch, for a matrix that a product packs as a whole. The product's operands
 * may be in choir__cpu_workspace and choir__cpu_wide. */
void *choir__cpu_packed(choir__cpu_context *context, size_t bytes);

/* The slow, simple kernels. */
extern const choir__kernels choir__cpu_reference;

/* Returns the fast kernels for an instruction set, such as "avx2", or NULL if this machine
 * lacks it (instruction_sets.c). */
const choir__kernels *choir__cpu_kernels(const char *isa);

/* Reports a CHOIR_ISA that names no instruction set, or one that the machine lacks. */
choir_status choir__cpu_check_isa(void);

/* Returns true if the kernels in use multiply bf16 by AMX's instructions in the class `amx`. */
bool choir__cpu_has_amx(void);

/* Returns the same kernels for a device of several cores (divide.c). */
const choir__kernels *choir__cpu_divided(const choir__kernels *kernels);

/* Returns what multiplies matrices: "oneDNN 2.6.3", "own products" or "own products, amx"
 * (multiplier.h). */
const char *choir__cpu_multiplier(void);

/* Lets the calling thread run on every core that the process may use, even if its creator was
 * bound to fewer. */
void choir__cpu_free_thread(void);

#endif
