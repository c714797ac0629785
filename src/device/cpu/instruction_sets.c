/* The registry of instruction sets, widest first. Each has a kernel table and a function that
 * tells whether this machine supports it. A build may be without some of them: CHOIR_QUICK in
 * CMakeLists.txt. What the compiler may always use has names of its own: `neon` on aarch64, and
 * `scalar`, as a processor without any of the sets above it would be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>
#include "base/named.h"
#include "device/cpu/context.h"
#include "device/cpu/product/amx.h"

extern const choir__kernels choir__cpu_table_baseline, choir__cpu_table_avx2,
    choir__cpu_table_avx512;

#ifndef CHOIR_WITHOUT_BASELINE
static bool has_baseline(void)
{
    return true;
}
#endif

#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static const struct {
    const char *name;
    const choir__kernels *kernels;
    bool (*is_here)(void);
} sets[] = {
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
    {"avx512", &choir__cpu_table_avx512, has_avx512},
#endif
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
    {"avx2", &choir__cpu_table_avx2, has_avx2},
#endif
#ifndef CHOIR_WITHOUT_BASELINE
#if defined(__aarch64__)
    {"neon", &choir__cpu_table_baseline, has_baseline},
#endif
    {"baseline", &choir__cpu_table_baseline, has_baseline},
    {"scalar", &choir__cpu_table_baseline, has_baseline},
#endif
};

static const choir__name_table names = CHOIR__NAME_TABLE(sets);

/* Returns the set that CHOIR_ISA names, or NULL: any. */
static const char *wanted_set(void)
{
    const char *wanted = getenv("CHOIR_ISA");
    return wanted && *wanted ? wanted : NULL;
}

const choir__kernels *choir__cpu_kernels(const char *isa)
{
    int at = choir__find_named(&names, isa);
    return at >= 0 && sets[at].is_here() ? sets[at].kernels : NULL;
}

bool choir__cpu_has_amx(void)
{
    return !strcmp(choir_cpu_isa(), "avx512") && choir__amx_here();
}

const char *choir_cpu_isa(void)
{
    const char *wanted = wanted_set();
    if (wanted && choir__cpu_kernels(wanted))
        return wanted;
    size_t widest = 0;
    while (widest < CHOIR_COUNT(sets) && !sets[widest].is_here())
        widest++;
    if (widest == CHOIR_COUNT(sets)) { /* another machine than that of the build */
        fprintf(stderr, "choir: this build is for processors with %s; build it here\n",
            sets[0].name);
        abort();
    }
    return sets[widest].name;
}

choir_status choir__cpu_check_isa(void)
{
    const char *wanted = wanted_set();
    int at = wanted ? choir__find_named(&names, wanted) : 0;
    if (at < 0)
        return choir__unknown_name(&names, "CHOIR_ISA", wanted);
    return !wanted || sets[at].is_here()
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_UNSUPPORTED,
                     "CHOIR_ISA=%s: this processor lacks these instructions; it has %s", wanted,
                     choir_cpu_isa());
}
