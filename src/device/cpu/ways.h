/* How the kernels of CPU devices computed, noted by the kernels themselves.
 *
 * A kernel has a fast path for some dtypes. For others it converts operands to f32 (WIDENED),
 * or the reference kernel computes, which is correct and slow (REFERENCE). Either is noted, for
 * the whole process, so that nothing falls back in silence: `choir info --kernels` prints the
 * notes of one op at a time, `choir train` all notes of a job. */
#ifndef CHOIR_CPU_WAYS_H
#define CHOIR_CPU_WAYS_H

#include "device/cpu/context.h"

/* A larger value is a slower way. */
typedef enum choir__way { CHOIR__OWN, CHOIR__WIDENED, CHOIR__REFERENCE } choir__way;

typedef enum choir__kernel_id {
#define X(name) CHOIR__KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
        CHOIR__KERNEL_COUNT
} choir__kernel_id;

/* Notes that a kernel with operands of dtype computes in a way other than its own. */
void choir__note_way(choir__kernel_id kernel, choir_dtype dtype, choir__way way);

/* Returns the slowest way noted for a kernel with operands of dtype; OWN if none was. */
choir__way choir__noted_way(choir__kernel_id kernel, choir_dtype dtype);

/* Forgets all notes. */
void choir__forget_ways(void);

/* The reference kernels as the kernels of f64: each call leaves a note. */
extern const choir__kernels choir__cpu_f64;

/* Computes by the reference kernel, with a note. */
#define CHOIR__BY_REFERENCE(name, args)                                                        \
    do {                                                                                       \
        choir__note_way(CHOIR__KERNEL_##name, (args)->dtype, CHOIR__REFERENCE);                \
        choir__cpu_reference.name(args);                                                       \
    } while (0)

#endif
