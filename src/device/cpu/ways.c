/* Notes of the kernels about how they computed: one atomic word per kernel, bit dtype + DTYPES
 * * (way - 1), which is written only if the bit is new. The table for f64 is the reference with
 * such notes. */
#include "device/cpu/ways.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <choir/device.h>

enum { DTYPES = CHOIR_DTYPE_COUNT };
_Static_assert(2 * DTYPES <= 32, "a kernel's notes are one word");

static _Atomic uint32_t notes[CHOIR__KERNEL_COUNT];

static const char *const names[] = {
#define X(name) [CHOIR__KERNEL_##name] = #name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

/* The reference's loops that store one value, or bytes, are as fast as any. */
static bool is_slow(choir__kernel_id kernel)
{
    return kernel != CHOIR__KERNEL_fill && kernel != CHOIR__KERNEL_store;
}

#define X(name)                                                                                \
    static void f64_##name(const choir__k_##name *args)                                        \
    {                                                                                          \
        if (is_slow(CHOIR__KERNEL_##name))                                                     \
            choir__note_way(CHOIR__KERNEL_##name, CHOIR_F64, CHOIR__REFERENCE);                \
        choir__cpu_reference.name(args);                                                       \
    }
CHOIR__KERNEL_LIST(X)
#undef X

const choir__kernels choir__cpu_f64 = {
#define X(name) .name = f64_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

static uint32_t bit_of(choir_dtype dtype, choir__way way)
{
    return 1u << ((unsigned)dtype + DTYPES * ((unsigned)way - 1));
}

void choir__note_way(choir__kernel_id kernel, choir_dtype dtype, choir__way way)
{
    uint32_t bit = bit_of(dtype, way);
    if (!(atomic_load_explicit(&notes[kernel], memory_order_relaxed) & bit))
        atomic_fetch_or(&notes[kernel], bit);
}

choir__way choir__noted_way(choir__kernel_id kernel, choir_dtype dtype)
{
    uint32_t noted = atomic_load(&notes[kernel]);
    return noted & bit_of(dtype, CHOIR__REFERENCE) ? CHOIR__REFERENCE
           : noted & bit_of(dtype, CHOIR__WIDENED) ? CHOIR__WIDENED
                                                   : CHOIR__OWN;
}

void choir__forget_ways(void)
{
    for (int k = 0; k < CHOIR__KERNEL_COUNT; k++)
        atomic_store(&notes[k], 0);
}

int choir_slow_kernels(char *text, size_t bytes)
{
    int count = 0;
    size_t used = 0;
    if (text && bytes)
        *text = '\0';
    for (int k = 0; k < CHOIR__KERNEL_COUNT; k++)
        for (int dtype = 0; dtype < DTYPES; dtype++) {
            if (choir__noted_way((choir__kernel_id)k, (choir_dtype)dtype) != CHOIR__REFERENCE)
                continue;
            const char *comma = count++ ? ", " : "";
            if (text && used < bytes)
                used += (size_t)snprintf(text + used, bytes - used, "%s%s in %s", comma,
                    names[k], choir_dtype_name((choir_dtype)dtype));
        }
    return count;
}
