/* choir bench: how fast a collective is, size by size, in the columns of nccl-tests.
 *
 * The ranks are forks, each on a core of its own. A sample is a few calls back to back (small
 * ones cannot be timed singly) behind a barrier; a sample's time is the slowest rank's, a
 * size's time the median of its samples. Bandwidths are nccl-tests': algbw is bytes over time,
 * busbw scales it so that figures compare with what a link can carry whatever the number of
 * ranks. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/group.h>

#include "cli/cli.h"
#include "base/base.h"
#include "comm/group.h"

int choir__cli_bench(int argc, char **argv);

typedef struct collective collective;

typedef struct bench {
    const collective *what;
    int ranks;
    size_t min, max, factor; /* bytes */
    choir_dtype dtype;
    bool direct, json;
} bench;

/* One rank's side of a measurement. */
typedef struct station {
    const bench *b;
    choir_group *group;
    choir__shared *shared;
    char *data; /* room for max bytes */
} station;

struct collective {
    const char *name;
    choir_status (*run)(const station *s, size_t bytes);
    double (*bus)(int ranks);
    bool sums; /* its result is the ranks' sum; else as in filled() */
};

/* --- what is measured --- */

static choir_status run_all_reduce(const station *s, size_t bytes)
{
    return choir_group_all_reduce(s->group, s->data,
        (int64_t)(bytes / choir_dtype_size(s->b->dtype)), s->b->dtype, CHOIR_SUM, NULL);
}

static choir_status run_broadcast(const station *s, size_t bytes)
{
    return choir_group_broadcast(s->group, s->data, (int64_t)bytes, CHOIR_U8, 0, NULL);
}

/* bytes: all ranks' together, as nccl-tests count it. */
static choir_status run_all_gather(const station *s, size_t bytes)
{
    size_t each = bytes / (size_t)s->b->ranks;
    return choir_group_all_gather(s->group, s->data + (size_t)choir_group_rank(s->group) * each,
        s->data, (int64_t)each, CHOIR_U8, NULL);
}

static double bus_all_reduce(int n)
{
    return 2.0 * (n - 1) / n;
}

static double bus_all_gather(int n)
{
    return 1.0 * (n - 1) / n;
}

static double bus_broadcast(int n)
{
    return n > 0;
}

static const collective collectives[] = {
    {"all_reduce", run_all_reduce, bus_all_reduce, true},
    {"all_gather", run_all_gather, bus_all_gather, false},
    {"broadcast", run_broadcast, bus_broadcast, false},
};

/* --- right results --- */

/* Small whole numbers: their sums are exact in every type. */
static int filled(int rank, size_t i)
{
    return (int)((i + (size_t)rank * 3) % 11) - 4;
}

static void store(choir_dtype dtype, char *data, size_t i, int value)
{
    switch (dtype) {
    case CHOIR_F32: ((float *)(void *)data)[i] = (float)value; break;
    case CHOIR_F64: ((double *)(void *)data)[i] = value; break;
    case CHOIR_I64: ((int64_t *)(void *)data)[i] = value; break;
    default: ((int32_t *)(void *)data)[i] = value; break;
    }
}

static int expected(const bench *b, size_t i, size_t count)
{
    int sum = 0;
    if (b->what->run == run_all_gather)
        return filled((int)(i / (count / (size_t)b->ranks)), i);
    if (!b->what->sums)
        return filled(0, i);
    for (int r = 0; r < b->ranks; r++)
        sum += filled(r, i);
    return sum;
}

/* Elements that come out wrong on this rank. */
static int64_t check(const station *s, size_t bytes)
{
    const bench *b = s->b;
    size_t size = choir_dtype_size(b->dtype), count = bytes / size;
    int64_t wrong = 0;
    if (!b->what->sums) /* all_gather: ranks' equal parts */
        count = count / (size_t)b->ranks * (size_t)b->ranks;
    for (size_t i = 0; i < count; i++)
        store(b->dtype, s->data, i, filled(choir_group_rank(s->group), i));
    choir_check(b->what->run(s, count * size));
    for (size_t i = 0; i < count; i++) {
        char want[8];
        store(b->dtype, want, 0, expected(b, i, count));
        wrong += memcmp(want, s->data + i * size, size) != 0;
    }
    return wrong;
}

/* --- times --- */

enum { SAMPLES = 61 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of `calls` calls, the slowest rank's, behind a barrier. */
static double sample(const station *s, size_t bytes, int calls)
{
    choir_check(choir_group_barrier(s->group, NULL));
    double start = choir__now();
    for (int i = 0; i < calls; i++)
        choir_check(s->b->what->run(s, bytes));
    double took = choir__now() - start;
    choir_check(choir_group_all_reduce(s->group, &took, 1, CHOIR_F64, CHOIR_MAX, NULL));
    return took;
}

/* Median seconds a call. Rank 0's choice of how many calls a sample has is everybody's: the
 * time it rests on is the same on all ranks. */
static double measure(const station *s, size_t bytes)
{
    double times[SAMPLES], first = sample(s, bytes, 4) / 4;
    first = first > 1e-8 ? first : 1e-8;
    int calls = first > 50e-6 ? 1 : (int)(100e-6 / first) + 1;
    int samples = first > 20e-3 ? 11 : SAMPLES;
    for (int i = 0; i < samples; i++)
        times[i] = sample(s, bytes, calls) / calls;
    qsort(times, (size_t)samples, sizeof *times, by_size);
    return times[samples / 2];
}

static void print_head(const bench *b)
{
    printf("# choir bench %s: %d ranks on this machine, %s\n", b->what->name, b->ranks,
        b->direct ? "data in shared memory" : "data in private memory");
    printf("# %12s %13s %6s %6s %11s %9s %9s %7s\n", "size", "count", "type", "redop", "time",
        "algbw", "busbw", "#wrong");
    printf("# %12s %13s %6s %6s %11s %9s %9s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
        "(GB/s)");
}

static void print_line(const bench *b, size_t bytes, double seconds, int64_t wrong)
{
    double algbw = (double)bytes / seconds * 1e-9, busbw = algbw * b->what->bus(b->ranks);
    if (b->json)
        printf("{\"collective\":\"%s\",\"backend\":\"shm\",\"algorithm\":\"%s\",\"ranks\":%d,"
               "\"bytes\":%zu,\"time_us\":%.3f,\"algbw_gbs\":%.3f,\"busbw_gbs\":%.3f,"
               "\"wrong\":%" PRId64 "}\n",
            b->what->name, b->direct ? "direct" : "staged", b->ranks, bytes, seconds * 1e6,
            algbw, busbw, wrong);
    else
        printf("  %12zu %13zu %6s %6s %11.2f %9.2f %9.2f %7" PRId64 "\n", bytes,
            bytes / choir_dtype_size(b->dtype), choir_dtype_name(b->dtype),
            b->what->sums ? "sum" : "none", seconds * 1e6, algbw, busbw, wrong);
    fflush(stdout);
}

/* Rank i on the i-th core that this process may use, round and round. */
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

static int bench_rank(int rank, int world, void *arg)
{
    station s = {.b = arg};
    int64_t all_wrong = 0;
    (void)world;
    pin(rank);
    choir_check(choir_group_init(NULL, choir_group_defaults(), &s.group));
    if (s.b->direct) {
        choir_check(choir__shared_new(s.group, s.b->max, &s.shared));
        s.data = choir__shared_at(s.shared, rank);
    } else if (!(s.data = aligned_alloc(4096, (s.b->max + 4095) / 4096 * 4096))) {
        fprintf(
            stderr, "choir bench: no %zu bytes of memory: choose a smaller --max\n", s.b->max);
        return 1;
    }
    if (rank == 0 && !s.b->json)
        print_head(s.b);
    for (size_t bytes = s.b->min; bytes <= s.b->max; bytes *= s.b->factor) {
        int64_t wrong = check(&s, bytes);
        choir_check(choir_group_all_reduce(s.group, &wrong, 1, CHOIR_I64, CHOIR_SUM, NULL));
        double seconds = measure(&s, bytes);
        if (rank == 0)
            print_line(s.b, bytes, seconds, wrong);
        all_wrong += wrong;
        if (bytes > s.b->max / s.b->factor)
            break;
    }
    if (!s.b->direct)
        free(s.data);
    choir__shared_free(s.shared);
    choir_group_free(s.group);
    return all_wrong != 0 || choir__cli_flush() != CHOIR_OK;
}

/* --- the command line --- */

static const char help[] =
    "Usage: choir bench COLLECTIVE [OPTION]...\n"
    "Measures all_reduce, all_gather or broadcast over sizes.\n"
    "\n"
    "  -n, --ranks N         ranks to start on this machine (2)\n"
    "      --min SIZE        smallest size in bytes, as 1K, 4M, 1G (1K)\n"
    "      --max SIZE        largest size (64M)\n"
    "      --factor F        from one size to the next (4)\n"
    "      --dtype TYPE      f32, f64, i64 or i32 (f32)\n"
    "      --algorithm NAME  direct: data in memory the ranks share (the default);\n"
    "                        staged: data anywhere, copied through staging areas\n"
    "      --backend NAME    shm\n"
    "      --json            a JSON object a line\n"
    "      --help\n"
    "\n"
    "Example: choir bench all_reduce -n 2 --min 1K --max 64M --factor 4\n";

static int wrong_usage(const char *what, const char *value, const char *want)
{
    fprintf(stderr, "choir bench: %s '%s': %s\n", what, value, want);
    return 2;
}

/* A whole number above 0 with K, M or G behind it; 0 if it is none. */
static size_t parse_size(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (errno || end == text || *text == '-' || (shift ? end[1] : *end) || n > UINT64_MAX >> 34)
        return 0;
    return (size_t)n << shift;
}

static bool parse_dtype(const char *name, choir_dtype *dtype)
{
    static const choir_dtype known[] = {CHOIR_F32, CHOIR_F64, CHOIR_I64, CHOIR_I32};
    for (size_t i = 0; i < CHOIR_COUNT(known); i++)
        if (strcmp(name, choir_dtype_name(known[i])) == 0) {
            *dtype = known[i];
            return true;
        }
    return false;
}

/* 0: an option that makes sense; else the exit status. */
static int take_option(bench *b, int option, const char *value)
{
    static const char size[] = "want a size above 0, as 1K, 4M or 1G";
    switch (option) {
    case 'n':
        b->ranks = (int)choir__min((int64_t)parse_size(value), 1 << 20);
        return b->ranks >= 1 && b->ranks <= 64 ? 0
                                               : wrong_usage("--ranks", value, "want 1 to 64");
    case 'm': return (b->min = parse_size(value)) ? 0 : wrong_usage("--min", value, size);
    case 'M': return (b->max = parse_size(value)) ? 0 : wrong_usage("--max", value, size);
    case 'f':
        b->factor = parse_size(value);
        return b->factor > 1 ? 0 : wrong_usage("--factor", value, "want 2 or more");
    case 'd':
        return parse_dtype(value, &b->dtype)
                   ? 0
                   : wrong_usage("--dtype", value, "want f32, f64, i64 or i32");
    case 'a':
        b->direct = strcmp(value, "direct") == 0;
        return b->direct || strcmp(value, "staged") == 0
                   ? 0
                   : wrong_usage("--algorithm", value, "want direct or staged");
    case 'b':
        return strcmp(value, "shm") == 0
                   ? 0
                   : wrong_usage("--backend", value, "only shm is built in");
    case 'j': b->json = true; return 0;
    default: fprintf(stderr, "Try 'choir bench --help'.\n"); return 2;
    }
}

static int take_collective(bench *b, int argc, char **argv)
{
    static const char want[] = "want all_reduce, all_gather or broadcast";
    if (optind >= argc) {
        fprintf(stderr, "choir bench: which collective? %s\n", want);
        return 2;
    }
    for (size_t i = 0; i < CHOIR_COUNT(collectives); i++)
        if (strcmp(argv[optind], collectives[i].name) == 0)
            b->what = &collectives[i];
    if (!b->what)
        return wrong_usage("collective", argv[optind], want);
    if (optind + 1 < argc)
        return wrong_usage("argument", argv[optind + 1], "one collective at a time");
    size_t least = choir_dtype_size(b->dtype) * (b->what->sums ? 1 : (size_t)b->ranks);
    if (b->min < least) {
        fprintf(stderr, "choir bench: --min %zu: below the %zu bytes of one element%s\n",
            b->min, least, b->what->sums ? "" : " a rank");
        return 2;
    }
    if (b->max < b->min) {
        fprintf(stderr, "choir bench: --max %zu is below --min %zu\n", b->max, b->min);
        return 2;
    }
    return 0;
}

int choir__cli_bench(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"min", required_argument, NULL, 'm'},
        {"max", required_argument, NULL, 'M'},
        {"factor", required_argument, NULL, 'f'},
        {"dtype", required_argument, NULL, 'd'},
        {"algorithm", required_argument, NULL, 'a'},
        {"backend", required_argument, NULL, 'b'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    bench b = {.ranks = 2,
        .min = 1 << 10,
        .max = 64 << 20,
        .factor = 4,
        .dtype = CHOIR_F32,
        .direct = true};
    int option, status;
    optind = 0; /* glibc: scan anew, whatever main has scanned */
    while ((option = getopt_long(argc, argv, "n:h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if ((status = take_option(&b, option, optarg)))
            return status;
    }
    if ((status = take_collective(&b, argc, argv)))
        return status;
    if (choir_spawn(b.ranks, bench_rank, &b)) {
        fprintf(stderr, "choir bench: %s\n", choir_error_message());
        return 1;
    }
    return 0;
}
