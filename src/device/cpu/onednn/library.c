/* Opening oneDNN, with a libgomp that does not spin for long.
 *
 * libgomp's threads wait for each other actively, by default for 300,000 turns of a loop: some
 * milliseconds. Where two processes share cores, the waiting thread keeps the core that the
 * awaited one needs, and a step takes up to ten times as long. After 4,000 turns, about 50 us,
 * a thread sleeps instead; on a quiet machine that is as fast (docs/benchmarks.md). libgomp
 * reads the number from the environment when it is loaded. */
#include "device/cpu/onednn/library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes of address space for oneDNN, the libraries that it needs, and the first kernels that it
 * generates. Its generator does not look whether it got memory for them. */
static const size_t room = (size_t)192 << 20;

choir__dnnl_calls choir__dnnl;

static const char *const names[] = {CHOIR__DNNL_CALLS(CHOIR__LIBRARY_NAME)};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int team; /* as last passed to OpenMP; 0: unknown */

/* Returns the environment with the number of turns, unless it says itself how threads wait. A
 * program's other threads may read the environment at any time, so it is replaced for a moment,
 * not changed, and never freed. */
static char **with_spin_count(char **environment)
{
    static char **larger __attribute__((used)); /* for leak detectors */
    size_t count = 0;
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return environment;
    while (environment && environment[count])
        count++;
    larger = choir__calloc(count + 2, sizeof *larger);
    for (size_t i = 0; i < count; i++)
        larger[i] = environment[i];
    larger[count] = "GOMP_SPINCOUNT=4000";
    return larger;
}

static choir_status check_room(void)
{
    struct rlimit limit;
    void *there =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (there != MAP_FAILED) {
        munmap(there, room);
        return CHOIR_OK;
    }
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return CHOIR_OK; /* the linker says why */
    return choir__error(CHOIR_ERR_MEMORY,
        "expected %zu MB of address space for %s, got less: this process may have %lld MB in all "
        "(ulimit -v)",
        room >> 20, CHOIR_ONEDNN_LIBRARY, (long long)(limit.rlim_cur >> 20));
}

static void open_library(void)
{
    char **environment = environ;
    environ = with_spin_count(environment);
    choir_status status = check_room();
    if (status == CHOIR_OK)
        status =
            choir__library_open(CHOIR_ONEDNN_LIBRARY, names, CHOIR_COUNT(names), &choir__dnnl);
    environ = environment;
    if (status == CHOIR_OK && !getenv("DNNL_JIT_PROFILE") && !getenv("ONEDNN_JIT_PROFILE"))
        /* otherwise oneDNN looks for VTune in sixty folders */
        choir__dnnl.set_jit_profiling_flags(0);
    if (status == CHOIR_OK)
        return;
    fprintf(stderr, "choir: %s\n", choir_error_message());
    exit(1);
}

void choir__dnnl_open(void)
{
    pthread_once(&once, open_library);
}

void choir__dnnl_set_team(int threads)
{
    if (team != threads)
        choir__dnnl.set_num_threads(team = threads);
}

int choir__dnnl_team(void)
{
    return team;
}
