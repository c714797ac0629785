/* One rank's side of `choir bench`: the times, and the lines that rank 0 prints.
 *
 * A sample is a few calls back to back after a barrier, because small calls cannot be timed
 * one by one. The time of a sample is the slowest rank's, and the time of a size is the median
 * of its samples. Bandwidths are defined as in nccl-tests: algbw is bytes over time, and busbw
 * scales it so that it compares with the capacity of a link for any number of ranks. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/bench/bench.h"
#include "comm/pattern/schedule.h"

enum { SAMPLES = 61, SAMPLES_OF_LONG_ONES = 11 };

static const char *const ops[CHOIR_REDUCE_OP_COUNT] = {
    [CHOIR_SUM] = "sum",
    [CHOIR_MEAN] = "mean",
    [CHOIR_MIN] = "min",
    [CHOIR_MAX] = "max",
    [CHOIR_PRODUCT] = "prod",
    [CHOIR_BAND] = "band",
    [CHOIR_BOR] = "bor",
    [CHOIR_BXOR] = "bxor",
};

const char *choir__op_name(choir_reduce_op op)
{
    return ops[op];
}

/* --- times --- */

/* Returns the seconds of `calls` calls after a barrier, on the slowest rank. */
static double sample(const choir__station *s, int64_t count, int calls)
{
    choir_check(choir_group_barrier(s->group, NULL));
    double start = choir__now();
    for (int i = 0; i < calls; i++)
        choir_check(s->b->what->run(s, count));
    double took = choir__now() - start;
    choir_check(choir_group_all_reduce(s->group, &took, 1, CHOIR_F64, CHOIR_MAX, NULL));
    return took;
}

/* Returns the median seconds per call. All ranks choose the same number of calls, because they
 * derive it from a time that is equal on all. */
static double measure(const choir__station *s, int64_t count)
{
    double times[SAMPLES], first = sample(s, count, 4) / 4;
    first = first > 1e-8 ? first : 1e-8;
    int calls = first > 50e-6 ? 1 : (int)(100e-6 / first) + 1;
    int samples = first > 20e-3 ? SAMPLES_OF_LONG_ONES : SAMPLES;
    for (int i = 0; i < samples; i++)
        times[i] = sample(s, count, calls) / calls;
    qsort(times, (size_t)samples, sizeof *times, choir__by_number);
    return times[samples / 2];
}

/* --- printing --- */

/* Returns the algorithm that comm/message chooses. */
static const char *message_algorithm(const choir__station *s, int64_t count)
{
    int *nodes = choir__alloc((size_t)s->world * sizeof *nodes);
    for (int r = 0; r < s->world; r++)
        nodes[r] = choir_group_node(s->group, r);
    const choir__pattern_collective collective = {.kind = s->b->what->kind,
        .algorithm = s->group->algorithm,
        .rank = s->rank,
        .world = s->world,
        .count = count,
        .align = (int)(64 / choir_dtype_size(s->b->dtype)),
        .nodes = nodes};
    choir__algorithm chosen = choir__move_schedule_choose(&collective, s->b->dtype);
    free(nodes);
    return choir__algorithm_name(chosen);
}

/* Returns the algorithm that runs. For some collectives, sizes and types it is not the
 * requested one. */
static const char *algorithm(const choir__station *s, int64_t count)
{
    const char *backend = choir_group_backend(s->group);
    const choir__algorithm asked = s->group->algorithm;
    const bool mpi = strcmp(backend, "mpi") == 0, shm = strcmp(backend, "shm") == 0;
    if (s->b->staged)
        return "staged";
    if (s->device && s->b->what->kind == CHOIR__BARRIER)
        return "host";
    if (s->device)
        return asked == CHOIR__NATIVE || !s->b->what->reduces ? "native" : "exchange";
    switch (asked) {
    case CHOIR__AUTO:
        if (mpi)
            return s->b->what->reduces ? "exchange" : "native";
        return shm ? "direct" : message_algorithm(s, count);
    case CHOIR__EXCHANGE:
        if (mpi && !s->b->what->reduces)
            return "native";
        return message_algorithm(s, count);
    case CHOIR__NATIVE:
        if (mpi)
            return "native";
        return shm ? "direct" : message_algorithm(s, count);
    case CHOIR__DIRECT: return shm ? "direct" : message_algorithm(s, count);
    default: return message_algorithm(s, count);
    }
}

static double bus_factor(const choir__station *s)
{
    const double others = (double)(s->world - 1) / s->world;
    switch (s->b->what->bus) {
    case CHOIR__BUS_TWICE: return 2 * others;
    case CHOIR__BUS_PART: return others;
    case CHOIR__BUS_ONCE: return 1;
    default: return 0;
    }
}

static void print_head(const choir__station *s)
{
    const int nodes = choir_group_nodes(s->group);
    printf("# choir bench %s: %d rank%s on %s, %s, algorithm %s, %s\n", s->b->what->name,
        s->world, s->world == 1 ? "" : "s", nodes > 1 ? "several nodes" : "one node",
        choir_group_backend(s->group),
        s->b->staged      ? "staged"
        : s->b->algorithm ? s->b->algorithm
                          : "chosen by size",
        s->b->what->in_place ? "in place" : "out of place");
    printf("# %12s %13s %6s %6s %5s %11s %9s %9s %7s  %s\n", "size", "count", "type", "redop",
        "root", "time", "algbw", "busbw", "#wrong", "algorithm");
    printf("# %12s %13s %6s %6s %5s %11s %9s %9s\n", "(B)", "(elements)", "", "", "", "(us)",
        "(GB/s)", "(GB/s)");
}

/* The columns of JSON and of the table for people are those of nccl-tests. */
static void print_json(const choir__station *s, size_t bytes, int64_t count, double seconds,
    double algbw, double busbw, int64_t wrong)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "collective", s->b->what->name);
    choir__text_string(&t, "backend", choir_group_backend(s->group));
    choir__text_string(&t, "algorithm", algorithm(s, count));
    choir__text_value(&t, "ranks", "%d", s->world);
    choir__text_value(&t, "bytes", "%zu", bytes);
    choir__text_value(&t, "time_us", "%.3f", seconds * 1e6);
    choir__text_value(&t, "algbw_gbs", "%.3f", algbw);
    choir__text_value(&t, "busbw_gbs", "%.3f", busbw);
    choir__text_value(&t, "wrong", "%" PRId64, wrong);
    choir__text_finish(&t, stdout);
}

static void print_line(
    const choir__station *s, size_t bytes, int64_t count, double seconds, int64_t wrong)
{
    const choir__bench *b = s->b;
    double algbw = (double)bytes / seconds * 1e-9, busbw = algbw * bus_factor(s);
    if (b->json)
        print_json(s, bytes, count, seconds, algbw, busbw, wrong);
    else
        printf("  %12zu %13" PRId64 " %6s %6s %5d %11.2f %9.2f %9.2f %7" PRId64 "  %s\n", bytes,
            count, choir_dtype_name(b->dtype),
            b->what->reduces ? choir__op_name(b->op) : "none", b->what->rooted ? 0 : -1,
            seconds * 1e6, algbw, busbw, wrong, algorithm(s, count));
    fflush(stdout);
}

/* --- a rank --- */

/* Pins rank i of the machine to the i-th core that this process may use, cyclically. */
static void pin(int local_rank)
{
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    int at = local_rank % CPU_COUNT(&allowed);
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && at-- == 0)
            CPU_SET(core, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

static choir_status open_on_gpu(choir__station *s, const char *gpu, size_t room)
{
    s->device = choir_device_find(gpu);
    if (!s->device)
        return CHOIR_ERR_DEVICE;
    s->block = choir__block_new(s->device, room ? room : 1);
    if (!s->block)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory: cannot allocate %zu bytes on %s: choose a smaller --max", room,
            gpu);
    s->out = choir__block_data(s->block);
    return CHOIR_OK;
}

/* Allocates input and output: in memory of the group, in private memory, or on the GPU. */
static choir_status open_station(choir__station *s, const choir__bench *b, int local_rank)
{
    char gpu[24];
    snprintf(gpu, sizeof gpu, "cuda:%d", local_rank);
    choir_group_opts opts = choir_group_defaults();
    opts.backend = b->backend;
    opts.algorithm = b->staged ? NULL : b->algorithm;
    opts.device = b->backend && strcmp(b->backend, "nccl") == 0 ? gpu : NULL;
    *s = (choir__station){.b = b};
    choir_status status = choir_group_init(NULL, opts, &s->group);
    if (status != CHOIR_OK)
        return status;
    const size_t each = (b->max + 4095) / 4096 * 4096;
    const size_t room = b->what->in_place ? each : 2 * each;
    s->rank = choir_group_rank(s->group);
    s->world = choir_group_world(s->group);
    if (opts.device) {
        if ((status = open_on_gpu(s, gpu, room)))
            return status;
    } else if (!b->staged) {
        if ((status = choir__shared_new(s->group, room, &s->shared)))
            return status;
        s->out = choir__shared_at(s->shared, s->rank);
    } else if (!(s->out = aligned_alloc(4096, room))) {
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory: cannot allocate %zu bytes: choose a smaller --max", room);
    }
    s->in = b->what->in_place ? s->out : s->out + each;
    return CHOIR_OK;
}

static void close_station(choir__station *s)
{
    if (s->b->staged)
        free(s->out);
    choir__block_free(s->block);
    choir__shared_free(s->shared);
    choir_group_free(s->group);
}

/* Runs one size and returns the number of wrong elements over all ranks. */
static int64_t run_size(const choir__station *s, size_t bytes)
{
    const choir__bench_collective *what = s->b->what;
    const size_t size = choir_dtype_size(s->b->dtype);
    const size_t parts = what->parts_in || what->parts_out ? (size_t)s->world : 1;
    const int64_t count = (int64_t)(bytes / size / parts);
    int64_t wrong = choir__bench_check(s, count);
    choir_check(choir_group_all_reduce(s->group, &wrong, 1, CHOIR_I64, CHOIR_SUM, NULL));
    double seconds = measure(s, count);
    if (s->rank == 0)
        print_line(s, (size_t)count * parts * size, count, seconds, wrong);
    return wrong;
}

int choir__bench_rank(const choir__bench *b, int local_rank)
{
    choir__station s;
    int64_t wrong = 0;
    pin(local_rank);
    choir_check(open_station(&s, b, local_rank));
    if (s.rank == 0 && !b->json)
        print_head(&s);
    for (size_t bytes = b->min; bytes <= b->max; bytes *= b->factor) {
        wrong += run_size(&s, bytes);
        if (bytes > b->max / b->factor || bytes == 0)
            break;
    }
    close_station(&s);
    return wrong != 0 || choir__line_flush() != CHOIR_OK;
}
