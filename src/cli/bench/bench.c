/* choir bench: how fast a collective is, size by size, in the columns of nccl-tests. This file:
 * the command line, and where ranks come from. They are forks, or, where a launcher has started
 * this process as one of several, they are there already. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/bench/bench.h"
#include "launch/launchers.h"
#include "comm/reduce.h"

static void print_help(void)
{
    printf("Usage: choir bench COLLECTIVE [OPTION]...\n"
           "Measures a collective over sizes, and checks what it does. COLLECTIVE:\n"
           "all_reduce all_gather reduce_scatter broadcast reduce gather scatter\n"
           "all_to_all sendrecv barrier. Under choir run, mpirun or srun it joins their\n"
           "ranks; else it starts some on this machine.\n"
           "\n"
           "  -n, --ranks N         ranks to start (2)\n"
           "      --backend NAME    shm, ucx, mpi (under mpirun or srun) or nccl (data on\n"
           "                        GPUs, cuda:K for rank K of the machine)\n"
           "      --min SIZE        smallest size in bytes, as 1K, 4M, 1G (1K)\n"
           "      --max SIZE        largest size (64M)\n"
           "      --factor F        from one size to the next (4)\n"
           "      --dtype TYPE      f32, f64, bf16, f16, i64, i32, u8 or bool (f32)\n"
           "      --op NAME         sum, mean, min, max, prod, band, bor or bxor (sum)\n"
           "      --algorithm NAME  exchange, direct, binomial, halving, hierarchical,\n"
           "                        ring, double_tree or native; by default chosen by\n"
           "                        size and place. staged: shm's, with data in private\n"
           "                        memory; all others have it where ranks can share it\n"
           "      --json            a JSON object a line\n"
           "      --help\n"
           "\n"
           "A size is what one rank has in the end (all_gather, gather: of all ranks) or\n"
           "in the beginning (scatter, reduce_scatter, all_to_all: for all ranks). time is\n"
           "the median, algbw size over time, busbw what a link carries, #wrong the\n"
           "elements that came out wrong.\n"
           "\n"
           "Example: choir bench all_reduce -n 2 --min 1K --max 64M --factor 4\n");
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

static int take_size(const char *option, const char *text, size_t *size)
{
    *size = parse_size(text);
    return *size ? 0
                 : choir__cli_usage("bench", "--%s '%s': want a size above 0, as 1K, 4M or 1G",
                       option, text);
}

static int take_dtype(const char *text, choir_dtype *dtype)
{
    for (int d = 0; d < CHOIR_DTYPE_COUNT; d++)
        if (strcmp(text, choir_dtype_name((choir_dtype)d)) == 0) {
            *dtype = (choir_dtype)d;
            return 0;
        }
    return choir__cli_usage(
        "bench", "--dtype '%s': there are f32, f64, bf16, f16, i64, i32, u8 and bool", text);
}

static int take_op(const char *text, choir_reduce_op *op)
{
    for (int o = 0; o < CHOIR_REDUCE_OP_COUNT; o++)
        if (strcmp(text, choir__op_name((choir_reduce_op)o)) == 0) {
            *op = (choir_reduce_op)o;
            return 0;
        }
    return choir__cli_usage(
        "bench", "--op '%s': there are sum, mean, min, max, prod, band, bor and bxor", text);
}

static int take_algorithm(choir__bench *b, const char *text)
{
    choir__algorithm known;
    b->algorithm = text;
    b->staged = strcmp(text, "staged") == 0;
    if (b->staged || choir__algorithm_parse(text, &known) == CHOIR_OK)
        return 0;
    return choir__cli_usage("bench", "--algorithm: %s, staged", choir_error_message());
}

/* 0: an option that makes sense; else the exit status. */
static int take_option(choir__bench *b, int option, const char *text, char **argv)
{
    switch (option) {
    case 'n':
        b->ranks = (int)choir__min((int64_t)parse_size(text), 1 << 20);
        return b->ranks >= 1 && b->ranks <= 64
                   ? 0
                   : choir__cli_usage("bench", "--ranks '%s': want 1 to 64", text);
    case 'm': return take_size("min", text, &b->min);
    case 'M': return take_size("max", text, &b->max);
    case 'f':
        b->factor = parse_size(text);
        return b->factor > 1 ? 0
                             : choir__cli_usage("bench", "--factor '%s': want 2 or more", text);
    case 'd': return take_dtype(text, &b->dtype);
    case 'o': return take_op(text, &b->op);
    case 'a': return take_algorithm(b, text);
    case 'b':
        b->backend = text;
        return !strcmp(text, "shm") || !strcmp(text, "ucx") || !strcmp(text, "mpi") ||
                       !strcmp(text, "nccl")
                   ? 0
                   : choir__cli_usage(
                         "bench", "--backend '%s': there are shm, ucx, mpi and nccl", text);
    case 'j': b->json = true; return 0;
    case ':': return choir__cli_usage("bench", "'%s' wants a value", argv[optind - 1]);
    default: return choir__cli_unknown("bench", argv);
    }
}

static int take_collective(choir__bench *b, int argc, char **argv)
{
    if (optind >= argc)
        return choir__cli_usage(
            "bench", "which collective? There are %s", choir__collective_names());
    b->what = choir__collective_find(argv[optind]);
    if (!b->what)
        return choir__cli_usage("bench", "there is no collective '%s'; there are %s",
            argv[optind], choir__collective_names());
    if (optind + 1 < argc)
        return choir__cli_usage("bench", "'%s': one collective at a time", argv[optind + 1]);
    if (b->what->reduces && !choir__arith_find(b->dtype, b->op))
        return choir__cli_usage("bench", "--op %s: %s have no such operation",
            choir__op_name(b->op), choir_dtype_name(b->dtype));
    return 0;
}

/* What can only be said now that it is known how many ranks there are. */
static int check_sizes(choir__bench *b)
{
    const bool parts = b->what->parts_in || b->what->parts_out;
    const size_t least = choir_dtype_size(b->dtype) * (parts ? (size_t)b->ranks : 1);
    if (b->what->kind == CHOIR__SEND && b->ranks < 2)
        return choir__cli_usage("bench", "sendrecv wants two ranks or more, not %d", b->ranks);
    if (b->what->kind == CHOIR__BARRIER) {
        b->min = b->max = 0;
        return 0;
    }
    if (b->min < least)
        return choir__cli_usage("bench", "--min %zu: below the %zu bytes of one element%s",
            b->min, least, parts ? " a rank" : "");
    if (b->max < b->min)
        return choir__cli_usage("bench", "--max %zu is below --min %zu", b->max, b->min);
    return 0;
}

/* --- ranks --- */

static int run_forked(int rank, int world, void *bench)
{
    (void)world;
    return choir__bench_rank(bench, rank);
}

/* One of a launcher's ranks. */
static int run_launched(choir__bench *b, const choir__launcher *launcher)
{
    if (b->ranks && b->ranks != launcher->world)
        return choir__cli_usage("bench", "--ranks %d, but there are %d: the launcher's (%s)",
            b->ranks, launcher->world, launcher->name);
    b->ranks = launcher->world;
    int status = check_sizes(b);
    if (status)
        return status;
    return choir__bench_rank(
        b, launcher->local_rank >= 0 ? launcher->local_rank : launcher->rank);
}

/* A rank has a GPU of its own. Asked of a process of its own: this one is to fork. */
static choir_status lack_gpus(const choir__bench *b)
{
    char why[512] = "";
    int count = choir__device_look("cuda", why, sizeof why);
    if (count >= b->ranks)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_DEVICE,
        "--backend nccl wants a GPU a rank: %d ranks, and %d GPUs here%s%s", b->ranks,
        count > 0 ? count : 0, *why ? ": " : "", why);
}

static int run(choir__bench *b)
{
    choir__launcher launcher;
    if (choir__launcher_find(false, &launcher))
        return choir__cli_fail();
    if (launcher.name)
        return run_launched(b, &launcher);
    if (b->backend && strcmp(b->backend, "mpi") == 0)
        return choir__cli_usage("bench",
            "--backend mpi: its ranks are mpirun's: mpirun -n %d choir bench %s --backend mpi",
            b->ranks ? b->ranks : 2, b->what->name);
    b->ranks = b->ranks ? b->ranks : 2;
    if (b->backend && strcmp(b->backend, "nccl") == 0 && lack_gpus(b))
        return choir__cli_fail();
    int status = check_sizes(b);
    if (status)
        return status;
    return choir_spawn(b->ranks, run_forked, b) ? choir__cli_fail() : CHOIR__EXIT_OK;
}

int choir__cli_bench(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"min", required_argument, NULL, 'm'},
        {"max", required_argument, NULL, 'M'},
        {"factor", required_argument, NULL, 'f'},
        {"dtype", required_argument, NULL, 'd'},
        {"op", required_argument, NULL, 'o'},
        {"algorithm", required_argument, NULL, 'a'},
        {"backend", required_argument, NULL, 'b'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    choir__bench b = {
        .min = 1 << 10, .max = 64 << 20, .factor = 4, .dtype = CHOIR_F32, .op = CHOIR_SUM};
    int option, status;
    opterr = 0;
    optind = 0; /* glibc: scan anew, whatever main has scanned */
    while ((option = getopt_long(argc, argv, ":n:h", options, NULL)) != -1) {
        if (option == 'h') {
            print_help();
            return choir__cli_flush() == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
        }
        if ((status = take_option(&b, option, optarg, argv)))
            return status;
    }
    status = take_collective(&b, argc, argv);
    return status ? status : run(&b);
}
