/* Measures the limit that this machine's memory sets for a direct all-reduce in shared memory.
 * Two ranks or more, each on a core of its own, read their share of every rank's buffer and
 * write it to every buffer, as all_reduce does, but without any synchronisation within a
 * sample, and with only the sum between loads and stores.
 *
 *   choir_bench_traffic [RANKS [MIN [MAX [FACTOR]]]]       (bytes)
 *
 * The output has one JSON line per size: the median time in us with ordinary stores, with
 * stores that bypass the caches, and the shorter of the two, which is the limit. A rank may be
 * ahead of the others by a few calls of a sample; the buffers are the same in all calls, as in
 * `choir bench`. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/group.h>

#include "base/base.h"
#include "comm/group.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SAMPLES = 41, MAX_RANKS = 8 };

typedef struct bench {
    int ranks;
    size_t min, max, factor;
} bench;

typedef void kernel(float *const *buffers, int ranks, size_t lo, size_t hi);

#if defined(__x86_64__)
/* Both loops use the widest vectors of the machine; lo and hi are multiples of 16 elements. */
#define KERNEL(name, isa, type, width, load, add, store)                                       \
    __attribute__((target(isa))) static void name(                                             \
        float *const *buffers, int ranks, size_t lo, size_t hi)                                \
    {                                                                                          \
        for (size_t i = lo; i < hi; i += (width)) {                                            \
            type sum = load(buffers[0] + i);                                                   \
            for (int r = 1; r < ranks; r++)                                                    \
                sum = add(sum, load(buffers[r] + i));                                          \
            for (int r = 0; r < ranks; r++)                                                    \
                store(buffers[r] + i, sum);                                                    \
        }                                                                                      \
        _mm_sfence();                                                                          \
    }
KERNEL(plain_512, "avx512f", __m512, 16, _mm512_load_ps, _mm512_add_ps, _mm512_store_ps)
KERNEL(stream_512, "avx512f", __m512, 16, _mm512_load_ps, _mm512_add_ps, _mm512_stream_ps)
KERNEL(plain_256, "avx", __m256, 8, _mm256_load_ps, _mm256_add_ps, _mm256_store_ps)
KERNEL(stream_256, "avx", __m256, 8, _mm256_load_ps, _mm256_add_ps, _mm256_stream_ps)

static void choose(kernel *kernels[2])
{
    bool wide = __builtin_cpu_supports("avx512f");
    kernels[0] = wide ? plain_512 : plain_256;
    kernels[1] = wide ? stream_512 : stream_256;
}
#else
static void plain(float *const *buffers, int ranks, size_t lo, size_t hi)
{
    for (size_t i = lo; i < hi; i++) {
        float sum = buffers[0][i];
        for (int r = 1; r < ranks; r++)
            sum += buffers[r][i];
        for (int r = 0; r < ranks; r++)
            buffers[r][i] = sum;
    }
}

static void choose(kernel *kernels[2])
{
    kernels[0] = kernels[1] = plain;
}
#endif

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Puts rank i on the i-th core that this process may use, and starts over after the last. */
static void pin(int rank)
{
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    int at = rank % CPU_COUNT(&allowed);
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && at-- == 0)
            CPU_SET(core, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

/* Returns the seconds per call of the slowest rank. */
static double sample(choir_group *group, kernel *run, float *const *buffers, int ranks,
    size_t lo, size_t hi, int calls)
{
    choir_check(choir_group_barrier(group, NULL));
    double start = choir__now();
    for (int i = 0; i < calls; i++)
        run(buffers, ranks, lo, hi);
    double took = (choir__now() - start) / calls;
    choir_check(choir_group_all_reduce(group, &took, 1, CHOIR_F64, CHOIR_MAX, NULL));
    return took;
}

static int run_rank(int rank, int world, void *arg)
{
    const bench *b = arg;
    choir_group *group;
    choir__shared *shared;
    kernel *kernels[2];
    float *buffers[MAX_RANKS], *mine;
    pin(rank);
    choose(kernels);
    choir_check(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_check(choir__shared_new(group, b->max, &shared));
    for (int r = 0; r < world; r++)
        buffers[r] = choir__shared_at(shared, r);
    mine = buffers[rank];
    for (size_t bytes = b->min; bytes <= b->max; bytes *= b->factor) {
        size_t lines = bytes / 64, lo = lines * (size_t)rank / (size_t)world * 16;
        size_t hi = lines * (size_t)(rank + 1) / (size_t)world * 16;
        double us[2];
        for (int k = 0; k < 2; k++) {
            double times[SAMPLES];
            memset(mine, 0, bytes);
            double first = sample(group, kernels[k], buffers, world, lo, hi, 4);
            int calls = first > 50e-6 ? 1 : (int)(100e-6 / (first + 1e-8)) + 1;
            int samples = first > 20e-3 ? 7 : SAMPLES;
            for (int i = 0; i < samples; i++)
                times[i] = sample(group, kernels[k], buffers, world, lo, hi, calls);
            qsort(times, (size_t)samples, sizeof *times, by_size);
            us[k] = times[samples / 2] * 1e6;
        }
        if (rank == 0)
            printf("{\"collective\":\"all_reduce\",\"backend\":\"limit\",\"ranks\":%d,"
                   "\"bytes\":%zu,\"time_us\":%.3f,\"plain_us\":%.3f,\"stream_us\":%.3f}\n",
                world, bytes, us[0] < us[1] ? us[0] : us[1], us[0], us[1]);
    }
    fflush(stdout);
    choir__shared_free(shared);
    choir_group_free(group);
    return 0;
}

int main(int argc, char **argv)
{
    long ranks = argc > 1 ? atol(argv[1]) : 2, min = argc > 2 ? atol(argv[2]) : 1 << 10;
    long max = argc > 3 ? atol(argv[3]) : 64 << 20, factor = argc > 4 ? atol(argv[4]) : 4;
    if (ranks < 1 || ranks > MAX_RANKS || min < 1024 || max < min || factor < 2) {
        fprintf(stderr,
            "usage: choir_bench_traffic [RANKS [MIN [MAX [FACTOR]]]]: 1 to %d "
            "ranks, 1024 bytes or more, a factor above 1\n",
            MAX_RANKS);
        return 2;
    }
    bench b = {(int)ranks, (size_t)min, (size_t)max, (size_t)factor};
    return choir_spawn(b.ranks, run_rank, &b) != CHOIR_OK;
}
