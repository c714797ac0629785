/* The registry of instruction sets, widest first. Each has a kernel table and a function that
 * tells whether this machine supports it. A build may be without some tables: CHOIR_QUICK and
 * CHOIR_CHECK_ALL in CMakeLists.txt. What the compiler may always use has names of its own:
 * `neon` on aarch64, and `scalar`, as a processor without any of the sets above it would be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>
#include "base/named.h"
#include "device/cpu/context.h"
#include "device/cpu/product/amx.h"

extern const choir__kernels choir__cpu_table_baseline, choir__cpu_table_avx2,
    choir__cpu_table_avx512;

static bool has_baseline(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#ifdef CHOIR_WITHOUT_AVX512
#define AVX512 NULL
#else
#define AVX512 &choir__cpu_table_avx512
#endif
#ifdef CHOIR_WITHOUT_AVX2
#define AVX2 NULL
#else
#define AVX2 &choir__cpu_table_avx2
#endif
#ifdef CHOIR_WITHOUT_BASELINE
#define BASELINE NULL
#else
#define BASELINE &choir__cpu_table_baseline
#endif

static const struct {
    const char *name;
    const choir__kernels *kernels; /* NULL: not in this build */
    bool (*is_here)(void);
} sets[] = {
#if defined(__x86_64__)
    {"avx512", AVX512, has_avx512},
    {"avx2", AVX2, has_avx2},
#elif defined(__aarch64__)
    {"neon", BASELINE, has_baseline},
#endif
    {"baseline", BASELINE, has_baseline},
    {"scalar", BASELINE, has_baseline},
};

static const choir__name_table names = CHOIR__NAME_TABLE(sets);

/* Returns the set that CHOIR_ISA names, or NULL: any. */
static const char *wanted_set(void)
{
    const char *wanted = getenv("CHOIR_ISA");
    return wanted && *wanted ? wanted : NULL;
}

/* NULL if the set's kernels cannot run: this build or this processor lacks them. */
static const choir__kernels *kernels_of(int at)
{
    return sets[at].is_here() ? sets[at].kernels : NULL;
}

const choir__kernels *choir__cpu_kernels(const char *isa)
{
    int at = choir__find_named(&names, isa);
    return at >= 0 ? kernels_of(at) : NULL;
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
    int built = 0;
    for (int i = 0; i < (int)CHOIR_COUNT(sets); i++) {
        if (kernels_of(i))
            return sets[i].name;
        if (sets[i].kernels)
            built = i;
    }
    /* another machine than that of the build */
    fprintf(stderr, "choir: this build is for processors with %s; build it here\n",
        sets[built].name);
    abort();
}

choir_status choir__cpu_check_isa(void)
{
    const char *wanted = wanted_set();
    int at = wanted ? choir__find_named(&names, wanted) : 0;
    if (at < 0)
        return choir__unknown_name(&names, "CHOIR_ISA", wanted);
    if (!wanted || kernels_of(at))
        return CHOIR_OK;
    if (!sets[at].is_here())
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "CHOIR_ISA=%s: this processor lacks these instructions; it has %s", wanted,
            choir_cpu_isa());
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "CHOIR_ISA=%s: this build lacks these kernels and has %s; CMake's options "
        "CHOIR_CHECK_ALL=ON and CHOIR_QUICK=OFF add them",
        wanted, choir_cpu_isa());
}
